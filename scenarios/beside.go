package scenarios

import (
	"strings"

	"kerninst/agent/ktext"
	"kerninst/agent/wire"
	"kerninst/lab/report"
)

// beside: the planner and the module know each by itself where the kernel rewrites
// its text. Where they differ, a splice that was planned is not made.
func beside() []Scenario {
	return []Scenario{
		{Name: "beside", Title: "what lies beside static keys is spliced like anything else", Labels: []string{"counts", "proof"},
			Guests: besideGuests, Check: checkBeside},
	}
}

// keyed are functions of every build with static keys among other instructions.
var keyed = []string{"kmem_cache_free", "kfree"}

func besideGuests(string) []Guest {
	var points []*wire.Point
	for _, f := range keyed {
		points = append(points, &wire.Point{Function: f, Each: wire.Each_INSTRUCTION})
	}
	all := splice("splice", points...)
	all.GetSplice().SkipRefused = true
	return []Guest{{Name: "beside", CPUs: 1, Job: job(snapshot("before", ""), all,
		run("work", benchProgram, "msg", "20", "1"), read("count"), unsplice("splice"), snapshot("after", "before"))}}
}

func checkBeside(t *T) {
	const guest = "beside"
	spliced, behind, key := 0, 0, false
	for _, p := range t.done(guest, "splice").Points {
		if p.Refusal == nil {
			spliced++
			if key {
				behind++
			}
		}
		key = p.Refusal != nil && strings.Contains(p.Refusal.Detail, ktext.StaticKey.String())
	}
	var arrivals uint64
	for _, v := range t.done(guest, "count").Values {
		arrivals += v.Count
	}
	t.benches(guest, "work")
	t.atLeast("arrivals", float64(arrivals), 1)
	t.equal("ranges of text that differ afterwards", len(t.done(guest, "after").Text.Differing), 0)
	// On riscv64 a splice takes several instructions, and those behind a key may
	// not be enough.
	if t.Arch != "riscv64" {
		t.atLeast("points right behind a static key", float64(behind), 1)
	}
	t.Metrics["beside.behind"] = report.Metric{Value: float64(behind), Unit: "points", N: 1}
	t.Metrics["beside.spliced"] = report.Metric{Value: float64(spliced), Unit: "points", N: 1}
}
