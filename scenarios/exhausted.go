package scenarios

import (
	"fmt"

	"github.com/onsi/gomega"

	"kerninst/agent/wire"
	"kerninst/lab/report"
	"kerninst/lab/vm"
)

// exhausted: patch memory runs out in the middle of a batch. All of the batch is
// refused, or those that have no room; what was live stays, and what is given back can
// be had again, to the last slot.
func exhausted() []Scenario {
	return []Scenario{{
		Name: "exhausted", Title: "patch memory runs out: that is said, nothing changes, and nothing of it is lost", Labels: []string{"counts", "proof"},
		Guests: exhaustedGuests, Check: checkExhausted,
	}}
}

// hoarding counts by as many keys as 32 KiB have room for: of patch memory, at
// every point. In the daemon's 512 KiB, on amd64 1 MiB, there is room for a dozen or two.
const hoarding = "c0 map 1024 1\nv0 u64 = current\nv1 u64 = slot c0 v0\ntally c0 v1 0 1"

// hoarders are so many points: more than there is room for. They are far enough apart
// for windows.
const hoarders = 40

func exhaustedGuests(arch string) []Guest {
	work := bench("work", "null", 1)
	hoard := func(name string, skip bool) *wire.Step {
		var points []*wire.Point
		for k := range uint64(hoarders) {
			p := &wire.Point{Function: "copy_process", Offset: 24 + 96*k, Search: true}
			p.Actions = []*wire.Action{{Name: "hoard", Snippet: hoarding}}
			points = append(points, p)
		}
		s := splice(name, points...)
		s.GetSplice().SkipRefused = skip
		return s
	}
	return []Guest{{Name: "guest", CPUs: 1, Time: vm.Exact, Job: job(
		snapshot("before", ""), splice("live", somewhere(syscallEntry(arch, "getppid"))), snapshot("with one", "before"),
		mayFail(hoard("all", false)), snapshot("as with one", "before"),
		hoard("some", true), work, read("count"), unsplice("some"),
		hoard("again", true), unsplice("again"),
		unsplice("live"), snapshot("after", "before"))}}
}

func checkExhausted(t *T) {
	const g, full = "guest", "patch memory full"
	t.spliced(g, "live")
	res := t.result(g, "all")
	t.expect("a batch that has no room", res.Error, "says that memory is full and what to do", gomega.And(
		gomega.ContainSubstring(full), gomega.ContainSubstring("undo some of them, or ask for fewer points at once")))
	one, all := t.done(g, "with one").Text.Differing, t.done(g, "as with one").Text.Differing
	t.equal("text that differs when it has been refused", fmt.Sprint(all), fmt.Sprint(one))
	fit := func(step string) (n, refused int) {
		for _, p := range t.done(g, step).Points {
			switch p.Refusal.GetReason() {
			case "":
				n++
			case full:
				refused++
			}
		}
		return n, refused
	}
	n, refused := fit("some")
	t.atLeast("points that have room", float64(n), 10)
	t.atLeast("points that have none", float64(refused), 1)
	t.benches(g, "work")
	again, _ := fit("again")
	t.equal("points that have room when it was given back", again, n)
	t.equal("ranges of text that differ afterwards", len(t.done(g, "after").Text.Differing), 0)
	t.Metrics["exhausted.points"] = report.Metric{Value: float64(n), Unit: "points", N: 1}
	t.Metrics["exhausted.refused"] = report.Metric{Value: float64(refused), Unit: "points", N: 1}
}
