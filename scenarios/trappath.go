package scenarios

import (
	"fmt"

	"kerninst/agent/isa"
	"kerninst/agent/plan"
	"kerninst/agent/wire"
	"kerninst/lab/report"
	"kerninst/lab/vm"
)

// trap-path: whatever a CPU runs between a breakpoint and its patch must have no breakpoint
// of ours itself, or would come by it again and again. What it runs is what is executed
// more often, for each hit, than without: seen from outside, so nothing is believed of the
// kernel's source.
func trapPaths() []Scenario {
	return []Scenario{{
		Name: "trap-path", Title: "no breakpoint may be where a CPU goes from one to its patch", Labels: []string{"counts", "proof"},
		Guests: trapPathGuests, Check: checkTrapPath,
	}}
}

func trapPathGuests(arch string) []Guest {
	null := syscallEntry(arch, "getppid")
	guest := func(name string, steps ...*wire.Step) Guest {
		return Guest{Name: name, CPUs: 1, Time: vm.Exact, Oracle: true, Executed: executedOften, Job: job(steps...)}
	}
	return []Guest{
		guest("bare", bench("work", "null", 1)),
		guest("trapped", splice("splice", byTrap(somewhere(null))), bench("work", "null", 1), read("count"), unsplice("splice")),
	}
}

// shortestTrap is less than any ISA takes for a breakpoint in the kernel, in instructions.
const shortestTrap = 80

func checkTrapPath(t *T) {
	bare, trapped := t.Guests["bare"], t.Guests["trapped"]
	p := t.spliced("trapped", "splice")
	hits := t.value("trapped", "count", p)
	t.equal("counter = what the workload did", hits, t.benches("trapped", "work")[0].TotalOp)
	before := map[uint64]uint64{}
	for a, n := range bare.Oracle {
		before[a-bare.Hello.TextStart] = n.Total
	}
	lo, _ := trapped.Text.Bounds()
	n, open := 0, []string(nil)
	for a, seen := range trapped.Oracle {
		off := a - trapped.Hello.TextStart
		if a < trapped.Hello.TextStart || a >= trapped.Hello.TextEnd || a == p.WrittenAt || seen.Total < before[off]+hits {
			continue
		}
		n++
		if why := mayTrap(trapped, lo+isa.Addr(off)); why != "" {
			open = append(open, why)
		}
	}
	t.equal("instructions on the way that a breakpoint may replace", open, []string(nil))
	t.atLeast("instructions on the way", float64(n), shortestTrap)
	t.Metrics["trap-path.instructions"] = report.Metric{Value: float64(n), Unit: "insns", N: 1}
}

// mayTrap names an instruction that a breakpoint may replace. Without patch memory there
// is one refusal that says so: all others are about where it stands.
func mayTrap(of *Answer, a isa.Addr) string {
	f, ok := of.Text.Locate(a)
	if !ok {
		return ""
	}
	_, r := plan.At(of.Text, f, plan.Request{Offset: isa.Off(a - f.Addr), Mechanism: plan.Trap})
	if r != nil && r.Reason != plan.OutOfReach {
		return ""
	}
	return fmt.Sprintf("%v+%#x", f, uint64(a-f.Addr))
}
