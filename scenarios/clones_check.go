package scenarios

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"

	"kerninst/agent/wire"
	"kerninst/lab/report"
)

// Rows of the table below those of operations.
var clonedRows = []string{"geometric mean", "functions in copies", "KiB of copies", "counted, times a thousand"}

func (s clonedSuite) check(t *T) {
	t.Grid = &report.Grid{Title: "times what operations take bare", Rows: "operation", Drawn: clonedRows[0]}
	for _, k := range s.kinds {
		t.Grid.Ours = append(t.Grid.Ours, k.title)
	}
	for _, name := range slices.Concat(s.operations, clonedRows) {
		t.Grid.Lines = append(t.Grid.Lines, report.GridRow{Name: name})
	}
	for _, guest := range slices.Sorted(maps.Keys(t.Guests)) {
		t.granularAnswers(s.granularSuite, guest)
	}
	t.ran(exploredGuest, "grown")
	functions, _ := t.composed(exploredGuest, t.done(exploredGuest, "grown").Clones)
	t.atLeast("functions in copies", float64(functions), float64(s.least))
	means, added := map[string]float64{}, map[string]float64{}
	for _, k := range s.kinds {
		r := s.kindColumn(t, k)
		means[k.name], added[k.name] = r.mean, r.added
		t.Metrics["clones."+k.name+".ratio"] = report.Metric{Value: r.mean, Unit: "x", Better: "lower", N: len(s.operations)}
	}
	over := s.kprobedColumns(t, added)
	for n, k := range s.kinds { // when all figures are there
		if !k.unlinked && k.most == 0 {
			t.equal(k.title+": functions in copies", t.Metrics["clones."+k.name+".functions"].Value, float64(functions))
		}
		if k.most > 0 {
			came := func(k cloneKind) float64 { return t.Metrics["clones."+k.name+".came"].Value }
			t.atLeast(k.title+": arrivals that are counted", came(k), 1)
			t.atMost(k.title+": arrivals that are counted, with less room than "+s.kinds[n-1].title, came(k), came(s.kinds[n-1]))
		}
		if k.dearer != "" {
			t.atLeast(k.title+": what it adds in the mean, of what it does with more known", (means[k.name]-1)/(means[k.dearer]-1), leastDearer)
		}
		if k.entries {
			t.atMost("what counting system calls adds to nothing inserted", means[k.name]-means["nothing"], 0.01)
			t.atLeast("system calls counted", float64(slices.Max(t.done(k.name, k.name+".read").Counts)), float64(s.often))
		}
		if limit := cmp.Or(k.limit[t.Arch], k.limit[""]); limit > 0 {
			t.atMost(k.title+": geometric mean of what operations take, of bare", means[k.name], limit)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(over)) {
		t.atLeast(name+": what kprobes at the same points add, times what the clone does", over[name], limitIn(granularLimits, name, toolKprobe).asked[t.Arch])
	}
}

// leastDearer is how many times as much a clone adds at least that is made without something that the generator knows.
const leastDearer = 1.1

// kprobedColumns are what operations take with kprobes, and how many times as much these add as clones do, by
// granularity: of all operations together, as granularities has it of splices.
func (s clonedSuite) kprobedColumns(t *T, added map[string]float64) map[string]float64 {
	out := map[string]float64{}
	for _, g := range granularities {
		if s.rival(toolKprobe).lacks(t.Arch, g) != "" {
			continue
		}
		none := report.GridCell{Why: "no copies"}
		r := s.column(t, toolKprobe, g.name, g.title+", "+toolKprobe, none, none, none)
		t.Metrics["clones."+g.name+".kprobes.ratio"] = report.Metric{Value: r.mean, Unit: "x", N: len(s.operations)}
		if clones := added[g.name]; g.at != atSyscalls && clones > 0 {
			out[g.name] = r.added / clones
			t.Metrics["clones."+g.name+".kprobes.over"] = report.Metric{Value: out[g.name], Unit: "x", N: len(s.operations)}
		}
	}
	return out
}

// kindColumn is what operations take with one kind, and what is in its clones.
func (s clonedSuite) kindColumn(t *T, k cloneKind) granularRun {
	functions, size := t.composed(k.name, t.done(k.name, k.name).Clones)
	n, kib := float64(functions), float64(size)/1024
	counted := report.GridCell{Why: "nothing is counted"}
	if k.action == "" && len(k.rules) > 0 {
		came := 0.0
		for _, c := range t.done(k.name, k.name+".read").Counts {
			came += float64(c) / 1000
		}
		counted = report.GridCell{Value: &came}
		t.Metrics["clones."+k.name+".came"] = report.Metric{Value: 1000 * came, Unit: "arrivals", N: 1}
	}
	return s.column(t, k.name, k.name, k.title, report.GridCell{Value: &n}, report.GridCell{Value: &kib}, counted)
}

// composed files what is in clones: how many functions, in how many bytes.
func (t *T) composed(name string, clones []*wire.Clone) (functions int, size uint32) {
	left := 0
	for _, c := range clones {
		functions, size, left = functions+len(c.Functions), size+c.Bytes, left+len(c.Left)
	}
	t.Files["clones-"+name+".txt"] = composition(clones)
	t.Metrics["clones."+name+".functions"] = report.Metric{Value: float64(functions), Unit: "functions", N: 1}
	t.Metrics["clones."+name+".left"] = report.Metric{Value: float64(left), Unit: "functions", N: 1}
	t.Metrics["clones."+name+".bytes"] = report.Metric{Value: float64(size), Unit: "bytes", N: 1}
	return functions, size
}

// column is what operations take in a guest with something, times what they take there bare, and their geometric mean.
func (s clonedSuite) column(t *T, guest, name, title string, below ...report.GridCell) granularRun {
	r := t.granularRun(s.granularSuite, guest, name+".work")
	var cells []report.GridCell
	for _, of := range append(r.of, r.mean) {
		cells = append(cells, report.GridCell{Value: &of})
	}
	t.granularColumn(title, append(cells, below...))
	return r
}

// composition is what is in clones, for people.
func composition(all []*wire.Clone) []byte {
	var b bytes.Buffer
	for _, c := range all {
		fmt.Fprintf(&b, "%s: %s, %d bytes, %d instructions, %d functions, grown in %d rounds\n", c.Entry, c.Mechanism, c.Bytes, c.Instructions, len(c.Functions), c.Rounds)
		for _, f := range c.Functions {
			fmt.Fprintf(&b, "  %s\n", f)
		}
		for _, l := range c.Left {
			fmt.Fprintf(&b, "  not %s: %s: %s\n", l.Function, l.Refusal.Reason, l.Refusal.Detail)
		}
	}
	return b.Bytes()
}
