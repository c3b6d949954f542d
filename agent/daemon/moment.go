package daemon

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"kerninst/agent/isa"
	"kerninst/agent/kdev"
	"kerninst/agent/ktext"
	"kerninst/agent/plan"
	"kerninst/agent/splice"
	"kerninst/agent/wire"
)

// moment reads the cells of every live splice. If any is of a function or block that is timed,
// that is at one moment, at which it is known who is inside.
func (d *Daemon) moment() (map[*splice.Live][]uint64, *wire.Moment, error) {
	if d.dev == nil { // the module has been unloaded, with all that counted
		return nil, nil, nil
	}
	timed := d.timed()
	if len(timed.names) == 0 && d.still {
		counts, err := d.countStill()
		return counts, nil, err
	}
	if len(timed.names) == 0 {
		return d.countAll(), nil, nil
	}
	if err := d.clocks.room(); err != nil {
		return nil, nil, err
	}
	live := d.splicer.Live()
	var cells []kdev.Cells
	for _, l := range live {
		for _, p := range l.Places() {
			if last := len(cells) - 1; last >= 0 && !p.Local && !cells[last].Local &&
				cells[last].Addr+isa.Addr(8*cells[last].Words) == p.Addr && cells[last].Words < longestList {
				cells[last].Words++
				continue
			}
			cells = append(cells, kdev.Cells{Addr: p.Addr, Words: 1, Local: p.Local})
		}
	}
	ranges, of := apart(d.within(timed, live))
	m, err := d.dev.Moment(cells, ranges, d.clocks.kept())
	if err != nil {
		return nil, nil, err
	}
	counts, at := map[*splice.Live][]uint64{}, 0
	for _, l := range live {
		n := l.Plan.Snippet.Words()
		counts[l] = l.Read(m.Words[at : at+n])
		at += n
	}
	return counts, timed.moment(m, of), nil
}

// longestList is how many words of cells are looked at as one.
const longestList = 1 << 12

// timed is all whose time is taken.
type timed struct {
	names []unit
	code  []stretchOf
	of    map[unit]bool // those that are there
}

// unit is a function, by the name that its halves have together, or a block of one.
type unit struct {
	function   string
	begin, end uint64 // both are 0: all of it
}

// stretchOf is code that is a unit's: a half of a function; or a block from where it is entered
// to where it is left.
type stretchOf struct {
	lo, hi isa.Addr
	of     int // the unit's number
}

func (d *Daemon) timed() timed {
	t := timed{of: map[unit]bool{}}
	for _, s := range d.sets {
		for i, l := range s.live {
			for _, a := range s.actions[i] {
				switch {
				case a.timed == wire.Timed_UNTIMED:
				case s.points[i].Block != nil:
					t.addEnd(unitOf(d.text, l, s.points[i].Block), l, a.timed)
				default:
					t.add(d.text, l)
				}
			}
		}
	}
	return t
}

// number is a unit's, which may be new.
func (t *timed) number(u unit) (n int, known bool) {
	if t.of[u] {
		return slices.Index(t.names, u), true
	}
	t.of[u], t.names = true, append(t.names, u)
	return len(t.names) - 1, false
}

// add adds a function, with all of its halves.
func (t *timed) add(text *ktext.Text, l *splice.Live) {
	f, ok := text.Locate(l.Plan.At())
	if !ok {
		return
	}
	n, known := t.number(unitOf(text, l, nil))
	if known {
		return
	}
	own := false
	for _, name := range plan.Halves(text, f.Module, f.Name) {
		if half, err := text.Function(f.Module, name); err == nil {
			own = own || half.Addr == f.Addr
			t.code = append(t.code, stretchOf{half.Addr, half.End(), n})
		}
	}
	if !own { // which has another name
		t.code = append(t.code, stretchOf{f.Addr, f.End(), n})
	}
}

// addEnd adds one of the two ends of a block. Who has been interrupted at an instruction is
// behind what is there for who enters, and not yet behind what is there for who leaves.
func (t *timed) addEnd(u unit, l *splice.Live, way wire.Timed) {
	n, known := t.number(u)
	if !known {
		t.code = append(t.code, stretchOf{of: n})
	}
	k := slices.IndexFunc(t.code, func(c stretchOf) bool { return c.of == n })
	if way == wire.Timed_ENTERS {
		t.code[k].lo = l.Plan.At()
	} else {
		t.code[k].hi = l.Plan.At()
	}
}

// unitOf is the unit that a splice is timed for.
func unitOf(text *ktext.Text, l *splice.Live, block *wire.Block) unit {
	f, _ := text.Locate(l.Plan.At())
	name := text.Known(f).Known()
	if block != nil {
		return unit{f.Module + ":" + name, block.Begin, block.End}
	}
	if halves := plan.Halves(text, f.Module, f.Name); plan.Half(name) {
		name = halves[len(halves)-1]
	}
	return unit{function: f.Module + ":" + name}
}

// within is the code that is each unit's: its own, and what runs instead of a part of it, which
// is where it is called to return to.
func (d *Daemon) within(t timed, live []*splice.Live) (out []stretchOf) {
	out = slices.Clone(t.code)
	add := func(at, a isa.Addr, n int) {
		for _, c := range t.code {
			if n > 0 && c.lo <= at && at < c.hi {
				out = append(out, stretchOf{a, a + isa.Addr(n), c.of})
			}
		}
	}
	moved := map[isa.Addr]bool{}
	for _, l := range live {
		add(l.Plan.At(), l.Plan.Patch, len(l.Plan.Code))
		if x := l.Plan.Annex; x != nil {
			add(l.Plan.At(), x.Addr, len(x.Code))
		}
		if e := l.Plan.Moves(); e != nil && !moved[e.Patch] {
			moved[e.Patch] = true
			add(e.Body, e.Patch, len(e.Copy))
		}
	}
	return out
}

// apart cuts code that may be several units' into ranges that do not overlap, each of which is
// of the same units throughout; Range.Of is the number of those in the list.
func apart(code []stretchOf) (ranges []kdev.Range, of [][]int) {
	var ends []isa.Addr
	code = slices.DeleteFunc(slices.Clone(code), func(c stretchOf) bool { return c.lo >= c.hi })
	for _, c := range code {
		ends = append(ends, c.lo, c.hi)
	}
	slices.Sort(ends)
	slices.SortFunc(code, func(a, b stretchOf) int { return cmp.Compare(a.lo, b.lo) })
	numbers := map[string]int{}
	var there []stretchOf // those that the address is in
	for k, lo := range slices.Compact(ends) {
		there = slices.DeleteFunc(there, func(c stretchOf) bool { return c.hi <= lo })
		for ; len(code) > 0 && code[0].lo == lo; code = code[1:] {
			there = append(there, code[0])
		}
		if len(there) == 0 {
			continue
		}
		var units []int
		for _, c := range there {
			units = append(units, c.of)
		}
		slices.Sort(units)
		units = slices.Compact(units)
		n, known := numbers[fmt.Sprint(units)]
		if !known {
			n = len(of)
			numbers[fmt.Sprint(units)], of = n, append(of, units)
		}
		ranges = append(ranges, kdev.Range{Start: lo, End: ends[k+1], Of: n})
	}
	return ranges, of
}

// moment says of which units each task is inside, by what apart has told.
func (t timed) moment(m kdev.Moment, of [][]int) *wire.Moment {
	out := &wire.Moment{Cycles: m.Cycles, Ns: m.NS, Cut: uint32(m.Cut)}
	for _, i := range m.Inside {
		for _, n := range of[i.Of] {
			in := &wire.Moment_Inside{Process: i.Process, Thread: i.Thread, Comm: strings.ToValidUTF8(i.Comm, "\uFFFD"), Function: t.names[n].function, Frames: uint32(i.Frames), Clock: i.Clock}
			if u := t.names[n]; u.end > 0 {
				in.Block = &wire.Block{Begin: u.begin, End: u.end}
			}
			out.Inside = append(out.Inside, in)
		}
	}
	return out
}
