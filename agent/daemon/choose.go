package daemon

import (
	"fmt"
	"slices"
	"sync"

	"google.golang.org/protobuf/proto"

	"kerninst/agent/gen"
	"kerninst/agent/isa"
	"kerninst/agent/ktext"
	"kerninst/agent/place"
	"kerninst/agent/plan"
	"kerninst/agent/snippet"
	"kerninst/agent/wire"
)

// many is of how many points of a function a copy is made with all of them in it. Each splice is a jump there and one
// back, where a copy has one jump in all; but who is in the function when that is made comes by no point until he
// comes again, no kprobe is let in meanwhile, and the whole function takes patch memory.
const many = 8

// chosen are points that are to be in a copy of their function, though nobody has asked for one.
type chosen struct {
	points  map[int]*wire.Point       // as they were asked for, by their numbers
	refused map[int]*wire.PointResult // of those, what can be had neither in the copy nor by a splice
	why     *plan.Refusal             // there is no copy
}

// choose returns the points with those in clones that are many in one function, and says which by where the
// function begins. Who plans a clone gives its points back where there is none: see chosen.back.
func (d *Daemon) choose(all []*wire.Point) ([]*wire.Point, map[isa.Addr]*chosen) {
	if d.info.CPUs > 1 && gen.Locals(d.arch) || slices.ContainsFunc(all, named) {
		return all, nil // splices have counters of each CPU's own; or return addresses are named
	}
	out, of := slices.Clone(all), map[isa.Addr]*chosen{}
	unfit := map[isa.Addr]bool{}
	for k, p := range all {
		f, err := d.hot(p.Module, p.Function)
		switch {
		case p.SameAs != "" || p.Text > 0:
			return all, nil // which functions they are in is known too late
		case err != nil:
			continue
		case p.Within != "":
			return all, nil // somebody has asked for a clone, of who knows what
		}
		if unfitting(p) || d.parted(f) {
			unfit[f.Addr] = true
		}
		if of[f.Addr] == nil {
			of[f.Addr] = &chosen{points: map[int]*wire.Point{}, refused: map[int]*wire.PointResult{}}
		}
		of[f.Addr].points[k] = p
	}
	asleep := sync.OnceValue(d.sleepers)
	for a, c := range of {
		f, _ := d.text.Locate(a)
		if len(c.points) < many || unfit[a] || d.scheduling(f) || asleep() == nil || d.asleepIn(f, asleep()) > 0 || !d.left(f) {
			delete(of, a)
			continue
		}
		for k, p := range c.points {
			out[k] = proto.Clone(p).(*wire.Point)
			out[k].Mechanism, out[k].Actions = plan.Clone.String(), p.Actions // whose tags are known by them
		}
	}
	return out, of
}

// named reports whether anything that a point finds may be return addresses: those in a copy are nobody's.
func named(p *wire.Point) bool {
	return slices.ContainsFunc(p.Actions, func(a *wire.Action) bool {
		s, err := snippet.Parse(a.Snippet)
		return a.CodeKeys > 0 || err == nil && s.Walks()
	})
}

// unfitting reports whether a point is not for a copy, as is said of it.
func unfitting(p *wire.Point) bool {
	return p.Mechanism != "" || p.Apart || p.Cheap || p.Jumps || slices.Contains(p.Without, plan.Clone.String()) || unclonable(p, "") != nil
}

// parted reports whether a function has another half by another of its names: a copy has those of one name.
func (d *Daemon) parted(f ktext.Func) bool {
	return slices.ContainsFunc(d.text.Aliases(f), func(name string) bool { return name != f.Name && len(plan.Halves(d.text, f.Module, name)) > 1 })
}

// besideSnippet is what a splice has beside its snippet, about, in bytes: what it displaces, and the jump back.
const besideSnippet = 24

// takenApart is what the points of a copy would take of patch memory as splices, in bytes: each begins a line.
func takenApart(points []*plan.Plan) (n int) {
	for _, p := range points {
		if p != nil {
			n += (len(p.Code) + besideSnippet + place.Line - 1) &^ (place.Line - 1)
		}
	}
	return n
}

// unchosen is why points are spliced one by one all the same: another clone has a copy already, who runs which comes by
// neither; the copy takes more memory than they would; or one is not in it that could be spliced. What can be had in neither way
// is refused.
func (d *Daemon) unchosen(g *group, c *plan.Cloned, copied func(isa.Addr) *plan.Plan) (*plan.Refusal, error) {
	for _, own := range c.Entry.Clone.Copied() {
		if e := copied(own[0]); e != nil {
			return &plan.Refusal{Reason: plan.AlreadySpliced, Detail: fmt.Sprintf("the clone from %s has a copy of it", e.Symbol)}, nil
		}
	}
	if n, most := len(c.Entry.Code), takenApart(c.Points); n > most { // a step takes no more than it would
		return &plan.Refusal{Reason: plan.PatchTooLong, Detail: fmt.Sprintf("the copy takes %d bytes, %d splices take about %d", n, len(g.points), most)}, nil
	}
	dry := d.dry
	d.dry = true
	defer func() { d.dry = dry }()
	for n, k := range g.points {
		if c.Why[n] == nil {
			continue
		}
		one, res, err := d.plan(g.chosen.points[k], &plan.Set{}, true)
		if one != nil || err != nil || slices.Contains([]string{plan.MemoryFull.String(), plan.SitesFull.String()}, res.Refusal.GetReason()) {
			return c.Why[n], err
		}
		g.chosen.refused[k] = res
	}
	return nil, nil
}

// refusal is what is said of a point that can be had in no way.
func (c *chosen) refusal(k int) *wire.PointResult {
	if c == nil {
		return nil
	}
	return c.refused[k]
}

// scheduling reports whether a function is one that tasks sleep in and that the kernel does not name among those that a task
// has called (include/linux/sched/debug.h, in_sched_functions; kernel/stacktrace.c, stack_trace_save_tsk).
func (d *Daemon) scheduling(f ktext.Func) bool {
	lo, ok1 := d.text.Symbol("__sched_text_start")
	hi, ok2 := d.text.Symbol("__sched_text_end")
	return !ok1 || !ok2 || f.Addr >= lo && f.Addr < hi
}

// left reports whether a function has a way out: who never leaves it never comes by a copy of it.
func (d *Daemon) left(f ktext.Func) bool {
	out, r := d.offsets(&wire.Point{Module: f.Module, Each: wire.Each_RETURN}, d.text.Known(f).Known())
	return r == nil && len(out) > 0
}

// back gives the points of a clone that there is not to those that are planned one by one.
func (c *chosen) back(all []*wire.Point, results []*wire.PointResult) {
	for k, p := range c.points {
		all[k], results[k] = p, nil
	}
}

// tried has the points of clones that there are not say why.
func tried(of map[isa.Addr]*chosen, results []*wire.PointResult) {
	for _, c := range of {
		for k := range c.points {
			if c.why != nil && results[k] != nil {
				results[k].Passed = append(results[k].Passed, &wire.Refusal{Reason: c.why.Reason.String(), Detail: plan.Clone.String() + ": " + c.why.Detail})
			}
		}
	}
}

// inside counts, of clones that were chosen and are live, who sleeps in what they are copies of.
func (d *Daemon) inside(said []*wire.Clone) {
	if !slices.ContainsFunc(said, func(c *wire.Clone) bool { return c.Points > 0 }) {
		return
	}
	asleep := d.sleepers()
	for _, c := range said {
		if f, err := d.entered(c.Entry); err == nil && c.Points > 0 {
			c.Inside = uint32(d.asleepIn(f, asleep))
		}
	}
}
