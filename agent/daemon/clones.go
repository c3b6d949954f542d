package daemon

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"kerninst/agent/isa"
	"kerninst/agent/ktext"
	"kerninst/agent/plan"
	"kerninst/agent/splice"
	"kerninst/agent/wire"
)

// cloned reports whether a point is to be in a clone.
func cloned(p *wire.Point) bool { return p.Mechanism == plan.Clone.String() }

// group is a clone: what is in it, and the points that it has.
type group struct {
	functions []ktext.Func // the first is entered
	points    []int
	growing   *growing // nil: it is what it is
	chosen    *chosen  // nil: somebody has asked for it
}

func (g *group) add(f ktext.Func) {
	if !slices.ContainsFunc(g.functions, func(h ktext.Func) bool { return h.Addr == f.Addr }) {
		g.functions = append(g.functions, f)
	}
}

// entered is the function where a clone is, by its name, with its module's and a colon in front if it is of one.
func (d *Daemon) entered(name string) (ktext.Func, error) {
	module, function, ok := strings.Cut(name, ":")
	if !ok {
		module, function = "", name
	}
	return d.text.Function(module, function)
}

// clones are those of a step.
type clones struct {
	entries []*plan.Plan
	spliced []*splice.Live // the entries, when they are live
	said    []*wire.Clone  // the first are of those that grow
	growing []*growing
	made    []*plan.Cloned // of those, until they know it; nil: refused
	refused []*wire.Clone  // of those that would have grown
}

// grew has those that grow know what became of them. What is refused does not grow.
func (c *clones) grew() {
	var growing []*growing
	var said []*wire.Clone
	for k, m := range c.made {
		if m == nil {
			c.refused = append(c.refused, c.said[k])
			continue
		}
		c.growing[k].made(m)
		growing, said = append(growing, c.growing[k]), append(said, c.said[k])
	}
	c.said, c.growing, c.made = append(said, c.said[len(c.made):]...), growing, nil
}

// hot is the function that one of this name is, or is a half of.
func (d *Daemon) hot(module, name string) (ktext.Func, error) {
	f, err := d.text.Function(module, name)
	if err == nil {
		return plan.WholeOf(d.text, f, d.known)
	}
	if plan.Half(name) { // of several halves of the name it is one
		return d.text.Function(module, plan.Hot(name))
	}
	return f, err
}

// groups are the clones that points ask for, in the order of their first points, and those that
// grow. A point whose function is not there gets a result that says so.
func (d *Daemon) groups(all []*wire.Point, grow []*growing, results []*wire.PointResult) (out []*group) {
	of := map[isa.Addr]*group{}
	for _, g := range grow {
		one := &group{functions: g.functions, growing: g}
		of[g.functions[0].Addr], out = one, append(out, one)
	}
	for k, p := range all {
		if !cloned(p) {
			continue
		}
		f, err := d.hot(p.Module, p.Function)
		first := f
		if err == nil && p.Within != "" {
			first, err = d.entered(p.Within)
		}
		if err != nil {
			results[k] = result(p)
			results[k].Refusal = &wire.Refusal{Reason: plan.NoSuchFunction.String(), Detail: err.Error()}
			continue
		}
		g := of[first.Addr]
		if g == nil {
			g = &group{functions: []ktext.Func{first}, chosen: d.chosen[first.Addr]}
			of[first.Addr], out = g, append(out, g)
		}
		g.add(f)
		g.points = append(g.points, k)
	}
	return out
}

// planClones plans the points that are to be in clones, and the clones' entries.
func (d *Daemon) planClones(ctx context.Context, all []*wire.Point, grow []*growing, plans *plan.Set, ones []*plan.Plan, results []*wire.PointResult) (c clones, err error) {
	c.growing = grow
	groups := d.groups(all, grow, results)
	if len(groups) > 0 {
		defer func(was func(lo, hi isa.Addr) bool) { d.probed = was }(d.probed)
		d.probed = orListed(d.probed)
	}
	for _, g := range groups {
		if err := d.unwanted(ctx); err != nil {
			return c, err
		}
		made, said, err := d.planClone(all, g, plans, ones, results)
		if err != nil {
			return c, err
		}
		if made == nil && g.chosen != nil {
			g.chosen.back(all, results)
			continue
		}
		c.said = append(c.said, said)
		if g.growing != nil {
			c.made = append(c.made, made)
		}
		if made == nil {
			continue
		}
		c.entries = append(c.entries, made.Entry)
		plans.Add(made.Entry)
		for _, k := range g.points {
			if ones[k] != nil {
				plans.Add(ones[k])
			}
		}
	}
	return c, nil
}

// planClone plans one; nil: it is refused, and so are its points.
func (d *Daemon) planClone(all []*wire.Point, g *group, plans *plan.Set, ones []*plan.Plan, results []*wire.PointResult) (*plan.Cloned, *wire.Clone, error) {
	req, of, err := d.cloning(all, g, plans, results)
	if err != nil {
		return nil, nil, err
	}
	d.stages.enter(stagePlan)
	defer d.stages.enter("")
	c, refusal := plan.AsClone(d.text, req, of)
	if refusal == nil {
		d.stages.enter(stageForeign)
		if refusal, err = d.foreign(c.Entry); refusal == nil && err == nil && g.chosen != nil {
			refusal, err = d.unchosen(g, c, req.Copied)
		}
		if !req.Dry && d.trial == nil && (err != nil || refusal != nil) {
			d.splicer.Release(c.Entry)
		}
	}
	if err != nil {
		return nil, nil, err
	}
	said := &wire.Clone{Entry: d.text.Known(g.functions[0]).String()}
	if g.chosen != nil {
		said.Points, g.chosen.why = uint32(len(g.chosen.points)), refusal
	}
	for n, k := range g.points {
		if r := g.chosen.refusal(k); r != nil && refusal == nil {
			results[k] = r
			continue
		}
		why := refusal
		if why == nil {
			why = c.Why[n]
		}
		if why == nil {
			why = unclonable(all[k], results[k].Spec)
		}
		if why != nil {
			refusePoint(results[k], all[k], why)
			continue
		}
		ones[k] = c.Points[n]
		results[k] = located(ones[k], results[k])
	}
	if refusal != nil {
		if said.Refusal = refused(refusal); g.growing != nil {
			g.growing.takes = refusal.Takes
		}
		return nil, said, nil
	}
	d.say(said, c, g)
	return c, said, nil
}

// cloning is what a group asks for.
func (d *Daemon) cloning(all []*wire.Point, g *group, plans *plan.Set, results []*wire.PointResult) (plan.Request, plan.Cloning, error) {
	of := plan.Cloning{Functions: g.functions}
	if g.growing != nil {
		g.growing.asked(&of)
	}
	req, err := d.request(&wire.Point{}, plans)
	if err != nil {
		return req, of, err
	}
	req.Wanted = nil
	for _, k := range g.points {
		p := all[k]
		results[k] = result(p)
		one, err := d.request(&wire.Point{Module: p.Module, Function: p.Function, Offset: p.Offset, Actions: p.Actions}, plans)
		if err != nil {
			return req, of, err
		}
		f, err := d.text.Function(p.Module, p.Function)
		if err != nil {
			return req, of, err
		}
		of.Inserts = append(of.Inserts, plan.Insert{Func: f, Offset: isa.Off(p.Offset), Entry: p.Entry, Where: plan.Where(p.Place), Snippet: one.Snippet})
		for _, m := range p.Without {
			if m, ok := plan.ParseMechanism(m); ok {
				req.Without = append(req.Without, m)
			}
		}
	}
	return req, of, nil
}

// unclonable says why a point cannot be in a clone, of what it asks for.
func unclonable(p *wire.Point, spec string) *plan.Refusal {
	if p.Each == wire.Each_ITSELF && !p.Search && !timing(p) && !covers(p) && p.Block == nil {
		return nil
	}
	return &plan.Refusal{Reason: plan.UnsupportedMechanism, Detail: spec + ": clones have points, and no searches, times or coverage, yet"}
}

// refusePoint has the result of a point say why there is none. What its actions have found is said later of others.
func refusePoint(r *wire.PointResult, p *wire.Point, why *plan.Refusal) {
	r.Refusal = refused(why)
	for _, a := range p.Actions {
		r.Actions = append(r.Actions, a.Name)
	}
}

// say says of what a clone is made.
func (d *Daemon) say(said *wire.Clone, c *plan.Cloned, g *group) {
	said.Mechanism, said.Address, said.Bytes, said.Instructions = c.Entry.Mechanism.String(), uint64(c.Entry.Patch), uint32(len(c.Entry.Code)), uint32(len(c.Entry.Clone.Insns))
	var paths map[isa.Addr]uint64
	if g.growing != nil {
		paths = d.pathsOf(g.growing)
	}
	for _, f := range g.functions {
		if r := c.Left[f.Addr]; r != nil {
			said.Left = append(said.Left, &wire.Left{Function: d.text.Known(f).String(), Refusal: refused(r)})
			continue
		}
		said.Functions = append(said.Functions, d.text.Known(f).String())
		if g.growing != nil && g.growing.uses != nil {
			said.Uses = append(said.Uses, paths[f.Addr])
		}
	}
	if g.growing != nil {
		said.Links = d.led(g.growing.links)
		said.Rounds, said.Full = uint32(g.growing.rounds), g.growing.full
		for _, f := range g.growing.leftOut {
			said.Left = append(said.Left, &wire.Left{Function: d.text.Known(f).String(), Refusal: refused(g.growing.never[f.Addr])})
		}
	}
}

// announced is where somebody comes who comes to a plan's point.
func announced(p *plan.Plan) []string {
	switch {
	case p.In != nil: // who comes there has not come by the kernel's own instruction
		return []string{p.Patch.String()}
	case p.For != 0:
		return []string{p.Point.String(), p.For.String()}
	}
	return []string{p.Point.String()}
}

// noSuch is what a step says that asks for a clone of what is not there.
func noSuch(c *wire.Cloning, err error) error {
	return fmt.Errorf("a clone from %s: %w", c.Entry, err)
}
