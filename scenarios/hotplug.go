package scenarios

import (
	"strconv"
	"strings"

	"github.com/onsi/gomega"

	"kerninst/agent/wire"
	"kerninst/lab/report"
	"kerninst/lab/vm"
)

// hotplug: a CPU goes and comes again while batches are written and undone, windows among
// them, so that it happens at any of their steps. What a CPU that has gone has counted is
// counted. Of what one that comes runs first, all is spliced that may be.

// hotplugRounds are the batches.
const hotplugRounds = 12

// cpu1 is the file that takes a CPU away.
const cpu1 = "/sys/devices/system/cpu/cpu1/online"

// coming are the functions that a CPU that comes runs first, by ISA.
var coming = map[string][]string{
	"amd64":   {"common_startup_64", "verify_cpu", "early_setup_idt", "start_secondary", "cr4_init", "cpu_init_exception_handling", "load_current_idt"},
	"arm64":   {"__secondary_switched", "set_cpu_boot_mode_flag", "finalise_el2", "secondary_start_kernel"},
	"riscv64": {"smp_callin"},
}

// flip takes the second CPU away and brings it back for as long as it may, and says how often.
const flip = `touch /tmp/flip; { n=0; while [ -e /tmp/flip ]; do echo 0 >` + cpu1 + ` && echo 1 >` + cpu1 + ` && n=$((n+1)); done; echo $n >/tmp/n; mv /tmp/n /tmp/flips; } </dev/null >/dev/null 2>&1 &`

func hotplugs() []Scenario {
	return []Scenario{{
		Name: "hotplug", Title: "a CPU goes and comes while batches are written and undone", Labels: []string{"counts", "proof"},
		Guests: hotplugGuests, Check: checkHotplug,
	}}
}

func hotplugGuests(arch string) []Guest {
	null := syscallEntry(arch, "getppid")
	all := []*wire.Point{entry(null)}
	for _, f := range append([]string{"vfs_read", "copy_process"}, coming[arch]...) {
		all = append(all, &wire.Point{Function: f, Each: wire.Each_INSTRUCTION})
	}
	steps := append(evenSteps(all[0]), snapshot("before", ""), shell("flip", flip))
	for k := range hotplugRounds {
		s := nth("splice", k)
		steps = append(steps, briefly(skipping(s, all)),
			bench(nth("work", k), "null", 1), readStill(nth("count", k)), unsplice(s))
	}
	return []Guest{{Name: "guest", CPUs: 2, Time: vm.Host, Job: job(append(steps,
		shell("still", "rm /tmp/flip; while [ ! -e /tmp/flips ]; do sleep 0.1; done; cat /tmp/flips "+cpu1),
		snapshot("after", "before"),
		splice("splice", entry(null)), bench("work", "null", 2), read("both"), shell("gone", "echo 0 >"+cpu1+"; cat "+cpu1), read("count"),
		shell("back", "echo 1 >"+cpu1), unsplice("splice"), snapshot("at last", "before"))...)}}
}

// ofShell is how often a shell asks for its parent.
const ofShell = 1

func checkHotplug(t *T) {
	const g = "guest"
	flips := strings.Fields(string(t.ran(g, "still")[0]))
	t.equal("the CPU is there again", flips[len(flips)-1], "1")
	n, err := strconv.Atoi(flips[0])
	t.expect("how often a CPU went is a number", err, "no error", gomega.Succeed())
	t.atLeast("times that a CPU went and came", float64(n), hotplugRounds)
	points, even := 0, t.evenOf(g)
	for k := range hotplugRounds {
		made := t.made(g, nth("splice", k))
		points += len(made)
		t.equal(nth("counter = what the workload did", k), t.stillCounts(g, nth("count", k))[made[0].Address], t.benches(g, nth("work", k))[0].TotalOp)
		even.hold(t, g, nth("count", k))
	}
	t.equal("ranges of text that differ afterwards", len(t.done(g, "after").Text.Differing), 0)
	var did uint64
	for _, b := range t.benches(g, "work") {
		did += b.TotalOp
	}
	t.equal("a CPU has gone", strings.TrimSpace(string(t.ran(g, "gone")[0])), "0")
	p := t.done(g, "splice").Points[0]
	t.equal("counter of both CPUs = what they did", t.value(g, "both", p), did)
	t.equal("the same, when one has gone", t.value(g, "count", p), did+ofShell)
	t.equal("ranges of text that differ at last", len(t.done(g, "at last").Text.Differing), 0)
	even.found(t, "hotplug")
	t.Metrics["hotplug.points"] = report.Metric{Value: float64(points), Unit: "points", N: 1}
	t.Metrics["hotplug.flips"] = report.Metric{Value: float64(n), Unit: "flips", N: 1}
}
