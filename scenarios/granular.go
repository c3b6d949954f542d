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
	"slices"
	"strconv"
	"strings"
	"time"

	"kerninst/agent/cfg"
	"kerninst/agent/isa"
	"kerninst/agent/ktext"
	"kerninst/agent/plan"
	"kerninst/agent/probe"
	"kerninst/agent/wire"
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
	more        int    // samples: in one of them at least, nobody takes records out of a ring
}

// cheapestTrace is the least that a record may have in it: which function it is of, its tag says.
const cheapestTrace = "trace()"

// Where granularities are.
const (
	atSyscalls = "syscalls" // entries of all system calls' functions
	atEntries  = "entries"  // of all functions on the way
	atBlocks   = "each"     // each basic block of these
)

var granularities = []granularity{
	{name: "monitored", title: "system calls counted", at: atSyscalls, action: "count"},
	{name: "counted", title: "calls counted", at: atEntries, action: "count"},
	{name: "traced", title: "calls traced", at: atEntries, action: cheapestTrace, kprobes: "records", more: 1},
	{name: "blocks", title: "blocks counted", at: atBlocks, action: "count"},
}

// granularSuite is what is measured: so many samples of a workload's operations, by some mechanisms.
type granularSuite struct {
	name       string   // of what is filed for other programs
	operations []string // that the workload prints
	together   []string // of these, what comes into means and what is added; none: all
	unit       func(operation string) string
	samples    int
	seen       *wire.Step    // what executes, and tells an observer outside when, what is on the way
	executed   uint64        // so often at least
	come       bool          // of blocks on the way, only those that are executed as often
	patience   time.Duration // host time of a guest
	bpftraced  int           // MiB of the guest with bpftrace; 0: the usual
	software   []string
	begins     []*wire.Step // before anything is measured
	argv       []string     // of the workload
	calls      []string     // system calls that are cloned; none: all that it was seen to make
	load       []string     // runs all that it executes; what clones grow to
	ends       []*wire.Step
	rivals     []string          // mechanisms beside splices; none: all
	unasked    map[string]string // why not all is asked of these mechanisms, by granularity
	limits     []granularLimit
	nothing    map[string]float64 // that clones with nothing inserted take at the most, times bare
	also       func(t *T)
	// answers checks what the workload printed besides times; nil: nothing.
	answers func(t *T, guest, step string, text []byte)
	known   []knownCalls
	often   uint64             // a place that two compare is come by so often
	apart   map[string]float64 // part that mechanisms may find otherwise at these
	// sampled is the same with so many samples; nil: there are as many of all granularities.
	sampled func(samples int) granularSuite
}

// of is what is measured of a granularity.
func (s granularSuite) of(g granularity) granularSuite {
	if s.sampled == nil || g.more == 0 {
		return s
	}
	return s.sampled(s.samples + g.more)
}

// knownCalls are how often a system call is made while one granularity is measured, by whatever
// mechanism; another finds at most as many less than splices, or more, beside what it was to find.
type knownCalls struct {
	call                      string
	least, most, less, beside uint64
}

func (s granularSuite) work(name string) *wire.Step { return run(name, s.argv...) }

// has are the mechanisms, splices first.
func (s granularSuite) has() (out []rival) {
	for _, m := range rivals {
		if m.name != toolSplice && m.name != toolClone {
			lacks := m.lacks
			m.lacks = func(arch string, g granularity) string { return cmp.Or(lacks(arch, g), s.unasked[g.name]) }
		}
		if m.name == toolSplice || s.rivals == nil || contains(s.rivals, m.name) {
			out = append(out, m)
		}
	}
	return out
}

// rival is a mechanism; what is not asked for has nothing.
func (s granularSuite) rival(name string) rival {
	all := s.has()
	if k := slices.IndexFunc(all, func(m rival) bool { return m.name == name }); k >= 0 {
		return all[k]
	}
	return rival{name: name, lacks: func(string, granularity) string { return "not asked" }}
}

// lmbenchSuite are some of LMbench's operations, all if none is named.
func lmbenchSuite(samples int, executed uint64, patience time.Duration, operations ...string) granularSuite {
	s := granularSuite{
		name: "granularities", operations: operations, unit: unitOf, samples: samples, executed: executed, patience: patience,
		argv:   append([]string{lmbenchProgram, "-whole", "-roomy", strconv.Itoa(samples)}, operations...),
		limits: granularLimits, nothing: each(1.03, 1.03, 1.03), often: often, apart: mostApart,
		known: []knownCalls{{planted, uint64(1440 * (samples + 1)), uint64(1441 * (samples + 1)), 0, shells}},
	}
	if operations == nil {
		s.operations = allOps()
	}
	s.seen, s.load, s.calls = s.work("work"), s.argv, strings.Fields(operationCalls)
	s.sampled = func(samples int) granularSuite { return lmbenchSuite(samples, executed, patience, operations...) }
	return s
}

var (
	// The rarest operation of the first is done 768 times in a sample, with one that is not counted
	// in three; of the other once.
	granularSlice = uncloned(lmbenchSuite(2, 3*768, 20*time.Minute, strings.Fields(fewOperations)...))
	granularWhole = func() granularSuite {
		s := unslowed(lmbenchSuite(2, 3, time.Hour))
		s.bpftraced = bpftraceMemory
		return s
	}()
)

// uncloned is a suite without clones, which clones-slice has of the same operations.
func uncloned(s granularSuite) granularSuite {
	s.rivals = []string{toolKprobe, toolOptprobe, toolFtrace, toolBpftrace}
	return s
}

// unslowed is a suite of which none of the kernel's probes is asked for blocks: with 45,000 kprobes, which the kernel keeps in 64 lists, it
// looks through hundreds at each arrival, and a guest had not come to its end after 77 minutes of a CPU.
func unslowed(s granularSuite) granularSuite {
	sampled := s.sampled
	s.unasked = map[string]string{"blocks": "there are too many: granularities-slice has it"}
	s.sampled = func(samples int) granularSuite { return unslowed(sampled(samples)) }
	return s
}

func (s granularSuite) scenario(name, title, label string) Scenario {
	return Scenario{Name: name, Title: title, Labels: strings.Fields(label), Partial: true,
		Guests: func(arch string) []Guest { return granularGuests(arch, s) },
		Check:  func(t *T) { checkGranular(t, s) },
	}
}

func granularScenarios() []Scenario {
	return []Scenario{
		granularSlice.scenario("granularities-slice", "what counting system calls, calls and blocks, and tracing calls, adds to some of LMbench's operations, by splices and by others' probes", "measure proof"),
		granularWhole.scenario("granularities", "the same of all of LMbench's operations", "proof"),
	}
}

// guests -----------------------------------------------------------------------

func granularGuests(arch string, s granularSuite) []Guest {
	guest := func(name, after string, steps func(a *Answer) ([]*wire.Step, error)) Guest {
		return Guest{Name: name, CPUs: 1, Time: vm.Exact, Index: true, RunTimeout: s.patience, After: after, Software: s.software,
			Make: func(a *Answer) (*wire.Job, error) {
				more, err := steps(a)
				return job(slices.Concat([]*wire.Step{script(granularFile, granularScript), noOptprobes()}, s.begins, []*wire.Step{s.work("bare")}, more, s.ends)...), err
			}}
	}
	out := []Guest{
		s.observed(),
		guest("kprobed", "seen", func(seen *Answer) ([]*wire.Step, error) { return s.kprobed(arch, seen) }),
		guest("spliced", "kprobed", s.spliced),
		guest("ftraced", "kprobed", func(kprobed *Answer) ([]*wire.Step, error) { return s.named(arch, toolFtrace, kprobed) }),
		guest("bpftraced", "kprobed", func(kprobed *Answer) ([]*wire.Step, error) { return s.named(arch, toolBpftrace, kprobed) }),
	}
	bpf := &out[len(out)-1]
	bpf.Software, bpf.Boots, bpf.Index = append([]string{"bpftrace"}, s.software...), true, false // as in peers
	bpf.Memory = s.bpftraced
	if arch == "amd64" {
		out = append(out, guest("optprobed", "kprobed", s.optprobed))
	}
	out = append(out, s.cloned(arch)...)
	return slices.DeleteFunc(out, func(g Guest) bool { return g.After == "kprobed" && !s.asks(g.Name) })
}

// bpftraceMemory is for bpftrace, in MiB, which takes more than a gigabyte to compile a program for two thousand functions.
const bpftraceMemory = 4096

// observed is a guest of which an observer outside tells what it has executed, of what is often.
func (s granularSuite) observed() Guest {
	return Guest{Name: "seen", CPUs: 1, Time: vm.Exact, Oracle: true, Executed: s.executed, RunTimeout: s.patience, Software: s.software,
		Job: job(slices.Concat(s.begins, []*wire.Step{s.seen}, s.ends)...)}
}

// cloned are a guest in which clones of the system calls that are made grow to what is executed on behalf of these, and one
// that has them with each granularity in turn; none if clones are not asked for.
func (s granularSuite) cloned(arch string) []Guest {
	m := s.rival(toolClone)
	if m.guest == "" {
		return nil
	}
	all := clonedSuite{granularSuite: s, memory: clonedMemory}
	all.patience *= 2 // it is run many times, and planned each time
	return []Guest{
		all.guest(exploredGuest, "seen", func(seen *Answer) ([]*wire.Step, error) {
			if s.calls != nil {
				return all.explore(all.entries(arch)), nil
			}
			entries, err := syscallsSeen(arch, seen)
			return all.explore(entries), err
		}),
		all.guest(m.guest, exploredGuest, func(explored *Answer) ([]*wire.Step, error) {
			nothing, err := cloneKinds[0].steps(clonedSuite{granularSuite: s}, explored)
			if err != nil {
				return nil, err
			}
			steps := append([]*wire.Step{s.work("bare")}, nothing...)
			for _, g := range granularities {
				more, err := kindOf(g).steps(clonedSuite{granularSuite: s.of(g)}, explored)
				if err != nil {
					return nil, err
				}
				steps = append(steps, more...)
			}
			return steps, nil
		}),
	}
}

// kindOf is what is inserted in clones for a granularity.
func kindOf(g granularity) cloneKind {
	return cloneKinds[slices.IndexFunc(cloneKinds, func(k cloneKind) bool { return k.name == g.name })]
}

// asks reports whether a guest has a mechanism that is asked for.
func (s granularSuite) asks(guest string) bool {
	return slices.ContainsFunc(s.has(), func(m rival) bool { return m.guest == guest })
}

// script has a guest hold one.
func script(file, text string) *wire.Step {
	return run("script "+file, "/bin/sh", "-c", `printf '%s\n' "$2" >"$1"`, "sh", file, text)
}

// places are all points there might be, by where they are.
func (s granularSuite) places(arch string, seen *Answer) (map[string][]*wire.Point, error) {
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
	if s.come {
		places[atBlocks] = blocksSeen(seen)
	}
	return places, nil
}

// blocksSeen are those blocks of which a guest has executed the begin, as often as it tells of; of a
// function whose blocks are not known here, all that a guest finds.
func blocksSeen(seen *Answer) (points []*wire.Point) {
	lo, _ := seen.Text.Bounds()
	executed := func(a isa.Addr) bool {
		_, ok := seen.Oracle[uint64(a-lo)+seen.Hello.TextStart]
		return ok
	}
	known := &plan.Functions{}
	seen.Text.Functions("", func(f ktext.Func) bool {
		if !slices.ContainsFunc(span(f), executed) || cfg.IsPaddingName(f.Name) {
			return true
		}
		offsets, refused := plan.OffsetsAt(seen.Text, f, plan.Request{Known: known}, plan.EachBlock)
		if refused != nil {
			points = append(points, &wire.Point{Function: bestName(seen.Text.Arch.Name, seen.Text, f), Each: wire.Each_BLOCK})
		}
		for _, off := range offsets {
			if executed(f.Addr + isa.Addr(off)) {
				points = append(points, &wire.Point{Text: uint64(f.Addr+isa.Addr(off)-lo) + 1})
			}
		}
		return true
	})
	return points
}

// span are all addresses in a function.
func span(f ktext.Func) (out []isa.Addr) {
	for a := f.Addr; a < f.Addr+isa.Addr(f.Size); a++ {
		out = append(out, a)
	}
	return out
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
	places, err := s.places(arch, seen)
	steps = append(steps, granularPart("sites", nil, "sites"))
	for _, at := range slices.Sorted(maps.Keys(places)) {
		steps = append(steps, skipping(at, places[at]), unsplice(at))
	}
	return append(steps, s.probed(arch, "true")...), err
}

// probed are the kernel's probes of each granularity in turn, at the places that are known.
// settle is what is waited for before work begins.
func (s granularSuite) probed(arch, settle string) (steps []*wire.Step) {
	for _, g := range granularities {
		if s.rival(toolKprobe).lacks(arch, g) != "" {
			continue
		}
		place := kprobes(g.name, g.at)
		place.GetKprobe().Kind = g.kprobes
		steps = append(steps, place, shell(g.name+".settled", settle), s.of(g).work(g.name+".work"))
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
		for _, set := range slices.DeleteFunc(sets, func(set granularSet) bool { return !s.compares(g, set) }) {
			for _, p := range set.points {
				p.Actions = []*wire.Action{{Name: g.action, Snippet: a.String()}}
			}
			sp := splice(set.name, set.points...)
			sp.GetSplice().Brief = g.kprobes == ""
			found := read(set.name + ".read")
			found.GetRead().Brief = g.kprobes == ""
			steps = append(steps, sp, s.of(g).work(set.name+".work"), found, unsplice(set.name))
		}
	}
	return steps, nil
}

// compares reports whether anything is to be measured at these places: splices by themselves, or what
// a mechanism has there.
func (s granularSuite) compares(g granularity, set granularSet) bool {
	return set.name == g.name || len(set.points) > 0 && slices.ContainsFunc(s.has(), func(m rival) bool { return set.name == g.name+m.of })
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
	if err != nil {
		return nil, err
	}
	may, err := followable(kprobed)
	if err != nil {
		return nil, err
	}
	refused := map[uint64]bool{}
	for _, p := range kprobed.Results[g.name].GetPoints() {
		refused[p.Address] = p.Refusal != nil
	}
	sets := []granularSet{{name: g.name}, {name: g.name + ofKprobes}, {name: g.name + ofNames}}
	for _, p := range kprobed.Results[g.at].GetPoints() {
		for k, has := range []bool{p.Refusal == nil, !refused[p.Address], g.at != atBlocks && named[p.Symbol] && may(p.Symbol)} {
			if s := &sets[k]; p.Refusal == nil && has {
				s.points = append(s.points, &wire.Point{Text: p.Address - kprobed.Hello.TextStart + 1})
				s.functions = append(s.functions, p.Symbol)
			}
		}
	}
	return slices.DeleteFunc(sets, func(s granularSet) bool {
		return s.name != g.name && len(s.points) == len(sets[0].points)
	}), nil
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

// followable reports of which functions bpftrace may follow calls. On riscv64 it does by their types (fentry, as that
// kernel takes no kprobe where a function begins), and the kernel refuses its program where one has none, takes more
// arguments than are named, or returns a structure; and one that is refused leaves none attached
// (kernel/bpf/btf.c, btf_distill_func_proto).
func followable(a *Answer) (func(function string) bool, error) {
	if a.Types == nil || a.Text == nil || a.Text.Arch.Name != "riscv64" {
		return func(string) bool { return true }, nil
	}
	types, err := a.Types()
	return func(f string) bool {
		r, err := types.Return(f)
		return types.HasFunction(f) && (err != nil || !r.Composite()) && !types.Variadic(f)
	}, err
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
	return append(append(steps, shell("optimise", "echo 1 >/proc/sys/debug/kprobes-optimization")), s.probed("amd64", optimised)...), nil
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
		ask := s.rival(tool).asks(arch, g)
		if ask == nil {
			continue
		}
		set, err := g.set(kprobed, ofNames)
		if err != nil {
			return nil, err
		}
		if g.at == atSyscalls { // a pattern attaches all at once
			set.functions = []string{syscallEntry(arch, "*")}
		}
		steps = append(steps, granularPart(g.name+".work", set.functions, append(ask, s.of(g).argv...)...))
	}
	return steps, nil
}
