package scenarios

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/onsi/gomega"

	"kerninst/agent/isa"
	"kerninst/agent/wire"
	"kerninst/lab/measure"
	"kerninst/lab/report"
)

// checks -----------------------------------------------------------------------

// rival is a mechanism: the guest that has it, which of the places, and what is done with it.
type rival struct {
	name, guest, of string
	// lacks says why it has no such granularity; empty: it has.
	lacks func(arch string, g granularity) string
	// does is what the script is told, of a tool that finds functions by names.
	does func(arch string, g granularity) []string
}

const (
	toolClone    = "clone"
	toolKprobe   = "kprobe"
	toolOptprobe = "optprobe"
	toolFtrace   = "ftrace"
	toolBpftrace = "bpftrace"
)

func never(string, granularity) string { return "" }

var rivals = []rival{
	{name: toolSplice, guest: "spliced", lacks: never},
	{name: toolClone, guest: "cloned", lacks: never},
	{name: toolKprobe, guest: "kprobed", of: ofKprobes, lacks: never},
	{name: toolOptprobe, guest: "optprobed", of: ofKprobes, lacks: func(arch string, _ granularity) string {
		if arch != "amd64" {
			return "the kernel makes jumps of kprobes on amd64 alone"
		}
		return ""
	}},
	{name: toolFtrace, guest: "ftraced", of: ofNames,
		does: func(string, granularity) []string { return []string{"ftrace"} },
		lacks: func(_ string, g granularity) string {
			if g.name != "traced" {
				return "the function tracer keeps records of functions that begin: it has no counts, and nothing of blocks"
			}
			return ""
		}},
	{name: toolBpftrace, guest: "bpftraced", of: ofNames,
		does: func(arch string, g granularity) []string {
			hook, action := "kprobe", "{ @[func] = count(); }"
			if arch == "riscv64" { // whose kernel takes no kprobe where a function begins
				hook = "fentry"
			}
			return []string{"bpftrace", hook, action, syscallEntry(arch, "times")}
		},
		lacks: func(arch string, g granularity) string {
			switch {
			case g.at == atBlocks:
				return "not asked: what bpftrace has in the middle of a function is a kprobe, which the column of kprobes has with less behind it"
			case g.name == "traced":
				return "not asked: bpftrace prints each record, and who prints comes by what is traced; told to leave itself out, it had one record in a hundred on arm64"
			}
			return ""
		}},
}

// asks are the script's words; none where there is no such granularity.
func (r rival) asks(arch string, g granularity) []string {
	if r.lacks(arch, g) != "" {
		return nil
	}
	return r.does(arch, g)
}

// granularRun is what operations take under one mechanism, of what they took bare before.
type granularRun struct {
	of    []float64 // times bare, in their order
	mean  float64   // geometric
	every float64   // likewise, of the mean sample and not the shortest: what some samples have to bear, too
	added float64   // instructions, samples of all operations together
}

func (t *T) granularRun(s granularSuite, guest, step string) granularRun {
	bare, with := t.suite(s, guest, "bare"), t.suite(s, guest, step)
	r, n := granularRun{mean: 1, every: 1}, 0
	for k, o := range with {
		of := o.NS / bare[k].NS
		r.of = append(r.of, of)
		if s.together == nil || contains(s.together, o.Name) {
			n++
			r.mean *= of
			r.every *= meanSample(o) / meanSample(bare[k])
			r.added += (o.NS - bare[k].NS) * float64(o.N)
		}
	}
	r.mean, r.every = math.Pow(r.mean, 1/float64(n)), math.Pow(r.every, 1/float64(n))
	return r
}

// meanSample is what an operation takes in the mean of all samples.
func meanSample(o *measure.Operation) float64 {
	sum := 0.0
	for _, v := range o.Samples {
		sum += v
	}
	return o.NS + sum/float64(len(o.Samples)) - slices.Min(o.Samples)
}

// suite is what a step printed of its operations.
func (t *T) suite(s granularSuite, guest, step string) []*measure.Operation {
	text, _, _ := bytes.Cut(t.ran(guest, step)[0], []byte("--\n"))
	suite, err := measure.ParseSuite(text)
	t.noError(guest+": "+step, err)
	var names []string
	for _, o := range suite.Operations {
		names = append(names, o.Name)
	}
	t.equal(guest+": "+step+": operations", names, s.operations)
	return suite.Operations
}

// Rows of the table below those of operations.
var granularRows = []string{"geometric mean, of the shortest samples", "at most, as asked", "geometric mean, of the mean samples",
	"added, of what splices add", "at least, as asked", "points", "of these, jumps", "arrivals that are counted, of those by splices"}

func checkGranular(t *T, s granularSuite) {
	t.Grid = &report.Grid{Title: "times what operations take bare", Rows: "operation", Drawn: granularRows[0]}
	for _, name := range slices.Concat(s.operations, granularRows) {
		t.Grid.Lines = append(t.Grid.Lines, report.GridRow{Name: name})
	}
	t.part(func() { t.granularRefused(s) }, "kprobed")
	for _, guest := range slices.Sorted(maps.Keys(t.Guests)) {
		t.part(func() { t.granularAnswers(s, guest) })
	}
	for _, g := range granularities {
		for _, m := range s.has() {
			var cells []report.GridCell
			why := m.lacks(t.Arch, g)
			if why == "" {
				why = t.part(func() { cells = t.granularCells(s.of(g), g, m) }, "kprobed", "spliced", m.guest)
			}
			if why != "" {
				cells = slices.Repeat([]report.GridCell{{Why: why}}, len(t.Grid.Lines))
			}
			t.granularColumn(g.title+", "+m.name, cells)
			if m.name == toolSplice {
				t.Grid.Ours = append(t.Grid.Ours, g.title+", "+m.name)
			}
		}
	}
	if s.rival(toolClone).guest != "" {
		t.part(func() { t.clonedNothing(s) }, "cloned")
	}
	for _, g := range granularities {
		t.part(func() { t.granularCounts(s.of(g), g) }, "kprobed", "spliced")
		for _, m := range s.has()[1:] {
			if m.lacks(t.Arch, g) == "" {
				t.part(func() { t.granularRival(s.of(g), g, m) }, "kprobed", "spliced", m.guest)
			}
		}
	}
	for _, l := range s.limits {
		t.part(func() { t.granularLimit(l, s.rival(l.rival)) })
	}
	if s.also != nil {
		t.part(func() { s.also(t) }, "seen")
	}
	t.parts()
}

// granularAnswers has the suite look at what each run of the workload in a guest printed besides times.
func (t *T) granularAnswers(s granularSuite, guest string) {
	for _, step := range slices.Sorted(maps.Keys(t.Guests[guest].Results)) {
		if s.answers != nil && (step == "bare" || strings.HasSuffix(step, ".work")) {
			text, _, _ := bytes.Cut(t.ran(guest, step)[0], []byte("--\n"))
			s.answers(t, guest, step, text)
		}
	}
	for _, step := range slices.Concat(s.begins, s.ends) { // such as a server's end, which tells of processes that died
		if step.GetRun() != nil {
			t.ran(guest, step.Name)
		}
	}
}

// leastOptimised is the part of kprobes that are jumps at least where jumps are measured: of blocks'
// begins the kernel takes two in five, for what it would replace must not reach into the next.
const leastOptimised = 0.33

func (t *T) granularColumn(name string, cells []report.GridCell) {
	t.Grid.Columns = append(t.Grid.Columns, name)
	for k := range t.Grid.Lines {
		t.Grid.Lines[k].Cells = append(t.Grid.Lines[k].Cells, cells[k])
	}
}

// granularCells are a column. Metrics are named as report looks for them that draws bars.
func (t *T) granularCells(s granularSuite, g granularity, m rival) (cells []report.GridCell) {
	set, err := g.set(t.Guests["kprobed"], m.of)
	t.noError(g.name+": places that "+m.name+" has", err)
	r := t.granularRun(s, m.guest, g.name+".work")
	ours := t.granularRun(s, "spliced", set.name+".work")
	file := func(name string, v float64, unit string) {
		t.Metrics[g.name+"."+name] = report.Metric{Value: v, Unit: unit, N: s.samples, Order: len(t.Metrics) + 1}
	}
	value := func(v float64) { cells = append(cells, report.GridCell{Value: &v}) }
	for k, o := range t.suite(s, m.guest, "bare") {
		name := strings.ReplaceAll(o.Name, "/", ".")
		file(name+".bare", o.NS, s.unit(o.Name))
		file(name+"."+m.name+".ratio", r.of[k], "x")
		value(r.of[k])
	}
	jumps := report.GridCell{Why: "not the kernel's to make jumps of"}
	points := float64(len(set.points))
	switch m.name {
	case toolOptprobe:
		n := t.optimised(g, set)
		file(m.name+".optimised", n, "points")
		jumps = report.GridCell{Value: &n}
	case toolClone:
		points = float64(len(t.clonedFound(g)))
	}
	file(m.name+".points", points, "points")
	file(m.name+".geomean", r.mean, "x")
	file(m.name+".geomean.every", r.every, "x")
	asked := func(mean bool) {
		if l := limitIn(s.limits, g.name, m.name); l.asked[t.Arch] > 0 && judgedByBare(m.name) == mean {
			value(l.asked[t.Arch])
		} else {
			cells = append(cells, report.GridCell{Why: "nothing is asked of it"})
		}
	}
	value(r.mean)
	asked(true)
	value(r.every)
	if ours.added > 0 && r.added > 0 {
		file(m.name+".over-splice", r.added/ours.added, "x")
		value(r.added / ours.added)
	} else {
		cells = append(cells, report.GridCell{Why: "one of them adds less than what differs by itself"})
	}
	asked(false)
	value(points)
	counted := report.GridCell{Why: "see the parts that differ"}
	if m.name == toolClone {
		part, _ := clonedPart(t.granularFound(g), t.clonedFound(g))
		counted = report.GridCell{Value: &part}
	}
	return append(cells, jumps, counted)
}

// optimised is how many of its probes the kernel has made jumps of.
func (t *T) optimised(g granularity, set granularSet) float64 {
	t.ran("optprobed", "optimise")
	n, err := strconv.ParseFloat(strings.Fields(string(t.ran("optprobed", g.name+".settled")[0]))[0], 64)
	t.noError(g.name+": optprobes", err)
	t.atLeast(g.name+": part of its kprobes that the kernel makes jumps of", n/float64(len(set.points)), leastOptimised)
	return n
}

// granularLimit bounds a figure of a granularity and a mechanism: what operations take, times bare,
// if it is of splices or clones, or else what it adds, times what splices add at the same places. What is
// asked of it is in the table, and asserted.
type granularLimit struct {
	granularity, rival string
	asked              map[string]float64
}

// judgedByBare reports whether it is of what operations take that something is asked, and not of what it adds.
func judgedByBare(mechanism string) bool { return mechanism == toolSplice || mechanism == toolClone }

func each(amd64, arm64, riscv64 float64) map[string]float64 {
	return map[string]float64{"amd64": amd64, "arm64": arm64, "riscv64": riscv64}
}

var granularLimits = []granularLimit{
	{"monitored", toolSplice, each(1.02, 1.02, 1.02)},
	{"counted", toolSplice, each(1.12, 1.12, 1.12)},
	{"traced", toolSplice, each(1.25, 1.25, 1.25)},
	{"blocks", toolSplice, each(1.6, 1.9, 2.2)},
	{"monitored", toolClone, each(1.04, 1.04, 1.04)},
	{"traced", toolClone, each(1.2, 1.2, 1.2)},
	{"blocks", toolClone, each(1.25, 1.55, 1.65)},
	{"counted", toolKprobe, each(100, 80, 80)},
	{"blocks", toolKprobe, each(100, 80, 80)},
	{"traced", toolKprobe, each(30, 30, 30)},
	{"counted", toolOptprobe, each(20, 0, 0)},
	{"blocks", toolOptprobe, each(20, 0, 0)},
	{"traced", toolOptprobe, each(6, 0, 0)},
}

// limitIn is the limit that a granularity and a mechanism have; none if there is none.
func limitIn(limits []granularLimit, granularity, rival string) granularLimit {
	for _, l := range limits {
		if l.granularity == granularity && l.rival == rival {
			return l
		}
	}
	return granularLimit{}
}

func granularityOf(name string) granularity {
	return granularities[slices.IndexFunc(granularities, func(g granularity) bool { return g.name == name })]
}

func (t *T) granularLimit(l granularLimit, m rival) {
	limit := l.asked[t.Arch] // 0: nothing
	figure := func(of string) float64 {
		name := l.granularity + "." + l.rival + of
		t.g.Expect(t.Metrics).To(gomega.HaveKey(name), "%s of %s: no such figure", l.granularity, l.rival)
		return t.Metrics[name].Value
	}
	switch {
	case limit == 0 || m.lacks(t.Arch, granularityOf(l.granularity)) != "":
	case judgedByBare(l.rival):
		t.atMost(l.granularity+": geometric mean with "+l.rival+"s, times bare", figure(".geomean"), limit)
	default:
		t.atLeast(l.granularity+": added by "+l.rival+"s, of what splices add at the same places", figure(".over-splice"), limit)
	}
}

// granularRefused says which of the places no splice has, and why.
func (t *T) granularRefused(s granularSuite) {
	var text strings.Builder
	for _, at := range []string{atSyscalls, atEntries, atBlocks} {
		why := map[string]int{}
		for _, p := range t.done("kprobed", at).Points {
			if p.Refusal == nil {
				why[cmp.Or(p.Mechanism, "spliced")]++
				continue
			}
			why[p.Refusal.Reason]++
			fmt.Fprintf(&text, "%s\t%s\t%s\t%s\n", at, p.Spec, p.Refusal.Reason, p.Refusal.Detail)
			if at == atEntries {
				t.point("kprobed", p)
			}
		}
		for reason, n := range why {
			t.Metrics["places."+at+"."+slug(reason)] = report.Metric{Value: float64(n), Unit: "points", N: 1}
		}
	}
	t.Files[s.name+"-refused.txt"] = []byte(text.String())
}

// granularFound is how often places were come by, from the begin of the kernel's text on, as
// splices found it.
func (t *T) granularFound(g granularity) map[uint64]uint64 {
	found, begin, out := t.done("spliced", g.name+".read"), t.Guests["spliced"].Hello.TextStart, map[uint64]uint64{}
	for k, a := range found.Addresses {
		out[a-begin] = found.Counts[k]
	}
	at := map[string]uint64{}
	for _, p := range t.done("spliced", g.name).Points {
		at[p.Spec] = p.Address - begin
	}
	for _, v := range found.Values {
		t.equal(g.name+": records of "+v.Spec+" that were lost", v.Dropped+v.Holes, uint64(0))
		out[at[v.Spec]] += v.Count
	}
	return out
}

// probesFound is the same of the kernel's probes.
func (t *T) probesFound(guest string, g granularity) map[uint64]uint64 {
	at, out := map[string]uint64{}, map[uint64]uint64{}
	for _, p := range t.done(guest, g.name).Points {
		at[p.Spec] = p.Address - t.Guests[guest].Hello.TextStart
	}
	for _, v := range t.done(guest, "un"+g.name).Values {
		out[at[v.Spec]] += v.Count
	}
	return out
}

// clonedFound is how often each place in a copy was come by, by where splices are in the original, from the begin of the kernel's
// text on, all copies together. A function's begin is counted at the cheapest point there, which is not the same in a copy.
func (t *T) clonedFound(g granularity) map[uint64]uint64 {
	found, begin, out := t.done("cloned", g.name+".read"), t.Guests["cloned"].Hello.TextStart, map[uint64]uint64{}
	of := t.placesOf(g)
	for k, a := range found.Addresses {
		out[of(a-begin)] += found.Counts[k]
	}
	at := map[string]uint64{}
	for _, p := range t.made("kprobed", g.at) {
		at[p.Symbol] = p.Address - t.Guests["kprobed"].Hello.TextStart
	}
	for _, v := range found.Values {
		t.equal(g.name+": records of clones at "+v.Spec+" that were lost", v.Dropped+v.Holes, uint64(0))
		if place, ok := at[v.Symbol]; ok {
			out[place] += v.Count
		}
	}
	return out
}

// placesOf says where a splice is for what is at an address: there, if each block has one, or else where one is in its function.
func (t *T) placesOf(g granularity) func(at uint64) uint64 {
	if g.at == atBlocks {
		return func(at uint64) uint64 { return at }
	}
	text := t.Guests["seen"].Text
	lo, _ := text.Bounds()
	function := func(at uint64) isa.Addr {
		f, _ := text.Locate(lo + isa.Addr(at)) // or what is nobody's
		return f.Addr
	}
	places := map[isa.Addr]uint64{}
	for _, p := range t.made("kprobed", g.at) {
		at := p.Address - t.Guests["kprobed"].Hello.TextStart
		places[function(at)] = at
	}
	return func(at uint64) uint64 {
		if place, ok := places[function(at)]; ok {
			return place
		}
		return at
	}
}

// ftraceFound is how many functions the function tracer followed, and how many records there were of them.
func (t *T) ftraceFound(g granularity) (functions, records uint64) {
	_, said, _ := strings.Cut(string(t.ran("ftraced", g.name+".work")[0]), "--\n")
	var kept, lost uint64
	_, err := fmt.Sscan(said, &functions, &kept, &lost)
	t.noError("ftrace: "+said, err)
	return functions, kept + lost
}

// bpftraceFound is the same by functions.
func (t *T) bpftraceFound(g granularity) map[string]uint64 {
	_, said, _ := strings.Cut(string(t.ran("bpftraced", g.name+".work")[0]), "--\n")
	out := map[string]uint64{}
	for line := range strings.Lines(said) {
		var name string
		var n uint64
		_, err := fmt.Sscanf(line, "%s %d", &name, &n)
		t.noError("bpftrace: "+line, err)
		out[name] = n
	}
	return out
}

// often is how often a place that two compare is come by: others are of interrupts, of which there are
// as many as there is time for, and of the tools themselves.
const often = 2000

// otherwise is by which part of what came by two have found another number of it, at the places that
// both have, of those that come into it.
func otherwise[P comparable](a, b map[P]uint64, often uint64) float64 {
	var all, other uint64
	for p, n := range a {
		if m, both := b[p]; both && n >= often {
			all += max(n, m)
			other += max(n, m) - min(n, m)
		}
	}
	if all == 0 { // who has nothing to compare has found nothing
		return 1
	}
	return float64(other) / float64(all)
}

// shared is which part of the places that come into it, and that another was asked for, it has.
func shared[P comparable](a, b map[P]uint64, often uint64, asked func(P) bool) float64 {
	all, has := 0, 0
	for p, n := range a {
		if n < often || !asked(p) {
			continue
		}
		all++
		if _, both := b[p]; both {
			has++
		}
	}
	return float64(has) / float64(max(1, all))
}

// leastShared is that part at least.
const leastShared = 0.95

// mostApart is that part at most. Splices count what the daemon does for itself while they are
// there: arm64's clears a thousand pages of fresh memory, 64 times round each, which is seven of a
// hundred of what comes by its blocks. Where all takes many times as long there are more interrupts.
// Optprobes count while it is waited for them to be made, too, and bpftrace what it does itself when
// it begins and ends.
var mostApart = map[string]float64{toolClone: 0.1, toolKprobe: 0.1, toolOptprobe: 0.25, toolBpftrace: 0.15, toolFtrace: 0.1}

// furthest lists the places that come into it at which another mechanism found another number,
// those first that are furthest apart: what it found more, what splices found, place.
func furthest[P cmp.Ordered](ours, theirs map[P]uint64, often uint64, name func(P) string) []byte {
	more := map[P]int64{}
	for at, n := range ours {
		if other, both := theirs[at]; both && n >= often && other != n {
			more[at] = int64(other - n)
		}
	}
	far := func(at P) int64 { return max(more[at], -more[at]) }
	var text bytes.Buffer
	for _, at := range slices.SortedFunc(maps.Keys(more), func(a, b P) int { return cmp.Or(cmp.Compare(far(b), far(a)), cmp.Compare(a, b)) }) {
		fmt.Fprintf(&text, "%10d %10d %s\n", more[at], ours[at], name(at))
	}
	return text.Bytes()
}

// granularCounts files what splices counted, and holds it against what is known.
func (t *T) granularCounts(s granularSuite, g granularity) {
	names := t.granularNames(g)
	ours := t.granularFound(g)
	t.granularFile(s, g, ours, names)
	of := byFunction(ours, names)
	for _, k := range s.known {
		t.atLeast(g.name+": calls of "+k.call, float64(callsOf(t.Arch, of, k.call)), float64(k.least))
		t.atMost(g.name+": calls of "+k.call, float64(callsOf(t.Arch, of, k.call)), float64(k.most))
	}
}

// granularNames are the functions that places are in, from the begin of the kernel's text on.
func (t *T) granularNames(g granularity) map[uint64]string {
	names := map[uint64]string{}
	for _, p := range t.made("kprobed", g.at) {
		names[p.Address-t.Guests["kprobed"].Hello.TextStart] = p.Symbol
	}
	return names
}

// granularRival compares what a mechanism found with what splices did at the same places.
func (t *T) granularRival(s granularSuite, g granularity, m rival) {
	names, ours := t.granularNames(g), t.granularFound(g)
	of := byFunction(ours, names)
	set, err := g.set(t.Guests["kprobed"], m.of)
	t.noError(g.name+": places that "+m.name+" has", err)
	file := func(part float64) {
		t.Metrics[g.name+"."+m.name+".apart"] = report.Metric{Value: 100 * part, Unit: "%", N: 1}
		t.atMost(g.name+": part of what "+m.name+"s find otherwise than splices", part, s.apart[m.name])
	}
	judge := func(theirs map[string]uint64, has func(function string) bool) {
		for _, k := range s.known {
			if n := callsOf(t.Arch, theirs, k.call); has(syscallEntry(t.Arch, k.call)) {
				t.atLeast(g.name+": calls of "+k.call+" that "+m.name+"s found", float64(n), float64(callsOf(t.Arch, of, k.call))-float64(k.less))
				t.atMost(g.name+": calls of "+k.call+" that "+m.name+"s found", float64(n), float64(callsOf(t.Arch, of, k.call)+k.beside))
			}
		}
	}
	switch {
	case m.name == toolClone:
		theirs := t.clonedFound(g)
		t.ran(exploredGuest, "grown")
		t.composed(g.name, t.done(m.guest, g.name).Clones)
		part, more := clonedPart(ours, theirs)
		t.Metrics[g.name+".clone.part"] = report.Metric{Value: 100 * part, Unit: "%", N: 1}
		t.Metrics[g.name+".clone.apart"] = report.Metric{Value: 100 * more, Unit: "%", N: 1}
		if g.name == "counted" {
			t.atLeast(g.name+": part of what splices count that clones count", part, leastCloned)
		}
		t.atMost(g.name+": part that clones count beyond what splices do", more, s.apart[toolClone])
		judge(byFunction(theirs, names), func(string) bool { return true })
	case m.name == toolFtrace:
		functions, records := t.ftraceFound(g)
		t.equal(g.name+": functions that ftrace follows", functions, uint64(len(set.functions)))
		file(otherwise(map[string]uint64{"": set.sum(ours)}, map[string]uint64{"": records}, 1))
	case m.name == toolBpftrace:
		theirs := t.bpftraceFound(g)
		t.Files[s.name+"-"+g.name+"-"+m.name+".txt"] = furthest(of, theirs, s.often, func(function string) string { return function })
		file(otherwise(of, theirs, s.often))
		// Of a system call without arguments amd64's tables of names have one that is no 64-bit
		// call's, which the pattern leaves out, and the set of places with it.
		asked := func(function string) bool { return contains(set.functions, function) }
		t.atLeast(g.name+": part of the functions come by often that "+m.name+" has counted, of those it was asked", shared(of, theirs, s.often, asked), leastShared)
		judge(theirs, asked)
	case g.kprobes != "": // records, of which only the number is told
		n, err := strconv.ParseUint(strings.TrimSpace(string(t.ran(m.guest, g.name+".hits")[0])), 10, 64)
		t.noError(g.name+": records of "+m.name+"s", err)
		file(otherwise(map[string]uint64{"": set.sum(ours)}, map[string]uint64{"": n}, 1))
	default:
		theirs := t.probesFound(m.guest, g)
		t.Files[s.name+"-"+g.name+"-"+m.name+".txt"] = furthest(ours, theirs, s.often, func(at uint64) string { return fmt.Sprintf("text+%#x in %s", at, names[at]) })
		file(otherwise(ours, theirs, s.often))
		judge(byFunction(theirs, names), func(string) bool { return true })
	}
}

// clonedNothing is a column of what operations take in clones with nothing inserted.
func (t *T) clonedNothing(s granularSuite) {
	k := cloneKinds[0]
	r := t.granularRun(s, "cloned", k.name+".work")
	var cells []report.GridCell
	for _, of := range append(r.of, r.mean, s.nothing[t.Arch], r.every) {
		cells = append(cells, report.GridCell{Value: &of})
	}
	if s.nothing[t.Arch] == 0 {
		cells[len(r.of)+1] = report.GridCell{Why: "nothing is asked of it"}
	}
	for len(cells) < len(t.Grid.Lines) {
		cells = append(cells, report.GridCell{Why: k.title})
	}
	t.granularColumn(k.title+", "+toolClone, cells)
	t.composed(k.name, t.done("cloned", k.name).Clones)
	t.Metrics[k.name+".clone.geomean"] = report.Metric{Value: r.mean, Unit: "x", Better: "lower", N: s.samples}
	if most := s.nothing[t.Arch]; most > 0 {
		t.atMost(k.title+": geometric mean with clones, times bare", r.mean, most)
	}
}

// clonedPart is which part of what splices count clones do, and how much more than these at some places, as a part of all. What
// comes by a place on somebody else's behalf, such as an interrupt's, clones leave out, and what there is no room for.
func clonedPart(ours, theirs map[uint64]uint64) (part, more float64) {
	var all, counted, beyond uint64
	for at, n := range ours { // a clone may have more places than can be spliced
		all += n
		counted += min(n, theirs[at])
		beyond += max(n, theirs[at]) - n
	}
	return float64(counted) / float64(max(all, 1)), float64(beyond) / float64(max(all, 1))
}

// leastCloned is that part at least, of functions' begins. What page faults and interrupts come by is in no system call's clone,
// and amd64 has a megabyte for all copies: there it is 0.48. What clones take is of that part, which the table has beside it.
const leastCloned = 0.3

// sum is how often all places of a set were come by, of what was found from the begin of the kernel's text on.
func (s granularSet) sum(found map[uint64]uint64) (n uint64) {
	for _, p := range s.points {
		n += found[p.Text-1]
	}
	return n
}

// shells are at most as many as are started besides, while a tool counts: each calls getppid once.
const shells = 4

// byFunction is how often that place of a function was come by that most came by.
func byFunction(found map[uint64]uint64, names map[uint64]string) map[string]uint64 {
	out := map[string]uint64{}
	for at, n := range found {
		out[names[at]] = max(out[names[at]], n)
	}
	return out
}

// callsOf is how often a system call was made, by whichever names of its function programs of either
// word's length reach it by.
func callsOf(arch string, found map[string]uint64, call string) uint64 {
	return found[syscallEntry(arch, call)] + found["__ia32_sys_"+call]
}

// granularFile lists what splices counted, the dearest first: hits, instructions that a patch adds
// (a breakpoint's own not included), mechanism, place.
func (t *T) granularFile(s granularSuite, g granularity, ours map[uint64]uint64, names map[uint64]string) {
	points, begin := map[uint64]*wire.PointResult{}, t.Guests["spliced"].Hello.TextStart
	for _, p := range t.done("spliced", g.name).Points {
		points[p.Address-begin] = p
	}
	cost := func(at uint64) uint64 { return ours[at] * uint64(points[at].GetAdded()) }
	var text strings.Builder
	hits := map[string]uint64{}
	for _, at := range slices.SortedFunc(maps.Keys(ours), func(a, b uint64) int { return cmp.Or(cmp.Compare(cost(b), cost(a)), cmp.Compare(a, b)) }) {
		p := points[at]
		hits[p.GetMechanism()] += ours[at]
		fmt.Fprintf(&text, "%10d %4d %-12s text+%#x in %s\n", ours[at], p.GetAdded(), p.GetMechanism(), at, names[at])
	}
	for _, mechanism := range slices.Sorted(maps.Keys(hits)) {
		t.count(g.name+".hits."+mechanism, hits[mechanism])
	}
	t.Files[s.name+"-"+g.name+".txt"] = []byte(text.String())
}
