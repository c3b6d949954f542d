package scenarios

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/onsi/gomega"

	"kerninst/agent/gen"
	"kerninst/agent/isa"
	"kerninst/agent/ktext"
	"kerninst/agent/wire"
	"kerninst/lab/analysis"
	"kerninst/lab/report"
	"kerninst/lab/vm"
)

// verdicts: what `lab survey` says of an instruction is what a guest's daemon says of it.
// Points are drawn by the seed from all instructions of the kernel's text; the daemon
// plans each alone, and so does the survey, from a dump of that very guest: addresses in
// a kernel's code move with it, and bytes of them can look like jumps.
func verdicts() []Scenario {
	return []Scenario{
		verdict("verdict-slice", "counts", 500),
		verdict("verdict", "proof", 10000),
	}
}

func verdict(name, label string, points int) Scenario {
	return Scenario{
		Name: name, Title: fmt.Sprintf("%d points drawn from all of a kernel get from its daemon what the survey says of them", points), Labels: []string{label},
		Guests: func(string) []Guest { return verdictGuests(points) },
		Check:  func(t *T) { checkVerdict(t, points) },
	}
}

// verdictBatch is how many points one step asks for: its result is one record.
const verdictBatch = 1000

func verdictGuests(points int) []Guest {
	return []Guest{
		{Name: "kernel", CPUs: 1, Time: vm.Exact, Text: true, Job: job(shell("up", "true"))},
		{Name: "guest", CPUs: 1, Time: vm.Exact, Text: true, Index: true, After: "kernel", RunTimeout: 20 * time.Minute,
			Make: func(kernel *Answer) (*wire.Job, error) { return verdictJob(kernel, points) }},
	}
}

func verdictJob(kernel *Answer, points int) (*wire.Job, error) {
	all, err := drawText(kernel, points)
	if err != nil {
		return nil, err
	}
	steps := []*wire.Step{snapshot("before", "")}
	for some := range slices.Chunk(all, verdictBatch) {
		steps = append(steps, onlyPlanned(nth("plan", len(steps)-1), some))
	}
	return job(append(steps, snapshot("after", "before"), textDump("dump"))...), nil
}

// onlyPlanned asks what points of the kernel's text would get, each alone.
func onlyPlanned(name string, offsets []uint64) *wire.Step {
	var points []*wire.Point
	for _, off := range offsets {
		points = append(points, &wire.Point{Text: off + 1})
	}
	s := splice(name, points...)
	s.GetSplice().OnlyPlan, s.GetSplice().SkipRefused = true, true
	return s
}

// drawText draws instructions from all that the survey counts in the kernel's text, by
// the guest's seed, as offsets from its start.
func drawText(of *Answer, points int) ([]uint64, error) {
	if of.Text == nil || of.Index == nil {
		return nil, errors.New("nothing is known of the kernel's text: the guest asks for neither Text nor Index")
	}
	p, err := analysis.NewPlanner(of.Text, of.Index, gen.Features{})
	if err != nil {
		return nil, err
	}
	lo, _ := of.Text.Bounds()
	var all []uint64
	for _, f := range analysis.Functions(of.Text) {
		if f.Module != "" {
			continue
		}
		at, err := p.Instructions(f)
		if err != nil {
			return nil, err
		}
		for _, a := range at {
			all = append(all, uint64(a-lo))
		}
	}
	rand.New(rand.NewPCG(of.Seed, 0)).Shuffle(len(all), func(i, k int) { all[i], all[k] = all[k], all[i] })
	return all[:min(points, len(all))], nil
}

// word is a verdict to be compared: the mechanism, with where else the snippet stands, as
// an offset from the text's start, or the reason with its class.
func word(mechanism, reason, class string, at, text uint64) string {
	switch {
	case reason != "" && class != "":
		return reason + ", " + class
	case reason != "":
		return reason
	case at != 0:
		return fmt.Sprintf("%s at +%#x", mechanism, at-text)
	}
	return mechanism
}

// surveyWord is what the survey says.
func surveyWord(v analysis.Verdict, text isa.Addr) string {
	if v.Refusal != nil {
		return word("", v.Refusal.Reason.String(), v.Refusal.Class, 0, 0)
	}
	var at uint64
	if v.Plan.For != 0 {
		at = uint64(v.Plan.At())
	}
	return word(v.Plan.Mechanism.String(), "", "", at, uint64(text))
}

// daemonWord is what a daemon said.
func daemonWord(p *wire.PointResult, text uint64) string {
	return word(p.Mechanism, p.Refusal.GetReason(), p.Refusal.GetClass(), p.RunsAt, text)
}

// mostVerdicts is how many that differ are named.
const mostVerdicts = 10

// dumpedText is the text of the kernel that a guest has dumped.
func dumpedText(of *Answer) (*ktext.Text, error) {
	d, err := ktext.ReadDump(of.Dump)
	if err != nil {
		return nil, err
	}
	return d.Text(of.Text.Arch)
}

// differingVerdicts compares what the daemon said of offsets with the survey of the same
// guest's text, and says of how many points what was said.
func differingVerdicts(of *Answer, f gen.Features, offsets []uint64, said []*wire.PointResult) (wrong []string, n map[string]int, err error) {
	text, err := dumpedText(of)
	if err != nil {
		return nil, nil, err
	}
	p, err := analysis.NewPlanner(text, of.Index, f)
	if err != nil {
		return nil, nil, err
	}
	lo, _ := text.Bounds()
	var at []isa.Addr
	for _, off := range offsets {
		at = append(at, lo+isa.Addr(off))
	}
	survey, err := p.Of(at)
	if err != nil {
		return nil, nil, err
	}
	n = map[string]int{}
	for k, a := range at {
		want, got := surveyWord(survey[a], lo), daemonWord(said[k], of.Hello.TextStart)
		if want != got {
			fn, _ := text.Locate(a)
			wrong = append(wrong, fmt.Sprintf("%v+%#x: the daemon says %q, the survey %q", fn, uint64(a-fn.Addr), got, want))
		}
		if r := said[k].Refusal; r != nil {
			n["refused"]++
		} else {
			n[said[k].Mechanism]++
		}
	}
	return wrong, n, nil
}

func checkVerdict(t *T, points int) {
	const guest = "guest"
	of := t.Guests[guest]
	offsets, err := drawText(of, points)
	if err != nil {
		panic(err) // the guest's job was made of it
	}
	var said []*wire.PointResult
	var planned *wire.Planned
	for n := range (len(offsets) + verdictBatch - 1) / verdictBatch {
		res := t.done(guest, nth("plan", n))
		said, planned = append(said, res.Points...), res.Planned
		t.equal(nth("plan", n)+": why the index was not used", planned.GetIndexError(), "")
	}
	t.equal("answers", len(said), len(offsets))
	t.done(guest, "dump")
	t.equal("the daemon used the index", planned.GetIndexed(), true)
	wrong, n, err := differingVerdicts(of, gen.Features{LSE: planned.GetLse(), NoWindows: planned.GetNoWindows(), Preempted: planned.GetPreempted(), NoTraps: planned.GetNoTraps()}, offsets, said)
	t.g.Expect(err).NotTo(gomega.HaveOccurred(), "the survey of the guest's text")
	metric := func(name string, v int) {
		t.Metrics["verdict."+name] = report.Metric{Value: float64(v), Unit: "points", N: 1}
	}
	metric("points", len(said))
	metric("differ", len(wrong))
	for what, k := range n {
		metric(what, k)
	}
	some := wrong[:min(len(wrong), mostVerdicts)]
	t.equal(fmt.Sprintf("points of %d whose answer is not the survey's (%d, some of them)", len(said), len(wrong)), some, []string(nil))
	t.equal("ranges of text that differ afterwards", len(t.done(guest, "after").Text.Differing), 0)
	t.atLeast("points", float64(len(said)), float64(points))
}
