package scenarios

import (
	"kerninst/agent/wire"
	"kerninst/lab/vm"
)

// clones-left, where every task sleeps: what is cloned is what gives the CPU away. On arm64 where that goes on is on no stack, but
// in what the kernel has saved of the task's registers (cpu_context.pc). When the clone is undone all of them go on in the
// original, kernel threads among them, which may sleep for as long as the kernel runs. On riscv64 (thread.ra) what gives it away has
// no clone: it warns, where no register is known to be free.

const (
	switchedGuest = "switched"
	switchedBegin = `k=0; while [ $k -lt 20 ]; do sleep 7777 >/dev/null 2>&1 </dev/null & k=$((k + 1)); done; sleep 0.5; pidof sleep | wc -w`
	switchedEnd   = `killall sleep; while pidof sleep >/dev/null; do sleep 0.1; done`
)

// switches is what every task sleeps in.
const switches = "__switch_to"

func switched(arch string) []Guest {
	if arch != "arm64" {
		return nil
	}
	c := &wire.Cloning{Entry: switches, Rules: []*wire.Rule{{}}}
	return []Guest{{Name: switchedGuest, CPUs: 1, Time: vm.Exact, Index: true, Job: job(
		snapshot("before", ""), shell("taints", "cat /proc/sys/kernel/tainted"),
		&wire.Step{Name: "cloned", Do: &wire.Step_Splice{Splice: &wire.Splice{Clones: []*wire.Cloning{c}}}},
		shell("begin", switchedBegin), read("switches"), unsplice("cloned"), shell("end", switchedEnd),
		snapshot("after", "before"), module("unload", wire.Module_UNLOAD), shell("taints behind", "cat /proc/sys/kernel/tainted"))}}
}

func checkSwitched(t *T) {
	if t.Arch != "arm64" {
		return
	}
	c := t.done(switchedGuest, "cloned").Clones[0]
	t.Files["clones-switched.txt"] = composition([]*wire.Clone{c})
	t.equal("programs that sleep where they gave the CPU away", string(t.ran(switchedGuest, "begin")[0]), "20\n")
	n := uint64(0)
	for _, v := range t.done(switchedGuest, "switches").Values {
		n += v.Count
	}
	t.atLeast("times that a task gave the CPU away in the clone of "+switches, float64(n), 20)
	t.equal("bytes that stay for all that sleep", t.done(switchedGuest, "uncloned").PatchMemory.GetKept(), uint64(0))
	t.ran(switchedGuest, "end")
	t.untouched("switched: ", switchedGuest)
	t.equal("switched: the module has gone", t.result(switchedGuest, "unload").Error, "")
}
