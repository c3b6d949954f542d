package scenarios

import (
	"bytes"
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"kerninst/agent/plan"
	"kerninst/agent/probe"
	"kerninst/agent/wire"
	"kerninst/lab/measure"
	"kerninst/lab/report"
	"kerninst/lab/vm"
)

// clones: what LMbench's operations take when the system calls that they make run as instrumented
// copies of all that was seen to be executed from their begin on, after figures 8 and 9 of JIFL
// (EuroSys 2007): with nothing inserted, with a counter in each system call, in each function, a record
// there, and a counter in each block.

// cloneKind is what is inserted in clones.
type cloneKind struct {
	name, title string
	rules       []*wire.Rule
	action      string             // of the rules, if they do not count
	entries     bool               // what is counted is where clones are entered
	limit       map[string]float64 // by ISA; "": of each
}

// cloneKinds, with what was aimed at, but for riscv64 with nothing inserted: who calls a copy looks at an
// ftrace site by four instructions there, and saves two.
var cloneKinds = []cloneKind{
	{"nothing", "nothing inserted", nil, "", false, map[string]float64{"": 1.03, "riscv64": 1.06}},
	{"monitored", "system calls counted", nil, "", true, map[string]float64{"": 1.04, "riscv64": 1.07}},
	{"counted", "calls counted", []*wire.Rule{{}}, "", false, nil},
	{"traced", "calls traced", []*wire.Rule{{}}, cheapestTrace, false, map[string]float64{"": 1.2}},
	{"blocks", "blocks counted", []*wire.Rule{{Each: wire.Each_BLOCK}}, "", false, map[string]float64{"amd64": 1.25, "arm64": 1.55, "riscv64": 1.65}},
}

// clonedSuite is some of LMbench's operations, and the system calls that are cloned.
type clonedSuite struct {
	operations, calls []string
	samples           int
	patience          time.Duration
}

var (
	clonedSlice = clonedSuite{strings.Fields("Null Read Write Fstat"), strings.Fields("getppid read write newfstat newfstatat"), 2, 20 * time.Minute}
	clonedWhole = clonedSuite{strings.Fields("Null Read Write Stat Fstat OpenClose Select100 SigInstall SigCatch PipeLatency ForkExit"),
		strings.Fields("getppid read write newstat newfstat openat close select pselect6 rt_sigaction kill rt_sigreturn clone clone3 vfork execve exit_group wait4"), 2, 40 * time.Minute}
)

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
	return []Scenario{one("clones-slice", "measure", clonedSlice), one("clones", "clones-long", clonedWhole),
		storm("clones-storm", "hazards", cloneStorm{3, 10 * time.Minute}), storm("clones-storm-long", "clones-long", cloneStorm{120, 2 * time.Hour})}
}

func (s clonedSuite) guests(arch string) []Guest {
	steps := []*wire.Step{noOptprobes(), run("bare", s.argv(s.samples)...)}
	for _, k := range cloneKinds {
		sp := &wire.Splice{SkipRefused: true, Brief: k.action == ""}
		for _, call := range s.calls {
			c := &wire.Cloning{Entry: syscallEntry(arch, call)}
			for _, r := range k.rules {
				rule := &wire.Rule{Each: r.Each}
				if k.action != "" {
					a, err := probe.Compile("", k.action)
					if err != nil {
						panic(err)
					}
					rule.Actions = []*wire.Action{{Name: k.action, Snippet: a.String()}}
				}
				c.Rules = append(c.Rules, rule)
			}
			sp.Clones = append(sp.Clones, c)
			if k.entries {
				sp.Points = append(sp.Points, &wire.Point{Function: c.Entry, Entry: true, Within: c.Entry, Mechanism: plan.Clone.String()})
			}
		}
		found := read(k.name + ".read")
		found.GetRead().Brief = k.action == ""
		steps = append(steps, &wire.Step{Name: k.name, Do: &wire.Step_Splice{Splice: sp}},
			&wire.Step{Name: k.name + ".grown", Do: &wire.Step_Grow{Grow: &wire.Grow{Splice: k.name, Rounds: 40, Run: &wire.Run{Argv: s.argv(s.samples)}}}},
			run(k.name+".work", s.argv(s.samples)...), found, unsplice(k.name))
	}
	return []Guest{{Name: "cloned", CPUs: 1, Time: vm.Exact, Index: true, RunTimeout: s.patience, Job: job(steps...)}}
}

func (s clonedSuite) check(t *T) {
	t.Grid = &report.Grid{Title: "times what operations take bare", Rows: "operation"}
	for _, name := range append(slices.Clone(s.operations), "geometric mean") {
		t.Grid.Lines = append(t.Grid.Lines, report.GridRow{Name: name})
	}
	bare := s.suite(t, "bare")
	for _, k := range cloneKinds {
		t.done("cloned", k.name)
		t.ran("cloned", k.name+".grown")
		grown := t.done("cloned", k.name+".grown")
		functions, size, left := 0, uint32(0), 0
		t.Files["clones-"+k.name+".txt"] = composition(grown.Clones)
		for _, c := range grown.Clones {
			functions, size, left = functions+len(c.Functions), size+c.Bytes, left+len(c.Left)
		}
		t.Metrics["clones."+k.name+".functions"] = report.Metric{Value: float64(functions), Unit: "functions", N: 1}
		t.Metrics["clones."+k.name+".left"] = report.Metric{Value: float64(left), Unit: "functions", N: 1}
		t.Metrics["clones."+k.name+".bytes"] = report.Metric{Value: float64(size), Unit: "bytes", N: 1}
		mean := 1.0
		var cells []report.GridCell
		for n, o := range s.suite(t, k.name+".work") {
			of := o.NS / bare[n].NS
			mean *= math.Pow(of, 1/float64(len(bare)))
			cells = append(cells, report.GridCell{Value: &of})
		}
		cells = append(cells, report.GridCell{Value: &mean})
		t.granularColumn(k.title, cells)
		t.Metrics["clones."+k.name+".ratio"] = report.Metric{Value: mean, Unit: "ratio", Better: "lower", N: len(bare)}
		if k.entries {
			t.atMost("what counting system calls adds to nothing inserted", mean-t.Metrics["clones.nothing.ratio"].Value, 0.01)
			t.atLeast("system calls counted", float64(slices.Max(t.done("cloned", k.name+".read").Counts)), 1000)
		}
		if limit := cmp.Or(k.limit[t.Arch], k.limit[""]); limit > 0 {
			t.atMost(k.title+": geometric mean of what operations take, of bare", mean, limit)
		}
	}
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

func (s clonedSuite) suite(t *T, step string) []*measure.Operation {
	suite, err := measure.ParseSuite(t.ran("cloned", step)[0])
	t.noError(step, err)
	var names []string
	for _, o := range suite.Operations {
		names = append(names, o.Name)
	}
	t.equal(step+": operations", names, s.operations)
	return suite.Operations
}
