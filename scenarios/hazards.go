package scenarios

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/onsi/gomega"

	"kerninst/agent/wire"
	"kerninst/lab/report"
	"kerninst/lab/vm"
)

// The module's own tests: what would crash a kernel if a rule of writing live
// text were broken, tried in stock guests, two CPUs at a time. Both scenarios
// ask the same; they differ in how often.
func hazards() []Scenario {
	return []Scenario{
		{Name: "storm", Title: "splices toggle under load, others' probes come and go, what is wrong is refused", Labels: []string{"hazards"},
			Guests: stormGuests(100, 4*time.Minute), Check: checkStorm},
		{Name: "toggle", Title: "the same with 10,000 toggles of each length", Labels: []string{"proof"},
			Guests: stormGuests(10_000, 30*time.Minute), Check: checkStorm},
		{Name: "toggle-variants", Title: "splices toggle on kernels and CPUs that show what a stock guest hides", Labels: []string{"proof"},
			Guests: stormVariants(2000, 30*time.Minute), Check: checkVariants},
	}
}

const stormPackage = "guest/storm"

// ProgramPath is where a guest has a program that the image does not hold.
func ProgramPath(pkg string) string { return "/programs/" + path.Base(pkg) }

// stormGuests has the daemon let go of the device, and the program take it.
func stormGuests(toggles int, limit time.Duration) func(string) []Guest {
	return func(string) []Guest {
		return []Guest{{
			Name: "storm", CPUs: 2, Time: vm.Host, Programs: []string{stormPackage}, RunTimeout: limit,
			Job: job(
				snapshot("before", ""),
				module("unload", wire.Module_UNLOAD),
				shell("taints", "cat /proc/sys/kernel/tainted"),
				run("storm", ProgramPath(stormPackage), "-seed", seedWord, "-toggles", strconv.Itoa(toggles)),
				shell("taints behind", "cat /proc/sys/kernel/tainted"),
				module("load", wire.Module_LOAD),
				snapshot("after", "before"),
				module("unload again", wire.Module_UNLOAD),
				run("locked", ProgramPath(stormPackage), "locked"), // last: lockdown cannot be taken back
			),
		}}
	}
}

// stormVariants are the first of those guests, once for each variant.
func stormVariants(toggles int, limit time.Duration) func(string) []Guest {
	return func(arch string) (out []Guest) {
		for _, v := range variants(arch) {
			g := stormGuests(toggles, limit)(arch)[0]
			g.Name, g.Append, g.CPU = v.name, v.append, v.cpu
			g.Job.Steps = append([]*wire.Step{shell("holds", v.holds)}, g.Job.Steps...)
			out = append(out, g)
		}
		return out
	}
}

// stormRecord is one check that the program made: see guest/storm.
type stormRecord struct {
	Name   string `json:"name"`
	N      int    `json:"n"`
	OK     bool   `json:"ok"`
	Detail string `json:"detail"`
}

func stormRecords(text []byte) ([]stormRecord, error) {
	var out []stormRecord
	for dec := json.NewDecoder(bytes.NewReader(text)); ; {
		var r stormRecord
		if err := dec.Decode(&r); errors.Is(err, io.EOF) {
			return out, nil
		} else if err != nil {
			return out, fmt.Errorf("record %d: %w", len(out), err)
		}
		out = append(out, r)
	}
}

// lengths are those of what is written at a point: all must have been tried.
var lengths = map[string][]int{"amd64": {2, 3, 4, 5}, "arm64": {4}, "riscv64": {4, 8}}

// boards are the ways by a springboard, likewise: where an instruction is too short for
// a jump, a short one leads to padding or to where a stretch was, or a farther one to where
// a function was.
var boards = map[string][]string{
	"amd64":   {"2 bytes to a jump in padding", "2 bytes to a copy of the patch", "2 bytes to where a stretch was"},
	"riscv64": {"4 bytes to where a function was"},
}

// padded reports whether functions of the kernel have padding in front of them: Debian's for
// amd64 since 6.2 (CALL_PADDING). Without, the ways that lead there are not tried.
func (t *T) padded() bool { return t.Arch != "amd64" || !t.before(6, 2) }

// tried are the lengths and the ways by a springboard.
func (t *T) tried() ([]int, []string) {
	if t.padded() {
		return lengths[t.Arch], boards[t.Arch]
	}
	return []int{5}, []string{"2 bytes to where a stretch was"}
}

// remade are the ways of which all is made and taken back under load as well: what others
// pass by has to wait for them.
var remade = map[string]string{"amd64": "2 bytes to where a stretch was"}

// punned are the checks of jumps that others complete, likewise.
var punned = map[string][]string{"amd64": {"toggles of a jump that others complete under load", "batches of a jump and what completes it, under load",
	"a jump to memory that others have", "a jump to what is behind it",
	"count of a jump whose successor is moved away", "batches of a jump and of what is moved away for it, under load"}}

// toggled is how often splices were toggled in a guest, and of them those by a
// springboard. Each way there must have been tried.
func (t *T) toggled(guest string, records []stormRecord) (all, byBoard int) {
	times := map[string]int{}
	for _, r := range records {
		if what, ok := strings.CutPrefix(r.Name, "toggles of "); ok {
			times[strings.TrimSuffix(what, " under load")] += r.N
			all += r.N
		}
		times[r.Name] += r.N
	}
	if what, ok := remade[t.Arch]; ok {
		t.atLeast(guest+": remakes of "+what, float64(times["remakes of "+what+" under load"]), 1)
	}
	lengths, boards := t.tried()
	for _, n := range lengths {
		what := fmt.Sprintf("%d bytes", n)
		t.atLeast(guest+": toggles of "+what, float64(times[what]), 1)
	}
	t.atLeast(guest+": toggles of a breakpoint", float64(times["a breakpoint"]), 1)
	for _, what := range punned[t.Arch] {
		t.atLeast(guest+": "+what, float64(times[what]), 1)
	}
	for _, what := range boards {
		t.atLeast(guest+": toggles of "+what, float64(times[what]), 1)
		byBoard += times[what]
	}
	return all, byBoard
}

// toggles files them. An ISA without springboards has no such figure.
func (t *T) toggles(all, byBoard int) {
	t.Metrics["storm.toggles"] = report.Metric{Value: float64(all), Unit: "toggles", N: 1}
	if len(boards[t.Arch]) > 0 {
		t.Metrics["storm.springboard.toggles"] = report.Metric{Value: float64(byBoard), Unit: "toggles", N: 1}
	}
}

// stormRecords are those of the one program of a guest. They are looked at although
// it failed: it says why.
func (t *T) stormRecords(guest, step string) []stormRecord {
	res := t.result(guest, step)
	t.g.Expect(res.Runs).To(gomega.HaveLen(1), "step %s: %s", step, res.Error)
	all, err := stormRecords(res.Runs[0].Stdout)
	t.g.Expect(err).NotTo(gomega.HaveOccurred())
	for _, r := range all {
		if !r.OK {
			return all
		}
	}
	t.ran(guest, step)
	return all
}

func checkStorm(t *T) {
	const g = "storm"
	all := t.stormRecords(g, g)
	seen := map[string]bool{}
	see := func(records []stormRecord) {
		for _, r := range records {
			t.expect(r.Name, r.Detail, "ok", gomega.Satisfy(func(string) bool { return r.OK }))
			seen[r.Name] = true
		}
	}
	see(all) // first: who fails here is not locked out
	see(t.stormRecords(g, "locked"))
	if t.Arch != "arm64" {
		t.equal("code was moved away", seen["undo of a function with a springboard in it"], true)
	}
	t.toggles(t.toggled(g, all))
	t.equal("the program came to its end", seen["unload"], true)
	t.equal("lockdown was tried", seen["open under lockdown"], true)
	t.untouched("", g)
	t.Metrics["storm.checks"] = report.Metric{Value: float64(len(all)), Unit: "checks", N: 1}
}

func checkVariants(t *T) {
	toggles, byBoard := 0, 0
	for _, v := range variants(t.Arch) {
		t.ran(v.name, "holds")
		records := t.stormRecords(v.name, "storm")
		for _, r := range records {
			t.expect(v.name+": "+r.Name, r.Detail, "ok", gomega.Satisfy(func(string) bool { return r.OK }))
		}
		n, b := t.toggled(v.name, records)
		toggles, byBoard = toggles+n, byBoard+b
		t.untouched(v.name+": ", v.name)
	}
	t.toggles(toggles, byBoard)
}
