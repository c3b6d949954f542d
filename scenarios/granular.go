package scenarios

import (
	"bytes"
	"cmp"
	"compress/gzip"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"kerninst/agent/cfg"
	"kerninst/agent/isa"
	"kerninst/agent/ktext"
	"kerninst/agent/probe"
	"kerninst/agent/wire"
	"kerninst/lab/measure"
	"kerninst/lab/report"
	"kerninst/lab/vm"
)

// granularities: what instrumentation costs from coarse to fine, after figure 8 of JIFL (EuroSys
// 2007): LMbench's operations with a counter in each system call, in each function on
// their whole way, with a record there instead, and with a counter in each basic block; by splices
// and by what the kernel and Debian have for it, at the same places in guests of one seed.
//
// Which functions are on the way is found: all that a first guest executes while the operations
// run, as an observer outside sees it. So what interrupts execute meanwhile is among them.

// granularity is how finely a kernel is instrumented, and with what.
type granularity struct {
	name, title string
	at          string // which of the places below
	action      string
	kprobes     string // the kind of the peer module's that does the same
}

// cheapestTrace is the least that a record may have in it: which function it is of, its tag says.
const cheapestTrace = "trace(1)"

// Where granularities are.
const (
	atSyscalls = "syscalls" // entries of all system calls' functions
	atEntries  = "entries"  // of all functions on the way
	atBlocks   = "each"     // each basic block of these
)

var granularities = []granularity{
	{name: "monitored", title: "system calls counted", at: atSyscalls, action: "count"},
	{name: "counted", title: "calls counted", at: atEntries, action: "count"},
	{name: "traced", title: "calls traced", at: atEntries, action: cheapestTrace, kprobes: "records"},
	{name: "blocks", title: "blocks counted", at: atBlocks, action: "count"},
}

// granularSuite is what is measured: so many samples of some operations, all if none is named.
type granularSuite struct {
	samples    int
	operations []string
	executed   uint64        // so often, in all samples, at least: what is on the way
	patience   time.Duration // host time of a guest
}

func (s granularSuite) work(name string) *wire.Step {
	return run(name, append([]string{lmbenchProgram, "-whole", "-roomy", strconv.Itoa(s.samples)}, s.operations...)...)
}

func (s granularSuite) names() []string {
	if s.operations == nil {
		return allOps()
	}
	return s.operations
}

var (
	// The rarest operation of the first is done 768 times in a sample, with one that is not counted
	// in three; of the other once.
	granularSlice = granularSuite{2, strings.Fields("Null Read Write Fstat"), 3 * 768, 20 * time.Minute}
	granularWhole = granularSuite{samples: 2, executed: 3, patience: 3 * time.Hour}
)

func granularScenarios() []Scenario {
	one := func(name, title, label string, s granularSuite) Scenario {
		return Scenario{Name: name, Title: title, Labels: []string{label},
			Guests: func(arch string) []Guest { return granularGuests(arch, s) },
			Check:  func(t *T) { checkGranular(t, s) },
		}
	}
	return []Scenario{
		one("granularities-slice", "what counting system calls, calls and blocks, and tracing calls, adds to some of LMbench's operations, by splices and by others' probes", "measure", granularSlice),
		one("granularities", "the same of all of LMbench's operations", "proof", granularWhole),
	}
}

// guests -----------------------------------------------------------------------

func granularGuests(arch string, s granularSuite) []Guest {
	guest := func(name, after string, steps func(a *Answer) ([]*wire.Step, error)) Guest {
		return Guest{Name: name, CPUs: 1, Time: vm.Exact, Index: true, RunTimeout: s.patience, After: after,
			Make: func(a *Answer) (*wire.Job, error) {
				more, err := steps(a)
				begin := []*wire.Step{run("script", "/bin/sh", "-c", `printf '%s\n' "$2" >"$1"`, "sh", granularFile, granularScript), noOptprobes(), s.work("bare")}
				return job(append(begin, more...)...), err
			}}
	}
	out := []Guest{
		{Name: "seen", CPUs: 1, Time: vm.Exact, Oracle: true, Executed: s.executed, RunTimeout: s.patience, Job: job(s.work("work"))},
		guest("kprobed", "seen", func(seen *Answer) ([]*wire.Step, error) { return s.kprobed(arch, seen) }),
		guest("spliced", "kprobed", s.spliced),
		guest("ftraced", "kprobed", func(kprobed *Answer) ([]*wire.Step, error) { return s.named(arch, toolFtrace, kprobed) }),
		guest("bpftraced", "kprobed", func(kprobed *Answer) ([]*wire.Step, error) { return s.named(arch, toolBpftrace, kprobed) }),
	}
	bpf := &out[len(out)-1]
	bpf.Software, bpf.Boots, bpf.Index = []string{"bpftrace"}, true, false // as in peers
	if arch == "amd64" {
		out = append(out, guest("optprobed", "kprobed", s.optprobed))
	}
	return out
}

// granularPlaces are all points there might be, by where they are.
func granularPlaces(arch string, seen *Answer) (map[string][]*wire.Point, error) {
	functions, err := functionsSeen(arch, seen)
	if err != nil {
		return nil, err
	}
	places := map[string][]*wire.Point{}
	seen.Text.Functions("", func(f ktext.Func) bool {
		if name := bestName(arch, seen.Text, f); strings.HasPrefix(name, syscallEntry(arch, "")) && !isPart(name) {
			places[atSyscalls] = append(places[atSyscalls], entry(name))
		}
		return true
	})
	for _, f := range functions {
		places[atBlocks] = append(places[atBlocks], &wire.Point{Function: f, Each: wire.Each_BLOCK})
		if !isPart(f) {
			places[atEntries] = append(places[atEntries], entry(f))
		}
	}
	return places, nil
}

// bestName is a system call's, of the names that a function has, or the one by which it is asked for.
func bestName(arch string, text *ktext.Text, f ktext.Func) string {
	for _, name := range text.Aliases(f) {
		if strings.HasPrefix(name, syscallEntry(arch, "")) {
			return name
		}
	}
	return f.Known()
}

// isPart reports whether a name is of a function's other half, which nobody calls.
func isPart(name string) bool { return strings.Contains(name, ".cold") }

// functionsSeen are those of which a guest has executed something, by name.
func functionsSeen(arch string, seen *Answer) ([]string, error) {
	lo, hi := seen.Text.Bounds()
	if uint64(hi-lo) != seen.Hello.TextEnd-seen.Hello.TextStart {
		return nil, fmt.Errorf("the guest's kernel has %d bytes of text, its dump %d", seen.Hello.TextEnd-seen.Hello.TextStart, hi-lo)
	}
	names := map[string]bool{}
	for a := range seen.Oracle {
		if a < seen.Hello.TextStart || a >= seen.Hello.TextEnd {
			continue
		}
		if f, ok := seen.Text.Locate(lo + isa.Addr(a-seen.Hello.TextStart)); ok && !cfg.IsPaddingName(f.Name) {
			names[bestName(arch, seen.Text, f)] = true
		}
	}
	if len(names) == 0 {
		return nil, errors.New("the observer has told of nothing that was executed")
	}
	return slices.Sorted(maps.Keys(names)), nil
}

// kprobed finds which places splices have, and puts kprobes there.
func (s granularSuite) kprobed(arch string, seen *Answer) (steps []*wire.Step, err error) {
	places, err := granularPlaces(arch, seen)
	steps = append(steps, granularPart("sites", nil, "sites"))
	for _, at := range slices.Sorted(maps.Keys(places)) {
		steps = append(steps, skipping(at, places[at]), unsplice(at))
	}
	return append(steps, s.probed("true")...), err
}

// probed are the kernel's probes of each granularity in turn, at the places that are known.
// settle is what is waited for before work begins.
func (s granularSuite) probed(settle string) (steps []*wire.Step) {
	for _, g := range granularities {
		place := kprobes(g.name, g.at)
		place.GetKprobe().Kind = g.kprobes
		steps = append(steps, place, shell(g.name+".settled", settle), s.work(g.name+".work"))
		if g.kprobes != "" {
			steps = append(steps, shell(g.name+".hits", "cat /sys/module/peer/parameters/hits"))
		}
		steps = append(steps, unkprobes(g.name))
	}
	return steps
}

// spliced has splices of each granularity in turn: all, and if the kernel has refused some
// kprobes, at those places again where it has one.
func (s granularSuite) spliced(kprobed *Answer) (steps []*wire.Step, err error) {
	for _, g := range granularities {
		a, err := probe.Compile("", g.action)
		if err != nil {
			return nil, err
		}
		sets, err := g.sets(kprobed)
		if err != nil {
			return nil, err
		}
		for _, set := range sets {
			for _, p := range set.points {
				p.Actions = []*wire.Action{{Name: g.action, Snippet: a.String()}}
			}
			sp := splice(set.name, set.points...)
			sp.GetSplice().Brief = g.kprobes == ""
			found := read(set.name + ".read")
			found.GetRead().Brief = g.kprobes == ""
			steps = append(steps, sp, s.work(set.name+".work"), found, unsplice(set.name))
		}
	}
	return steps, nil
}

// granularSet are the places of one splice.
type granularSet struct {
	name      string
	points    []*wire.Point
	functions []string
}

// Which of the places that splices have are in a set: all; those at which the kernel takes a
// kprobe; and entries of functions by whose names others' tracers find them, and no other.
const (
	ofKprobes = ".kprobes"
	ofNames   = ".named"
)

// sets are those of all places that can be spliced, and those of others, if these have not all.
func (g granularity) sets(kprobed *Answer) ([]granularSet, error) {
	named, err := granularSites(kprobed)
	refused := map[uint64]bool{}
	for _, p := range kprobed.Results[g.name].GetPoints() {
		refused[p.Address] = p.Refusal != nil
	}
	sets := []granularSet{{name: g.name}, {name: g.name + ofKprobes}, {name: g.name + ofNames}}
	for _, p := range kprobed.Results[g.at].GetPoints() {
		for k, has := range []bool{p.Refusal == nil, !refused[p.Address], g.at != atBlocks && named[p.Symbol]} {
			if s := &sets[k]; p.Refusal == nil && has {
				s.points = append(s.points, &wire.Point{Text: p.Address - kprobed.Hello.TextStart + 1})
				s.functions = append(s.functions, p.Symbol)
			}
		}
	}
	return slices.DeleteFunc(sets, func(s granularSet) bool {
		return s.name != g.name && len(s.points) == len(sets[0].points)
	}), err
}

// set is the one of a kind.
func (g granularity) set(kprobed *Answer, of string) (granularSet, error) {
	sets, err := g.sets(kprobed)
	k := slices.IndexFunc(sets, func(s granularSet) bool { return s.name == g.name+of })
	return sets[max(k, 0)], err
}

// granularSites are names by which ftrace finds one function.
func granularSites(kprobed *Answer) (map[string]bool, error) {
	out := map[string]bool{}
	runs := kprobed.Results["sites"].GetRuns()
	if len(runs) != 1 || runs[0].Exit != 0 || runs[0].Truncated {
		return nil, fmt.Errorf("guest kprobed has not listed where ftrace's sites are: %v", runs)
	}
	r, err := gzip.NewReader(bytes.NewReader(runs[0].Stdout))
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(r)
	for _, f := range strings.Fields(string(text)) {
		out[f] = !strings.Contains(f, ".") // bpftrace takes no such name
	}
	return out, err
}

// optimised waits until the kernel makes no more jumps of its probes, 256 at a time, and says of how
// many it has.
const optimised = `f=/sys/kernel/debug/kprobes/list n=-1
while sleep 8; m=$(grep -c OPTIMIZED $f); [ $m != $n ]; do n=$m; done; echo $m; grep -v OPTIMIZED $f | head -n 3`

// optprobed is as kprobed, at the same places, when the kernel has made jumps of what it may.
func (s granularSuite) optprobed(kprobed *Answer) (steps []*wire.Step, err error) {
	known := map[string]bool{}
	for _, g := range granularities {
		set, err := g.set(kprobed, "")
		if err != nil {
			return nil, err
		}
		if !known[g.at] {
			steps = append(steps, skipping(g.at, set.points), unsplice(g.at))
		}
		known[g.at] = true
	}
	return append(append(steps, shell("optimise", "echo 1 >/proc/sys/debug/kprobes-optimization")), s.probed(optimised)...), nil
}

//go:embed granular.sh
var granularScript string

const granularFile = "/run/granular.sh"

// granularPart runs a part of the script, of functions.
func granularPart(name string, functions []string, argv ...string) *wire.Step {
	s := run(name, append([]string{"/bin/sh", granularFile}, argv...)...)
	s.GetRun().Stdin = []byte(strings.Join(functions, "\n") + "\n")
	return s
}

// named has a tool trace functions by their names, for each granularity that it has.
func (s granularSuite) named(arch, tool string, kprobed *Answer) (steps []*wire.Step, err error) {
	for _, g := range granularities {
		ask := rivalOf(tool).asks(arch, g)
		if ask == nil {
			continue
		}
		set, err := g.set(kprobed, ofNames)
		if err != nil {
			return nil, err
		}
		work := s.work("").GetRun().Argv
		if g.at == atSyscalls { // a pattern attaches all at once
			set.functions = []string{syscallEntry(arch, "*")}
		}
		steps = append(steps, granularPart(g.name+".work", set.functions, append(ask, work...)...))
	}
	return steps, nil
}

// checks -----------------------------------------------------------------------

// rival is a mechanism: the guest that has it, which of the places, and what is done with it.
type rival struct {
	name, guest, of string
	// lacks says why it has no such granularity; empty: it has.
	lacks func(arch string, g granularity) string
	// asks are the script's words for it, of a tool that finds functions by names.
	does func(arch string, g granularity) []string
}

const (
	toolKprobe   = "kprobe"
	toolOptprobe = "optprobe"
	toolFtrace   = "ftrace"
	toolBpftrace = "bpftrace"
)

func never(string, granularity) string { return "" }

var rivals = []rival{
	{name: toolSplice, guest: "spliced", lacks: never},
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
			if g.name == "traced" { // what it does to write records must not make any
				action = `/comm == "lmbench"/ { printf("%s\n", func); }`
			}
			return []string{"bpftrace", hook, action}
		},
		lacks: func(_ string, g granularity) string {
			if g.at == atBlocks {
				return "not asked: what bpftrace has in the middle of a function is a kprobe, which the column of kprobes has with less behind it"
			}
			return ""
		}},
}

func rivalOf(name string) rival {
	return rivals[slices.IndexFunc(rivals, func(r rival) bool { return r.name == name })]
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
	added float64   // instructions, samples of all operations together
}

func (t *T) granularRun(s granularSuite, guest, step string) granularRun {
	bare, with := t.suite(s, guest, "bare"), t.suite(s, guest, step)
	r := granularRun{mean: 1}
	for k, o := range with {
		of := o.NS / bare[k].NS
		r.of = append(r.of, of)
		r.mean *= math.Pow(of, 1/float64(len(with)))
		r.added += (o.NS - bare[k].NS) * float64(o.N)
	}
	return r
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
	t.equal(guest+": "+step+": operations", names, s.names())
	return suite.Operations
}

// Rows of the table below those of operations.
var granularRows = []string{"geometric mean", "at most, as asked", "added, of what splices add", "at least, as asked"}

func checkGranular(t *T, s granularSuite) {
	t.Grid = &report.Grid{Title: "times what operations take bare", Rows: "operation"}
	for _, name := range slices.Concat(s.names(), granularRows) {
		t.Grid.Lines = append(t.Grid.Lines, report.GridRow{Name: name})
	}
	t.granularRefused()
	for _, g := range granularities {
		for _, m := range rivals {
			t.granularColumn(g.title+", "+m.name, t.granularCells(s, g, m))
		}
	}
	for _, g := range granularities {
		t.granularCounts(s, g)
	}
	for _, l := range granularLimits {
		t.granularLimit(l)
	}
}

func (t *T) granularColumn(name string, cells []report.GridCell) {
	t.Grid.Columns = append(t.Grid.Columns, name)
	for k := range t.Grid.Lines {
		t.Grid.Lines[k].Cells = append(t.Grid.Lines[k].Cells, cells[k])
	}
}

// granularCells are a column, of figures or of why there are none. Metrics are named as report
// looks for them that draws bars.
func (t *T) granularCells(s granularSuite, g granularity, m rival) (cells []report.GridCell) {
	if why := m.lacks(t.Arch, g); why != "" {
		return slices.Repeat([]report.GridCell{{Why: why}}, len(t.Grid.Lines))
	}
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
		file(name+".bare", o.NS, unitOf(o.Name))
		file(name+"."+m.name+".ratio", r.of[k], "x")
		value(r.of[k])
	}
	file(m.name+".points", float64(len(set.points)), "points")
	if m.name == toolOptprobe {
		n, err := strconv.Atoi(strings.Fields(string(t.ran(m.guest, g.name+".settled")[0]))[0])
		t.noError(g.name+": optprobes", err)
		file(m.name+".optimised", float64(n), "points")
	}
	file(m.name+".geomean", r.mean, "x")
	file(m.name+".over-splice", r.added/ours.added, "x")
	for k, v := range []float64{r.mean, r.added / ours.added} {
		value(v)
		if l := granularLimitOf(g.name, m.name, k == 0); l.asked[t.Arch] > 0 {
			value(l.asked[t.Arch])
		} else {
			cells = append(cells, report.GridCell{Why: "nothing is asked of it"})
		}
	}
	return cells
}

// granularLimit bounds a figure of a granularity and a mechanism: what operations take, times bare,
// if it is of splices, or else what it adds, times what splices add at the same places. What is
// asked of it is in the table; what is held is asserted, and is that unless it is known to be missed.
type granularLimit struct {
	granularity, rival string
	asked, held        map[string]float64
}

func each(amd64, arm64, riscv64 float64) map[string]float64 {
	return map[string]float64{"amd64": amd64, "arm64": arm64, "riscv64": riscv64}
}

var granularLimits = []granularLimit{
	{"traced", toolSplice, each(1.25, 1.25, 1.25), nil},
	{"blocks", toolSplice, each(1.6, 1.9, 2.2), nil},
	{"counted", toolKprobe, each(100, 80, 80), nil},
	{"blocks", toolKprobe, each(100, 80, 80), nil},
	{"traced", toolKprobe, each(30, 30, 30), nil},
	{"counted", toolOptprobe, each(20, 0, 0), nil},
	{"blocks", toolOptprobe, each(20, 0, 0), nil},
	{"traced", toolOptprobe, each(6, 0, 0), nil},
}

// granularLimitOf is the limit of one figure, mean or else what is added; none if it has none.
func granularLimitOf(granularity, rival string, mean bool) granularLimit {
	for _, l := range granularLimits {
		if l.granularity == granularity && l.rival == rival && (rival == toolSplice) == mean {
			return l
		}
	}
	return granularLimit{}
}

// limit is what is asserted; 0: nothing.
func (l granularLimit) limit(arch string) float64 { return cmp.Or(l.held[arch], l.asked[arch]) }

func (t *T) granularLimit(l granularLimit) {
	limit := l.limit(t.Arch)
	figure := func(of string) float64 { return t.Metrics[l.granularity+"."+l.rival+of].Value }
	switch {
	case limit == 0:
	case l.rival == toolSplice:
		t.atMost(l.granularity+": geometric mean with splices, times bare", figure(".geomean"), limit)
	default:
		t.atLeast(l.granularity+": added by "+l.rival+"s, of what splices add at the same places", figure(".over-splice"), limit)
	}
}

// granularRefused says which of the places no splice has, and why.
func (t *T) granularRefused() {
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
	t.Files["granularities-refused.txt"] = []byte(text.String())
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
const often = 480

// otherwise is by which part of what came by two have found another number of it, at the places that
// both have.
func otherwise[P comparable](a, b map[P]uint64) float64 {
	var all, other uint64
	for p, n := range a {
		if m, both := b[p]; both && n >= often {
			all += max(n, m)
			other += max(n, m) - min(n, m)
		}
	}
	return float64(other) / float64(max(all, 1))
}

// mostApart is that part at most: where all takes many times as long there are more interrupts.
const mostApart = 0.02

// granularCounts compares what each mechanism found at the same places with what splices did.
func (t *T) granularCounts(s granularSuite, g granularity) {
	ours := t.granularFound(g)
	symbols, byName := map[string]uint64{}, map[uint64]string{}
	for _, p := range t.made("kprobed", g.at) {
		byName[p.Address-t.Guests["kprobed"].Hello.TextStart] = p.Symbol
	}
	for at, n := range ours {
		symbols[byName[at]] = max(symbols[byName[at]], n)
	}
	t.granularFile(g, ours, byName)
	getppid := symbols[syscallEntry(t.Arch, planted)]
	t.atLeast(g.name+": calls of getppid", float64(getppid), float64(1440*(s.samples+1)))
	t.atMost(g.name+": calls of getppid", float64(getppid), float64(1441*(s.samples+1)))
	file := func(m rival, part float64) {
		t.Metrics[g.name+"."+m.name+".apart"] = report.Metric{Value: 100 * part, Unit: "%", N: 1}
		t.atMost(g.name+": part of what "+m.name+"s find otherwise than splices", part, mostApart)
	}
	for _, m := range rivals[1:] {
		switch {
		case m.lacks(t.Arch, g) != "" || m.name == toolFtrace:
		case m.name == toolBpftrace:
			file(m, otherwise(symbols, t.bpftraceFound(g)))
		case g.kprobes == "":
			file(m, otherwise(ours, t.probesFound(m.guest, g)))
		}
	}
}

// granularFile lists what splices counted, the most often first.
func (t *T) granularFile(g granularity, ours map[uint64]uint64, names map[uint64]string) {
	var text strings.Builder
	for _, at := range slices.SortedFunc(maps.Keys(ours), func(a, b uint64) int { return cmp.Or(cmp.Compare(ours[b], ours[a]), cmp.Compare(a, b)) }) {
		fmt.Fprintf(&text, "%10d  text+%#x in %s\n", ours[at], at, names[at])
	}
	t.Files["granularities-"+g.name+".txt"] = []byte(text.String())
}
