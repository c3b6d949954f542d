package main

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"kerninst/agent/plan"
	"kerninst/agent/splice"
	"kerninst/guest/check"
)

// thread splices and unsplices its groups, with its victim in each batch.
type thread struct {
	k       *kernel
	splicer *splice.Splicer
	rng     *rand.Rand
	victim  *victim
	ways    []*plan.Plan // of the victim's entry, by one mechanism each
	groups  []*group
	live    map[*group][]*splice.Live
	fresh   map[*plan.Plan]bool // those that were in no batch yet: they hold their slots
	callers *callers

	tally tally
}

// planned is all that the thread's functions have.
func (t *thread) planned() (out []*plan.Plan) {
	for _, g := range t.groups {
		out = append(out, g.plans...)
	}
	return out
}

// tally is what threads and the load did, and what went wrong.
type tally struct {
	rounds, spliced, unspliced int
	exact                      int // calls of victims that had to be counted
	stirred                    int // those that were made while a batch was written
	kept                       int // batches refused since somebody may be in a patch yet
	asleep                     int // threads whose patch memory somebody was in yet, at their end
	leaked                     int // slots that are in use when nothing is live
	written                    int // by the module: springboards and what is moved away included
	points, came               int
	loading                    int            // points that load from memory
	atomic                     bool           // the CPU has what these take
	mechanisms, passed         map[string]int // points by each; those live, that somebody came by
	victims                    map[string]int
	loads                      map[string]int
	wrong                      []string
}

func addTo(to *map[string]int, from map[string]int) {
	if *to == nil {
		*to = map[string]int{}
	}
	for k, n := range from {
		(*to)[k] += n
	}
}

func (t *tally) add(o *tally) {
	t.rounds, t.spliced, t.unspliced = t.rounds+o.rounds, t.spliced+o.spliced, t.unspliced+o.unspliced
	t.exact, t.stirred, t.kept, t.asleep = t.exact+o.exact, t.stirred+o.stirred, t.kept+o.kept, t.asleep+o.asleep
	t.leaked += o.leaked
	addTo(&t.victims, o.victims)
	addTo(&t.passed, o.passed)
	t.wrong = append(t.wrong, o.wrong...)
}

func (t *tally) report() {
	bad := fmt.Sprintf("%q", t.wrong[:min(8, len(t.wrong))])
	check.Report("batches that came and went as they should", t.rounds, len(t.wrong) == 0, "%d went wrong: %s", len(t.wrong), bad)
	check.Report("operations", t.spliced+t.unspliced, t.spliced == t.unspliced && t.spliced > 0, "%d spliced, %d unspliced, %d by the module with springboards and what was moved away; %d threads left patch memory to those asleep in it", t.spliced, t.unspliced, t.written, t.asleep)
	check.Report("calls that were counted exactly", t.exact, t.exact > 0, "")
	check.Report("calls while batches were written", t.stirred, t.stirred > 0, "")
	check.Report("batches put off, as somebody may be in a patch yet", t.kept, t.kept <= t.rounds/4, "of %d", t.rounds)
	check.Report("slots of patch memory that are in use when nothing is live", t.leaked, t.leaked == 0, "lines, springboards, code that was moved away and local cells")
	check.Report("points that somebody came by", t.came, 2*t.came >= t.points, "of %d functions", t.points)
	check.Report("points that load from memory", t.loading, t.loading > 0 == t.atomic, "they are refused where the CPU has no atomic addition")
	for _, m := range []struct {
		what string
		of   map[string]int
	}{{"points by ", t.mechanisms}, {"live and come by, by ", t.passed}, {"victims by ", t.victims}, {"load: ", t.loads}} {
		for name, n := range m.of {
			check.Report(m.what+name, n, n > 0, "")
		}
	}
}

// churn has all threads go on up to a limit.
func (k *kernel) churn(l limit, seed uint64, sum *tally) error {
	var wait sync.WaitGroup
	errs := make([]error, len(k.threads))
	start := time.Now()
	for n, t := range k.threads {
		wait.Go(func() {
			var err error
			if t.callers, err = startCallers(t.victim, k.info.CPUs); err != nil {
				errs[n] = err
				return
			}
			for ; err == nil && !l.over(start, t.tally.rounds); t.tally.rounds++ {
				err = t.round()
			}
			t.callers.end()
			errs[n] = errors.Join(err, t.undoAll())
		})
	}
	wait.Wait()
	for _, t := range k.threads {
		addTo(&sum.mechanisms, k.mechanisms(t.planned()))
		sum.loading += k.loading(t.planned())
		sum.atomic = k.atomic()
	}
	for _, t := range k.threads {
		sum.add(&t.tally)
		for _, g := range t.groups {
			sum.points++
			if g.came {
				sum.came++
			}
		}
	}
	return errors.Join(errs...)
}

// some are a random number of those that are, or are not, live.
func (t *thread) some(live bool) (out []*group) {
	for _, k := range t.rng.Perm(len(t.groups)) {
		if g := t.groups[k]; (t.live[g] != nil) == live {
			out = append(out, g)
		}
	}
	if len(out) > 0 {
		out = out[:1+t.rng.IntN(len(out))]
	}
	return out
}

func (t *thread) wrong(format string, args ...any) {
	t.tally.wrong = append(t.tally.wrong, fmt.Sprintf(format, args...))
}

// exactCalls is how often each CPU calls the victim where the count has to be exact.
const exactCalls = 50

// round makes a batch with the victim in it, counts its calls, and takes the victim back with
// some of what is live.
func (t *thread) round() error {
	way := t.ways[t.rng.IntN(len(t.ways))]
	groups := t.some(false)
	plans := []*plan.Plan{way}
	for _, g := range groups {
		plans = append(plans, g.plans...)
	}
	for _, p := range plans {
		delete(t.fresh, p)
	}
	t.callers.stir()
	live, err := t.splicer.Apply(plans)
	called, callErr := t.callers.rest()
	if callErr != nil {
		return callErr
	}
	t.tally.stirred += called
	if errors.Is(err, unix.EBUSY) {
		t.tally.kept++
		return t.takeBack(t.some(true), nil)
	}
	if err != nil {
		t.wrong("batch of %d: %v", len(plans), err)
		return t.takeBack(t.some(true), nil)
	}
	t.tally.spliced += len(plans)
	addTo(&t.tally.victims, map[string]int{way.Mechanism.String(): 1})
	rest := live[1:]
	for _, g := range groups {
		t.live[g], rest = rest[:len(g.plans)], rest[len(g.plans):]
	}
	if n := live[0].Words()[0]; n > uint64(called) {
		t.wrong("%v of %s counted %d while it was written, in %d calls", way.Mechanism, way.Symbol, n, called)
	}
	if err := t.count(live[0], exactCalls); err != nil {
		return err
	}
	if t.rng.IntN(8) == 0 {
		if err := t.splicer.Verify(); err != nil {
			t.wrong("%v", err)
		}
	}
	return t.takeBack(t.some(true), live[0])
}

// count calls the victim on all CPUs, which adds as many to its counter as are expected: all,
// or none.
func (t *thread) count(l *splice.Live, each int) error {
	before := l.Words()[0]
	called, err := t.callers.call(exactCalls)
	if err != nil {
		return err
	}
	want := each * t.k.info.CPUs
	if got := l.Words()[0] - before; got != uint64(want) {
		t.wrong("%v of %s counted %d of %d calls, not %d", l.Plan.Mechanism, l.Plan.Symbol, got, called, want)
	}
	t.tally.exact += want
	return nil
}

// passed notes which of a group's points somebody came by.
func (t *thread) passed(g *group) {
	var came []*plan.Plan
	for _, l := range t.live[g] {
		if l.Came() {
			came = append(came, l.Plan)
		}
	}
	g.came = g.came || len(came) > 0
	addTo(&t.tally.passed, t.k.mechanisms(came))
}

// takeBack undoes groups, and the victim, if it is live.
func (t *thread) takeBack(groups []*group, victim *splice.Live) error {
	var gone []*splice.Live
	before := uint64(0)
	if victim != nil {
		gone, before = append(gone, victim), victim.Words()[0]
	}
	for _, g := range groups {
		t.passed(g)
		gone = append(gone, t.live[g]...)
	}
	t.callers.stir()
	err := t.splicer.Undo(gone)
	called, callErr := t.callers.rest()
	if err := errors.Join(err, callErr); err != nil {
		return fmt.Errorf("undo of %d: %w", len(gone), err)
	}
	t.tally.stirred += called
	t.tally.unspliced += len(gone)
	for _, g := range groups {
		delete(t.live, g)
	}
	if victim == nil {
		return nil
	}
	if n := victim.Words()[0] - before; n > uint64(called) {
		t.wrong("%v of %s counted %d while it was undone, in %d calls", victim.Plan.Mechanism, victim.Plan.Symbol, n, called)
	}
	return t.count(victim, 0)
}

// undoAll takes back all that is live. Patch memory in which a program of the load sleeps yet is
// freed when the device is closed, which is when the load has ended.
func (t *thread) undoAll() error {
	t.tally.unspliced += len(t.splicer.Live())
	for g := range t.live {
		t.passed(g)
	}
	if err := t.splicer.Undo(t.splicer.Live()); err != nil {
		return err
	}
	t.tally.leaked += t.inUse()
	err := t.splicer.Close()
	if errors.Is(err, unix.EBUSY) && len(t.splicer.Live()) == 0 {
		t.tally.asleep++
		return nil
	}
	return err
}

// inUse is how much of patch memory is in use, when nothing is live and the plans that were in
// no batch have let go of theirs.
func (t *thread) inUse() int {
	t.splicer.Release(slices.Collect(maps.Keys(t.fresh))...)
	h := t.splicer.Heap()
	_, lines, _ := h.Usage()
	return lines + h.Boards() + len(h.Evicted()) + h.UsedLocals()
}
