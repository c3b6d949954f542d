package scenarios

import (
	"fmt"
	"strings"

	"github.com/onsi/gomega"

	"kerninst/agent/wire"
	"kerninst/lab/measure"
	"kerninst/lab/report"
	"kerninst/lab/vm"
)

var smokeLabel = []string{"smoke"}

func smoke() []Scenario {
	return []Scenario{
		{Name: "boot", Title: "a stock kernel boots and the daemon answers", Labels: smokeLabel, Guests: bootGuests, Check: checkBoot},
		{Name: "count", Title: "a counter equals what the workload did and what an observer outside saw; other actions find what the workload did", Labels: smokeLabel, Guests: countGuests, Check: checkCount},
		{Name: "cost", Title: "instructions that one hit adds, beside a kprobe at the same instruction", Labels: smokeLabel, Guests: costGuests, Check: checkCost},
		{Name: "undo", Title: "text is as before, and the module unloads and loads again", Labels: smokeLabel, Guests: undoGuests, Check: checkUndo},
		{Name: "refuse", Title: "what must not be spliced is refused, with the reason, and nothing changes", Labels: smokeLabel, Guests: refuseGuests, Check: checkRefuse},
	}
}

// boot -----------------------------------------------------------------------

func bootGuests(string) []Guest {
	return []Guest{{Name: "boot", CPUs: 1, Time: vm.Host, Boots: true, Job: job(shell("uname", "uname -r"))}}
}

func checkBoot(t *T) {
	hello := t.Guests["boot"].Hello
	t.equal("the kernel is the image's", hello.Kernel, t.Release)
	t.equal("it is the ISA that was asked for", hello.Arch, t.Arch)
	t.equal("a program runs", strings.TrimSpace(string(t.ran("boot", "uname")[0])), t.Release)
	t.atLeast("bytes of kernel text", float64(hello.TextEnd-hello.TextStart), 4<<20)
}

// count ----------------------------------------------------------------------

// The function is entered by one system call alone, which nothing but the
// workload makes, so that three counts must agree: the counter, what the
// workload did, and the arrivals that QEMU saw between the workload's marks.
func countGuests(arch string) []Guest {
	null := syscallEntry(arch, "getppid")
	steps := func(copies uint32) *wire.Job {
		return job(append([]*wire.Step{
			announced(splice("splice", somewhere(null))),
			bench("work", "null", copies),
			read("count"),
			unsplice("splice"),
			bench("after", "null", 1),
		}, actionSteps(copies)...)...)
	}
	return []Guest{
		{Name: "1cpu", CPUs: 1, Time: vm.Exact, Oracle: true, Job: steps(1)},
		{Name: "2cpu", CPUs: 2, Time: vm.Host, Oracle: true, Job: steps(2)},
	}
}

// cells are where counters are: in memory of which each CPU has its own, where one
// instruction adds to that.
var cells = map[string]string{"amd64": "per-cpu", "arm64": "shared", "riscv64": "shared"}

// checkCell: of what the image has of per-CPU memory (PERCPU_DYNAMIC_RESERVE, 28 KB), Debian's
// 6.12 leaves a page; 6.1 and 7.2 do not.
func (t *T) checkCell(guest, cell string) {
	want := []string{cells[t.Arch]}
	if !strings.HasPrefix(t.Release, "6.12.") {
		want = append(want, "shared")
	}
	t.expect(guest+": where the counter is", cell, strings.Join(want, " or "), gomega.BeElementOf(want))
}

func checkCount(t *T) {
	for _, guest := range []string{"1cpu", "2cpu"} {
		p := t.spliced(guest, "splice")
		t.checkCell(guest, p.Cell)
		var did uint64
		for _, b := range t.benches(guest, "work") {
			did += b.TotalOp
		}
		counter := t.value(guest, "count", p)
		if t.Guests[guest].Exact {
			t.Points[len(t.Points)-1].Count = &counter
		}
		saw := t.Guests[guest].Oracle[p.WrittenAt]
		t.count("null-"+guest+".workload", did)
		t.count("null-"+guest+".counter", counter)
		// The run after the splice was undone is between marks too, and
		// arrives at the same address.
		after := t.benches(guest, "after")[0].TotalOp
		t.count("null-"+guest+".oracle", saw.Total-after)
		t.equal(guest+": counter = what the workload did", counter, did)
		t.equal(guest+": arrivals seen outside = what the workload did", saw.Total-after, did)
	}
	checkActions(t, "1cpu", 1)
	checkActions(t, "2cpu", 2)
	cpus := t.Guests["2cpu"].Oracle[t.Guests["2cpu"].Results["splice"].Points[0].WrittenAt].CPU
	for i, n := range cpus {
		t.equal(fmt.Sprintf("2cpu: CPU %d arrived too", i), n >= ops, true)
	}
}

// cost -----------------------------------------------------------------------

// budget is the most instructions that a counter may add to a hit where flags
// and registers are dead.
var budget = map[string]float64{"amd64": 3, "arm64": 4, "riscv64": 6}

func costGuests(arch string) []Guest {
	null := syscallEntry(arch, "getppid")
	return []Guest{{Name: "cost", CPUs: 1, Time: vm.Exact, Job: job(
		noOptprobes(),
		bench("bare", "null", 1),
		splice("splice", cheap(null)),
		bench("spliced", "null", 1),
		read("count"),
		unsplice("splice"),
		splice("trap", byTrap(cheap(null))),
		bench("trapped", "null", 1),
		unsplice("trap"),
		splice("jump", byTrap(jumping(null))),
		bench("jumped", "null", 1),
		unsplice("jump"),
		kprobe("kprobe", "splice"),
		bench("kprobed", "null", 1),
		unkprobe("kprobe"),
		kprobe("kprobe-jump", "jump"),
		bench("kprobe-jumped", "null", 1),
		unkprobe("kprobe-jump"),
		bench("again", "null", 1),
	)}}
}

func checkCost(t *T) {
	one := func(step string) *measure.Bench { return t.benches("cost", step)[0] }
	p := t.spliced("cost", "splice")
	bare, spliced, kprobed, again := one("bare"), one("spliced"), one("kprobed"), one("again")
	counter := t.value("cost", "count", p)
	t.equal("counter = what the workload did", counter, spliced.TotalOp)
	t.equal("hits of the kprobe = what the workload did", t.done("cost", "unkprobe").KprobeHits, kprobed.TotalOp)

	// First of all, the bare run must cost the same again: otherwise nothing
	// that is compared with it means anything.
	zero, _ := measure.Added(t.Arch, bare, again)
	t.insns("again.insns_per_op", zero)
	t.equal("the bare run costs the same again", zero, 0.0)

	t.insns("bare.insns_per_op", bare.Min())
	hit, whole := measure.Added(t.Arch, bare, spliced)
	t.insns("splice.insns_per_hit", hit)
	t.equal("a splice adds a whole number of instructions", whole, true)
	if !t.onlyTraps(p) {
		t.equal("a splice adds what its code says", hit, float64(p.Added))
		t.atMost("instructions that a splice adds to a hit", hit, budget[t.Arch])
	}

	peer, _ := measure.Added(t.Arch, bare, kprobed)
	t.insns("kprobe.insns_per_hit", peer)
	t.atLeast("instructions that a kprobe adds to a hit", peer, 10*budget[t.Arch])

	t.equal("where the trap is", t.spliced("cost", "trap").Address, p.Address)
	t.trapCost("trap", one("trapped"), kprobed, bare, 0.5)
	t.trapCost("trap-at-a-jump", one("jumped"), one("kprobe-jumped"), bare, 0.8)
}

// windows: riscv64's kernels preempt themselves since 7.0, so that windows are refused, and
// most instructions are left with a breakpoint.
func (t *T) windows() bool { return t.Arch != "riscv64" || t.before(7, 0) }

// onlyTraps: what such a point costs is held against kprobes alone.
func (t *T) onlyTraps(p *wire.PointResult) bool { return !t.windows() && p.Mechanism == "trap" }

// trapCost holds a trap of ours to a share of what a kprobe adds at the same instruction.
func (t *T) trapCost(name string, trapped, kprobed, bare *measure.Bench, share float64) {
	ours, whole := measure.Added(t.Arch, bare, trapped)
	theirs, _ := measure.Added(t.Arch, bare, kprobed)
	t.insns(name+".insns_per_hit", ours)
	t.insns(name+".kprobe.insns_per_hit", theirs)
	t.equal(name+": a whole number of instructions", whole, true)
	t.atMost(name+": instructions, of what a kprobe adds there", ours/theirs, share)
	t.atLeast(name+": instructions of an exception", ours, 50)
}

// undo -----------------------------------------------------------------------

// Functions of hot paths, so that splices are live under load.
func undoPoints(arch string) []*wire.Point {
	out := []*wire.Point{somewhere(syscallEntry(arch, "getppid"))}
	for _, f := range []string{"vfs_read", "vfs_write", "vfs_statx", "do_sys_openat2", "path_openat", "kmem_cache_free", "pipe_read", "do_filp_open"} {
		out = append(out, somewhere(f))
	}
	return out
}

func undoGuests(arch string) []Guest {
	all := splice("splice", undoPoints(arch)...)
	all.GetSplice().SkipRefused = true
	again := splice("again", somewhere(syscallEntry(arch, "getppid")))
	return []Guest{{Name: "undo", CPUs: 2, Time: vm.Host, Job: job(
		snapshot("before", ""),
		all,
		snapshot("during", "before"),
		// Fewer operations: two CPUs wake each other, which emulation makes slow.
		run("stat", benchProgram, "stat", "500", "5"),
		run("pipe", benchProgram, "pipe", "50", "5"),
		read("count"),
		unsplice("splice"),
		snapshot("after", "before"),
		module("unload", wire.Module_UNLOAD),
		module("load", wire.Module_LOAD),
		snapshot("reloaded", "before"),
		again,
		bench("work", "null", 1),
		read("recount"),
		unsplice("again"),
		snapshot("end", "before"),
	)}}
}

func checkUndo(t *T) {
	const g = "undo"
	live := 0
	for _, p := range t.done(g, "splice").Points {
		t.point(g, p)
		if p.Refusal == nil {
			live++
		}
	}
	t.atLeast("points spliced at once", float64(live), 3)
	t.benches(g, "stat")
	t.benches(g, "pipe")
	t.expect("text differs while splices are live", len(t.done(g, "during").Text.Differing), "at least 1", gomega.BeNumerically(">=", 1))
	for _, step := range []string{"after", "reloaded", "end"} {
		t.equal(step+": ranges of text that differ from the start", len(t.done(g, step).Text.Differing), 0)
	}
	t.done(g, "unload")
	t.done(g, "load")
	p := t.spliced(g, "again")
	t.equal("after loading again, counter = what the workload did", t.value(g, "recount", p), t.benches(g, "work")[0].TotalOp)
	t.Metrics["undo.text_bytes"] = report.Metric{Value: float64(t.done(g, "end").Text.Bytes), Unit: "bytes", N: 1}
}

// refuse ---------------------------------------------------------------------

// refusal is a point that must be refused, and the word that says why.
type refusal struct {
	step   string
	point  *wire.Point
	reason string
}

// noinstr is a function that runs before the kernel knows that it was entered.
var noinstr = map[string]string{
	"amd64":   "irqentry_enter",
	"arm64":   "el1h_64_sync_handler",
	"riscv64": "irqentry_enter",
}

// ftraceSite is how far behind a function's start ftrace's own is: behind a landing pad,
// which Debian's kernels have from 6.2 on.
var ftraceSite = map[string]uint64{"amd64": 4, "arm64": 0, "riscv64": 0}

func refusals(arch string) []refusal {
	return []refusal{
		{"unknown", at("no_such_function", 0), "no such function"},
		{"outside", at("vfs_read", 1<<20), "outside the function"},
		{"entry", at("vfs_read", ftraceSite[arch]), "reserved text"},
		{"noinstr", at(noinstr[arch], 0), "reserved text"},
		{"itself", &wire.Point{Module: "kerninst", Function: "ki_open"}, "reserved text"},
	}
}

func refuseGuests(arch string) []Guest {
	null, redirected := syscallEntry(arch, "getppid"), syscallEntry(arch, "getpgid")
	steps := []*wire.Step{snapshot("before", "")}
	for _, r := range refusals(arch) {
		steps = append(steps, mayFail(splice(r.step, r.point)))
	}
	steps = append(steps,
		mayFail(splice("recursion", loading("stack_trace_consume_entry", "", "stack"))),
		splice("live", somewhere(null)),
		mayFail(splice("twice", &wire.Point{SameAs: "live"})),
		mayFail(splice("inside", &wire.Point{SameAs: "live", Offset: 1})),
		shell("unprivileged", "busybox su -s /bin/sh nobody -c 'cat /dev/kerninst' 2>&1; echo status $?"),
		shell("second", daemon+" -job /job -port /dev/null 2>&1; echo status $?"),
		unsplice("live"),
		shell("redirect", "busybox insmod /lib/kerninst/redirect.ko function="+redirected),
		mayFail(splice("redirected", somewhere(redirected))),
		shell("direct", "busybox rmmod redirect"),
		splice("direct again", somewhere(redirected)),
		unsplice("direct again"),
		snapshot("after", "before"),
	)
	return []Guest{{Name: "refuse", CPUs: 1, Job: job(steps...)}}
}

// reason is why a point is refused in this kernel.
func (t *T) reason(r refusal) string {
	if r.step == "entry" && t.before(6, 2) && ftraceSite[t.Arch] > 0 {
		return "inside an instruction" // ftrace's, which begins the function
	}
	return r.reason
}

func checkRefuse(t *T) {
	const g = "refuse"
	for _, r := range refusals(t.Arch) {
		res := t.result(g, r.step)
		t.expect(r.step+": the step is refused", res.Error, "an error", gomega.Not(gomega.BeEmpty()))
		t.equal(r.step+": the reason", res.Points[0].GetRefusal().GetReason(), t.reason(r))
		t.point(g, res.Points[0])
	}
	t.equal("what walks stacks is no place for a snippet that does", t.result(g, "recursion").Points[0].GetRefusal().GetReason(), "recursion")
	t.spliced(g, "live")
	t.equal("a live splice is not spliced again", t.result(g, "twice").Points[0].GetRefusal().GetReason(), "already spliced")
	t.equal("nor one byte on", t.result(g, "inside").Points[0].GetRefusal().GetReason(), "inside an instruction")
	t.expect("an unprivileged user", string(t.result(g, "unprivileged").Runs[0].Stdout), "permission denied", gomega.ContainSubstring("ermission denied"))
	t.expect("a second daemon", string(t.result(g, "second").Runs[0].Stdout), "says that the device is taken", gomega.ContainSubstring("another daemon"))
	t.ran(g, "redirect")
	t.equal("a function that somebody redirects", t.result(g, "redirected").Points[0].GetRefusal().GetReason(), "foreign probe")
	t.ran(g, "direct")
	t.spliced(g, "direct again")
	t.equal("text afterwards: ranges that differ", len(t.done(g, "after").Text.Differing), 0)
}
