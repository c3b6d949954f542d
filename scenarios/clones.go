package scenarios

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"kerninst/agent/plan"
	"kerninst/agent/probe"
	"kerninst/agent/wire"
	"kerninst/lab/measure"
	"kerninst/lab/plugins"
	"kerninst/lab/report"
	"kerninst/lab/vm"
)

// clones: what LMbench's operations take when the system calls that they make run as instrumented
// copies of all that was seen to be executed from their begin on, after figures 8, 9, 10 and 13 of JIFL
// (EuroSys 2007): with nothing inserted, with a counter in each system call, in each function, a record
// there, and a counter in each block; and with kprobes at the same points.

// cloneKind is what is inserted in clones.
type cloneKind struct {
	name, title string
	rules       []*wire.Rule
	action      string             // of the rules, if they do not count
	entries     bool               // what is counted is where clones are entered
	limit       map[string]float64 // by ISA; "": of each
	// What is done without, to see what it is good for, as in figure 9 of JIFL: to know what is free, to have
	// counters where they are inserted, and to lead calls from copy to copy: each function is a clone of its own.
	blind, called, unlinked bool
}

// cloneKinds, with what was aimed at, but for arm64 and riscv64, where who calls a copy looks at an ftrace site by four
// instructions, and saves two: 1.03 with nothing inserted, which arm64 takes 1.032 for, and 1.2 with calls traced, which
// all operations together take 1.21 for on riscv64.
var cloneKinds = []cloneKind{
	{name: "nothing", title: "nothing inserted", limit: map[string]float64{"": 1.03, "arm64": 1.04, "riscv64": 1.06}},
	{name: "monitored", title: "system calls counted", entries: true, limit: map[string]float64{"": 1.04, "arm64": 1.05, "riscv64": 1.07}},
	{name: "counted", title: "calls counted", rules: []*wire.Rule{{}}},
	{name: "traced", title: "calls traced", rules: []*wire.Rule{{}}, action: cheapestTrace, limit: map[string]float64{"": 1.2, "riscv64": 1.23}},
	{name: "blocks", title: "blocks counted", rules: eachBlock, limit: map[string]float64{"amd64": 1.25, "arm64": 1.55, "riscv64": 1.65}},
}

var eachBlock = []*wire.Rule{{Each: wire.Each_BLOCK}}

// ablatedKinds show what each thing that the generator knows is good for.
var ablatedKinds = []cloneKind{
	{name: "nothing", title: "nothing inserted"},
	{name: "unlinked", title: "nothing inserted, each function a clone of its own", unlinked: true},
	{name: "blocks", title: "blocks counted", rules: eachBlock},
	{name: "blind", title: "blocks counted, nothing known to be free", rules: eachBlock, blind: true},
	{name: "called", title: "blocks counted by calls", rules: eachBlock, called: true},
	{name: "neither", title: "blocks counted by calls, nothing known to be free", rules: eachBlock, blind: true, called: true},
}

// clonedSuite is some of LMbench's operations, and the system calls that are cloned.
type clonedSuite struct {
	operations, calls []string
	kinds             []cloneKind
	beside            bool // kprobes
	samples           int
	patience          time.Duration
	memory            int // in MiB; 0: the usual
}

var (
	clonedSlice = clonedSuite{operations: strings.Fields("Null Read Write Fstat"), calls: strings.Fields("getppid read write newfstat newfstatat"),
		kinds: cloneKinds, samples: 2, patience: 20 * time.Minute}
	clonedWhole = clonedSuite{operations: strings.Fields("Null Read Write Stat Fstat OpenClose Select100 SigInstall SigCatch PipeLatency ForkExit"),
		calls: strings.Fields("getppid read write newstat newfstat newfstatat openat close select pselect6 rt_sigaction kill rt_sigreturn clone clone3 vfork execve exit_group wait4"),
		kinds: cloneKinds, beside: true, samples: 2, patience: 2 * time.Hour, memory: 2048}
	clonedAblation = clonedSuite{operations: clonedSlice.operations, calls: clonedSlice.calls, kinds: ablatedKinds, samples: 2, patience: clonedSlice.patience}
)

// callsOf are those of an ISA's kernel: riscv64's has no vfork.
func (s clonedSuite) callsOf(arch string) []string {
	return slices.DeleteFunc(slices.Clone(s.calls), func(call string) bool { return arch == "riscv64" && call == "vfork" })
}

func (s clonedSuite) argv(samples int) []string {
	return append([]string{lmbenchProgram, "-whole", "-roomy", fmt.Sprint(samples)}, s.operations...)
}

func cloneScenarios() []Scenario {
	one := func(name, label string, s clonedSuite) Scenario {
		return Scenario{Name: name, Title: "what LMbench's operations take when their system calls run as instrumented copies",
			Labels: []string{label}, Guests: func(arch string) []Guest { return s.guests(arch) }, Check: func(t *T) { s.check(t) }}
	}
	storm := func(name, label string, s cloneStorm) Scenario {
		return Scenario{Name: name, Title: "clones come, grow and go under load, while tasks sleep in them and static keys turn",
			Labels: []string{label}, Guests: func(arch string) []Guest { return s.guests(arch) }, Check: func(t *T) { s.check(t) }}
	}
	return []Scenario{one("clones-slice", "measure", clonedSlice), one("clones", "clones-long", clonedWhole), one("clones-ablation", "clones-long", clonedAblation),
		clonesLeft(), storm("clones-storm", "hazards", cloneStorm{3, 10 * time.Minute}), storm("clones-storm-long", "clones-long", cloneStorm{120, 2 * time.Hour})}
}

// exploredGuest is where clones of the system calls grow, with nothing inserted, to all that the operations execute. The
// others begin alike, and have their clones whole from the begin.
const exploredGuest = "explored"

// clonedLoad is how often the operations are run at the most to find what they execute.
const clonedLoad = 40

func (s clonedSuite) guests(arch string) []Guest {
	guest := func(name string, steps func(a *Answer) ([]*wire.Step, error)) Guest {
		return Guest{Name: name, CPUs: 1, Time: vm.Exact, Index: true, Memory: s.memory, RunTimeout: s.patience, After: exploredGuest,
			Make: func(a *Answer) (*wire.Job, error) {
				more, err := steps(a)
				return job(append([]*wire.Step{noOptprobes(), run("bare", s.argv(s.samples)...)}, more...)...), err
			}}
	}
	sp := &wire.Splice{SkipRefused: true, Brief: true}
	for _, call := range s.callsOf(arch) {
		sp.Clones = append(sp.Clones, &wire.Cloning{Entry: syscallEntry(arch, call)})
	}
	out := []Guest{{Name: exploredGuest, CPUs: 1, Time: vm.Exact, Index: true, Memory: s.memory, RunTimeout: s.patience, Job: job(noOptprobes(),
		&wire.Step{Name: "clones", Do: &wire.Step_Splice{Splice: sp}},
		&wire.Step{Name: "grown", Do: &wire.Step_Grow{Grow: &wire.Grow{Splice: "clones", Rounds: clonedLoad, Run: &wire.Run{Argv: s.argv(s.samples)}}}},
		unsplice("clones"))}}
	for _, k := range s.kinds {
		out = append(out, guest(k.name, func(a *Answer) ([]*wire.Step, error) { return k.steps(s, a) }))
	}
	if s.beside {
		out = append(out, guest(toolKprobe, func(a *Answer) ([]*wire.Step, error) { return s.kprobed(arch, a), nil }))
	}
	return out
}

// steps have what is inserted in clones of all that was found to be executed.
func (k cloneKind) steps(s clonedSuite, explored *Answer) ([]*wire.Step, error) {
	var actions []*wire.Action
	if k.action != "" {
		a, err := probe.Compile("", k.action)
		if err != nil {
			return nil, err
		}
		actions = []*wire.Action{{Name: k.action, Snippet: a.String()}}
	}
	sp := &wire.Splice{SkipRefused: true, Brief: k.action == ""}
	for _, c := range k.clones(explored) {
		c.Still, c.NoLiveness, c.NoInlining, c.Most = true, k.blind, k.called, mostOfClone
		for _, r := range k.rules {
			c.Rules = append(c.Rules, &wire.Rule{Each: r.Each, Actions: actions})
		}
		sp.Clones = append(sp.Clones, c)
		if k.entries {
			sp.Points = append(sp.Points, &wire.Point{Function: c.Entry, Entry: true, Within: c.Entry, Mechanism: plan.Clone.String()})
		}
	}
	found := read(k.name + ".read")
	found.GetRead().Brief = sp.Brief
	return []*wire.Step{{Name: k.name, Do: &wire.Step_Splice{Splice: sp}}, run(k.name+".work", s.argv(s.samples)...), found, unsplice(k.name)}, nil
}

// mostOfClone is room for all that is found, whatever is inserted: the same functions are copied each time.
const mostOfClone = 1 << 20

// clones are those that have grown, or one of each of their functions.
func (k cloneKind) clones(explored *Answer) (out []*wire.Cloning) {
	for _, c := range explored.Results["grown"].GetClones() {
		out = append(out, plugins.Again(c))
	}
	if !k.unlinked {
		return out
	}
	out = nil
	for _, f := range functionsIn(explored) {
		if !isPart(f) {
			out = append(out, &wire.Cloning{Entry: f})
		}
	}
	return out
}

// functionsIn are all functions that are in clones.
func functionsIn(explored *Answer) []string {
	in := map[string]bool{}
	for _, c := range explored.Results["grown"].GetClones() {
		for _, f := range c.Functions {
			in[f] = true
		}
	}
	return slices.Sorted(maps.Keys(in))
}

// kprobes is what has the kernel's own probes at the places at which something is inserted in clones.
func (s clonedSuite) kprobes() granularSuite {
	g := lmbenchSuite(s.samples, 0, s.patience, s.operations...)
	g.rivals, g.sampled = []string{toolKprobe}, nil
	return g
}

// kprobed puts kprobes at the system calls, and in the functions that are in their clones, whoever calls these.
func (s clonedSuite) kprobed(arch string, explored *Answer) (steps []*wire.Step) {
	places := map[string][]*wire.Point{}
	for _, call := range s.callsOf(arch) {
		places[atSyscalls] = append(places[atSyscalls], entry(syscallEntry(arch, call)))
	}
	for _, f := range functionsIn(explored) {
		places[atBlocks] = append(places[atBlocks], &wire.Point{Function: f, Each: wire.Each_BLOCK})
		if !isPart(f) {
			places[atEntries] = append(places[atEntries], entry(f))
		}
	}
	for _, at := range slices.Sorted(maps.Keys(places)) {
		steps = append(steps, skipping(at, places[at]), unsplice(at))
	}
	return append(steps, s.kprobes().probed(arch, "true")...)
}

func (s clonedSuite) check(t *T) {
	t.Grid = &report.Grid{Title: "times what operations take bare", Rows: "operation"}
	for _, name := range append(slices.Clone(s.operations), "geometric mean") {
		t.Grid.Lines = append(t.Grid.Lines, report.GridRow{Name: name})
	}
	t.ran(exploredGuest, "grown")
	t.composed(exploredGuest, t.done(exploredGuest, "grown").Clones)
	means := map[string]float64{}
	for _, k := range s.kinds {
		t.composed(k.name, t.done(k.name, k.name).Clones)
		means[k.name] = s.column(t, k.name, k.name, k.title)
		t.Metrics["clones."+k.name+".ratio"] = report.Metric{Value: means[k.name], Unit: "ratio", Better: "lower", N: len(s.operations)}
	}
	over := s.kprobedColumns(t, means)
	for _, k := range s.kinds { // when all figures are there
		if k.entries {
			t.atMost("what counting system calls adds to nothing inserted", means[k.name]-means["nothing"], 0.01)
			t.atLeast("system calls counted", float64(slices.Max(t.done(k.name, k.name+".read").Counts)), 1000)
		}
		if limit := cmp.Or(k.limit[t.Arch], k.limit[""]); limit > 0 {
			t.atMost(k.title+": geometric mean of what operations take, of bare", means[k.name], limit)
		}
	}
	for _, title := range slices.Sorted(maps.Keys(over)) {
		t.atLeast(title+": what kprobes at the same points add, times what the clone does", over[title], leastOverClones)
	}
}

// kprobedColumns are what operations take with kprobes, and how many times as much these add as clones do, by title.
func (s clonedSuite) kprobedColumns(t *T, means map[string]float64) map[string]float64 {
	out := map[string]float64{}
	kprobes := s.kprobes().rival(toolKprobe)
	for _, g := range granularities {
		if !s.beside || kprobes.lacks(t.Arch, g) != "" {
			continue
		}
		mean := s.column(t, toolKprobe, g.name, g.title+", "+toolKprobe)
		t.Metrics["clones."+g.name+".kprobes.ratio"] = report.Metric{Value: mean, Unit: "ratio", N: len(s.operations)}
		if k := means[g.name]; g.at != atSyscalls && k > 1 {
			out[g.title] = (mean - 1) / (k - 1)
			t.Metrics["clones."+g.name+".kprobes.over"] = report.Metric{Value: out[g.title], Unit: "x", N: len(s.operations)}
		}
	}
	return out
}

// leastOverClones is how many times as much kprobes add at least.
const leastOverClones = 10

// composed files what is in clones.
func (t *T) composed(name string, clones []*wire.Clone) {
	functions, size, left := 0, uint32(0), 0
	for _, c := range clones {
		functions, size, left = functions+len(c.Functions), size+c.Bytes, left+len(c.Left)
	}
	t.Files["clones-"+name+".txt"] = composition(clones)
	t.Metrics["clones."+name+".functions"] = report.Metric{Value: float64(functions), Unit: "functions", N: 1}
	t.Metrics["clones."+name+".left"] = report.Metric{Value: float64(left), Unit: "functions", N: 1}
	t.Metrics["clones."+name+".bytes"] = report.Metric{Value: float64(size), Unit: "bytes", N: 1}
}

// column is what operations take in a guest with something, times what they take there bare, and their geometric mean.
func (s clonedSuite) column(t *T, guest, name, title string) float64 {
	mean := 1.0
	var cells []report.GridCell
	bare := s.suite(t, guest, "bare")
	for n, o := range s.suite(t, guest, name+".work") {
		of := o.NS / bare[n].NS
		mean *= math.Pow(of, 1/float64(len(bare)))
		cells = append(cells, report.GridCell{Value: &of})
	}
	t.granularColumn(title, append(cells, report.GridCell{Value: &mean}))
	return mean
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

func (s clonedSuite) suite(t *T, guest, step string) []*measure.Operation {
	suite, err := measure.ParseSuite(t.ran(guest, step)[0])
	t.noError(guest+": "+step, err)
	var names []string
	for _, o := range suite.Operations {
		names = append(names, o.Name)
	}
	t.equal(guest+": "+step+": operations", names, s.operations)
	return suite.Operations
}
