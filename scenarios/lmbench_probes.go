package scenarios

import (
	"math"
	"slices"
	"strconv"
	"strings"

	"kerninst/agent/probe"
	"kerninst/agent/wire"
	"kerninst/lab/vm"
)

// lmbench-probes: what it costs to count each system call of a kernel, by splices and by
// the kernel's own kprobes at the same places, in what LMbench's operations take.
//
// Guests of one seed run the same program: bare; with a counter behind the entry of every
// system call's function; with a kprobe there that only counts. What the two count is
// compared too, call by call, and again along the way on which a file is opened.
//
// All have spliced and taken back the same points before, so that their kernels have
// done as much and their memory is as full.

const (
	probedSamples = 7
	// pathSamples are those of the run that only counts.
	pathSamples = 2
	// controlSamples are those of two guests that have to be equal whatever they find.
	controlSamples = 3
)

// openLoad are the operations that open files, and how many of them a sample has.
var openLoad = []string{"Stat", "OpenClose", "FileCreate/0K"}

const opensOfSample = 192 + 48

// controlLoad are operations of few system calls.
var controlLoad = []string{"Null", "Read", "Write", "Stat", "Fstat", "OpenClose"}

func lmbenchProbes() []Scenario {
	return []Scenario{
		{Name: "lmbench-probes", Title: "what counting every system call adds to LMbench's operations, by splices and by kprobes, and what they count",
			Labels: []string{"measure", "proof"}, Guests: probesGuests, Check: checkProbes},
		{Name: "lmbench-probes-equal", Title: "a control: two bare guests, of which one adds nothing to the other",
			Labels: []string{"measure", "proof"}, Guests: equalGuests, Check: checkEqual},
		{Name: "lmbench-probes-planted", Title: "a control: an operation whose splice is dearer than it should be is over its budget, and no other is",
			Labels: []string{"measure", "proof"}, Guests: plantedGuests, Check: checkPlanted},
	}
}

// probed is a guest whose job is made when the kernel's symbols are known.
func probed(arch, name string, steps func(calls, path []*wire.Point) []*wire.Step) Guest {
	return Guest{Name: name, CPUs: 1, Time: vm.Exact, RunTimeout: 4 * probedSamples * lmbenchPatience, After: "names", Index: true,
		Make: func(names *Answer) (*wire.Job, error) {
			calls, path, err := places(arch, names)
			if err != nil {
				return nil, err
			}
			before := []*wire.Step{noOptprobes(), skipping("place", calls), unsplice("place")}
			return job(append(before, steps(calls, path)...)...), nil
		}}
}

// measured runs operations, all if none is named. Their overhead's system calls are left
// in: they come by the same probes, which subtracting them would hide.
func measured(samples int, names ...string) *wire.Step {
	return run("work", append([]string{lmbenchProgram, "-whole", strconv.Itoa(samples)}, names...)...)
}

func probesGuests(arch string) []Guest {
	work := measured(probedSamples)
	opens := measured(pathSamples, openLoad...)
	opens.Name = "opens"
	return []Guest{
		namesGuest(arch),
		probed(arch, "bare", func(calls, path []*wire.Point) []*wire.Step { return []*wire.Step{work} }),
		probed(arch, "spliced", func(calls, path []*wire.Point) []*wire.Step {
			return []*wire.Step{skipping("calls", calls), work, read("calls-counts"), unsplice("calls"),
				skipping("path", path), opens, read("path-counts"), unsplice("path")}
		}),
		probed(arch, "kprobed", func(calls, path []*wire.Point) []*wire.Step {
			return []*wire.Step{kprobes("kprobes-calls", "place"), work, unkprobes("kprobes-calls"),
				skipping("path", path), unsplice("path"), kprobes("kprobes-path", "path"), opens, unkprobes("kprobes-path")}
		}),
	}
}

func equalGuests(arch string) []Guest {
	bare := func([]*wire.Point, []*wire.Point) []*wire.Step {
		return []*wire.Step{measured(controlSamples)}
	}
	return []Guest{namesGuest(arch), probed(arch, "first", bare), probed(arch, "second", bare)}
}

// planted is the system call of which the splice counts again and again.
const (
	planted      = "getppid"
	plantedIn    = "Null"
	plantedTimes = 8
)

func plantedGuests(arch string) []Guest {
	work := measured(probedSamples, controlLoad...)
	return []Guest{
		namesGuest(arch),
		probed(arch, "bare", func(calls, path []*wire.Point) []*wire.Step { return []*wire.Step{work} }),
		probed(arch, "spliced", func(calls, path []*wire.Point) []*wire.Step {
			return []*wire.Step{skipping("calls", plant(arch, calls)), work}
		}),
	}
}

// plant makes one of the points count several times.
func plant(arch string, calls []*wire.Point) (out []*wire.Point) {
	again, err := probe.Compile("", "count")
	if err != nil {
		panic(err) // of a constant
	}
	for _, p := range calls {
		if p.Function == syscallEntry(arch, planted) {
			p = entry(p.Function)
			for k := range plantedTimes {
				p.Actions = append(p.Actions, &wire.Action{Name: nth("count", k), Snippet: again.String()})
			}
		}
		out = append(out, p)
	}
	return out
}

// checks -----------------------------------------------------------------------

func checkProbes(t *T) {
	ops := t.compared(allOps(), "bare", "spliced", "kprobed")
	b := t.allowances().suite(false)
	splices, times := t.means("", b.steady(ops))
	all, _ := t.means(".all", ops)
	for _, s := range []string{"calls", "path"} {
		t.sameCounts(s)
	}
	t.truth()
	t.equal("operations without a budget, and budgets without an operation", b.unmatched(ops), []string{})
	t.equal("operations over their budget", b.over(ops), []string{})
	t.atMost("geometric mean of ratios, with splices", splices, b.geomean)
	t.atMost("the same of all operations", all, b.geomean)
	t.atLeast("times as much that kprobes add", times, b.times)
}

func checkEqual(t *T) {
	for _, o := range t.compared(allOps(), "first", "second", "") {
		t.equal(o.name+": added to itself", o.spliced-o.bare, 0.0)
	}
}

func checkPlanted(t *T) {
	ops := t.compared(controlLoad, "bare", "spliced", "")
	b := t.allowances().suite(false)
	var over []string
	for _, s := range b.over(ops) {
		name, _, _ := strings.Cut(s, ":")
		over = append(over, name)
	}
	t.equal("operations over their budget", slices.Compact(over), []string{plantedIn})
	found := slices.DeleteFunc(t.accepted("spliced", "calls"), func(p *wire.PointResult) bool { return p.Symbol != syscallEntry(t.Arch, planted) })
	t.equal("points at which a cost is planted", len(found), 1)
	t.point("spliced", found[0])
	t.atMost("instructions by which the planted cost is not what was found",
		math.Abs(ops[0].spliced-ops[0].bare-float64(found[0].Added)), ops[0].known)
}

// truth compares with what the program is known to do, a sample that is not counted
// included: getppid in Null, and once in each shell of ForkSh; newfstatat in Stat.
func (t *T) truth() {
	of := func(splices, function string) uint64 { return uint64(t.Metrics[splices+"."+function].Value) }
	t.equal("calls of getppid", of("calls", "getppid"), uint64((1440+1)*(probedSamples+1)))
	t.equal("calls of newfstatat", of("calls", "newfstatat"), uint64(384*(probedSamples+1)))
	opens := float64(opensOfSample * (pathSamples + 1))
	t.atLeast("files opened", float64(of("path", "do_sys_openat2")), opens)
	t.atMost("files opened", float64(of("path", "do_sys_openat2")), opens+8)
}
