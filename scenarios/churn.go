package scenarios

import (
	"cmp"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/onsi/gomega"

	"kerninst/agent/plan"
	"kerninst/agent/wire"
	"kerninst/lab/report"
	"kerninst/lab/vm"
)

// churn: random batches of points that all CPUs execute come and go, in several threads, under a
// load of everything, and what is called how often nobody doubts is counted exactly: guest/churn. The long ones have
// the host to themselves, one guest at a time: a guest whose CPUs do not run reports stalls.
func churns() []Scenario {
	return []Scenario{
		{Name: "churn", Title: "random batches come and go in several threads, under load: nothing breaks, and counts are exact", Labels: []string{"hazards"},
			Guests: churnSlice, Check: func(t *T) { checkChurn(t, 0) }},
		{Name: "churn-long", Title: "the same for as long as PROOF_TIME says, with 2 and 4 CPUs", Labels: []string{"proof"},
			Timed: true, Guests: churnLong, Check: checkChurnTimed},
		{Name: "churn-variants", Title: "the same on kernels and CPUs that show what a stock guest hides", Labels: []string{"proof"},
			Timed: true, Guests: churnVariants, Check: checkChurnVariants},
	}
}

const churnPackage = "guest/churn"

// proofTime is how long an ISA's guests churn in all: a Go duration. What is none is said by the
// program, which is given it.
func proofTime(guests int) (each string, limit time.Duration) {
	all := cmp.Or(os.Getenv("PROOF_TIME"), "10m")
	d, err := time.ParseDuration(all)
	if err != nil {
		return all, 0
	}
	d /= time.Duration(guests)
	return d.String(), d + 15*time.Minute // to plan, twice, and to begin and end
}

// Of a storm by time so many are asked for of each guest and each minute: a tenth of what there are on a busy host. Loads are the module's,
// of which there are the fewest.
const (
	operationsAMinute = 1000
	exactAMinute      = 100
	loadsAMinute      = 5
)

// itsTurn has khugepaged, which has the least weight of all, run as often as others. It copies pages in read sides of
// RCU; with preempt=full it may be preempted there, and under such a load wait for longer than the 21 seconds after which
// RCU says that it is stalled.
const itsTurn = `for p in $(grep -lx khugepaged /proc/[0-9]*/comm 2>/dev/null); do renice 0 -p $(basename ${p%/comm}); done`

func churnGuest(name string, cpus int, limit time.Duration, args ...string) Guest {
	taints := func(name string) *wire.Step { return shell(name, "cat /proc/sys/kernel/tainted") }
	return Guest{
		Name: name, CPUs: cpus, Time: vm.Host, Programs: []string{churnPackage}, Modules: []string{someModule}, RunTimeout: limit,
		Job: job(
			snapshot("before", ""),
			module("unload", wire.Module_UNLOAD),
			taints("taints"),
			shell("turns", itsTurn),
			run("churn", append([]string{ProgramPath(churnPackage), "-seed", seedWord}, args...)...),
			taints("taints behind"),
			module("load", wire.Module_LOAD),
			snapshot("after", "before"),
		),
	}
}

func churnSlice(string) []Guest {
	return []Guest{churnGuest("2cpu", 2, 4*time.Minute, "-rounds", "6", "-points", "600")}
}

func churnLong(string) []Guest {
	each, limit := proofTime(2)
	return []Guest{churnGuest("2cpu", 2, limit, "-for", each), churnGuest("4cpu", 4, limit, "-for", each)}
}

func churnVariants(arch string) (out []Guest) {
	all := variants(arch)
	each, limit := proofTime(len(all))
	for _, v := range all {
		g := churnGuest(v.name, v.cpus, limit, "-for", each)
		g.Append, g.CPU = v.append, v.cpu
		g.Job.Steps = append([]*wire.Step{shell("holds", v.holds)}, g.Job.Steps...)
		out = append(out, g)
	}
	return out
}

// loadKinds are what guest/churn loads a guest with.
var loadKinds = []string{"exec", "files", "pipe", "loopback", "module"}

// fewestOperations are a twentieth of what the shortest storm makes of either on an idle host: fewer are no storm.
const fewestOperations = 100

// checkChurnTimed: so much is done in a minute, too.
func checkChurnTimed(t *T) {
	each, _ := proofTime(len(t.Guests))
	d, err := time.ParseDuration(each)
	t.noError("PROOF_TIME", err)
	checkChurn(t, d.Minutes())
}

// checkChurnVariants: each guest is what it is called, besides.
func checkChurnVariants(t *T) {
	for _, g := range slices.Sorted(maps.Keys(t.Guests)) {
		t.ran(g, "holds")
	}
	checkChurnTimed(t)
}

// churnMechanisms are those by which a guest has to have points; annex is what may fault's, and a mechanism's besides. Newer kernels
// of riscv64 preempt themselves, where windows are then in nobody's reach.
func churnMechanisms(arch string, older bool) []string {
	out := []string{"annex"}
	for _, m := range plan.Ladder(arch) {
		if m != plan.Quiesced || arch != "riscv64" || older {
			out = append(out, m.String())
		}
	}
	return out
}

func checkChurn(t *T, minutes float64) {
	operations, exact := 0, 0
	for _, g := range slices.Sorted(maps.Keys(t.Guests)) {
		t.ran(g, "turns")
		seen := map[string]int{}
		for _, r := range t.stormRecords(g, "churn") {
			t.expect(g+": "+r.Name, r.Detail, "ok", gomega.Satisfy(func(string) bool { return r.OK }))
			seen[r.Name] = r.N
		}
		for _, kind := range loadKinds {
			t.atLeast(g+": times of load "+kind, float64(seen["load: "+kind]), max(1, minutes*loadsAMinute))
		}
		for _, m := range churnMechanisms(t.Arch, t.before(6, 13)) {
			t.atLeast(g+": points by "+m, float64(seen["points by "+m]), 1)
			t.atLeast(g+": points by "+m+" that were live, and come by", float64(seen["live and come by, by "+m]), 1)
		}
		t.atLeast(g+": operations", float64(seen["operations"]), max(fewestOperations, minutes*operationsAMinute))
		t.atLeast(g+": calls of victims that are held to a count", float64(seen["calls that were counted exactly"]), max(fewestOperations, minutes*exactAMinute))
		t.unharmed(g+": ", g, seen)
		operations, exact = operations+seen["operations"], exact+seen["calls that were counted exactly"]
		t.Metrics["churn."+g+".operations"] = report.Metric{Value: float64(seen["operations"]), Unit: "operations", N: 1}
	}
	t.Metrics["churn.operations"] = report.Metric{Value: float64(operations), Unit: "operations", N: 1}
	t.Metrics["churn.exact"] = report.Metric{Value: float64(exact), Unit: "calls", N: 1}
}
