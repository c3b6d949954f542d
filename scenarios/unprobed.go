package scenarios

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"kerninst/agent/isa"
	"kerninst/agent/ktext"
	"kerninst/agent/wire"
	"kerninst/lab/vm"
)

// unprobed: what can be spliced, and how, is read from text as it is without kprobes. Else a
// breakpoint hides where the next instruction begins (amd64's is shorter than what it stands
// for), behind a jump or a return it is taken for one of the kernel's own, and an optimised
// probe's jump for the function's; when the probe has gone, what was planned by it is wrong.
func unprobedScenarios() []Scenario {
	return []Scenario{{
		Name: "unprobed", Title: "each instruction of functions gets what it would get without the kprobes that are on them",
		Labels: []string{"proof"}, Guests: unprobedGuests, Check: checkUnprobed,
	}}
}

// unprobedWays are the kprobes that there are at once: one at each instruction, and so few that
// amd64 makes jumps of them.
var unprobedWays = []struct {
	name string
	each int // instructions
}{{"all", 1}, {"some", 9}}

// putProbes puts kprobes at places, as far as they may be there, and says how many there are,
// and of how many the kernel has made jumps.
const putProbes = `cd /sys/kernel/tracing; n=0
while read place; do { echo "p:unprobed/p$n $place" >>kprobe_events; } 2>/dev/null && n=$((n+1)); done
echo registered $n
echo 1 >events/unprobed/enable
sleep 5
echo optimised $(grep -c OPTIMIZED /sys/kernel/debug/kprobes/list)`

const takeProbes = `cd /sys/kernel/tracing; echo 0 >events/unprobed/enable; echo >kprobe_events`

func unprobedGuests(string) []Guest {
	return []Guest{
		{Name: "found", CPUs: 1, Time: vm.Exact, Text: true, Job: job(shell("true", "true"))},
		{Name: "asked", CPUs: 1, Time: vm.Exact, After: "found", Make: unprobedJob},
	}
}

// unprobedJob asks what each instruction of the functions of bounds would get, alone, before,
// with and after kprobes.
func unprobedJob(found *Answer) (*wire.Job, error) {
	var points []*wire.Point
	var places []string
	var unread error
	err := eachFunction(found.Text, func(f ktext.Func, insns []isa.Insn) {
		if !slices.Contains(boundsFunctions, f.Name) {
			return
		}
		code, e := found.Text.Code(f)
		unread = errors.Join(unread, e)
		site := found.Text.FtraceSite(f.Addr, code)
		for _, i := range insns {
			off := isa.Off(i.Addr - f.Addr)
			points = append(points, at(f.Name, uint64(off)))
			// A probe at an ftrace site is ftrace's, which calls what it pleases there.
			if off >= isa.Off(site) {
				places = append(places, half{f, off}.String())
			}
		}
	})
	plan := func(name string) *wire.Step {
		s := skipping(name, points)
		s.GetSplice().OnlyPlan = true
		return s
	}
	steps := []*wire.Step{snapshot("before", ""), plan("without")}
	for _, w := range unprobedWays {
		some := []string{}
		for k := 0; k < len(places); k += w.each {
			some = append(some, places[k])
		}
		steps = append(steps, shell("put "+w.name, "echo '"+strings.Join(some, "\n")+"' | ( "+putProbes+" )"), plan(w.name), shell("take "+w.name, takeProbes))
	}
	return job(append(steps, snapshot("after", "before"))...), errors.Join(err, unread)
}

func checkUnprobed(t *T) {
	// verdict is what a point gets: all of it, but for where patch memory happened to be free.
	verdict := func(p *wire.PointResult) string {
		return fmt.Sprint(p.Spec, p.Address, p.Mechanism, p.Refusal, p.OldBytes, len(p.PatchBytes), p.Displaced, p.Added, p.Spilled, p.WrittenAt, p.RunsAt, p.Moved, p.Passed, p.Instruction)
	}
	without := t.done("asked", "without").Points
	t.atLeast("instructions that can be spliced", float64(len(t.made("asked", "without"))), 300)
	for _, w := range unprobedWays {
		differ, with := []string{}, t.done("asked", w.name).Points
		t.equal("points with kprobes on "+w.name, len(with), len(without))
		for k, p := range with {
			if verdict(p) != verdict(without[k]) {
				differ = append(differ, p.Spec)
			}
		}
		t.equal("points that get something else with kprobes on "+w.name, differ, []string{})
		said := t.saidBy("asked", "put "+w.name)
		t.atLeast("kprobes on "+w.name, float64(said["registered"]), float64(len(without)/w.each)/3)
		if w.each > 1 && t.Arch == "amd64" {
			t.atLeast("of which the kernel has made jumps", float64(said["optimised"]), 5)
		}
		t.file("unprobed."+w.name, said["registered"])
		t.file("unprobed."+w.name+".optimised", said["optimised"])
	}
	t.equal("ranges of text that differ afterwards", len(t.done("asked", "after").Text.Differing), 0)
}
