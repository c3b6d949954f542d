package scenarios

import (
	"fmt"
	"regexp"
	"strings"

	"kerninst/agent/plan"
	"kerninst/agent/wire"
	"kerninst/lab/report"
	"kerninst/lab/vm"
)

// clones-told: a kernel that warns in a copy tells the original's address, as it knows no other, and goes on to what the original
// has done: what was computed before and behind is the same. The points behind it are not counted, for control goes
// on in the original. The function is a module's (guest/module/peer): there is nothing of the kernel's own that warns
// whenever it is asked to.
//
// On riscv64 that function has no copy, which is said: to leave one takes a register, and where a module's function warns none is
// known to be free.
//
// And kernel threads run copies: each read of vm.stat_refresh is a work on each CPU.

const (
	toldMost   = 12
	toldThread = 300
	toldWork   = "refresh_vm_stats"
	toldWorker = "process_one_work"
)

// told asks for each number in turn, and says what comes of each, and what the kernel has said of it.
const told = `cd /sys/module/peer/parameters && dmesg -c >/dev/null; n=1; while [ $n -le 12 ]; do echo $n >warned && cat warned || exit; n=$((n + 1)); done; echo --; dmesg`

func clonesTold() Scenario {
	copied := func(name string, points ...*wire.Point) *wire.Step {
		for _, p := range points {
			p.Mechanism = plan.Clone.String()
		}
		return skipping(name, points)
	}
	works := fmt.Sprintf("n=0; while [ $n -lt %d ]; do read x </proc/sys/vm/stat_refresh; n=$((n + 1)); done; true", toldThread)
	return Scenario{Name: "clones-told", Title: "a warning in a copy is the original's, and kernel threads run copies", Labels: []string{"hazards", "proof"},
		Guests: func(string) []Guest {
			return []Guest{{Name: "told", CPUs: 1, Time: vm.Exact, Index: true, Complains: true, Job: job(
				shell("load", "insmod /lib/kerninst/peer.ko kind=warned"),
				snapshot("before", ""),
				shell("original", told),
				copied("warned", &wire.Point{Module: "peer", Function: "peer_warned", Each: wire.Each_BLOCK}),
				read("none"), shell("copy", told), read("counted"),
				unsplice("warned"),
				shell("again", told),
				copied("threads", entry(toldWork), entry(toldWorker)),
				read("no works"), shell("works", works), read("worked"),
				unsplice("threads"),
				snapshot("after", "before"),
				shell("end", "rmmod peer"), module("unload", wire.Module_UNLOAD))}}
		},
		Check: checkClonesTold}
}

func checkClonesTold(t *T) {
	const g = "told"
	numbers, said := t.toldOf("original")
	t.equal("numbers", strings.Count(numbers, "\n"), toldMost)
	for _, when := range []string{"copy", "again"} {
		got, words := t.toldOf(when)
		t.equal(when+": what comes of each number", got, numbers)
		t.equal(when+": what the kernel says of it", words, said)
	}
	turns, back := toldTurns()
	t.equal("warnings", len(said), 2*(toldMost-back)) // by the line, and by the registers
	points := t.done(g, "warned").Points
	t.atLeast("blocks of what warns", float64(len(points)), 3)
	if t.Arch == "riscv64" {
		for _, p := range points {
			t.equal(p.Spec+" has no copy", p.Refusal.GetReason(), plan.NoDeadRegister.String())
		}
	} else {
		t.toldCounts(points, turns, back)
	}
	worked := t.came(g, "no works", "worked", specOf)
	for _, p := range t.done(g, "threads").Points {
		t.point(g, p)
		if p.Symbol == toldWork {
			t.equal("works that were run", worked[p.Spec], uint64(toldThread))
		} else {
			t.atLeast("works that kernel threads took", float64(worked[p.Spec]), toldThread)
		}
	}
	t.equal("ranges of text that differ from the start", len(t.done(g, "after").Text.Differing), 0)
	t.ran(g, "end")
	t.equal("the module has gone", t.result(g, "unload").Error, "")
	t.Metrics["clones.told.blocks"] = report.Metric{Value: float64(len(points)), Unit: "points", N: 1}
}

// toldCounts holds what was counted in the copy to how many turns there were in it, and how many calls came back from it.
func (t *T) toldCounts(points []*wire.PointResult, turns, back int) {
	counts, had := t.came("told", "none", "counted", specOf), map[uint64]bool{}
	for _, p := range points {
		t.point("told", p)
		t.atMost(p.Spec+": how often it was come by, of turns in the copy", float64(counts[p.Spec]), float64(turns))
		had[counts[p.Spec]] = true
	}
	t.equal("a block counts all calls", had[toldMost], true)
	t.equal("a block counts those that came back from the copy", had[uint64(back)], true)
}

// toldTurns is how many turns the loop takes in the copy, which it leaves with a warning, and how many calls do not warn.
func toldTurns() (turns, back int) {
	for n := 1; n <= toldMost; n++ {
		k := n
		for k > 1 && k != 22 { // where it warns
			turns++
			if k%2 == 1 {
				k = 3*k + 1
			} else {
				k /= 2
			}
		}
		if k == 1 {
			back++
		}
	}
	return turns, back
}

func specOf(v *wire.Value) string { return v.Spec }

// The rest of a warning is when it came, by whom, and what is in registers.
var (
	toldLine = regexp.MustCompile(`WARNING: .* at (\S+)`)
	toldPC   = regexp.MustCompile(`(?:RIP: \S+|pc :|epc :) ?(peer_warned\S+)`)
)

// toldOf is what came of each number, and where the kernel says that it was.
func (t *T) toldOf(step string) (numbers string, places []string) {
	numbers, words, _ := strings.Cut(string(t.ran("told", step)[0]), "--\n")
	for _, re := range []*regexp.Regexp{toldLine, toldPC} {
		for _, m := range re.FindAllStringSubmatch(words, -1) {
			places = append(places, m[1])
		}
	}
	t.Files["told-"+step+".txt"] = []byte(words)
	return numbers, places
}
