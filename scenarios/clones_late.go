package scenarios

import (
	"slices"
	"strings"

	"kerninst/agent/wire"
	"kerninst/lab/vm"
)

// clones-left, where the sleep begins at an instruction that faults: a program reads into memory that is not there yet, and so
// sleeps in the midst of the copy of what copies there. When its clone is undone it goes on at that instruction of the
// original, keeps nothing, and reads what is in the file. Of a clone that does not say where it goes on it keeps the code.

const (
	latePackage = "guest/late"
	lateGuest   = "late"
	lateFile    = "/run/late.data"
	lateData    = `head -c 8192 /bin/busybox >` + lateFile
	lateBegin   = `rm -f /run/late.come; $0 ` + lateFile + ` /run/late.come >/run/late.said & sleep 0.3`
	lateEnd     = `: >/run/late.come; while pidof late >/dev/null; do sleep 0.1; done; cat /run/late.said; sleep 0.2`
)

// lateCopies have the instructions over which a task sleeps that reads into memory that is not there. On
// riscv64 no clone has them: what calls them warns, where no register is known to be free, so he sleeps in the originals.
var lateCopies = map[string]string{"amd64": "rep_movs_alternative", "arm64": "__arch_copy_to_user"}

func late(arch string) Guest {
	program := ProgramPath(latePackage)
	read := func(name string) *wire.Step { return run(name, program, lateFile) }
	steps := []*wire.Step{shell("data", lateData), read("plain"), snapshot("before", ""), shell("taints", "cat /proc/sys/kernel/tainted")}
	for _, stays := range []bool{true, false} {
		name := map[bool]string{true: "stays", false: "goes back"}[stays]
		c := &wire.Cloning{Entry: syscallEntry(arch, "read"), NoResuming: stays}
		steps = append(steps,
			&wire.Step{Name: name, Do: &wire.Step_Splice{Splice: &wire.Splice{SkipRefused: true, Brief: true, Clones: []*wire.Cloning{c}}}},
			&wire.Step{Name: name + " grown", Do: &wire.Step_Grow{Grow: &wire.Grow{Splice: name, Rounds: 20, Run: read("").GetRun()}}},
			run(name+" sleeps", "/bin/sh", "-c", lateBegin, program), unsplice(name), shell(name+" ends", lateEnd))
	}
	steps = append(steps, snapshot("after", "before"), module("unload", wire.Module_UNLOAD), shell("taints behind", "cat /proc/sys/kernel/tainted"))
	return Guest{Name: lateGuest, CPUs: 1, Time: vm.Exact, Index: true, Programs: []string{latePackage}, Job: job(steps...)}
}

func checkLate(t *T) {
	plain := string(t.ran(lateGuest, "plain")[0])
	t.equal("what is read", strings.HasPrefix(plain, "8192 "), true)
	for _, name := range []string{"stays", "goes back"} {
		c := t.done(lateGuest, name+" grown").Clones[0]
		t.Files["clones-late-"+slug(name)+".txt"] = composition([]*wire.Clone{c})
		t.atLeast(name+": functions in the clone", float64(len(c.Functions)), 2)
		if copies, ok := lateCopies[t.Arch]; ok {
			// Newer kernels' arm64 has instructions in it that are not understood (FEAT_MOPS): there he sleeps in the original.
			left := !t.before(6, 13) && slices.ContainsFunc(c.Left, func(l *wire.Left) bool { return l.Function == copies })
			t.equal(name+": "+copies+" is in the clone: "+strings.Join(c.Functions, " "), left || contains(c.Functions, copies), true)
		}
		t.equal(name+": what was read late", string(t.ran(lateGuest, name+" ends")[0]), plain)
	}
	t.atLeast("bytes that stay for who sleeps over a fault", float64(t.done(lateGuest, "unstays").PatchMemory.GetKept()), 100)
	t.equal("bytes that stay for who goes on in the original", t.done(lateGuest, "ungoes back").PatchMemory.GetKept(), uint64(0))
	t.untouched("late: ", lateGuest)
	t.equal("late: the module has gone", t.result(lateGuest, "unload").Error, "")
}
