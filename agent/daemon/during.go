package daemon

import (
	"kerninst/agent/isa"
	"kerninst/agent/ktext"
	"kerninst/agent/plan"
	"kerninst/agent/wire"
)

// A block whose time is taken has two points, of which the one where it is left comes behind
// the one where it is entered: both can be had, or neither.

// leaves reports whether a point is where something is left whose time is taken.
func leaves(p *wire.Point) bool {
	return len(p.Actions) > 0 && p.Actions[0].Timed == wire.Timed_LEAVES
}

// blocks lists the points of a function's blocks, each as a model is. Where they cannot be
// told, there is one point, whose plan says why.
func (d *Daemon) blocks(p, model *wire.Point) (out []*wire.Point) {
	all, r := plan.Blocks(d.text, plan.Request{Module: model.Module, Function: model.Function, Facts: d.facts, Known: d.known})
	if r != nil {
		model.Each = p.Each
		return []*wire.Point{model}
	}
	for _, b := range all {
		if uint64(b.Begin) < p.Offset {
			continue
		}
		for _, way := range []wire.Timed{wire.Timed_ENTERS, wire.Timed_LEAVES} {
			one := &wire.Point{Module: model.Module, Function: model.Function, Offset: uint64(b.Begin), Mechanism: model.Mechanism,
				Without: model.Without, Block: &wire.Block{Begin: uint64(b.Begin), End: uint64(b.End)}, Actions: model.Actions}
			if way == wire.Timed_LEAVES {
				one.Actions = leaving(model.Actions)
			}
			out = append(out, one)
		}
	}
	return out
}

// leaving is what is done where a block is left in which some of the actions are timed.
func leaving(all []*wire.Action) (out []*wire.Action) {
	for _, a := range all {
		if a.Timed != wire.Timed_UNTIMED {
			out = append(out, &wire.Action{Name: a.Name, Snippet: a.Snippet, Timed: wire.Timed_LEAVES})
		}
	}
	return out
}

// planBlock plans both points of a block, or none. A block that is refused has the first point's
// result.
func (d *Daemon) planBlock(ends []*wire.Point, plans *plan.Set, made []*plan.Plan, results []*wire.PointResult) (err error) {
	if made[0], results[0], err = d.plan(ends[0], plans, true); made[0] == nil {
		return err
	}
	plans.Add(made[0])
	ends[1].Offset = uint64(made[0].Offset) + 1
	if made[1], results[1], err = d.plan(ends[1], plans, true); made[1] != nil {
		plans.Add(made[1])
		return nil
	}
	plans.Remove(made[0])
	if !d.dry {
		d.splicer.Release(made[0])
	}
	r := results[1].GetRefusal()
	made[0], results[0], results[1] = nil, result(ends[0]), nil
	if r != nil {
		results[0].Refusal = &wire.Refusal{Reason: r.Reason, Class: r.Class, Detail: "where its block ends: " + r.Detail}
	}
	return err
}

// endOf finds where a block is entered or left: where the block says, unless all that is done
// there is as well done near it.
func endOf(p *wire.Point) func(*ktext.Text, plan.Request) (*plan.Plan, *plan.Refusal) {
	b := plan.Block{Begin: isa.Off(p.Block.Begin), End: isa.Off(p.Block.End)}
	if leaves(p) {
		return func(text *ktext.Text, req plan.Request) (*plan.Plan, *plan.Refusal) { return plan.Goes(text, req, b) }
	}
	_, actions, _ := compound(p.Actions) // what is wrong has been said
	loose := true
	for _, a := range actions {
		loose = loose && (a.timed != wire.Timed_UNTIMED || a.snippet.OnlyCounts())
	}
	return func(text *ktext.Text, req plan.Request) (*plan.Plan, *plan.Refusal) {
		return plan.Comes(text, req, b, loose)
	}
}
