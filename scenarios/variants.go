package scenarios

import (
	"kerninst/agent/plan"
	"kerninst/agent/snippet"
	"kerninst/agent/wire"
	"kerninst/lab/vm"
)

// variant is a guest in which what a stock guest hides may show.
type variant struct {
	name   string
	cpus   int
	time   vm.Time
	append string
	cpu    string
	holds  string // a command of the guest's that succeeds if it is what it should be
	noLSE  bool   // an arm64 CPU that has no atomics of one instruction: counters are exclusive loads and stores
	index  bool   // the daemon has the whole kernel's index
	// actions at each point; none: it is counted.
	actions []*wire.Action
	without []string // mechanisms that are not used
}

// usual guests know either a function by itself or the whole kernel: what the one
// calls free must hold as well as what the other does.
func usual(arch string) []variant {
	return []variant{{name: "1cpu", cpus: 1, time: vm.Exact, holds: "true"}, {name: "2cpu", cpus: 2, time: vm.Host, holds: "true", index: true}, byTraps(arch)}
}

// byTraps is a guest in which all points are reached by the last resort.
func byTraps(arch string) variant {
	v := variant{name: "trap", cpus: 2, time: vm.Host, holds: "true", index: true}
	for _, m := range plan.Ladder(arch) {
		if m != plan.Trap {
			v.without = append(v.without, m.String())
		}
	}
	return v
}

// poisoned are the same, but what is called free is overwritten at each point: who
// reads it after all goes wrong.
func poisoned(arch string) []variant {
	all := usual(arch)
	for i := range all {
		all[i].name = "poison-" + all[i].name
		all[i].index = !all[i].index // more is called free in the guest of exact time
		all[i].actions = []*wire.Action{{Name: "poison", Snippet: snippet.Poisoned().String()}}
	}
	return all
}

// slice is one guest of each kind: of two CPUs on the ISA alone whose text is written
// while others execute it. A boot that is watched takes longer than all else. On arm64
// modules lie elsewhere without KASLR, and with them the patches in the module's text.
func slice(arch string) []variant {
	out := poisoned(arch)[:1]
	if arch == "arm64" {
		v := variants(arch)[0]
		out[0].append, out[0].holds = v.append, v.holds
	}
	if arch == "amd64" {
		out = append(out, usual(arch)[1])
	}
	if arch == "riscv64" {
		out = append(out, byTraps(arch))
	}
	return out
}

// variants are what a kernel can be besides what Debian's boots as here. Only amd64's
// is built to preempt itself on demand, and riscv64's is moved by nobody.
func variants(arch string) []variant {
	two := func(name, append, holds string) variant {
		return variant{name: name, cpus: 2, time: vm.Host, append: append, holds: holds}
	}
	linked := func(at string) variant {
		return two("nokaslr", "nokaslr", "grep -q '^"+at+" . _text$' /proc/kallsyms")
	}
	switch arch {
	case "amd64":
		return []variant{linked("ffffffff81000000"),
			two("preempt", "preempt=full", "grep -qF '(full)' /sys/kernel/debug/sched/preempt"),
			two("pti", "pti=on", "dmesg | grep -q 'page tables isolation: enabled'")}
	case "arm64":
		return []variant{linked("ffff800080000000"),
			{name: "cortex-a72", cpus: 2, time: vm.Host, cpu: "cortex-a72", noLSE: true, holds: "! grep -qw atomics /proc/cpuinfo"}}
	}
	// It lies where it was linked in any case. This CPU has none of the extensions by which the kernel chooses code.
	return []variant{{name: "sifive-u54", cpus: 2, time: vm.Host, cpu: "sifive-u54", holds: "grep -q '^isa.*: rv64' /proc/cpuinfo && ! grep -q -e sstc -e zb /proc/cpuinfo"}}
}
