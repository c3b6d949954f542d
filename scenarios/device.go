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

// device: the module's calls with what is nearly right and with what is not, by root and by
// nobody, two at a time, with mappings that come and go: guest/fuzz.
func devices() []Scenario {
	return []Scenario{
		{Name: "device", Title: "the device is called with what is nearly right: nothing breaks, nothing is left, no memory is lost", Labels: []string{"fuzz"},
			Guests: deviceGuests(60_000, 12, 4*time.Minute), Check: checkDevice},
		{Name: "device-long", Title: "the same with 10,000,000 calls", Labels: []string{"proof"},
			Guests: deviceGuests(10_000_000, 120, 3*time.Hour), Check: checkDevice},
	}
}

const fuzzPackage = "guest/fuzz"

func deviceGuests(calls, dear int, limit time.Duration) func(string) []Guest {
	return func(string) []Guest {
		taints := func(name string) *wire.Step { return shell(name, "cat /proc/sys/kernel/tainted") }
		return []Guest{{
			// Huge pages that programs have given back a part of are in no account until they are split,
			// 2 MiB each: the memory that nobody accounts for differed by 3 MiB from look to look.
			Append: "transparent_hugepage=never",
			Name:   "device", CPUs: 2, Time: vm.Host, Programs: []string{fuzzPackage}, RunTimeout: limit,
			Job: job(
				snapshot("before", ""),
				module("unload", wire.Module_UNLOAD),
				taints("taints"),
				run("device", ProgramPath(fuzzPackage), "-seed", seedWord, "-calls", strconv.Itoa(calls), "-dear", strconv.Itoa(dear)),
				taints("taints behind"),
				module("load", wire.Module_LOAD),
				snapshot("after", "before"),
			),
		}}
	}
}

func checkDevice(t *T) {
	const g = "device"
	seen := map[string]int{}
	for _, r := range t.stormRecords(g, g) {
		t.expect(r.Name, r.Detail, "ok", gomega.Satisfy(func(string) bool { return r.OK }))
		seen[r.Name] = r.N
		if who, ok := strings.CutSuffix(r.Name, ": calls"); ok {
			t.file("device.calls."+who, r.N)
		}
	}
	all := seen["root: calls"] + seen["nobody: calls"]
	t.Metrics["device.calls"] = report.Metric{Value: float64(all), Unit: "calls", N: 1}
	t.Metrics["device.spliced"] = report.Metric{Value: float64(seen["batches that were made"]), Unit: "batches", N: 1}
	t.unharmed("", g, seen)
}

// unharmed is that a program which tried the module came to its end, and left the kernel as it
// was. What is checked is named with as before it.
func (t *T) unharmed(as, g string, seen map[string]int) {
	t.equal(as+"the program came to its end", seen["unload"], 1)
	t.untouched(as, g)
}

// untouched holds that a kernel has the text and the taints that it had.
func (t *T) untouched(as, g string) {
	t.equal(as+"what has tainted the kernel", string(t.ran(g, "taints behind")[0]), string(t.ran(g, "taints")[0]))
	t.equal(as+"ranges of text that differ from the start", len(t.done(g, "after").Text.Differing), 0)
}
