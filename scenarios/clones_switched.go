package scenarios

import (
	"kerninst/agent/wire"
	"kerninst/lab/vm"
)

// clones-left, where every task sleeps: what is cloned is what gives the CPU away. Where that goes on is on no stack on arm64
// and riscv64, but in what the kernel has saved of the task's registers (cpu_context.pc, thread.ra). When the clone is undone all
// of them go on in the original, kernel threads among them, which may sleep for as long as the kernel runs.

const (
	switchedGuest = "switched"
	switchedBegin = `k=0; while [ $k -lt 20 ]; do sleep 7777 >/dev/null 2>&1 </dev/null & k=$((k + 1)); done; sleep 0.5; pidof sleep | wc -w`
	switchedEnd   = `killall sleep; while pidof sleep >/dev/null; do sleep 0.1; done`
)

// switches are what every task sleeps in, on the ISAs that it is about.
var switches = map[string]string{"arm64": "__switch_to", "riscv64": "__schedule"}

func switched(arch string) []Guest {
	if switches[arch] == "" {
		return nil
	}
	c := &wire.Cloning{Entry: switches[arch], Rules: []*wire.Rule{{}}}
	return []Guest{{Name: switchedGuest, CPUs: 1, Time: vm.Exact, Index: true, Job: job(
		snapshot("before", ""), shell("taints", "cat /proc/sys/kernel/tainted"),
		&wire.Step{Name: "cloned", Do: &wire.Step_Splice{Splice: &wire.Splice{Clones: []*wire.Cloning{c}}}},
		shell("begin", switchedBegin), read("switches"), unsplice("cloned"), shell("end", switchedEnd),
		snapshot("after", "before"), module("unload", wire.Module_UNLOAD), shell("taints behind", "cat /proc/sys/kernel/tainted"))}}
}

func checkSwitched(t *T) {
	if switches[t.Arch] == "" {
		return
	}
	c := t.done(switchedGuest, "cloned").Clones[0]
	t.Files["clones-switched.txt"] = composition([]*wire.Clone{c})
	t.equal("programs that sleep where they gave the CPU away", string(t.ran(switchedGuest, "begin")[0]), "20\n")
	n := uint64(0)
	for _, v := range t.done(switchedGuest, "switches").Values {
		n += v.Count
	}
	t.atLeast("times that a task gave the CPU away in the clone of "+c.Entry, float64(n), 20)
	t.equal("bytes that stay for all that sleep", t.done(switchedGuest, "uncloned").PatchMemory.GetKept(), uint64(0))
	t.ran(switchedGuest, "end")
	t.untouched("switched: ", switchedGuest)
	t.equal("switched: the module has gone", t.result(switchedGuest, "unload").Error, "")
}
