package scenarios

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"kerninst/agent/plan"
	"kerninst/agent/probe"
	"kerninst/agent/wire"
	"kerninst/lab/plugins"
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
	most                    uint32 // bytes of each clone; 0: room for all
	dearer                  string // than this kind it costs more
}

// cloneKinds, with the limits that are aimed at.
var cloneKinds = []cloneKind{
	{name: "nothing", title: "nothing inserted", limit: map[string]float64{"": 1.03}},
	{name: "monitored", title: "system calls counted", entries: true, limit: map[string]float64{"": 1.04}},
	{name: "counted", title: "calls counted", rules: []*wire.Rule{{}}},
	{name: "traced", title: "calls traced", rules: []*wire.Rule{{}}, action: cheapestTrace, limit: map[string]float64{"": 1.2}},
	{name: "blocks", title: "blocks counted", rules: eachBlock, limit: map[string]float64{"amd64": 1.25, "arm64": 1.55, "riscv64": 1.65}},
}

var eachBlock = []*wire.Rule{{Each: wire.Each_BLOCK}}

// ablatedKinds show what each thing that the generator knows is good for.
var ablatedKinds = []cloneKind{
	{name: "nothing", title: "nothing inserted"},
	{name: "unlinked", title: "nothing inserted, each function a clone of its own", unlinked: true},
	{name: "blocks", title: "blocks counted", rules: eachBlock},
	{name: "blind", title: "blocks counted, nothing known to be free", rules: eachBlock, blind: true, dearer: "blocks"},
	{name: "called", title: "blocks counted by calls", rules: eachBlock, called: true, dearer: "blocks"},
	{name: "neither", title: "blocks counted by calls, nothing known to be free", rules: eachBlock, blind: true, called: true, dearer: "called"},
}

// clonedSuite is a workload whose system calls are cloned.
type clonedSuite struct {
	granularSuite
	whose  string // operations, for people
	kinds  []cloneKind
	memory int // in MiB; 0: the usual
	least  int // functions that are copied
}

// clonedOperations are some of LMbench's, and their system calls.
func clonedOperations(kinds []cloneKind, patience time.Duration, operations, calls string) clonedSuite {
	s := clonedSuite{granularSuite: lmbenchSuite(2, 0, patience, strings.Fields(operations)...), whose: "LMbench's operations", kinds: kinds}
	s.calls = strings.Fields(calls)
	s.rivals, s.sampled, s.least = []string{}, nil, 100
	return s
}

const (
	fewOperations = "Null Read Write Fstat"
	theirCalls    = "getppid read write newfstat newfstatat"
	// Those that LMbench's operations are about; amd64 has room for a part of what they execute (see README, what is known not to work).
	operationCalls = "getppid read write newstat newfstat newfstatat openat close select pselect6 rt_sigaction kill rt_sigreturn clone clone3 vfork execve exit_group wait4"
)

var (
	clonedSlice    = clonedOperations(cloneKinds, 20*time.Minute, fewOperations, theirCalls)
	clonedAblation = clonedOperations(ablatedKinds, 20*time.Minute, fewOperations, theirCalls)
	clonedWhole    = func() clonedSuite {
		s := clonedOperations(cloneKinds, 2*time.Hour, "Null Read Write Stat Fstat OpenClose Select100 SigInstall SigCatch PipeLatency ForkExit",
			operationCalls)
		s.rivals, s.memory, s.least = []string{toolKprobe}, clonedMemory, 1000
		return s
	}()
)

func cloneScenarios() []Scenario {
	one := func(name, label string, s clonedSuite) Scenario {
		return Scenario{Name: name, Title: "what " + s.whose + " take when their system calls run as instrumented copies",
			Labels: strings.Fields(label), Guests: func(arch string) []Guest { return s.guests(arch) }, Check: func(t *T) { s.check(t) }}
	}
	storm := func(name, label string, s cloneStorm) Scenario {
		return Scenario{Name: name, Title: "clones come, grow and go under load, while tasks sleep in them and static keys turn",
			Labels: strings.Fields(label), Guests: func(arch string) []Guest { return s.guests(arch) }, Check: func(t *T) { s.check(t) }}
	}
	return []Scenario{one("clones-slice", "measure proof", clonedSlice), one("clones", "clones-long proof", clonedWhole), one("clones-ablation", "clones-long proof", clonedAblation), one("clones-apache", "clones-long proof", clonedApache),
		clonesLeft(), clonesTold(), clonesExecve(), storm("clones-storm", "hazards proof", cloneStorm{3, 10 * time.Minute, false}),
		storm("clones-storm-variants", "clones-long proof", cloneStorm{3, 10 * time.Minute, true}), storm("clones-storm-long", "clones-long proof", cloneStorm{120, 2 * time.Hour, false})}
}

// exploredGuest is where clones of the system calls grow, with nothing inserted, to all that the operations execute. The
// others begin alike, and have their clones whole from the begin.
const exploredGuest = "explored"

// clonedMemory is for copies of all that many system calls execute, in MiB.
const clonedMemory = 2048

// clonedLoad is how often the operations are run at the most to find what they execute.
const clonedLoad = 40

func (s clonedSuite) guests(arch string) (out []Guest) {
	if s.calls == nil {
		seen := s.observed()
		out = append(out, seen, s.guest(exploredGuest, seen.Name, func(seen *Answer) ([]*wire.Step, error) {
			entries, err := syscallsSeen(arch, seen)
			return s.explore(entries), err
		}))
	} else {
		explored := s.guest(exploredGuest, "", nil)
		explored.Make, explored.Job = nil, s.whole(s.explore(s.entries(arch)))
		out = append(out, explored)
	}
	for _, k := range s.kinds {
		out = append(out, s.guest(k.name, exploredGuest, func(a *Answer) ([]*wire.Step, error) {
			steps, err := k.steps(s, a)
			return append([]*wire.Step{s.work("bare")}, steps...), err
		}))
	}
	if contains(s.rivals, toolKprobe) {
		out = append(out, s.guest(toolKprobe, exploredGuest, func(a *Answer) ([]*wire.Step, error) {
			return append([]*wire.Step{s.work("bare")}, s.kprobed(arch, a)...), nil
		}))
	}
	return out
}

// guest is one whose steps are made of what another has found.
func (s clonedSuite) guest(name, after string, steps func(a *Answer) ([]*wire.Step, error)) Guest {
	return Guest{Name: name, CPUs: 1, Time: vm.Exact, Index: true, Memory: s.memory, RunTimeout: s.patience, Software: s.software, After: after,
		Make: func(a *Answer) (*wire.Job, error) {
			more, err := steps(a)
			return s.whole(more), err
		}}
}

func (s clonedSuite) whole(steps []*wire.Step) *wire.Job {
	return job(slices.Concat([]*wire.Step{noOptprobes()}, s.begins, steps, s.ends)...)
}

// explore has clones of system calls grow.
func (s clonedSuite) explore(entries []string) []*wire.Step {
	sp := &wire.Splice{SkipRefused: true, Brief: true}
	for _, e := range entries {
		sp.Clones = append(sp.Clones, &wire.Cloning{Entry: e})
	}
	return []*wire.Step{
		{Name: "clones", Do: &wire.Step_Splice{Splice: sp}},
		{Name: "grown", Do: &wire.Step_Grow{Grow: &wire.Grow{Splice: "clones", Rounds: clonedLoad, Run: &wire.Run{Argv: s.load}}}},
		unsplice("clones"),
	}
}

// entries are the system calls that are cloned. riscv64's kernel has no vfork.
func (s clonedSuite) entries(arch string) (out []string) {
	for _, call := range s.calls {
		if arch != "riscv64" || call != "vfork" {
			out = append(out, syscallEntry(arch, call))
		}
	}
	return out
}

// syscallsSeen are those that a guest was seen to make.
func syscallsSeen(arch string, seen *Answer) ([]string, error) {
	all, err := functionsSeen(arch, seen)
	return slices.DeleteFunc(all, func(f string) bool { return !strings.HasPrefix(f, syscallEntry(arch, "")) || isPart(f) }), err
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
		c.Still, c.NoLiveness, c.NoInlining, c.Most = true, k.blind, k.called, cmp.Or(k.most, mostOfClone)
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
	return []*wire.Step{{Name: k.name, Do: &wire.Step_Splice{Splice: sp}}, s.work(k.name + ".work"), found, unsplice(k.name)}, nil
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

// kprobed puts kprobes at the system calls, and in the functions that are in their clones, whoever calls these.
func (s clonedSuite) kprobed(arch string, explored *Answer) (steps []*wire.Step) {
	places := map[string][]*wire.Point{}
	for _, c := range explored.Results["grown"].GetClones() {
		places[atSyscalls] = append(places[atSyscalls], entry(c.Entry))
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
	return append(steps, s.probed(arch, "true")...)
}
