package scenarios

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	"kerninst/agent/probe"
	"kerninst/agent/wire"
	"kerninst/lab/report"
	"kerninst/lab/vm"
)

// cover: coverage takes itself away (KernInst §2). A program opens and closes a file again and
// again: bare; with each block of the functions on the way and around it covered; and with
// each counted. What is covered is what is counted; and when it has been found, the program
// takes what it takes without.
func covers() []Scenario {
	return []Scenario{{
		Name: "cover", Title: "coverage finds what counters find, and costs nothing once it has", Labels: []string{"measure", "proof"},
		Guests: coverGuests, Check: checkCover,
	}}
}

const (
	coverOps     = 288 // so that a look of the daemon's, some 150 us, is not a thousandth of a quarter
	coverSamples = 1000
	// dearest is how many times as long the last quarter of the program may take as without.
	dearest = 1.0015
	// cheapest is how many times as long the first takes at least, in which points are there, or are taken away.
	cheapest = 1.005
)

// coveredFunctions are on the way to an open file and back, and around it. What the daemon
// itself comes by when it takes points away is not among them.
var coveredFunctions = []string{
	"path_*", "do_*open*", "do_filp_open", "getname*", "alloc_fd*", "alloc_file*", "alloc_empty_file*", "link_path_walk*", "lookup_*",
	"fd_install*", "filp_*", "may_open*", "dentry_*", "vfs_open", "dput*",
	"inode_permission*", "generic_permission*",
}

func coverGuests(arch string) []Guest {
	work := run("work", benchProgram, "open", strconv.Itoa(coverOps), strconv.Itoa(coverSamples))
	guest := func(name string, before ...*wire.Step) Guest {
		return Guest{Name: name, CPUs: 1, Time: vm.Exact, Index: true, Job: job(append(before, work, read("found"))...)}
	}
	return []Guest{
		guest("bare"),
		guest("covered", skipping("splice", blocksDoing("cover"))),
		guest("counted", skipping("splice", blocksDoing("count"))),
	}
}

func blocksDoing(action string) (out []*wire.Point) {
	a, err := probe.At{}.Compile("", action)
	if err != nil {
		panic(err) // of a constant
	}
	for _, f := range coveredFunctions {
		out = append(out, &wire.Point{Function: f, Each: wire.Each_BLOCK,
			Actions: []*wire.Action{{Name: action, Snippet: a.Snippet.String(), Cover: a.Covers()}}})
	}
	return out
}

func checkCover(t *T) {
	covered, stay := t.foundIn("covered")
	counted, _ := t.foundIn("counted")
	// What has room for a jump there may have none here, where others have it.
	maps.DeleteFunc(covered, func(name string, _ bool) bool { _, both := counted[name]; return !both })
	maps.DeleteFunc(counted, func(name string, _ bool) bool { _, both := covered[name]; return !both })
	calls := t.ofCalls(counted)
	t.equal("what each call comes by and is not covered", less(calls, covered), []string(nil))
	t.atLeast("what each call comes by", float64(len(less(calls, nil))), 50)
	t.few("what is covered and not counted", less(covered, counted), len(covered))
	t.few("what is counted and not covered", less(counted, covered), len(covered))
	t.equal("points that were come by and stay", stay, 0)
	t.atLeast("points", float64(len(covered)), 500)
	found := 0
	for _, came := range covered {
		if came {
			found++
		}
	}
	t.atLeast("points that were come by", float64(found), 100)
	t.Metrics["cover.points"] = report.Metric{Value: float64(len(covered)), Unit: "points", N: 1}
	t.Metrics["cover.found"] = report.Metric{Value: float64(found), Unit: "points", N: 1}
	t.coverCosts()
}

// few holds blocks that one guest has come by and the other has not to be few: those that the program
// comes by once, when it begins, and by which ones the time decides. Its libc reads /proc/self/exe, and
// the path is walked without locks as far as /proc/self alone if its inode's time of access is to be
// written (fs/namei.c, pick_link; fs/inode.c, atime_needs_update): of four seeds, one. A kernel that
// preempts itself adds others.
func (t *T) few(what string, blocks []string, of int) {
	t.atMost(fmt.Sprintf("%s: %v", what, blocks), float64(len(blocks)), float64(of)/250)
}

// ofCalls are those of the points that the program comes by with each of its calls.
func (t *T) ofCalls(points map[string]bool) map[string]bool {
	out := map[string]bool{}
	for _, v := range t.done("counted", "found").Values {
		if _, ok := points[placeOf(v)]; ok {
			out[placeOf(v)] = v.Count >= coverOps*coverSamples
		}
	}
	return out
}

// foundIn says of each point whether somebody came by, and of how many somebody did though
// they are still there.
func (t *T) foundIn(guest string) (found map[string]bool, stay int) {
	found = map[string]bool{}
	for _, v := range t.done(guest, "found").Values {
		if v.CoveredNs == 0 && v.Count > 0 {
			stay++
		}
		found[placeOf(v)] = v.Count > 0 || v.CoveredNs > 0
	}
	return found, stay
}

func (t *T) coverCosts() {
	bare, covered, counted := t.benches("bare", "work")[0].NS, t.benches("covered", "work")[0].NS, t.benches("counted", "work")[0].NS
	first, last := func(ns []uint64) []uint64 { return ns[:len(ns)/4] }, func(ns []uint64) []uint64 { return ns[len(ns)*3/4:] }
	ratio := func(of []uint64) float64 { return float64(total(last(of))) / float64(total(last(bare))) }
	begin := float64(total(first(covered))) / float64(total(first(bare)))
	steady := float64(slices.Min(last(covered))) / float64(slices.Min(last(bare)))
	for name, v := range map[string]float64{"first": begin, "last": ratio(covered), "counted": ratio(counted), "steady": steady} {
		t.Metrics["cover."+name] = report.Metric{Value: v, Unit: "ratio", N: 1}
	}
	t.atMost("times as long as bare, in the last quarter", ratio(covered), dearest)
	t.atLeast("the same with counters, which stay", ratio(counted), 1.01)
	// Where points are dear the daemon may have looked for the first time before the first sample.
	t.atLeast("times as long as bare, in the first quarter", begin, cheapest)
}

func placeOf(v *wire.Value) string { return placed(v.Symbol, v.Offset) }

func placed(symbol string, offset uint64) string { return fmt.Sprintf("%s+%#x", symbol, offset) }

// less is what is true in a and not in b.
func less(a, b map[string]bool) (out []string) {
	for k, came := range a {
		if came && !b[k] {
			out = append(out, k)
		}
	}
	slices.Sort(out)
	return out
}

func total(all []uint64) (n uint64) {
	for _, v := range all {
		n += v
	}
	return n
}
