package scenarios

import (
	"fmt"
	"maps"
	"slices"

	"kerninst/agent/cfg"
	"kerninst/agent/isa"
	"kerninst/agent/wire"
	"kerninst/lab/report"
)

// even: of points that something else happens to meanwhile, how often control comes by is not known. But who comes to a block goes
// through all of it, and to one of those behind it, whatever is rewritten there: what is counted of one point has to be what is counted
// of others (see flow). One hit that is lost, or counted twice, breaks that. They are read while all CPUs stand still, at the begin too:
// that is what brief steps are.

// evenPlan is the step that asks what the planner knows of the guest's kernel.
const evenPlan = "kernel"

// evenSteps come before anything is spliced: a dump, and what the planner says of any point.
func evenSteps(p *wire.Point) []*wire.Step {
	s := splice(evenPlan, p)
	s.GetSplice().OnlyPlan = true
	return []*wire.Step{textDump("dump"), s}
}

// briefly has a batch be one whose counts begin while all CPUs stand still.
func briefly(batch *wire.Step) *wire.Step {
	batch.GetSplice().Brief = true
	return batch
}

// readStill reads counts by their addresses.
func readStill(name string) *wire.Step {
	return &wire.Step{Name: name, Do: &wire.Step_Read{Read: &wire.Read{Brief: true}}}
}

// stillCounts is what such a step has read.
func (t *T) stillCounts(guest, step string) map[uint64]uint64 {
	res, out := t.done(guest, step), map[uint64]uint64{}
	for k, a := range res.Addresses {
		out[a] = res.Counts[k]
	}
	return out
}

// even is what was held against each other.
type even struct {
	flow      *flow
	preempted bool // a task may be anywhere while counts are read
	moved     int  // sums that somebody came by
	pairs     int  // points of blocks that somebody came by, held against another's of their block
}

// evenOf takes what evenSteps have found in a guest.
func (t *T) evenOf(guest string) *even {
	f, err := t.graphOf(guest)
	t.noError("the flow of control in the guest's kernel", err)
	return &even{flow: f, preempted: t.done(guest, evenPlan).Planned.GetPreempted()}
}

// differing holds the counts of points against each other, and returns what does not hold.
func (e *even) differing(came map[uint64]uint64) []string {
	odd := []string{}
	e.flow.counts = map[cfg.Block]uint64{}
	for _, a := range slices.Sorted(maps.Keys(came)) {
		b, ok := e.flow.g.AtAddr(isa.Addr(a))
		if !ok || isa.Addr(a) != e.flow.g.Start(b) && !e.flow.passed(b) { // a task may sleep in a call before it
			continue
		}
		n := came[a]
		was, other := e.flow.counts[b]
		e.flow.counts[b] = n
		switch {
		case !other:
			continue
		case was != n:
			odd = append(odd, fmt.Sprintf("%#x: %d, and %d before it in its block", a, n, was))
		}
		if n > 0 {
			e.pairs++
		}
	}
	sums := e.flow.sums()
	e.moved += len(slices.DeleteFunc(slices.Clone(sums), func(s sum) bool { return !e.flow.moved(s) }))
	return append(odd, e.flow.broken(sums)...)
}

// hold asserts that all is even that a step has read, on a kernel whose tasks are in no block meanwhile.
func (e *even) hold(t *T, guest, step string) {
	if odd := e.differing(t.stillCounts(guest, step)); !e.preempted {
		t.equal(step+": counts that are not what others say", odd[:min(10, len(odd))], []string{})
	}
}

// found says how much that was, and that it was something: on a busy host one small batch may be all that was made.
func (e *even) found(t *T, name string) {
	t.atLeast("points that were held against another of their block", float64(e.pairs), 1)
	t.Metrics[name+".pairs"] = report.Metric{Value: float64(e.pairs), Unit: "points", N: 1}
	t.Metrics[name+".sums"] = report.Metric{Value: float64(e.moved), Unit: "sums", N: 1}
}
