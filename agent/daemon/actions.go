package daemon

import (
	"errors"
	"fmt"
	"slices"

	"kerninst/agent/isa"
	"kerninst/agent/metric"
	"kerninst/agent/plan"
	"kerninst/agent/snippet"
	"kerninst/agent/splice"
	"kerninst/agent/wire"
)

// action is one of those that a point's patch does, and where its cells are among
// the patch's.
type action struct {
	name    string
	snippet snippet.Snippet
	cell    int // number of its first
	timed   wire.Timed
	code    uint32 // which words of its keys are addresses of code
}

// compound makes one snippet of all actions of a point.
func compound(all []*wire.Action) (snippet.Snippet, []action, error) {
	if len(all) == 0 {
		return snippet.Counter(), []action{{snippet: snippet.Counter()}}, nil
	}
	var parts []snippet.Snippet
	var out []action
	for _, a := range all {
		s, err := snippet.Parse(a.Snippet)
		if err != nil {
			return snippet.Snippet{}, nil, fmt.Errorf("action %q: %w", a.Name, err)
		}
		if slices.ContainsFunc(out, func(b action) bool { return b.name == a.Name }) {
			return snippet.Snippet{}, nil, fmt.Errorf("action %q is given twice", a.Name)
		}
		parts, out = append(parts, s), append(out, action{name: a.Name, snippet: s, timed: a.Timed, code: a.CodeKeys})
	}
	whole, first := snippet.Join(parts...)
	for k := range out {
		out[k].cell = first[k]
	}
	if err := whole.Check(); err != nil && len(parts) > 1 {
		return whole, out, fmt.Errorf("%d actions at one point are too many together: %w", len(parts), err)
	}
	return whole, out, whole.Check()
}

// add notes a plan that was made for a point.
func (s *set) add(p *wire.Point, made *plan.Plan, res *wire.PointResult) {
	_, actions, _ := compound(p.Actions) // it was planned: it is right
	s.specs, s.actions = append(s.specs, res.Spec), append(s.actions, actions)
	res.Tags = tagsOf(made.Snippet, actions)
	s.results = append(s.results, res)
	s.points = append(s.points, &wire.Point{Module: made.Module, Function: made.Symbol, Offset: uint64(made.Offset),
		Mechanism: p.Mechanism, Cheap: p.Cheap, Actions: p.Actions, Block: p.Block})
}

// words is the part of a patch's words that are an action's.
func (a action) words(whole snippet.Snippet, words []uint64) []uint64 {
	at := whole.Word(a.cell)
	return words[at : at+a.snippet.Words()]
}

// values says what the actions of the i-th point have found, with or without records.
func (s *set) values(i int, l *splice.Live, now, since []uint64, of names, records bool) (out []*wire.Value) {
	p := l.Plan
	for _, a := range s.actions[i] {
		r := metric.Read(a.snippet, a.words(p.Snippet, now), a.words(p.Snippet, since))
		v := &wire.Value{Spec: s.specs[i], Symbol: p.Symbol, Offset: uint64(p.Offset), Action: a.name,
			Count: r.Count, Bounded: r.Bounded, Bound: r.Bound, Signed: r.Signed, Dropped: r.Dropped, Holes: r.Holes, Faults: r.Faults, Lost: r.Lost}
		if a.timed != wire.Timed_UNTIMED {
			v.Timed, v.Block = a.timed, s.points[i].Block
			v.Function = unitOf(of.text, l, v.Block).function
		}
		if len(r.Sums) > 1 {
			v.Rows = append(v.Rows, &wire.Row{Values: r.Sums})
		}
		for _, row := range r.Rows {
			v.Rows = append(v.Rows, &wire.Row{Keys: row.Keys[:], Values: row.Values})
			a.nameKeys(v, row.Keys[:], of)
		}
		if !records {
			r.Records = nil
		}
		for _, rec := range r.Records {
			w := &wire.TraceRecord{Number: rec.Number, Fields: rec.Fields}
			if r.Stacks {
				w.Symbols = of.stack(rec.Fields)
			}
			v.Records = append(v.Records, w)
		}
		out = append(out, v)
	}
	return out
}

// nameKeys names those of a row's keys that are addresses of code: functions as probes are asked for
// there, others with how far in they are. What is nowhere keeps its number.
func (a action) nameKeys(v *wire.Value, keys []uint64, of names) {
	for k, at := range keys {
		if a.code>>k&1 == 0 {
			continue
		}
		where := of.kernels(isa.Addr(at))
		f, ok := of.text.Locate(where)
		if !ok {
			continue
		}
		if v.Symbols == nil {
			v.Symbols = map[uint64]string{}
		}
		v.Symbols[at] = of.text.Known(f).String()
		if in := where - f.Addr; in > 0 {
			v.Symbols[at] += fmt.Sprintf("+%#x", uint64(in))
		}
	}
}

// remove takes one action away from all points of a step: their splices are undone,
// which waits until nobody is in their patches, and planned and made anew with the
// rest, which go on from what their cells hold.
func (d *Daemon) remove(name, what string) error {
	old := d.sets[name]
	if old == nil {
		return fmt.Errorf("step %q has no live splices", name)
	}
	if len(old.entries) > 0 {
		return fmt.Errorf("step %q has points in clones, which are made once: undo all of it", name)
	}
	rest, err := old.without(what)
	if err != nil {
		return fmt.Errorf("step %q: %w", name, err)
	}
	if err := d.splicer.Undo(old.live); err != nil {
		return err
	}
	delete(d.sets, name)
	made := &set{}
	var plans []*plan.Plan
	var before plan.Set
	var cells, base [][]uint64
	for i, p := range rest {
		one, r, err := d.plan(p, &before, true)
		if err == nil && one == nil {
			err = errors.New(r.Refusal.Detail)
		}
		if err != nil {
			d.splicer.Release(plans...)
			return fmt.Errorf("the splices of step %q are gone: without %s, %s cannot be spliced again: %w", name, what, old.specs[i], err)
		}
		plans = append(plans, one)
		before.Add(one)
		made.add(p, one, r)
		l := old.live[i]
		cells = append(cells, old.keep(i, made.actions[i], l.Words()))
		base = append(base, old.keep(i, made.actions[i], d.base[l]))
	}
	if made.live, err = d.splicer.ApplyFrom(plans, cells); err != nil {
		return err
	}
	d.sets[name], d.counts = made, nil
	for i, l := range made.live {
		d.base[l] = base[i]
	}
	return d.stopClocks()
}

// without lists the points of a set with all of their actions but one.
func (s *set) without(what string) (out []*wire.Point, err error) {
	for i, p := range s.points {
		var left []*wire.Action
		for _, a := range p.Actions {
			if a.Name != what {
				left = append(left, a)
			}
		}
		if len(left) == len(p.Actions) || len(left) == 0 {
			return nil, fmt.Errorf("%s: %q is not one of several actions", s.specs[i], what)
		}
		out = append(out, &wire.Point{Module: p.Module, Function: p.Function, Offset: p.Offset, Mechanism: p.Mechanism, Without: p.Without, Actions: left, Block: p.Block})
	}
	return out, nil
}

// keep takes the words of some of a point's actions out of those of all.
func (s *set) keep(i int, left []action, words []uint64) (out []uint64) {
	for _, l := range left {
		for _, a := range s.actions[i] {
			if a.name == l.name {
				out = append(out, a.words(s.live[i].Plan.Snippet, words)...)
			}
		}
	}
	return out
}
