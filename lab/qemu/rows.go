package qemu

import (
	"fmt"
	"sort"
	"strings"
)

// row is everything that differs between ISAs.
type row struct {
	binary  string
	pkg     string // Debian package that holds the binary
	machine string // alias; Version says what it stands for
	cpu     string
	boot    []string
	bootLen int // bytes of kernel command line that the kernel takes, without the NUL
	// mutePowerOff: the machine's power-off device ends QEMU with status 0 and
	// no SHUTDOWN event. riscv64 virt does so up to QEMU 8.0 (sifive_test); a
	// reset is announced by all.
	mutePowerOff bool
	// oneCPUExact: with several CPUs QEMU's instruction counter does not let the
	// second one run while the first waits for it in the firmware, as it does
	// for every remote fence: the guest does not get past the boot (seen with
	// 7.2.22, whatever the shift and with sstc or without).
	oneCPUExact bool
	// timers are CSRs, of 64 bits each, that QEMU's states leave out and that the lab
	// keeps for them (seen with 7.2.22; where a newer one has them, they are written
	// as they are).
	timers []int
	// threadsFrom is the first QEMU that may run the guest's CPUs in threads of
	// their own. Before, one CPU could run code that another had just rewritten
	// as it was: a stock kernel that toggles its own static keys dies of a stale
	// breakpoint, "Oops: int3", with 7.2.22 within two thousand rounds. By its
	// description "accel/tcg: Always lock pages before translation" mends it: with
	// 10.0.13 the same kernel took 6,000 rounds; none between was tried. The zero
	// value: any.
	threadsFrom [2]int

	why map[string]string // for each flag or parameter that is not obvious
}

// rows has one row per ISA. Why each odd setting is there stands beside it, and
// a test holds that every name in why occurs in the row.
var rows = map[string]row{
	"amd64": {
		binary:  "qemu-system-x86_64",
		pkg:     "qemu-system-x86",
		machine: "q35",
		cpu:     "max,cx16=off",
		boot:    []string{"console=ttyS0", "earlyprintk=serial,ttyS0,115200", "no_timer_check"},
		bootLen: 2047,

		threadsFrom: [2]int{8, 1},

		why: map[string]string{
			"q35": "PCI Express, as on any machine of the last ten years",
			"max": "everything that the emulator can do; RDRAND obeys -seed",
			"cx16": "before QEMU 8.0, cmpxchg16b leaves bits of an operand of an addition before it as flags, if flags were loaded before that: " +
				"an interrupt behind it saves a TF or VM with them, and the kernel dies of a double fault (seen once, in kmem_cache_alloc_lru_noprof, " +
				"behind a patch that takes the flags back). The kernel does without this instruction",
			"earlyprintk": "a panic before the console exists would otherwise be silent",
			"no_timer_check": "the kernel wants five ticks in some 70 ms of the host's clock, and panics (IO-APIC + timer doesn't work) " +
				"if a busy host has no CPU for the guest meanwhile; under KVM it sets this by itself",
		},
	},
	"arm64": {
		binary:  "qemu-system-aarch64",
		pkg:     "qemu-system-arm",
		machine: "virt",
		cpu:     "max,sve=off,pauth-impdef=on",
		boot:    []string{"console=ttyAMA0", "earlycon"},
		bootLen: 2047,
		why: map[string]string{
			"max":          "has E0PD; under KASLR a CPU without it gets KPTI, and system calls become 11 times slower",
			"sve":          "a task that has used it pays for its state at every system call, or not: figures had two values 66 instructions apart",
			"pauth-impdef": "the architected pointer authentication cipher takes most of the time of an emulated kernel",
			"earlycon":     "a panic before the console exists would otherwise be silent",
		},
	},
	"riscv64": {
		binary:  "qemu-system-riscv64",
		pkg:     "qemu-system-misc (qemu-system-riscv in later releases)",
		machine: "virt",
		cpu:     "rv64",
		boot:    []string{"console=ttyS0", "earlycon"},
		bootLen: 1023,

		mutePowerOff: true,
		oneCPUExact:  true,
		timers:       []int{0x14d}, // stimecmp (RISC-V "Sstc")

		why: map[string]string{
			"rv64":     "RV64GC, which is what the stock kernel requires",
			"earlycon": "a panic before the console exists would otherwise be silent",
		},
	},
}

// lookup finds the row of an ISA.
func lookup(arch string) (row, error) {
	r, ok := rows[arch]
	if !ok {
		return row{}, fmt.Errorf("architecture %q is unknown: use one of %s", arch, strings.Join(Arches(), ", "))
	}
	return r, nil
}

// Arches are the architectures that this backend can run, in order.
func Arches() []string {
	var all []string
	for arch := range rows {
		all = append(all, arch)
	}
	sort.Strings(all)
	return all
}
