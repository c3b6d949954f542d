package daemon

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"kerninst/agent/isa"
	"kerninst/agent/plan"
	"kerninst/agent/wire"
)

// onlyPlan says what each point of a step would get if it were the only one: as with
// splice, but nothing is written, and no point takes what another may need. What is live
// would be in their way, so nothing may be.
func (d *Daemon) onlyPlan(ctx context.Context, _ string, s *wire.Splice, res *wire.Result) error {
	switch {
	case len(d.splicer.Live()) > 0:
		return fmt.Errorf("%d splices are live, and what is planned alone has the kernel for itself: unsplice them first", len(d.splicer.Live()))
	case s.Announce || s.Most > 0:
		return errors.New("a step that only plans announces nothing and leaves no point out: leave announce and most away")
	}
	if err := d.seeModules(modulesOf(s.Points)); err != nil {
		return err
	}
	d.known, d.dry = &plan.Functions{}, true
	defer func() { d.known, d.dry = nil, false }()
	points, err := d.expand(ctx, s)
	if err != nil {
		return err
	}
	for k, p := range points {
		if p.Block != nil && leaves(p) { // with the one before
			continue
		}
		if err := d.unwanted(ctx); err != nil {
			return err
		}
		results, err := d.planAlone(points[k:])
		if err != nil {
			return err
		}
		for n, r := range results {
			if r.Refusal != nil && !s.SkipRefused {
				return fmt.Errorf("%s: %s", r.Refusal.Reason, r.Refusal.Detail)
			}
			v := verdict(r)
			d.place(v, points[k+n])
			res.Points = append(res.Points, v)
		}
	}
	if s.Choose {
		if res.Clones, err = d.chosenAlone(ctx, points); err != nil {
			return err
		}
	}
	res.Planned = &wire.Planned{Lse: d.info.LSE(), NoWindows: d.info.NoWindows(), Preempted: d.info.Preempted(), NoTraps: !d.info.Traps(), Indexed: d.index.size > 0}
	if d.index.err != nil {
		res.Planned.IndexError = d.index.err.Error()
	}
	res.Planned.Clocks, err = d.clocksAlone(s)
	return err
}

// chosenAlone are the clones that a step would have that it does not ask for.
func (d *Daemon) chosenAlone(ctx context.Context, points []*wire.Point) ([]*wire.Clone, error) {
	points, d.chosen = d.choose(points)
	defer func() { d.chosen = nil }()
	c, err := d.planClones(ctx, points, nil, &plan.Set{}, make([]*plan.Plan, len(points)), make([]*wire.PointResult, len(points)))
	return c.said, err
}

// clocksAlone is what keeps the clocks that a step would ask for; nil: it would ask for none.
func (d *Daemon) clocksAlone(s *wire.Splice) (*wire.PointResult, error) {
	reads, err := clocked(s.Points)
	if err != nil || reads == nil {
		return nil, err
	}
	_, r, err := d.planSwitch(reads, &plan.Set{})
	if err != nil {
		return nil, err
	}
	v := verdict(r)
	d.place(v, &wire.Point{Function: r.Symbol, Offset: r.Offset})
	return v, nil
}

// planAlone plans the first of some points, or the first two if they are a block's.
func (d *Daemon) planAlone(points []*wire.Point) ([]*wire.PointResult, error) {
	if points[0].Block == nil {
		_, r, err := d.plan(points[0], &plan.Set{}, true)
		return []*wire.PointResult{r}, err
	}
	made, results := make([]*plan.Plan, 2), make([]*wire.PointResult, 2)
	err := d.planBlock(points[:2], &plan.Set{}, made, results)
	return slices.DeleteFunc(results, func(r *wire.PointResult) bool { return r == nil }), err
}

// verdict is what is left of a result if nothing is spliced.
func verdict(r *wire.PointResult) *wire.PointResult {
	return &wire.PointResult{Spec: r.Spec, Symbol: r.Symbol, Offset: r.Offset, Address: r.Address,
		Mechanism: r.Mechanism, Refusal: r.Refusal, RunsAt: r.RunsAt}
}

// place says what is at the address of a point, also of one that is refused.
func (d *Daemon) place(v *wire.PointResult, p *wire.Point) {
	if f, err := d.text.Function(p.Module, p.Function); v.Address == 0 && err == nil {
		v.Address = uint64(f.Addr) + p.Offset
	}
	v.Instruction = d.instruction(isa.Addr(v.Address))
	v.LeadsTo, v.LeadsBy = d.leads(isa.Addr(v.Address))
}
