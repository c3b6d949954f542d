package scenarios

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"kerninst/agent/cfg"
	"kerninst/agent/wire"
)

// Flow round calls. Who comes to a block that calls goes on behind it, but for tasks that are inside what is called when
// counts begin, or are read, and for those that end there. So there each sum holds up to so many; and where no
// task ends or sleeps it holds exactly.

// crowd is how many tasks there are, and how many there have been.
func crowd(name string) *wire.Step {
	return shell(name, "ls -d /proc/[0-9]*/task/[0-9]* | wc -l; sed -n 's/^processes //p' /proc/stat")
}

// crowded are the tasks that there were when counts began, and when they were read; and those that ended between.
type crowded struct{ before, after, ended uint64 }

// crowded reads two crowds. Who comes between the step and what it is for is one or two: the step's own.
func (t *T) crowded(guest, before, after string) crowded {
	read := func(step string) (now, ever uint64) {
		_, err := fmt.Sscan(string(t.ran(guest, step)[0]), &now, &ever)
		t.noError(step, err)
		return now + crowdOwn, ever
	}
	now, ever := read(before)
	later, all := read(after)
	return crowded{now, later, max(now+all-ever, later) - later}
}

// crowdOwn are the tasks of a step itself, and of the daemon, which may have been made since.
const crowdOwn = 8

// throughCalls is the same flow with blocks as they are counted, which calls do not end: each is its first piece, wherever in
// it the counter is.
func (f *flow) throughCalls() *flow {
	g := &flow{g: f.g, preds: f.preds, counts: map[cfg.Block]uint64{}, each: map[cfg.Block]int{}, calls: true}
	for b, n := range f.counts {
		g.counts[g.head(b)] = n
		g.each[g.head(b)]++
	}
	for b, n := range g.each {
		if n > 1 {
			delete(g.counts, b)
		}
	}
	return g
}

// head and last are the pieces that a block begins and ends with.
func (f *flow) head(b cfg.Block) cfg.Block {
	for f.continues(b) {
		b--
	}
	return b
}

// continues reports whether a piece belongs to the block of the one before: nothing else leads to it than that one's call.
func (f *flow) continues(b cfg.Block) bool {
	from := unique(f.preds.Of(b))
	return f.g.Marks(b)&cfg.Split != 0 && len(from) == 1 && from[0] == b-1
}

func (f *flow) last(b cfg.Block) cfg.Block {
	for f.goesOn(b) {
		b++
	}
	return b
}

// goesOn reports whether a piece ends in a call that comes back to the next.
func (f *flow) goesOn(b cfg.Block) bool {
	k := f.g.Kind(b)
	return (k == cfg.KindCall || k == cfg.KindStaticCall || k == cfg.KindIndirectCall) && int(b)+1 < f.g.Blocks() && f.continues(b+1)
}

// left reports whether who comes to a block has left it by one of its edges when all that it calls has come back.
func (f *flow) left(b cfg.Block) bool {
	for ; f.goesOn(b); b++ {
		if len(f.g.Extra(b)) > 0 || f.g.Marks(b)&(cfg.FaultSite|cfg.Unknown|cfg.Pinned) != 0 {
			return false
		}
	}
	return f.passed(b)
}

// callSums are those of which some block calls, of a flow through calls.
func (f *flow) callSums() []sum {
	return slices.DeleteFunc(f.sumsOf(f.left), func(s sum) bool { return !slices.ContainsFunc(s.from, f.goesOn) })
}

// exceeding names the sums that do not hold up to who is inside, and says how many do not hold but for those that
// ended, and how many hold exactly, of those that anybody came by.
func (f *flow) exceeding(sums []sum, in crowded) (wrong []string, ended, exact int) {
	for _, s := range sums {
		from, to := f.total(s.from), f.total(s.to)
		switch {
		case from == to:
			if f.moved(s) {
				exact++
			}
		case to > from+in.before || from > to+in.after+in.ended:
			wrong = append(wrong, fmt.Sprintf("%d blocks, the first %v (%d), go by calls to %d, the first %v (%d)", len(s.from), f.g.Start(s.from[0]), from, len(s.to), f.g.Start(s.to[0]), to))
		case from > to+in.after:
			ended++
		}
	}
	return wrong, ended, exact
}

// fewestExact is the part of these sums, of those that anybody came by, that hold exactly; mostEnded of those
// that only hold with who ended: they are on a task's last way. There are half as many of them as others at least, and
// one in five tells when a counter does not count: it has more than are inside.
const (
	fewestExact = 0.98
	mostEnded   = 0.01
)

// checkCalls holds counts against each other round calls, where so many sums are asked of others; and the check against itself.
func (t *T) checkCalls(f *flow, in crowded, others int, metric func(string, float64, string)) {
	f = f.throughCalls()
	sums := slices.DeleteFunc(f.callSums(), func(s sum) bool { return f.total(s.from)+f.total(s.to) == 0 })
	wrong, ended, exact := f.exceeding(sums, in)
	metric("calls.sums.came", float64(len(sums)), "sums")
	metric("calls.exact", float64(exact), "sums")
	metric("calls.ended", float64(ended), "sums")
	metric("calls.inside", float64(max(in.before, in.after)), "tasks")
	metric("calls.tasks.ended", float64(in.ended), "tasks")
	t.atLeast("sums round calls that control has come by", float64(len(sums)), float64(others/2))
	t.equal(fmt.Sprintf("of %d sums round calls, those that do not hold up to %d and %d tasks inside and %d that ended (%d, some of them)",
		len(sums), in.before, in.after, in.ended, len(wrong)), strings.Join(wrong[:min(10, len(wrong))], "; "), "")
	t.atLeast("part of these that hold exactly", float64(exact)/float64(len(sums)), fewestExact)
	t.atMost("part of these that hold with who ended", float64(ended)/float64(len(sums)), mostEnded)
	t.told(f, sums, in, others/10, metric)
}

// told holds that the check finds a counter that has counted nothing, the largest behind what calls, one sum after the other, in so
// many at least.
func (t *T) told(f *flow, sums []sum, in crowded, least int, metric func(string, float64, string)) {
	told := 0
	for _, s := range sums {
		b := slices.MaxFunc(s.to, func(a, b cfg.Block) int { return cmp.Compare(f.counts[a], f.counts[b]) })
		was := f.counts[b]
		f.counts[b] = 0
		if wrong, _, _ := f.exceeding([]sum{s}, in); len(wrong) == 1 {
			told++
		}
		f.counts[b] = was
	}
	metric("calls.told", float64(told), "sums")
	t.atLeast("sums round calls that do not hold when one counter has counted nothing, of "+strconv.Itoa(len(sums)), float64(told), float64(least))
}
