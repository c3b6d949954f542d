package scenarios

import (
	"strconv"
	"strings"
	"time"

	"github.com/onsi/gomega"

	"kerninst/agent/wire"
	"kerninst/lab/report"
	"kerninst/lab/vm"
)

// Mishaps: memory runs out at each allocation of the module, callers are killed at each of its
// steps, and the machine goes to sleep while it is spliced.
func mishaps() []Scenario {
	return []Scenario{
		{Name: "fails", Title: "each allocation of the module fails, one by one: what was asked for is done, or nothing is", Labels: []string{"hazards", "proof"},
			Guests: mishapGuests("fails", 40, 1), Check: checkMishap("fails")},
		{Name: "kills", Title: "a caller is killed at some steps of a batch that is made and taken back: nothing is left", Labels: []string{"hazards"},
			Guests: mishapGuests("kills", 24, 24), Check: checkMishap("kills")},
		{Name: "kills-long", Title: "the same at each step", Labels: []string{"proof"},
			Guests: mishapGuests("kills", 40, 1), Check: checkMishap("kills")},
		{Name: "power", Title: "the machine is put to sleep while it is spliced, as far as it can be woken again", Labels: []string{"hazards", "proof"},
			Guests: powerGuests, Check: checkPower},
	}
}

// mishapGuests have guest/churn try one kind of mishap. Of all steps, each so manyth is one at
// which a caller is killed.
func mishapGuests(kind string, points, stride int) func(string) []Guest {
	return func(string) []Guest {
		g := churnGuest("guest", 2, time.Hour, "-points", strconv.Itoa(points), "-stride", strconv.Itoa(stride), kind)
		g.Modules = nil
		return []Guest{g}
	}
}

// walked are the calls of which each allocation must have failed.
var walked = []string{"load", "area", "read", "batch", "undo", "moment", "rings", "release"}

func checkMishap(kind string) func(*T) {
	return func(t *T) {
		const g = "guest"
		seen, all := map[string]int{}, 0
		for _, r := range t.stormRecords(g, "churn") {
			t.expect(r.Name, r.Detail, "ok", gomega.Satisfy(func(string) bool { return r.OK }))
			seen[r.Name] = r.N
			if strings.HasPrefix(r.Name, kind+": ") {
				all += r.N
			}
		}
		if kind == "fails" {
			for _, call := range walked {
				t.atLeast("allocations of "+call, float64(seen["fails: "+call]), 1)
			}
		}
		t.unharmed("", g, seen)
		t.Metrics[kind+".tried"] = report.Metric{Value: float64(all), Unit: kind, N: 1}
	}
}

// sleeps are the ways to sleep, as far as the kernel's own test of them goes: it wakes at once.
// Only where a kernel has the last state is its memory written, of which the last step fails, for
// there is nowhere to write it to.
var sleeps = []struct{ name, command string }{
	{"freezer", "echo freezer >/sys/power/pm_test && echo freeze >/sys/power/state"},
	{"devices", "echo devices >/sys/power/pm_test && echo freeze >/sys/power/state"},
	{"hibernate-core", "echo core >/sys/power/pm_test && echo disk >/sys/power/state"},
	{"hibernate-nowhere", "echo none >/sys/power/pm_test && ! echo disk >/sys/power/state"},
}

func powerGuests(arch string) []Guest {
	null := syscallEntry(arch, "getppid")
	all := []*wire.Point{entry(null)}
	for _, f := range append([]string{"vfs_read", "copy_process", "cpuhp_invoke_callback", "freeze_processes", "thaw_processes", "hibernation_snapshot", "dpm_suspend", "dpm_resume"}, coming[arch]...) {
		all = append(all, &wire.Point{Function: f, Each: wire.Each_INSTRUCTION})
	}
	steps := []*wire.Step{
		snapshot("before", ""),
		shell("states", "cat /sys/power/state; cat /sys/power/pm_test; [ ! -e /sys/module/suspend/parameters/pm_test_delay ] || echo 1 >/sys/module/suspend/parameters/pm_test_delay"),
		skipping("splice", all),
	}
	for k, s := range sleeps {
		steps = append(steps, shell(s.name, s.command), bench(nth("work", k), "null", 2), read(nth("count", k)))
	}
	steps = append(steps, shell("cpus", "cat /sys/devices/system/cpu/online"), unsplice("splice"), snapshot("after", "before"))
	return []Guest{{Name: "guest", CPUs: 2, Time: vm.Host, Boots: true, Job: job(steps...)}}
}

func checkPower(t *T) {
	const g = "guest"
	t.ran(g, "states")
	p := t.made(g, "splice")[0]
	done := uint64(0)
	for k, s := range sleeps {
		t.ran(g, s.name)
		for _, b := range t.benches(g, nth("work", k)) {
			done += b.TotalOp
		}
		t.equal(s.name+": counter = what the workload did, and a shell for each sleep", t.value(g, nth("count", k), p), done+uint64((k+1)*ofShell))
	}
	t.equal("CPUs that are there", strings.TrimSpace(string(t.ran(g, "cpus")[0])), "0-1")
	t.equal("ranges of text that differ afterwards", len(t.done(g, "after").Text.Differing), 0)
	t.Metrics["power.sleeps"] = report.Metric{Value: float64(len(sleeps)), Unit: "sleeps", N: 1}
}
