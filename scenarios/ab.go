package scenarios

import (
	"fmt"

	"github.com/onsi/gomega"

	"kerninst/agent/wire"
	"kerninst/lab/measure"
	"kerninst/lab/report"
	"kerninst/lab/vm"
)

// A/B in host time: how long does an operation take with a kprobe, in terms of
// how long it takes with a splice at the same instruction, two CPUs at work?
//
// A boot is one observation, since where code and data came to lie is settled
// there. Boots take turns in blocks. Each block has one boot of every arm and a
// seed of its own, which its boots share; the order of arms goes through all
// permutations, so that nobody gains from being first, or from running beside
// something that comes and goes. Two arms are equal: what they seem to differ by
// is what the method makes of nothing.
//
// Host time is good for ratios only, so ratios are all that comes out.

// arm is one way to do the same.
type arm struct {
	name  string
	steps func(point *wire.Point) []*wire.Step
}

const (
	base  = "splice"
	equal = "splice-again"
	other = "kprobe"
)

var arms = []arm{{base, abSplice}, {equal, abSplice}, {other, abKprobe}}

// orders of the arms, by index: each stands in each place, before and after each
// other, equally often.
var orders = [][]int{{0, 1, 2}, {2, 1, 0}, {1, 2, 0}, {0, 2, 1}, {2, 0, 1}, {1, 0, 2}}

// methodError is by how much equal arms may seem to differ, as a factor, for all
// that the pairs agree on.
const methodError = 1.1

func ab() []Scenario {
	one := func(name string, blocks int, label string) Scenario {
		return Scenario{
			Name: name, Title: fmt.Sprintf("host time with a kprobe over that with a splice: %d boots of each, in turn", blocks),
			Labels: []string{label}, Timed: true,
			Guests: func(arch string) []Guest { return abGuests(arch, blocks) },
			Check:  func(t *T) { checkAB(t, blocks) },
		}
	}
	return []Scenario{one("ab", len(orders), "measure"), one("ab-long", 4*len(orders), "proof")}
}

// abCPUs is both how many CPUs a guest has and how many run the workload.
const abCPUs = 2

func abGuests(arch string, blocks int) (all []Guest) {
	for i := range blocks {
		for _, a := range orders[i%len(orders)] {
			steps := arms[a].steps(cheap(syscallEntry(arch, "getppid")))
			all = append(all, Guest{Name: nth(arms[a].name, i), CPUs: abCPUs, Time: vm.Host, Boots: true, Seed: uint64(i), Job: job(steps...)})
		}
	}
	return all
}

func abSplice(p *wire.Point) []*wire.Step {
	return []*wire.Step{splice("splice", p), abWork(), read("count")}
}

// abKprobe lets the splice find the instruction, and takes it away again. The
// kernel must not turn the kprobe into a jump in the middle of the workload.
func abKprobe(p *wire.Point) []*wire.Step {
	return []*wire.Step{noOptprobes(), splice("splice", p), unsplice("splice"),
		kprobe("kprobe", "splice"), abWork(), unkprobe("kprobe")}
}

// abWork has many samples of about a millisecond each: shorter than the turns that
// the host gives to whoever else runs there, so that some lie between those.
func abWork() *wire.Step {
	s := run("work", benchProgram, "null", "1000", "200")
	s.GetRun().Copies = abCPUs
	return s
}

func checkAB(t *T, blocks int) {
	took := map[string][]float64{}
	for i := range blocks {
		for _, a := range arms {
			guest := nth(a.name, i)
			copies := t.benches(guest, "work")
			var did, counted uint64
			for _, b := range copies {
				did += b.TotalOp
			}
			if p := t.spliced(guest, "splice"); a.name == other {
				counted = t.done(guest, "unkprobe").KprobeHits
			} else {
				counted = t.value(guest, "count", p)
			}
			t.equal(guest+": hits = what the workload did", counted, did)
			took[a.name] = append(took[a.name], measure.Best(copies))
		}
	}
	t.Metrics["pairs"] = report.Metric{Value: float64(blocks), Unit: "pairs", N: 1}
	nothing := t.ratio("again_over_splice", took[base], took[equal])
	t.atMost("lower end of the interval of equal arms", nothing.Lo, methodError)
	t.atLeast("upper end of the interval of equal arms", nothing.Hi, 1/methodError)
	something := t.ratio("kprobe_over_splice", took[base], took[other])
	t.atLeast("lower end of the interval, above that of equal arms", something.Lo, nothing.Hi)
}

// ratio files how many times as long b took as a, pair by pair.
func (t *T) ratio(name string, a, b []float64) measure.Ratio {
	r, err := measure.PairedRatio(a, b)
	t.expect(name+" has an interval", err, "no error", gomega.Succeed())
	t.Metrics[name] = report.Metric{Value: r.Value, Unit: "ratio", Lo: &r.Lo, Hi: &r.Hi, N: len(r.Pairs), Confidence: r.Confidence, Samples: r.Pairs}
	return r
}
