package daemon

import (
	"context"
	"errors"
	"fmt"

	"kerninst/agent/isa"
	"kerninst/agent/ktext"
	"kerninst/agent/plan"
	"kerninst/agent/wire"
)

// cloned reports whether a point is to be in a clone.
func cloned(p *wire.Point) bool { return p.Mechanism == plan.Clone.String() }

// group is the points that are in one clone.
type group struct {
	first  ktext.Func // where it is entered
	points []int
}

// groups are the clones that points ask for, in the order of their first points. A point whose
// function is not there gets a result that says so.
func (d *Daemon) groups(all []*wire.Point, results []*wire.PointResult) (out []*group) {
	of := map[isa.Addr]*group{}
	for k, p := range all {
		if !cloned(p) {
			continue
		}
		f, err := d.text.Function(p.Module, ktext.Hot(p.Function))
		if err == nil && p.Until != "" {
			err = errors.New("a range of functions is not cloned")
		}
		if err != nil {
			results[k] = result(p)
			results[k].Refusal = &wire.Refusal{Reason: plan.NoSuchFunction.String(), Detail: err.Error()}
			continue
		}
		if of[f.Addr] == nil {
			of[f.Addr] = &group{first: f}
			out = append(out, of[f.Addr])
		}
		of[f.Addr].points = append(of[f.Addr].points, k)
	}
	return out
}

// planClones plans the points that are to be in clones, and the clones' entries.
func (d *Daemon) planClones(ctx context.Context, all []*wire.Point, plans *plan.Set, ones []*plan.Plan, results []*wire.PointResult) (entries []*plan.Plan, err error) {
	for _, g := range d.groups(all, results) {
		if err := d.unwanted(ctx); err != nil {
			return entries, err
		}
		entry, err := d.planClone(all, g, plans, ones, results)
		if err != nil {
			return entries, err
		}
		if entry == nil {
			continue
		}
		entries = append(entries, entry)
		plans.Add(entry)
		for _, k := range g.points {
			if ones[k] != nil {
				plans.Add(ones[k])
			}
		}
	}
	return entries, nil
}

// planClone plans one; nil: it is refused, and so are its points.
func (d *Daemon) planClone(all []*wire.Point, g *group, plans *plan.Set, ones []*plan.Plan, results []*wire.PointResult) (*plan.Plan, error) {
	var req plan.Request
	var inserts []plan.Insert
	for _, k := range g.points {
		p := all[k]
		results[k] = result(p)
		one, err := d.request(withoutMechanism(p), plans)
		if err != nil {
			return nil, err
		}
		f, err := d.text.Function(p.Module, p.Function)
		if err != nil {
			return nil, err
		}
		req, req.Wanted = one, nil
		inserts = append(inserts, plan.Insert{Func: f, Offset: isa.Off(p.Offset), Entry: p.Entry, Snippet: one.Snippet})
	}
	d.stages.enter(stagePlan)
	defer d.stages.enter("")
	c, refusal := plan.AsClone(d.text, req, []ktext.Func{g.first}, inserts)
	var err error
	if refusal == nil {
		d.stages.enter(stageForeign)
		if refusal, err = d.foreign(c.Entry); !req.Dry && (err != nil || refusal != nil) {
			d.splicer.Release(c.Entry)
		}
	}
	if err != nil {
		return nil, err
	}
	for n, k := range g.points {
		switch {
		case refusal != nil:
			results[k].Refusal = refused(refusal)
		case c.Why[n] != nil:
			results[k].Refusal = refused(c.Why[n])
		case all[k].Each != wire.Each_ITSELF || all[k].Search || timing(all[k]) || covers(all[k]) || all[k].Block != nil:
			results[k].Refusal = &wire.Refusal{Reason: plan.UnsupportedMechanism.String(), Detail: fmt.Sprintf("%s: clones have points, and no searches or times, yet", results[k].Spec)}
		default:
			ones[k] = c.Points[n]
			results[k] = located(ones[k], results[k])
		}
	}
	if refusal != nil {
		return nil, nil
	}
	return c.Entry, nil
}

func withoutMechanism(p *wire.Point) *wire.Point {
	return &wire.Point{Module: p.Module, Function: p.Function, Offset: p.Offset, Actions: p.Actions, Without: p.Without}
}
