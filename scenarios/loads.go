package scenarios

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/onsi/gomega"

	"kerninst/agent/gen"
	"kerninst/agent/probe"
	"kerninst/agent/wire"
	"kerninst/lab/report"
	"kerninst/lab/vm"
)

// loads: pointers of every kind are followed in processes, in interrupts, in NMIs, and
// where the kernel itself finds its way out of a fault. Those that lead somewhere give
// what is there; each of the others gives 0, is counted, and the kernel lives.
func loads() []Scenario {
	stock := func(string) []variant { return []variant{{name: "2cpu", cpus: 2, time: vm.Host, holds: "true"}} }
	return []Scenario{
		{Name: "loads", Title: "loads through pointers: values are right, and faults are counted one by one", Labels: []string{"proof"},
			Guests: func(arch string) []Guest { return loadGuests(arch, stock(arch)) }, Check: func(t *T) { checkLoads(t, stock(t.Arch)) }},
		{Name: "loads-variants", Title: "the same on kernels that show what a stock guest hides", Labels: []string{"proof"},
			Guests: func(arch string) []Guest { return loadGuests(arch, thatLoad(arch)) }, Check: func(t *T) { checkLoads(t, thatLoad(t.Arch)) }},
	}
}

// thatLoad are the variants whose CPU has atomic additions: without them a snippet
// that does more than count is refused.
func thatLoad(arch string) []variant {
	return slices.DeleteFunc(variants(arch), func(v variant) bool { return v.noLSE })
}

const (
	loadsProgram = "/lib/kerninst/bench/loads"
	loadRounds   = 4
	alarms       = 30
	writes       = 100
	written      = 733 // bytes of each: nobody else writes as many
	// freedFile holds the address of memory that was a module's: data, for since Linux 6.13
	// what was code stays mapped, full of traps (amd64, EXECMEM_ROX_CACHE).
	freedFile = "/tmp/freed"
)

// badPointers lead nowhere, or to a user's memory: no memory; addresses that are not
// canonical in either half, or a user's with a tag; the end of all addresses, behind
// which a user's begin.
func badPointers(arch string) []string {
	return append([]string{"0", "fff", "user", "8000000000000000", "8000000000000", "ff00000000001000", "fff7000000000000", "fffffffffffffffe"},
		ownPointers[arch]...)
}

// ownPointers are of one ISA each: on amd64 the page that it counts to the user's
// although it lies in the upper half, its end, and what ends in it. The last is a hole
// of the kernel's half, where nothing is mapped.
var ownPointers = map[string][]string{
	"amd64":   {"ffffffffff600000", "ffffffffff600ffc", "ffffffffff5ffffe", "ffffc8fffffff000"},
	"arm64":   {"ffff7ffffffff000"},
	"riscv64": {"ffffffd000000000"},
}

// offsets of a system call's second and third argument among the registers that it
// is given: struct pt_regs.
var argumentsAt = map[string][2]int{"amd64": {104, 96}, "arm64": {8, 16}, "riscv64": {88, 96}}

// loadAction is an action; of traces it is known what came together.
func loadAction(predicate, do string) *wire.Action {
	s, err := probe.Compile(predicate, do)
	if err != nil {
		panic(err) // of a constant
	}
	return &wire.Action{Name: do, Snippet: s.String()}
}

func loading(function, predicate, do string) *wire.Point {
	p := somewhere(function)
	p.Actions = []*wire.Action{loadAction(predicate, do)}
	return p
}

// loadCase is one splice with what runs meanwhile, and what its trace has to hold.
type loadCase struct {
	name  string
	point func(arch string) *wire.Point
	work  func(arch string, cpus int) *wire.Step
	check func(t *T, what string, p *wire.PointResult, v *wire.Value, stdout string, cpus int)
	only  string // ISA
	// through: the work's pointers are followed as well.
	through bool
}

var loadCases = []loadCase{
	{name: "process", point: processPoint, work: processWork, check: checkProcess},
	{name: "write", check: checkWrite,
		point: func(string) *wire.Point {
			return loading("vfs_write", fmt.Sprintf("arg2 == %d", written), "trace(load8(arg1))")
		},
		work: func(string, int) *wire.Step {
			return shell("", fmt.Sprintf("dd if=/bin/busybox of=/dev/null bs=%d count=%d 2>/dev/null", written, writes))
		}},
	{name: "irq", point: irqPoint, check: checkIRQ,
		work: func(string, int) *wire.Step { return run("", loadsProgram, "alarms", strconv.Itoa(alarms)) }},
	{name: "nmi", only: "amd64", check: checkNMI,
		point: func(arch string) *wire.Point {
			return loading("_printk", "", "trace("+badLoads(arch)+", load8(arg0), reg(\"rsp\"))")
		},
		work: nmiWork},
	{name: "task-stack", check: checkTaskStack,
		point: func(string) *wire.Point { return loading("vfs_read", fmt.Sprintf("arg2 == %d", written), "stack(5)") },
		work: func(string, int) *wire.Step {
			return shell("", fmt.Sprintf("dd if=/bin/busybox of=/dev/null bs=%d count=%d 2>/dev/null", written, writes))
		}},
	{name: "irq-stack", check: checkIRQStack,
		point: func(string) *wire.Point { return loading("it_real_fn", "", "stack") },
		work:  func(string, int) *wire.Step { return run("", loadsProgram, "alarms", strconv.Itoa(alarms)) }},
	{name: "nmi-stack", only: "amd64", check: checkNMIStack,
		point: func(string) *wire.Point { return loading("_printk", "", "stack") },
		work:  nmiWork},
	// Each of these faults comes by its own point again, until nothing more is loaded.
	{name: "fixup", check: checkFixup, work: processWork, through: true,
		point: func(arch string) *wire.Point {
			return loading("fixup_exception", "", "sum(1 + load64(0x"+last(badPointers(arch))+"))")
		}},
}

// nmiWork asks the CPUs what they are doing, which only amd64 does by NMIs: they answer from NMIs, and print it there. One that
// comes from a program is handled on the task's stack, and only one that comes from the kernel on a
// stack of its own (asm_exc_nmi in arch/x86/entry/entry_64.S): so the other CPU is kept in the
// kernel, and asked a few times, as the daemon may have it just then.
func nmiWork(string, int) *wire.Step {
	return shell("", "dd if=/dev/zero of=/dev/null bs=64M count=100000 2>/dev/null & for k in 1 2 3 4 5 6 7 8; do echo l >/proc/sysrq-trigger; done; kill $!")
}

func last(all []string) string { return all[len(all)-1] }

func processPoint(arch string) *wire.Point {
	at := argumentsAt[arch]
	p := fmt.Sprintf("load64(arg0 + %d)", at[0])
	ours := fmt.Sprintf("load64(arg0 + %d) == 0x6b65726e696e7374", at[1])
	return loading(syscallEntry(arch, "getppid"), ours, fmt.Sprintf("trace(%s, load64(%[1]s), load32(%[1]s), load16(%[1]s), load8(%[1]s))", p))
}

// processPointers and one that was freed are at most 16: with rounds and CPUs, a trace keeps all.
func processPointers(arch string) []string {
	return append([]string{"banner+0", "banner+1", "banner+14"}, badPointers(arch)...)
}

func processWork(arch string, cpus int) *wire.Step {
	s := shell("", fmt.Sprintf("exec %s pointers %d %s $(sed s/0x// %s)", loadsProgram, loadRounds, strings.Join(processPointers(arch), " "), freedFile))
	s.GetRun().Copies = uint32(cpus)
	return s
}

// badLoads is one number made of loads that all come to nothing.
func badLoads(arch string) string {
	var all []string
	for _, p := range badPointers(arch) {
		if p != "user" {
			all = append(all, "load64(0x"+p+")")
		}
	}
	return strings.Join(all, " + ")
}

// badConstants is how many loads there are in badLoads.
func badConstants(arch string) uint64 { return uint64(len(badPointers(arch)) - 1) }

// irqPoint is what the timer's interrupt calls for an alarm, with the timer: its
// function, which is this one, stands behind a node of 32 bytes and a time, or at the end of
// what Linux 7.2 has.
func irqPoint(arch string) *wire.Point {
	return loading("it_real_fn", "", "trace("+badLoads(arch)+", load64(arg0 + 40), load64(arg0 + 72))")
}

func loadSteps(arch string, v variant) (steps []*wire.Step) {
	steps = []*wire.Step{shell("holds", v.holds), snapshot("before", ""),
		splice("elsewhere", somewhere("vfs_statx")), unsplice("elsewhere"), kprobe("peer", "elsewhere"),
		shell("freed", "cat /sys/module/peer/sections/.data >"+freedFile), unkprobe("peer")}
	for _, c := range loadCases {
		if c.only != "" && c.only != arch {
			continue
		}
		work := c.work(arch, v.cpus)
		work.Name = c.name + " work"
		points := []*wire.Point{c.point(arch)}
		if c.through {
			points = append(points, processPoint(arch))
		}
		steps = append(steps, splice(c.name, points...), work, read(c.name+" found"), unsplice(c.name))
	}
	return append(steps, snapshot("after", "before"), module("unload", wire.Module_UNLOAD))
}

func loadGuests(arch string, all []variant) (out []Guest) {
	for _, v := range all {
		out = append(out, Guest{Name: v.name, CPUs: v.cpus, Time: v.time, CPU: v.cpu, Append: v.append, Job: job(loadSteps(arch, v)...)})
	}
	return out
}

func checkLoads(t *T, all []variant) {
	for _, v := range all {
		t.ran(v.name, "holds")
		t.ran(v.name, "freed")
		for _, c := range loadCases {
			if c.only != "" && c.only != t.Arch {
				continue
			}
			p := t.spliced(v.name, c.name)
			stdout := string(t.ran(v.name, c.name+" work")[0])
			values := t.done(v.name, c.name+" found").Values
			c.check(t, v.name+": "+c.name, p, values[0], stdout, v.cpus)
			t.done(v.name, "un"+c.name)
			t.Metrics["loads."+v.name+"."+c.name+".hits"] = report.Metric{Value: float64(values[0].Count), Unit: "hits", N: 1}
			t.Metrics["loads."+v.name+"."+c.name+".faults"] = report.Metric{Value: float64(values[0].Faults), Unit: "loads", N: 1}
		}
		t.equal(v.name+": ranges of text that differ afterwards", len(t.done(v.name, "after").Text.Differing), 0)
		t.done(v.name, "unload") // nobody is in what loads any more, nor on the way back
	}
}

// kept holds a trace to have so many records, and all of them.
func (t *T) kept(what string, v *wire.Value, n int) {
	t.equal(what+": records", len(v.Records), n)
	t.equal(what+": hits", v.Count, uint64(n))
}

// checkProcess compares what each pointer gave with what is there: the kernel's
// version, which everybody can read, or nothing.
func checkProcess(t *T, what string, _ *wire.PointResult, v *wire.Value, stdout string, cpus int) {
	banner := "Linux version " + t.Release
	want := map[uint64][]uint64{} // what the loads of each pointer give
	lines := strings.Split(strings.TrimSpace(stdout), "\n")
	bad := 0
	for _, line := range lines {
		name, text, _ := strings.Cut(line, " ")
		p, err := strconv.ParseUint(text, 0, 64)
		t.g.Expect(err).NotTo(gomega.HaveOccurred(), "%s: %q", what, line)
		want[p] = []uint64{0, 0, 0, 0}
		if off, ok := strings.CutPrefix(name, "banner+"); ok {
			k, _ := strconv.Atoi(off) // of our own list
			b := []byte(banner[k:])
			want[p] = []uint64{binary.LittleEndian.Uint64(b), uint64(binary.LittleEndian.Uint32(b)), uint64(binary.LittleEndian.Uint16(b)), uint64(b[0])}
		} else {
			bad++
		}
	}
	t.equal(what+": pointers", len(want), len(processPointers(t.Arch))+1)
	t.kept(what, v, len(lines)*loadRounds*cpus)
	seen := map[uint64]int{}
	for _, r := range v.Records {
		p := r.Fields[0]
		if !slices.Equal(r.Fields[1:], want[p]) {
			t.equal(fmt.Sprintf("%s: loads through %#x", what, p), fmt.Sprintf("%#x", r.Fields[1:]), fmt.Sprintf("%#x", want[p]))
		}
		seen[p]++
	}
	for _, p := range slices.Sorted(maps.Keys(want)) {
		t.equal(fmt.Sprintf("%s: records of %#x", what, p), seen[p], loadRounds*cpus)
	}
	t.equal(what+": loads that came to nothing", v.Faults, uint64(bad*4*loadRounds*cpus))
}

// checkWrite: a buffer of the user's is not looked at.
func checkWrite(t *T, what string, _ *wire.PointResult, v *wire.Value, _ string, _ int) {
	t.kept(what, v, writes)
	for _, r := range v.Records {
		t.g.Expect(r.Fields[0]).To(gomega.Equal(uint64(0)), what+": a byte of the user's was loaded")
	}
	t.equal(what+": loads that came to nothing", v.Faults, uint64(writes))
}

func checkIRQ(t *T, what string, p *wire.PointResult, v *wire.Value, _ string, _ int) {
	t.kept(what, v, alarms)
	for _, r := range v.Records {
		function := r.Fields[1]
		if !t.before(7, 0) {
			function = r.Fields[2]
		}
		t.equal(what+": what leads nowhere, and the timer's function", []uint64{r.Fields[0], function}, []uint64{0, p.Address - p.Offset})
	}
	t.equal(what+": loads that came to nothing", v.Faults, alarms*badConstants(t.Arch))
}

// checkNMI: the text that is printed first begins with the byte that announces how
// urgent it is. Of the others nobody knows how they begin, but for with something.
func checkNMI(t *T, what string, _ *wire.PointResult, v *wire.Value, _ string, _ int) {
	const soh = 1
	t.atLeast(what+": records", float64(len(v.Records)), 1)
	t.equal(what+": what leads nowhere, and the first text's first byte", v.Records[0].Fields[:2], []uint64{0, soh})
	const entryArea = 0xfffffe0000000000 // of each CPU, where stacks of NMIs are (Documentation/arch/x86/x86_64/mm.rst)
	inNMI := 0                           // the CPU that asks prints as well, in none
	for _, r := range v.Records {
		if r.Fields[2] >= entryArea && r.Fields[2] < 0xffffff0000000000 {
			inNMI++
		}
		t.equal(what+": what leads nowhere", r.Fields[0], uint64(0))
		t.atLeast(what+": a text's first byte", float64(r.Fields[1]), 1)
	}
	t.atLeast(what+": records from an NMI", float64(inNMI), 1)
	t.equal(what+": loads that came to nothing", v.Faults, v.Count*badConstants(t.Arch))
}

func checkTaskStack(t *T, what string, _ *wire.PointResult, v *wire.Value, _ string, _ int) {
	t.kept(what, v, writes)
	t.equal(what+": stacks that could not be looked at", v.Holes, uint64(0))
	t.comeFrom(what, v, "vfs_read+", "sys_read+")
	if t.Arch == "amd64" { // less than five, so the way in from the user's side is there
		t.comeFrom(what, v, "vfs_read+", "entry_SYSCALL_64")
	}
}

func checkIRQStack(t *T, what string, _ *wire.PointResult, v *wire.Value, _ string, _ int) {
	t.kept(what, v, alarms)
	t.comeFrom(what, v, "it_real_fn+", "hrtimer_interrupt+")
}

func checkNMIStack(t *T, what string, _ *wire.PointResult, v *wire.Value, _ string, _ int) {
	t.atLeast(what+": stacks", float64(len(v.Records)), 1)
	t.equal(what+": stacks that could not be looked at", v.Holes, uint64(0))
	t.comeFrom(what, v, "_printk+", "do_syscall_64+", "exc_nmi+")
	// The CPU that asks answers itself from no NMI.
	t.expect(what+": stacks of the other CPU", slices.ContainsFunc(v.Records, func(r *wire.TraceRecord) bool { return cameFrom(r, "exc_nmi+") }), "one from an NMI", gomega.BeTrue())
}

// comeFrom holds all stacks to begin in one function and to have come by another, one of by.
func (t *T) comeFrom(what string, v *wire.Value, begin string, by ...string) {
	for _, r := range v.Records {
		if !strings.HasPrefix(r.Symbols[0], begin) || !slices.ContainsFunc(by, func(f string) bool { return cameFrom(r, f) }) {
			t.equal(fmt.Sprintf("%s: stack %d, from %s by %s", what, r.Number, begin, by), r.Symbols, nil)
		}
	}
}

// checkFixup: each fault of the load leads to the next one, as deep as a task, a soft
// and a hard interrupt and an NMI could be in each other. So it is known how many there
// are: what is no kernel address must not even fault. The kernel's own copies from and
// to its users may add a few, each one deeper.
func checkFixup(t *T, what string, _ *wire.PointResult, v *wire.Value, stdout string, cpus int) {
	const depth = 4
	const others = 10 * (depth + 1)
	faulting := 0
	for _, line := range strings.Split(strings.TrimSpace(stdout), "\n") {
		name, text, _ := strings.Cut(line, " ")
		p, err := strconv.ParseUint(text, 0, 64)
		t.g.Expect(err).NotTo(gomega.HaveOccurred(), "%s: %q", what, line)
		for _, n := range gen.LoadSizes {
			if !strings.HasPrefix(name, "banner") && kernelAddress(t.Arch, p) && kernelAddress(t.Arch, p+uint64(n)-1) {
				faulting++
			}
		}
	}
	arrivals := float64(depth * faulting * loadRounds * cpus)
	t.atLeast(what+": arrivals", float64(v.Count), arrivals)
	t.atMost(what+": arrivals", float64(v.Count), arrivals+others)
	t.equal(what+": loads that came to nothing", v.Faults, v.Count)
}

// kernelAddress is what the module takes for one, by guest/module/arch.
func kernelAddress(arch string, p uint64) bool {
	switch arch {
	case "amd64":
		return p>>63 == 1 && p>>12 != 0xffffffffff600000>>12
	case "arm64":
		return p>>52 == 0xfff
	}
	return p>>63 == 1
}
