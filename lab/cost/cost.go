// Package cost measures what one hit of a probe costs: instructions that a splice
// adds, by action and mechanism, beside the kernel's own probes at the same function,
// all in one guest of exact time (djprobe's table); and what one insertion takes, by
// its parts (KernInst's figure 4).
package cost

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"kerninst/agent/ktext"
	"kerninst/agent/plan"
	"kerninst/agent/probe"
	"kerninst/agent/snippet"
	"kerninst/agent/wire"
	"kerninst/lab/measure"
)

// Table is the document that `lab cost` prints.
type Table struct {
	Schema int    `json:"schema"`
	Arch   string `json:"arch"`
	Kernel string `json:"kernel"` // uname -r
	Rows   []Row  `json:"rows"`
	// Insertion is one counter put in, by its parts. The daemon is a user program:
	// its instructions are in it, and those of the kernel's that it waits for.
	Insertion []Part `json:"insertion"`
}

// Row is one action by one mechanism, or why there is none.
type Row struct {
	Action    string `json:"action"`
	Mechanism string `json:"mechanism"`
	Point     string `json:"point,omitempty"` // both of a pair
	// Added is the instructions that one hit takes more, of a pair both hits.
	Added   float64  `json:"instructions_per_hit,omitempty"`
	Bytes   int      `json:"bytes,omitempty"` // of patches and springboards; of peers not known
	N       uint64   `json:"n,omitempty"`     // hits, each of which was counted
	Refusal *Refusal `json:"refusal,omitempty"`
}

// Refusal is why there is no figure.
type Refusal struct {
	Reason string `json:"reason"`
	Detail string `json:"detail"`
}

// Part is a part of one insertion.
type Part struct {
	Name  string  `json:"part"`
	Insns float64 `json:"instructions"`
}

// action is what is done at a point, or at two.
type action struct {
	name      string
	predicate string
	do        []string // at the first point, and at a later one
	load      load
	cheap     bool // the first is where nothing has to be saved for it
	jumps     bool // at what jumps, calls or returns, by a trap only: the kernel emulates those
	first     bool // by the first mechanism of the ladder only
	walks     bool // up the stack, by the kernel's functions
}

// stackPointer always holds something: a predicate that compares it with 0 is true.
var stackPointer = map[string]string{"amd64": "rsp", "arm64": "sp", "riscv64": "sp"}

// kept are two registers that calls keep: nothing that a patch needs for itself is in them.
var kept = map[string][2]string{"amd64": {"rbx", "rbp"}, "arm64": {"x19", "x20"}, "riscv64": {"s0", "s1"}}

func actions(arch string) []action {
	sp := fmt.Sprintf("reg(%q)", stackPointer[arch])
	return []action{
		{name: counter, do: []string{"count"}, load: long, cheap: true},
		{name: atAJump, do: []string{"count"}, load: long, jumps: true},
		{name: "predicated counter", predicate: sp + " != 0", do: []string{"count"}, load: long},
		{name: "timer pair", do: []string{"sum(0 - cycles)", "sum(cycles)"}, load: long, cheap: true},
		{name: "time", do: []string{"time", "time"}, load: long, cheap: true, first: true},
		{name: "trace record", do: []string{"trace(cycles)"}, load: traced},
		{name: "trace of two words", do: []string{fmt.Sprintf("trace(reg(%q), reg(%q))", kept[arch][0], kept[arch][1])}, load: traced, first: true, cheap: true},
		{name: "trace record without time", do: []string{"trace()"}, load: traced, first: true, cheap: true},
		{name: "stack of four", do: []string{"stack(4)"}, load: short, first: true, walks: true},
		{name: "predicate on pid", predicate: "pid != 0", do: []string{"count"}, load: long, first: true},
		{name: "predicate on comm", predicate: `comm == "bench"`, do: []string{"count"}, load: long, first: true},
		{name: "maximum", do: []string{"max(arg0)"}, load: long, first: true},
		{name: "average", do: []string{"avg(arg0)"}, load: long, first: true},
		{name: "histogram", do: []string{"hist(arg0)"}, load: long, first: true},
		{name: "linear histogram", do: []string{"lhist(arg0, 0, 1024, 16)"}, load: long, first: true},
		{name: "count by pid", do: []string{"count by pid"}, load: long, first: true},
		{name: "count by comm", do: []string{"count by comm"}, load: long, first: true},
		{name: "histogram by comm", do: []string{"hist(arg0) by comm"}, load: long, first: true},
		{name: "vtime", do: []string{"vtime", "vtime"}, load: long, first: true},
	}
}

const (
	counter = "counter"
	atAJump = "counter at a jump"
)

// ladder is the mechanisms that an action has rows for.
func (a action) ladder(arch string) []plan.Mechanism {
	ladder := plan.Ladder(arch)
	switch {
	case a.jumps:
		return []plan.Mechanism{plan.Trap}
	case a.first:
		return ladder[:1]
	}
	return ladder
}

// peers are the kernel's own probes. Those at a start are where ftrace has its place.
var peers = []struct {
	mechanism, kind        string
	start, optimise, jumps bool
}{
	{mechanism: "kprobe", kind: "kprobe"},
	{mechanism: "kprobe", kind: "kprobe", jumps: true},
	{mechanism: "kprobe", kind: "kprobe", start: true},
	{mechanism: "optprobe", kind: "kprobe", optimise: true},
	{mechanism: "ftrace", kind: "ftrace", start: true},
	{mechanism: "kretprobe", kind: "kretprobe", start: true},
}

// later is how many bytes behind its function's start the second point of a pair is
// looked for.
const later = 16

// function is a system call without arguments.
func function(arch string) string {
	return ktext.Syscall(arch, "getppid")
}

// load is how much is done: operations in a sample, samples, and how often that, each
// time with a new splice. Samples are short enough that some of them have no timer
// interrupt, and long enough that the slowest clock's tick (100 ns) is less than half
// an instruction an operation.
type load struct{ ops, samples, rounds int }

var (
	long = load{1000, 40, 1}
	// short leaves room in the largest buffer for a record of each operation, the
	// warm-up included.
	short = load{500, 1, 6}
	// traced takes longer than it is between two times at which the daemon empties rings, and than
	// two ticks of the kernel's: some of the samples have neither. Up to a tick behind the end of
	// a second, whoever reads the clock executes five instructions more (lib/vdso/gettimeofday.c:
	// a second is carried in a loop), which is a sample's, too.
	traced = load{500, 48, 1}
)

var loads = []load{long, short, traced}

const records = 1024

// anchorOf is the step that says where a peer is.
func anchorOf(jumps bool) string {
	if jumps {
		return jumpAnchor
	}
	return anchor
}

const (
	bare       = "bare"
	again      = "again"
	anchor     = "anchor"   // where peers are
	inserted   = "inserted" // a counter there once more, where nothing is searched for
	jumpAnchor = "jump-anchor"
	ahead      = "optimise"
	behind     = "optimised"
)

func runStep(name string, argv ...string) *wire.Step {
	return &wire.Step{Name: name, Do: &wire.Step_Run{Run: &wire.Run{Argv: argv}}}
}

func work(name string, l load) *wire.Step {
	return runStep(name, "/lib/kerninst/bench/bench", "null", strconv.Itoa(l.ops), strconv.Itoa(l.samples))
}

// apart has rounds begin a sixth of a tick of the kernel's clock (4 ms) apart, so that
// not all meet the next: what the daemon starts begins at the same time after one.
func apart(of string, round int) *wire.Step {
	return shell(of+".apart", fmt.Sprintf("sleep %.4f", 0.004/6*float64(round)))
}

// works are the rounds of a load without any probe.
func works(when string, l load) (steps []*wire.Step) {
	for round := range l.rounds {
		n := roundOf(reference(when, l), round)
		steps = append(steps, apart(n, round), work(n+".work", l))
	}
	return steps
}

// allWorks are those of all loads.
func allWorks(when string) (steps []*wire.Step) {
	for _, l := range loads {
		steps = append(steps, works(when, l)...)
	}
	return steps
}

// roundOf names one round of what a step's name begins with.
func roundOf(name string, round int) string { return fmt.Sprintf("%s#%d", name, round) }

// reference is what a load without any probe is called, at the beginning or the end.
func reference(when string, l load) string { return fmt.Sprintf("%s-%d-%d", when, l.ops, l.samples) }

func shell(name, command string) *wire.Step { return runStep(name, "/bin/sh", "-c", command) }

func unsplice(of string) *wire.Step {
	return &wire.Step{Name: of + ".undo", Do: &wire.Step_Unsplice{Unsplice: &wire.Unsplice{Splice: of}}}
}

func name(a action, m plan.Mechanism) string { return a.name + "/" + m.String() }

// Job is what the guest does; it is one of exact time with one CPU. in is what actions can be
// told of its kernel.
func Job(arch string, in probe.At) (*wire.Job, error) {
	steps := []*wire.Step{
		shell("no-optprobes", "f=/proc/sys/debug/kprobes-optimization; [ ! -e $f ] || echo 0 > $f"),
	}
	steps = append(steps, allWorks(bare)...)
	for _, a := range actions(arch) {
		for _, m := range a.ladder(arch) {
			points, err := a.points(arch, m.String(), in)
			if err != nil {
				return nil, err
			}
			for round := range a.load.rounds {
				n := roundOf(name(a, m), round)
				steps = append(steps, apart(n, round),
					&wire.Step{Name: n, Do: &wire.Step_Splice{Splice: &wire.Splice{Points: points, SkipRefused: true}}},
					work(n+".work", a.load),
					&wire.Step{Name: n + ".read", Do: &wire.Step_Read{Read: &wire.Read{}}},
					unsplice(n))
			}
		}
	}
	steps = append(steps, &wire.Step{Name: anchor, Do: &wire.Step_Splice{Splice: &wire.Splice{
		Points: []*wire.Point{{Function: function(arch), Search: true, Cheap: true}}}}}, unsplice(anchor),
		&wire.Step{Name: inserted, Do: &wire.Step_Splice{Splice: &wire.Splice{Points: []*wire.Point{{SameAs: anchor}}}}}, unsplice(inserted))
	steps = append(steps, &wire.Step{Name: jumpAnchor, Do: &wire.Step_Splice{Splice: &wire.Splice{
		Points: []*wire.Point{{Function: function(arch), Search: true, Jumps: true, Mechanism: plan.Trap.String()}}}}}, unsplice(jumpAnchor))
	for i, p := range peers {
		n := roundOf(peerName(i), 0)
		if p.optimise {
			steps = append(steps, shell(ahead, "echo 1 > /proc/sys/debug/kprobes-optimization"))
		}
		steps = append(steps, &wire.Step{Name: n, MayFail: true, Do: &wire.Step_Kprobe{Kprobe: &wire.Kprobe{Splice: anchorOf(p.jumps), Start: p.start, Kind: p.kind}}})
		if p.optimise {
			steps = append(steps, shell(behind, optimised))
		}
		steps = append(steps, work(n+".work", long),
			&wire.Step{Name: n + ".undo", MayFail: true, Do: &wire.Step_Kprobe{Kprobe: &wire.Kprobe{Remove: true}}})
		if p.optimise {
			steps = append(steps, shell("no-more-optprobes", "f=/proc/sys/debug/kprobes-optimization; [ ! -e $f ] || echo 0 > $f"))
		}
	}
	// What the kernel puts off when a probe goes comes within a second or two.
	steps = append(steps, shell("settle", "sleep 3"))
	return &wire.Job{Schema: 1, Steps: append(steps, allWorks(again)...)}, nil
}

// optimised says whether the kernel has made a jump of its probe. The flag is set when
// that is put off; it is done some jiffies and a grace period of tasks later.
const optimised = `sleep 3; grep -q '\[OPTIMIZED\]' /sys/kernel/debug/kprobes/list`

func peerName(i int) string { return fmt.Sprintf("peer-%d", i) }

// points are where an action's parts go: the first place that takes them, and the next
// one behind.
func (a action) points(arch, mechanism string, in probe.At) (out []*wire.Point, err error) {
	for i, do := range a.do {
		c, err := in.Compile(a.predicate, do)
		if err != nil {
			return nil, fmt.Errorf("cost: %s: %w", a.name, err)
		}
		s := c.Snippet
		for k := range s.Cells {
			if kind := s.Cells[k].Kind; kind == snippet.Stacks {
				s.Cells[k].Records = records
			}
		}
		out = append(out, &wire.Point{Function: function(arch), Offset: uint64(i) * later, Search: true, Cheap: a.cheap && i == 0 && !few(mechanism), Jumps: a.jumps, Mechanism: mechanism,
			Actions: []*wire.Action{{Name: do, Snippet: s.String()}}})
	}
	return out, nil
}

// few reports whether so few points can be had by a mechanism that one where nothing has to
// be saved cannot be asked for as well: where jumps are punned, bytes behind them decide.
func few(mechanism string) bool { return mechanism == plan.Pun.String() }

// results are a guest's answers by step.
type results struct {
	arch string
	in   probe.At
	of   map[string]*wire.Result
}

// NewTable makes the table of what a guest answered.
func NewTable(hello *wire.Hello, all []*wire.Result, in probe.At) (*Table, error) {
	r := results{arch: hello.Arch, in: in, of: map[string]*wire.Result{}}
	for _, one := range all {
		r.of[one.Step] = one
	}
	for _, l := range loads {
		d, _, err := r.added(reference(again, l), l, false)
		if err != nil {
			return nil, err
		}
		if d != 0 {
			return nil, fmt.Errorf("cost: the same work took %v instructions an operation more at the end than at the beginning", d)
		}
	}
	t := &Table{Schema: 1, Arch: hello.Arch, Kernel: hello.Kernel}
	for _, a := range actions(r.arch) {
		for _, m := range a.ladder(r.arch) {
			row, err := r.spliced(a, m)
			if err != nil {
				return nil, err
			}
			t.Rows = append(t.Rows, row)
		}
	}
	for i := range peers {
		row, err := r.peer(i)
		if err != nil {
			return nil, err
		}
		t.Rows = append(t.Rows, row)
	}
	if s := r.of[inserted]; s != nil {
		for _, g := range s.Stages {
			t.Insertion = append(t.Insertion, Part{g.Name, float64(g.Ns)})
		}
	}
	return t, nil
}

// bench is what the workload printed in all rounds; operations are those of one.
func (r results) bench(name string, l load) (all *measure.Bench, err error) {
	for round := range l.rounds {
		step := roundOf(name, round) + ".work"
		res := r.of[step]
		if res == nil || len(res.Runs) != 1 || res.Runs[0].Exit != 0 {
			return nil, fmt.Errorf("cost: step %s has no run that ended well", step)
		}
		b, err := measure.ParseBench(res.Runs[0].Stdout)
		if err != nil {
			return nil, err
		}
		if all == nil {
			all = b
		} else {
			all.NS = append(all.NS, b.NS...)
		}
	}
	return all, nil
}

// added is what a run with something in it took more, and how many hits it had. What walks
// does not take the same each time: it is rounded.
func (r results) added(step string, l load, walks bool) (float64, uint64, error) {
	without, err := r.bench(reference(bare, l), l)
	if err != nil {
		return 0, 0, err
	}
	with, err := r.bench(step, l)
	if err != nil {
		return 0, 0, err
	}
	d, whole := measure.Added(r.arch, without, with)
	if !whole && !walks {
		return 0, 0, fmt.Errorf("cost: %s adds %v instructions, which is no whole number", step, d)
	}
	return math.Round(d), with.TotalOp, nil
}

func (r results) spliced(a action, m plan.Mechanism) (row Row, err error) {
	n := name(a, m)
	row = Row{Action: a.name, Mechanism: m.String()}
	res := r.of[roundOf(n, 0)]
	if res == nil {
		return row, fmt.Errorf("cost: step %s has no answer", n)
	}
	var specs []string
	for _, p := range res.Points {
		if p.Refusal != nil {
			row.Refusal = &Refusal{p.Refusal.Reason, p.Refusal.Detail}
			return row, nil
		}
		specs = append(specs, p.Spec)
		row.Bytes += len(p.PatchBytes) + len(p.BoardBytes) + len(p.AnnexBytes)
	}
	row.Point = strings.Join(specs, " ")
	if row.Added, row.N, err = r.added(n, a.load, a.walks); err != nil {
		return row, err
	}
	for round := range a.load.rounds {
		if err := r.counted(a, roundOf(n, round), row.N); err != nil {
			return row, err
		}
	}
	return row, nil
}

// counted holds that what a step spliced was done as often as the workload came by.
func (r results) counted(a action, spliced string, hits uint64) error {
	step := spliced + ".read"
	values := r.of[step].GetValues()
	if len(values) != len(a.do) {
		return fmt.Errorf("cost: step %s has %d values for %d points", step, len(values), len(a.do))
	}
	if len(values) == 2 { // sums of times: later minus earlier
		sum := values[0].Count + values[1].Count
		if rows := [2][]*wire.Row{values[0].Rows, values[1].Rows}; len(rows[0]) == 1 && len(rows[1]) == 1 { // and how many they are
			first, second := rows[0][0].Values, rows[1][0].Values
			if first[1] != hits || second[1] != hits {
				return fmt.Errorf("cost: %s came by %d times and %d times, want %d", spliced, first[1], second[1], hits)
			}
			sum = second[0] - first[0]
		}
		mean := int64(sum) / int64(hits)
		p := r.of[spliced].Points
		if p[0].Offset > p[1].Offset {
			mean = -mean // a search takes what serves better first: here that lay behind
		}
		if mean < 0 || mean > 10000 {
			return fmt.Errorf("cost: a timer pair at %s and %s says %d ticks", p[0].Spec, p[1].Spec, mean)
		}
		return nil
	}
	c, err := r.in.Compile(a.predicate, a.do[0])
	if err != nil {
		return err
	}
	f := c.Found(values[0])
	if n := f.Hits; n != hits || f.Dropped > 0 || f.Holes > 0 || f.Lost > 0 {
		return fmt.Errorf("cost: step %s counted %d of %d, dropped %d, without room %d", step, n, hits, f.Dropped, f.Lost)
	}
	return nil
}

func (r results) peer(i int) (row Row, err error) {
	p, n := peers[i], roundOf(peerName(i), 0)
	row = Row{Action: counter, Mechanism: p.mechanism}
	if p.jumps {
		row.Action = atAJump
	}
	if at := r.of[anchorOf(p.jumps)].GetPoints(); len(at) == 1 {
		row.Point = at[0].Spec
		if p.start {
			row.Point = fmt.Sprintf("kinst::%s:0", at[0].Symbol)
		}
	}
	if why := r.of[n].GetError(); why != "" {
		row.Refusal = &Refusal{"kernel", "it does not take this probe: the module that registers it answers: " + why}
		return row, nil
	}
	if p.optimise {
		for _, s := range []string{ahead, behind} {
			if runs := r.of[s].GetRuns(); len(runs) != 1 || runs[0].Exit != 0 {
				row.Refusal = &Refusal{"not-optimised", "this kernel makes no jump of this probe"}
				return row, nil
			}
		}
	}
	if row.Added, row.N, err = r.added(peerName(i), long, false); err != nil {
		return row, err
	}
	// The shell that waits for the optimiser asks for its parent, too.
	if hits := r.of[n+".undo"].GetKprobeHits(); hits < row.N || hits > row.N && !p.optimise {
		return row, fmt.Errorf("cost: %s counted %d of %d", p.mechanism, hits, row.N)
	}
	return row, nil
}
