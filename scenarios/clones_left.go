package scenarios

import (
	"fmt"
	"slices"
	"strings"

	"kerninst/agent/plan"
	"kerninst/agent/wire"
	"kerninst/lab/report"
	"kerninst/lab/vm"
)

// clones-left: whoever sleeps in a clone that is undone goes on in the originals, and keeps nothing, be it that he waits for
// a byte, a program or a time, reading, polling or waiting, or that a tracer has where he returns to. Of clones that do not say where he would go on
// he keeps those that he sleeps in, and whoever has come by, and sleeps now elsewhere,
// keeps nothing, whatever its stack has of it still. Meanwhile nobody gets a kprobe into what is run as a copy. On the stacks of sixty programs that were begun while their
// system calls ran as clones there is something, but where each of them sleeps nobody goes back to that. No live patch is
// let in while there are clones, or somebody sleeps in one: it would not see him. Before and afterwards one is.

const (
	leftProbed   = "vfs_read" // which the clone of read has
	leftSleepers = 60
	// Their shells have read and executed before they sleep.
	leftBegin = `exec >/dev/null 2>&1 </dev/null; k=0; while [ $k -lt 60 ]; do sh -c 'read x </proc/version; exec sleep 9999' & k=$((k + 1)); done
until [ $(pidof sleep | wc -w) = 60 ]; do sleep 0.1; done; sleep 0.2`
	leftCount = `pidof sleep | wc -w`
	// One waits for a byte, one for a byte or a time, one for a program, which waits for a time, and tells what became of that.
	leftInside = `exec >/dev/null 2>&1 </dev/null; [ -p /run/left ] || mkfifo /run/left /run/polled; rm -f /run/left.*; cat 0<>/run/left >/run/left.read &
(read -t 9999 x 0<>/run/polled; echo "$x" >/run/left.polled) &
(sh -c 'echo $$ >/run/left.pid; exec sleep 8888'; echo $? >/run/left.waited) & sleep 0.2`
	leftSleep  = "clock_nanosleep"
	leftTraced = `cd /sys/kernel/tracing; echo ` + leftProbed + ` >set_ftrace_filter; echo function_graph >current_tracer`
	leftTrace  = "mount -t tracefs tracefs /sys/kernel/tracing 2>&1; " + leftTraced
	leftNop    = `cd /sys/kernel/tracing; echo nop >current_tracer; echo >set_ftrace_filter`
	leftPatch  = `busybox insmod /lib/kerninst/patched.ko 2>&1; read -r line </proc/cmdline; echo "${line%% *}"`
	// It goes when all tasks have gone back to the old functions.
	leftUnpatch = leftPatch + `; echo 0 >/sys/kernel/livepatch/patched/enabled; until busybox rmmod patched 2>/dev/null; do sleep 0.2; done`
	leftWake    = `echo woken >/run/left; echo polled >/run/polled; kill $(cat /run/left.pid)
until [ -s /run/left.read ] && [ -s /run/left.polled ] && [ -s /run/left.waited ]; do sleep 0.1; done
cat /run/left.read /run/left.polled /run/left.waited; killall cat; sleep 0.2`
)

func clonesLeft() Scenario {
	const work = `cat /proc/version; (:); echo x | (read -t 1 x); sh -c 'read x </proc/version; exec sleep 0.01'`
	clones := func(arch, name string, stay bool) []*wire.Step {
		sp := &wire.Splice{SkipRefused: true, Brief: true}
		for _, call := range leftCalls {
			if name == "passed" && slices.Contains(leftSleeps, call) {
				continue
			}
			sp.Clones = append(sp.Clones, &wire.Cloning{Entry: syscallEntry(arch, call), Most: 48 << 10, NoResuming: stay})
		}
		return []*wire.Step{{Name: name, Do: &wire.Step_Splice{Splice: sp}},
			{Name: name + " grown", Do: &wire.Step_Grow{Grow: &wire.Grow{Splice: name, Rounds: 4, Run: &wire.Run{Argv: []string{"/bin/sh", "-c", work}}}}}}
	}
	return Scenario{Name: "clones-left", Title: "who sleeps in a clone that is undone goes on in the originals", Labels: []string{"hazards", "proof"},
		Guests: func(arch string) []Guest {
			patch := func(name, script string) (steps []*wire.Step) {
				if arch == "amd64" { // of Debian's, only this kernel has live patches
					steps = append(steps, shell(name, script))
				}
				return steps
			}
			steps := append(patch("patched first", leftUnpatch), snapshot("before", ""), shell("taints", "cat /proc/sys/kernel/tainted"))
			steps = append(steps, skipping("blocks", []*wire.Point{{Function: leftProbed, Each: wire.Each_BLOCK}}), unsplice("blocks"))
			steps = append(steps, clones(arch, "passed", true)...)
			steps = append(steps, patch("patched beside", leftPatch)...)
			steps = append(steps, kprobes("barred", "blocks"), unkprobes("barred"), shell("begin", leftBegin), unsplice("passed"), shell("asleep", leftCount),
				kprobes("let in", "blocks"))
			steps = append(steps, clones(arch, "beside", false)...)
			steps = append(steps, unsplice("beside"), unkprobes("let in"))
			steps = append(steps, clones(arch, "slept", true)...)
			steps = append(steps, shell("inside", leftInside), unsplice("slept"))
			steps = append(steps, patch("patched asleep", leftPatch)...)
			steps = append(steps, shell("wake", leftWake))
			steps = append(steps, clones(arch, "back", false)...)
			steps = append(steps, shell("inside back", leftInside), unsplice("back"))
			steps = append(steps, patch("patched back", leftUnpatch)...)
			steps = append(steps, shell("wake back", leftWake), shell("trace", leftTrace))
			steps = append(steps, clones(arch, "traced", false)...)
			steps = append(steps, shell("inside traced", leftInside), unsplice("traced"), shell("wake traced", leftWake), shell("nop", leftNop))
			steps = append(steps, clones(arch, "last", false)...)
			steps = append(steps, unsplice("last"))
			steps = append(steps, patch("patched last", leftUnpatch)...)
			steps = append(steps, shell("still", leftCount), shell("end", "killall sleep"), snapshot("after", "before"),
				module("unload", wire.Module_UNLOAD), shell("taints behind", "cat /proc/sys/kernel/tainted"))
			return append([]Guest{{Name: "left", CPUs: 1, Time: vm.Exact, Index: true, Job: job(steps...)}, late(arch)}, switched(arch)...)
		},
		Check: func(t *T) {
			checkClonesLeft(t)
			checkLate(t)
			checkSwitched(t)
		}}
}

func checkClonesLeft(t *T) {
	const g = "left"
	kept := func(step string) uint64 { return t.done(g, step).PatchMemory.GetKept() }
	for _, step := range []string{"asleep", "still"} {
		t.equal(step+": programs asleep", string(t.ran(g, step)[0]), "60\n")
	}
	for _, step := range []string{"wake", "wake back", "wake traced"} { // 143: by signal 15
		t.equal(step+": what tasks read and waited for that slept in clones meanwhile", string(t.ran(g, step)[0]), "woken\npolled\n143\n")
	}
	t.equal("bytes that stay for programs that have come by", kept("unpassed"), uint64(0))
	for _, step := range []string{"back", "traced"} {
		t.leftBytes(step)
	}
	t.atLeast("bytes that stay for those that sleep there", float64(kept("unslept")), float64(t.leftBytes("slept")))
	t.equal("bytes that stay for those that go on in the originals", kept("unback"), uint64(0))
	t.equal("likewise, one with a tracer's address where it returns to", kept("untraced"), uint64(0))
	t.notCopied("traced grown", plan.Foreign)
	t.equal("bytes that stay when it has woken", kept("unlast"), uint64(0))
	t.atLeast("blocks of a function that is copied", float64(t.leftProbes("barred", false)), 10)
	t.leftProbes("let in", true)
	t.notCopied("beside grown", plan.Foreign)
	if t.Arch == "amd64" {
		t.leftPatched("first", true)
		t.leftPatched("beside", false)
		t.leftPatched("asleep", false)
		t.leftPatched("back", true)
		t.leftPatched("last", true)
	}
	t.untouched("", g)
	t.equal("the module has gone", t.result(g, "unload").Error, "")
	t.Metrics["clones.left.sleepers"] = report.Metric{Value: leftSleepers, Unit: "tasks", N: 1}
	t.Metrics["clones.left.kept"] = report.Metric{Value: float64(kept("unslept")), Unit: "bytes", N: 1}
}

// leftCalls are the system calls that are cloned, and leftSleeps those in which the sixty would be, and their shell. By which
// programs poll is up to the ISA.
var (
	leftSleeps = []string{"wait4", leftSleep}
	leftPolls  = []string{"poll", "ppoll"}
	// leftIn are those in whose clones somebody sleeps. riscv64's of a time leads out of the copy where no register is known to be free.
	leftIn = map[string][]string{
		"amd64": {"read", "poll", "wait4", leftSleep}, "arm64": {"read", "ppoll", "wait4", leftSleep}, "riscv64": {"read", "ppoll", "wait4"},
	}
	leftCalls = slices.Concat([]string{"read", "write", "openat", "execve", "mmap", "close", "clone"}, leftSleeps, leftPolls)
)

// leftBytes is how long the clones are together in which somebody sleeps, each a piece of code; of each there is one.
func (t *T) leftBytes(step string) (n uint64) {
	bytes, why := map[string]uint64{}, map[string]string{}
	for _, c := range slices.Concat(t.done("left", step).Clones, t.done("left", step+" grown").Clones) {
		bytes[c.Entry], why[c.Entry] = uint64(c.Bytes), c.Refusal.GetDetail()
	}
	for _, call := range leftIn[t.Arch] {
		entry := syscallEntry(t.Arch, call)
		of := bytes[entry]
		t.atLeast(fmt.Sprintf("%s: bytes of the clone of %s (%s)", step, call, why[entry]), float64(of), 100)
		n += of
	}
	return n
}

// leftPatched looks whether a live patch was let in.
func (t *T) leftPatched(when string, in bool) {
	said := string(t.ran("left", "patched "+when)[0])
	t.equal(when+": a live patch is let in", said == "patched\n", in)
	t.equal(when+": it is refused", strings.Contains(said, "Device or resource busy"), !in)
}

// notCopied holds that the clone of read has no copy of what has kprobes or is traced, whose original it calls, and says why.
func (t *T) notCopied(step string, want plan.Reason) {
	c := t.done("left", step).Clones[0]
	t.equal(c.Entry+": has a copy of what has kprobes", contains(c.Functions, leftProbed), false)
	t.atLeast(c.Entry+": functions in it", float64(len(c.Functions)), 2)
	why := ""
	for _, l := range c.Left {
		if l.Function == leftProbed {
			why = l.Refusal.Reason
		}
	}
	t.equal(step+": "+leftProbed+" has no copy", why, want.String())
}

// leftProbes looks whether the kernel takes kprobes at blocks behind a function's begin, of which it returns how many
// there are.
func (t *T) leftProbes(step string, taken bool) (n int) {
	first := t.done("left", "blocks").Points[0]
	for _, p := range t.done("left", step).Points {
		if p.Offset > first.Offset {
			t.equal(fmt.Sprintf("%s: a kprobe at %s+%#x is let in", step, p.Symbol, p.Offset), p.Refusal == nil, taken)
			n++
		}
	}
	return n
}
