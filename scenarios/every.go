package scenarios

import (
	"fmt"
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
		points = append(points, &wire.Point{Function: f, Every: true})
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

// fewest is how many of the points a message must pass. On riscv64 a splice takes
// eight bytes, and those around it with them.
var fewest = map[string]float64{"amd64": 100, "arm64": 300, "riscv64": 10}

// fewestBy is how many of them each mechanism must reach. Every point for itself,
// springboards reach many more; here all of them share the padding of seven functions.
var fewestBy = map[string]map[string]float64{
	"amd64":   {"jump": 80, "springboard": 15},
	"arm64":   {"jump": 300},
	"riscv64": {"quiesced": 10},
}

func checkEvery(t *T) {
	arch, err := all.Lookup(t.Arch)
	if err != nil {
		panic(err) // the lab has started a guest of it
	}
	for _, guest := range []string{"1cpu", "2cpu"} {
		t.benches(guest, "work")
		counts := map[string]uint64{}
		for _, v := range t.done(guest, "count").Values {
			counts[v.Spec] = v.Count
		}
		seen, refused, ways := map[string]int{}, map[string]int{}, map[string]int{}
		spliced, executed, arrivals, wrong := 0, 0, uint64(0), []string{}
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
			if n == 0 {
				continue
			}
			executed++
			ways[p.Mechanism]++
			for k := 0; k < len(p.OldBytes); {
				i := arch.Decode(p.OldBytes[k:], isa.Addr(p.WrittenAt)+isa.Addr(k))
				for _, c := range classes {
					if c.is(i) {
						seen[c.name]++
					}
				}
				k += i.Len
			}
		}
		t.equal(guest+": points whose counter is not what was seen outside", wrong, []string{})
		t.atLeast(guest+": points that were executed", float64(executed), fewest[t.Arch])
		for _, c := range classes {
			t.Metrics["every."+guest+"."+c.name] = report.Metric{Value: float64(seen[c.name]), Unit: "instructions", N: 1}
			if contains(c.on, t.Arch) {
				t.atLeast(guest+": executed points of the class "+c.name, float64(seen[c.name]), 1)
			}
		}
		for way, least := range fewestBy[t.Arch] {
			t.atLeast(guest+": executed points by "+way, float64(ways[way]), least)
			t.Metrics["every."+guest+"."+way] = report.Metric{Value: float64(ways[way]), Unit: "points", N: 1}
		}
		t.equal(guest+": ranges of text that differ afterwards", len(t.done(guest, "after").Text.Differing), 0)
		t.Metrics["every."+guest+".points"] = report.Metric{Value: float64(spliced), Unit: "points", N: 1}
		t.Metrics["every."+guest+".executed"] = report.Metric{Value: float64(executed), Unit: "points", N: 1}
		t.count("every."+guest+".arrivals", arrivals)
		for reason, n := range refused {
			t.Metrics["every."+guest+".refused."+strings.ReplaceAll(reason, " ", "-")] = report.Metric{Value: float64(n), Unit: "points", N: 1}
		}
	}
}
