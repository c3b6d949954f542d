package scenarios

import (
	"kerninst/agent/plan"
	"kerninst/agent/probe"
	"kerninst/agent/wire"
	"kerninst/lab/measure"
	"kerninst/lab/report"
	"kerninst/lab/vm"
)

// chosen: many points of a function, of which nobody has said how they are to be reached, are in a copy of it. They
// count what they count spliced one by one: of one program; and, without asking whose, for less.

// chosenFunctions are on the way of a write of bench, which is to /dev/null.
var chosenFunctions = []string{"ksys_write", "vfs_write"}

// chosenOp is a bench's operation.
const chosenOp = "write"

func chosenClones() []Scenario {
	return []Scenario{{
		Name: "chosen", Title: "each block of functions counted, in copies that nobody has asked for, and by splices", Labels: []string{"workload", "proof"},
		Guests: chosenGuests, Check: checkChosen,
	}}
}

func chosenGuests(string) []Guest {
	const bare = "bare" // the kernel's types are known when it has run
	return []Guest{
		{Name: bare, CPUs: 1, Time: vm.Exact, Job: job(bench("bare", chosenOp, 1))},
		{Name: "chosen", CPUs: 1, Time: vm.Exact, Index: true, After: bare, Make: func(a *Answer) (*wire.Job, error) {
			s, err := probe.At{Types: a.Types}.Compile(ofBench, "count")
			if err != nil {
				return nil, err
			}
			each := func(actions ...*wire.Action) (points []*wire.Point) {
				for _, f := range chosenFunctions {
					points = append(points, &wire.Point{Function: f, Each: wire.Each_BLOCK, Actions: actions})
				}
				return points
			}
			steps := []*wire.Step{bench("bare", chosenOp, 1)}
			for _, how := range []string{"spliced", "copied"} {
				exact, cheap := skipping(how, each(&wire.Action{Name: "count", Snippet: s.Snippet.String()})), skipping(how+" for all", each())
				for _, sp := range []*wire.Step{exact, cheap} {
					sp.GetSplice().Choose = how == "copied"
				}
				steps = append(steps, exact, bench(how+" counted", chosenOp, 1), read(how+" found"), unsplice(exact.Name), cheap, bench(how+" work", chosenOp, 1), unsplice(cheap.Name))
			}
			return job(steps...), nil
		}}}
}

// leastSaved is how much less copies add at least, of what splices do: these are a jump there and one back.
const leastSaved = 0.25

func checkChosen(t *T) {
	const guest = "chosen"
	t.equal("clones of a step that does not choose", len(t.done(guest, "spliced").Clones), 0)
	clones := t.done(guest, "copied").Clones
	t.equal("clones", len(clones), len(chosenFunctions))
	for _, c := range clones {
		t.atLeast("points that the clone of "+c.Entry+" is for", float64(c.Points), 8)
		t.equal("tasks asleep in "+c.Entry, c.Inside, uint32(0))
	}
	copied, counted := map[[2]any]uint64{}, 0
	for _, v := range t.done(guest, "copied found").Values {
		copied[[2]any{v.Symbol, v.Offset}] = v.Count
	}
	for _, v := range t.done(guest, "spliced found").Values {
		n, ok := copied[[2]any{v.Symbol, v.Offset}]
		t.equal("a block that is spliced is in the copy", ok, true)
		t.equal("counted in the copy as by a splice, in "+v.Symbol, n, v.Count)
		if n > 0 {
			counted++
		}
	}
	t.atLeast("blocks that were come by", float64(counted), 8)
	for _, p := range t.done(guest, "copied").Points {
		t.equal("mechanism of a point", p.Mechanism, map[bool]string{true: plan.Clone.String()}[p.Refusal == nil])
	}
	bare := t.benches(guest, "bare")[0]
	added := func(how string) float64 {
		n, _ := measure.Added(t.Arch, bare, t.benches(guest, how+" work")[0])
		t.Metrics["chosen."+how+".added"] = report.Metric{Value: n, Unit: "insns/op", N: counted, Better: "lower"}
		return n
	}
	spliced, inCopies := added("spliced"), added("copied")
	t.Metrics["chosen.blocks"] = report.Metric{Value: float64(counted), Unit: "blocks", N: counted}
	t.atLeast("what copies save of what splices add", 1-inCopies/spliced, leastSaved)
}
