package scenarios

import (
	"fmt"
	"slices"

	"kerninst/agent/cfg"
	"kerninst/agent/isa"
	"kerninst/agent/wire"
	"kerninst/lab/report"
)

// even: of points that something else happens to meanwhile, how often control comes by is not known. But who comes to a block goes
// through all of it, and to one of those behind it, whatever is rewritten there: what is counted of one point between two readings
// has to be what is counted of others (see flow). One hit that is lost, or counted twice, breaks that.

// planned asks what the planner knows of the guest's kernel.
func planned(name string, p *wire.Point) *wire.Step {
	return &wire.Step{Name: name, Do: &wire.Step_Splice{Splice: &wire.Splice{Points: []*wire.Point{p}, OnlyPlan: true}}}
}

// even is what was held against each other.
type even struct {
	flow      *flow
	preempted bool // a task may be anywhere while counts are read
	moved     int  // sums that somebody came by
	pairs     int  // points of blocks that somebody came by, held against another's of their block
}

// evenOf takes a guest's dump; kernel is the step that has asked what the planner knows.
func (t *T) evenOf(guest, kernel string) *even {
	f, err := t.graphOf(guest)
	t.noError("the flow of control in the guest's kernel", err)
	return &even{flow: f, preempted: t.done(guest, kernel).Planned.GetPreempted()}
}

// between holds the counts of points between two steps that read them against each other, and returns what does not hold.
func (e *even) between(t *T, guest, from, to string, points []*wire.PointResult) []string {
	came := t.came(guest, from, to, func(v *wire.Value) string { return fmt.Sprint(v.Symbol, v.Offset) })
	odd := []string{}
	e.flow.counts = map[cfg.Block]uint64{}
	for _, p := range points {
		b, ok := e.flow.g.AtAddr(isa.Addr(p.Address))
		if !ok || isa.Addr(p.Address) != e.flow.g.Start(b) && !e.flow.passed(b) { // a task may sleep in a call before it
			continue
		}
		n := came[fmt.Sprint(p.Symbol, p.Offset)]
		was, other := e.flow.counts[b]
		e.flow.counts[b] = n
		switch {
		case !other:
			continue
		case was != n:
			odd = append(odd, fmt.Sprintf("%s+%#x: %d, and %d before it in its block", p.Symbol, p.Offset, n, was))
		}
		if n > 0 {
			e.pairs++
		}
	}
	sums := e.flow.sums()
	e.moved += len(slices.DeleteFunc(slices.Clone(sums), func(s sum) bool { return !e.flow.moved(s) }))
	return append(odd, e.flow.broken(sums)...)
}

// hold asserts that all is even between two steps, on a kernel whose tasks are in no block while counts are read.
func (e *even) hold(t *T, guest, from, to string, points []*wire.PointResult) {
	if odd := e.between(t, guest, from, to, points); !e.preempted {
		t.equal(fmt.Sprintf("%s to %s: counts that are not what others say", from, to), odd[:min(10, len(odd))], []string{})
	}
}

// found says how much that was, and that it was something: of some of so many points somebody came by.
func (e *even) found(t *T, name string) {
	t.atLeast("points that were held against another of their block", float64(e.pairs), 10)
	t.Metrics[name+".pairs"] = report.Metric{Value: float64(e.pairs), Unit: "points", N: 1}
	t.Metrics[name+".sums"] = report.Metric{Value: float64(e.moved), Unit: "sums", N: 1}
}
