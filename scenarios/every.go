package scenarios

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"kerninst/agent/isa"
	"kerninst/agent/isa/all"
	"kerninst/agent/wire"
	"kerninst/lab/report"
	"kerninst/lab/vm"
)

// every: all instructions of the functions that a message goes through, spliced
// at once. Whatever an instruction is, moving it changes neither how often it nor
// how often any other is reached, and the messages arrive.
func every() []Scenario {
	return []Scenario{
		{Name: "every", Title: "each instruction of some functions is spliced; counters equal what an observer outside saw", Labels: []string{"counts", "proof"},
			Guests: everyGuests, Check: checkEvery},
		{Name: "module", Title: "each instruction of some functions of a module of the distribution is spliced; counters equal what an observer outside saw", Labels: []string{"counts", "proof"},
			Guests: moduleGuests, Check: checkModule},
	}
}

// messageFunctions are entered by messages alone; not every build has each of them
// as a function.
var messageFunctions = []string{
	"ksys_msgsnd", "do_msgsnd", "ksys_msgrcv", "do_msgrcv", "load_msg", "store_msg", "free_msg",
}

func everyGuests(string) []Guest {
	var points []*wire.Point
	for _, f := range messageFunctions {
		points = append(points, &wire.Point{Function: f, Each: wire.Each_INSTRUCTION})
	}
	steps := func(copies uint32) *wire.Job {
		all := announced(splice("splice", points...))
		all.GetSplice().SkipRefused = true
		work := run("work", benchProgram, "msg", "200", "5")
		work.GetRun().Copies = copies
		return job(snapshot("before", ""), all, work, read("count"), unsplice("splice"), snapshot("after", "before"))
	}
	return []Guest{
		{Name: "1cpu", CPUs: 1, Time: vm.Exact, Oracle: true, Job: steps(1)},
		{Name: "2cpu", CPUs: 2, Time: vm.Host, Oracle: true, Job: steps(2)},
	}
}

// classes are what instructions are to the planner: how each is moved. A class
// that an ISA's mechanisms reach must occur among what was executed.
var classes = []struct {
	name string
	is   func(isa.Insn) bool
	on   []string
}{
	{"call", func(i isa.Insn) bool { return i.Flow == isa.FlowCall }, []string{"amd64", "arm64"}},
	{"condition", func(i isa.Insn) bool { return i.Flow == isa.FlowCond }, []string{"amd64", "arm64"}},
	{"jump", func(i isa.Insn) bool { return i.Flow == isa.FlowJump }, []string{"amd64", "arm64"}},
	{"return", func(i isa.Insn) bool { return i.Flow == isa.FlowReturn }, []string{"arm64", "riscv64"}},
	{"address", func(i isa.Insn) bool { return i.Flow == isa.FlowNone && i.Traits&isa.PCRel != 0 }, []string{"arm64", "riscv64"}},
}

// fewest is how many of the points a message must pass.
var fewest = map[string]float64{"amd64": 100, "arm64": 300, "riscv64": 250}

// fewestBy is how many of them each mechanism must reach. Every point for itself,
// springboards reach many more; here all of them share the padding of seven functions.
var fewestBy = map[string]map[string]float64{
	"amd64":   {"jump": 80, "springboard": 15},
	"arm64":   {"jump": 300},
	"riscv64": {"springboard": 150},
}

func checkEvery(t *T) {
	for _, guest := range []string{"1cpu", "2cpu"} {
		t.benches(guest, "work")
		c := t.coverage("every", guest)
		t.atLeast(guest+": points that were executed", float64(c.executed), fewest[t.Arch])
		for way, n := range c.ways {
			t.Metrics["every."+guest+"."+way] = report.Metric{Value: float64(n), Unit: "points", N: 1}
		}
		for _, class := range classes {
			t.Metrics["every."+guest+"."+class.name] = report.Metric{Value: float64(c.classes[class.name]), Unit: "instructions", N: 1}
			if contains(class.on, t.Arch) {
				t.atLeast(guest+": executed points of the class "+class.name, float64(c.classes[class.name]), 1)
			}
		}
		for _, way := range slices.Sorted(maps.Keys(fewestBy[t.Arch])) {
			t.atLeast(guest+": executed points by "+way, float64(c.ways[way]), fewestBy[t.Arch][way])
		}
	}
}

// coverage is what of a splice of many points was executed.
type coverage struct {
	executed      int            // points
	ways, classes map[string]int // of them: by mechanism; displaced instructions by class
}

// coverage compares each counter with what was seen outside, and the text with what it
// was before, and files how much that was.
func (t *T) coverage(scenario, guest string) coverage {
	arch, err := all.Lookup(t.Arch)
	if err != nil {
		panic(err) // the lab has started a guest of it
	}
	counts := map[string]uint64{}
	for _, v := range t.done(guest, "count").Values {
		counts[v.Spec] = v.Count
	}
	c := coverage{ways: map[string]int{}, classes: map[string]int{}}
	spliced, arrivals, wrong, refused := 0, uint64(0), []string{}, map[string]int{}
	for _, p := range t.done(guest, "splice").Points {
		if p.Refusal != nil {
			refused[p.Refusal.Reason]++
			continue
		}
		n := t.Guests[guest].Oracle[p.WrittenAt].Total
		if counts[p.Spec] != n {
			wrong = append(wrong, fmt.Sprintf("%s (%s) counted %d of %d", p.Spec, p.Displaced[0], counts[p.Spec], n))
		}
		spliced++
		arrivals += n
		if n > 0 {
			c.add(arch, p)
		}
	}
	t.equal(guest+": points whose counter is not what was seen outside", wrong, []string{})
	t.equal(guest+": ranges of text that differ afterwards", len(t.done(guest, "after").Text.Differing), 0)
	for name, n := range map[string]int{"points": spliced, "executed": c.executed} {
		t.Metrics[scenario+"."+guest+"."+name] = report.Metric{Value: float64(n), Unit: "points", N: 1}
	}
	t.count(scenario+"."+guest+".arrivals", arrivals)
	for reason, n := range refused {
		t.Metrics[scenario+"."+guest+".refused."+strings.ReplaceAll(reason, " ", "-")] = report.Metric{Value: float64(n), Unit: "points", N: 1}
	}
	return c
}

// add takes a point in that was executed.
func (c *coverage) add(arch *isa.Arch, p *wire.PointResult) {
	c.executed++
	c.ways[p.Mechanism]++
	for k := 0; k < len(p.OldBytes); {
		i := arch.Decode(p.OldBytes[k:], isa.Addr(p.WrittenAt)+isa.Addr(k))
		for _, class := range classes {
			if class.is(i) {
				c.classes[class.name]++
			}
		}
		k += i.Len
	}
}
