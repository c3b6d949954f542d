package daemon

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"path"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"kerninst/agent/cfg"
	"kerninst/agent/isa"
	"kerninst/agent/kdev"
	"kerninst/agent/ktext"
	"kerninst/agent/plan"
	"kerninst/agent/wire"
)

// eaches are the planner's names of the protocol's.
var eaches = map[wire.Each]plan.Each{
	wire.Each_INSTRUCTION: plan.EachInstruction, wire.Each_BLOCK: plan.EachBlock, wire.Each_CALL: plan.EachCall, wire.Each_RETURN: plan.EachReturn,
}

// expand lists the points that a step asks for: those of all functions that a name matches,
// and in each those that Each stands for. One that is asked for twice is there once, and does
// what is asked for in either way.
func (d *Daemon) expand(ctx context.Context, s *wire.Splice) (out []*wire.Point, err error) {
	at := map[string]int{}
	for _, p := range s.Points {
		several, err := d.ones(p)
		if err != nil {
			return nil, err
		}
		for ones := range several {
			if err := d.unwanted(ctx); err != nil {
				return nil, err
			}
			for _, one := range ones {
				key := d.key(one)
				k, there := at[key]
				switch several := one != p; {
				case there && len(one.Actions) > 0:
					both, ok := joined(out[k], one)
					if !ok {
						return nil, fmt.Errorf("kinst:%s:%s:%d is asked for twice, with actions that have one name and are not the same", one.Module, one.Function, one.Offset)
					}
					out[k] = both
				case there && several:
				default:
					at[key] = len(out)
					out = append(out, one)
				}
			}
			if n := int(s.Limit); n > 0 && len(out) > n { // all of a kernel's would not fit into a guest
				return nil, fmt.Errorf("more than %d points match: ask for fewer, or say with --yes that so many are meant", n)
			}
		}
	}
	return d.joinEntries(out)
}

// ones lists the points that one stands for, function by function.
func (d *Daemon) ones(p *wire.Point) (iter.Seq[[]*wire.Point], error) {
	if p.Until != "" {
		return d.inRange(p)
	}
	names, err := d.matching(p)
	return func(yield func([]*wire.Point) bool) {
		for _, name := range names {
			if !yield(d.each(p, name)) {
				return
			}
		}
	}, err
}

// key is the same of points that are one: a function may have several names.
func (d *Daemon) key(p *wire.Point) string {
	function := p.Function
	if f, err := d.text.Function(p.Module, p.Function); err == nil && p.Function != "" {
		function = f.Addr.String()
	}
	return fmt.Sprint(p.Module, ":", function, ":", p.Offset, p.Entry, p.Search, p.Each, p.Text, p.SameAs, p.Block.GetEnd(), p.Block != nil && leaves(p), p.Within, p.Place, p.Mechanism)
}

// joined is a point that does what two do; not ok if they mean different things by one name.
func joined(a, b *wire.Point) (both *wire.Point, ok bool) {
	both = proto.Clone(a).(*wire.Point)
	for _, x := range b.Actions {
		k := slices.IndexFunc(both.Actions, func(y *wire.Action) bool { return y.Name == x.Name })
		switch {
		case k < 0:
			both.Actions = append(both.Actions, x)
		case !proto.Equal(both.Actions[k], x):
			return nil, false
		}
	}
	return both, true
}

// joinEntries has what is asked of a function's entry done at an instruction that is asked
// for itself, if that is the one that would be taken: no two splices can be there.
func (d *Daemon) joinEntries(all []*wire.Point) ([]*wire.Point, error) {
	themselves := d.themselves(all)
	gone := map[*wire.Point]bool{}
	for k, p := range all {
		if k > 0 && k%together == 0 {
			d.forget()
		}
		if !p.Entry || len(p.Actions) == 0 {
			continue
		}
		to, err := d.entryAmong(p, themselves)
		if err != nil {
			return nil, err
		}
		if to < 0 {
			continue
		}
		if both, ok := joined(all[to], p); ok {
			all[to], gone[p] = both, true
		}
	}
	return slices.DeleteFunc(all, func(p *wire.Point) bool { return gone[p] }), nil
}

// themselves are the instructions that are asked for themselves: the points' numbers, by
// functions and offsets.
func (d *Daemon) themselves(all []*wire.Point) map[isa.Addr]map[isa.Off]int {
	out := map[isa.Addr]map[isa.Off]int{}
	for k, p := range all {
		f, err := d.text.Function(p.Module, p.Function)
		if err != nil || p.Entry || p.Search || p.Each != wire.Each_ITSELF || p.Block != nil || len(p.Actions) == 0 {
			continue
		}
		if out[f.Addr] == nil {
			out[f.Addr] = map[isa.Off]int{}
		}
		out[f.Addr][isa.Off(p.Offset)] = k
	}
	return out
}

// entryAmong is which of those the entry of a function would be had at; -1: at none.
func (d *Daemon) entryAmong(p *wire.Point, themselves map[isa.Addr]map[isa.Off]int) (int, error) {
	f, err := d.text.Function(p.Module, p.Function)
	if err != nil || len(themselves[f.Addr]) == 0 {
		return -1, nil // its plan says what is wrong
	}
	first := slices.Min(slices.Collect(maps.Keys(themselves[f.Addr])))
	if first >= d.known.Straight(d.text, p.Module, p.Function) {
		return -1, nil
	}
	req, err := d.request(p, &plan.Set{})
	if err != nil {
		return -1, err
	}
	req.Dry = true
	if made, refusal := plan.Entry(d.text, req); refusal == nil {
		if k, ok := themselves[f.Addr][made.Offset]; ok {
			return k, nil
		}
	}
	return -1, nil
}

// matching lists the functions that a point's name stands for. A name that is no pattern
// stands for itself, whether it is there or not: its plan says what is wrong with it.
func (d *Daemon) matching(p *wire.Point) (out []string, err error) {
	if !strings.ContainsAny(p.Function, `*?[\`) {
		if f, err := d.text.Function(p.Module, p.Function); err == nil && ktext.Base(p.Function) != p.Function {
			return []string{f.Known()}, nil // whichever way it was chosen
		}
		return []string{p.Function}, nil
	}
	if _, err := path.Match(p.Function, ""); err != nil {
		return nil, fmt.Errorf("%q is no pattern of names: %w", p.Function, err)
	}
	if p.Module == kdev.ModuleName {
		return nil, fmt.Errorf("%s is the module that splices", p.Module)
	}
	literal := p.Function[:strings.IndexAny(p.Function, `*?[\`)]
	for _, f := range d.text.Named(p.Module, literal, func(name string) bool {
		ok, _ := path.Match(p.Function, name)
		return ok && !cfg.IsPaddingName(name) && !plan.Half(name)
	}) {
		if p.Module != "" || d.stays(f) {
			out = append(out, d.text.Known(f).Known())
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("kinst:%s:%s: no function matches", p.Module, p.Function)
	}
	return out, nil
}

// stays reports whether a function of the kernel's is still there: what only its start needs is
// gone since boot.
func (d *Daemon) stays(f ktext.Func) bool {
	lo, hi := d.text.Bounds()
	return f.Addr >= lo && f.Addr < hi
}

// each lists the points of one function. Where they cannot be told, there is one point,
// whose plan says why.
func (d *Daemon) each(p *wire.Point, name string) (out []*wire.Point) {
	at := func(name string, off uint64) *wire.Point {
		return &wire.Point{Module: p.Module, Function: name, Offset: off, Search: p.Search, Entry: p.Entry, Mechanism: p.Mechanism,
			Without: p.Without, Cheap: p.Cheap, Actions: p.Actions, Apart: p.Apart, Jumps: p.Jumps}
	}
	switch {
	case p.Each == wire.Each_ITSELF && name == p.Function: // which may be named in other ways
		return []*wire.Point{p}
	case p.Each == wire.Each_ITSELF:
		return []*wire.Point{at(name, p.Offset)}
	case p.Each == wire.Each_BLOCK && timing(p):
		return d.blocks(p, at(name, p.Offset))
	}
	halves := []string{name}
	if p.Each == wire.Each_RETURN {
		halves = plan.Halves(d.text, p.Module, name)
	}
	for _, half := range halves {
		offsets, r := d.offsets(p, half)
		if r != nil {
			refused := at(half, p.Offset)
			refused.Each = p.Each
			out = append(out, refused)
			continue
		}
		for _, off := range offsets {
			if off >= isa.Off(p.Offset) {
				out = append(out, at(half, uint64(off)))
			}
		}
	}
	return out
}

func (d *Daemon) offsets(p *wire.Point, function string) ([]isa.Off, *plan.Refusal) {
	return plan.Offsets(d.text, plan.Request{Module: p.Module, Function: function, Facts: d.facts, Known: d.known}, eaches[p.Each])
}

// instruction is the disassembly of what is at an address; "" where nothing can be read.
func (d *Daemon) instruction(a isa.Addr) string {
	code := make([]byte, longest)
	if a == 0 || d.text.Read(a, code) != nil {
		return ""
	}
	return d.arch.Text(code, a)
}

// longest is the most that an instruction takes, in bytes.
const longest = 16
