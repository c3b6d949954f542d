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

// calling is how often the device is called, how many of these calls there are for each that the kernel takes long for, and
// how many batches are made at the least, by what they have: a third of what was seen, or so.
type calling struct {
	calls, dear                int
	made, withCopies, resuming float64
}

// device: the module's calls with what is nearly right and with what is not, by root and by
// nobody, two at a time, with mappings that come and go, and between them those who want it at once: guest/fuzz.
func devices() []Scenario {
	slice := calling{calls: 60_000, dear: 12, made: 15, withCopies: 8, resuming: 12}
	long := calling{calls: 10_000_000, dear: 120, made: 150, withCopies: 80, resuming: 80}
	return []Scenario{
		{Name: "device", Title: "the device is called with what is nearly right: nothing breaks, nothing is left, no memory is lost", Labels: []string{"fuzz"},
			Guests: deviceGuests(slice, 8*time.Minute), Check: slice.check},
		{Name: "device-long", Title: "the same with 10,000,000 calls", Labels: []string{"proof"},
			Guests: deviceGuests(long, 3*time.Hour), Check: long.check},
	}
}

const fuzzPackage = "guest/fuzz"

func deviceGuests(c calling, limit time.Duration) func(string) []Guest {
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
				run("device", ProgramPath(fuzzPackage), "-seed", seedWord, "-calls", strconv.Itoa(c.calls), "-dear", strconv.Itoa(c.dear)),
				taints("taints behind"),
				module("load", wire.Module_LOAD),
				snapshot("after", "before"),
			),
		}}
	}
}

// heldByAll is what each user is to have tried, and heldByOpeners what those have who want the device at once.
var (
	heldByAll = []string{"mmap", "right", "cells that are made executable", "cells that are mapped to be executed", "cells of one's own", "cells that grow",
		"cells that no child has", "cells that are read", "cells that are written and read", "cells that keep what was written", "the device is opened twice"}
	heldByOpeners = []string{"one has the device alone", "who comes while another has the device is refused", "who comes while cells are mapped is refused",
		"who has the device is answered", "who has the device is given an area", "who has the device maps cells", "cells that are mapped twice are the same",
		"cells that are written and read", "cells that keep what was written"}
)

func (c calling) check(t *T) {
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
	t.equal("calls", all, c.calls)
	for _, of := range []struct {
		metric, what string
		least        float64
	}{
		{"device.spliced", "batches that were made", c.made},
		{"device.spliced.copies", "batches that were made with copies", c.withCopies},
		{"device.spliced.resumes", "batches that were made with resumes", c.resuming},
	} {
		t.Metrics[of.metric] = report.Metric{Value: float64(seen[of.what]), Unit: "batches", N: 1}
		t.atLeast(of.what, float64(seen[of.what]), of.least)
	}
	t.haveTried("root", seen, heldByAll)
	t.haveTried("nobody", seen, heldByAll)
	t.haveTried("openers", seen, heldByOpeners)
	t.atLeast("turns of openers", float64(seen["openers: one has the device alone"]), leastTurns)
	t.unharmed("", g, seen)
}

// haveTried holds that what somebody had to hold came to be tried: what was not has no record.
func (t *T) haveTried(who string, seen map[string]int, held []string) {
	for _, what := range held {
		t.atLeast(who+": times that it was tried: "+what, float64(seen[who+": "+what]), 1)
	}
}

// leastTurns is how often the device is had by one of several who want it: a third of what they ask for.
const leastTurns = 8 * 4 * 24 / 3

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
