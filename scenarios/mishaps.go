package scenarios

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/onsi/gomega"

	"kerninst/agent/wire"
	"kerninst/lab/report"
	"kerninst/lab/status"
	"kerninst/lab/vm"
)

// Mishaps: memory runs out at each allocation of the module, callers are killed at each of its
// steps, and the machine goes to sleep while it is spliced.
func mishaps() []Scenario {
	return []Scenario{
		{Name: "fails", Title: "each allocation of the module fails, one by one: what was asked for is done, or nothing is", Labels: []string{"hazards", "proof"},
			Guests: mishapGuests("fails", 160, 1), Check: checkMishap("fails")},
		{Name: "kills", Title: "a caller is killed at some steps of a batch that is made and taken back: nothing is left", Labels: []string{"hazards"},
			Guests: mishapGuests("kills", 24, 24), Check: checkMishap("kills")},
		{Name: "kills-long", Title: "the same at each step", Labels: []string{"proof"},
			Guests: mishapGuests("kills", 40, 1), Check: checkMishap("kills")},
		{Name: "power", Title: "the machine is put to sleep while it is spliced, as far as it can be woken again", Labels: []string{"hazards", "proof"},
			Guests: powerGuests, Check: checkPower},
		{Name: "kexec", Title: "another kernel is started while this one is spliced: it begins as it should", Labels: []string{"hazards", "proof"},
			Guests: kexecGuests, Check: checkKexec},
	}
}

// KernelPath is where a guest has the kernel that it runs.
const KernelPath = "/programs/vmlinuz"

const kexecPackage = "guest/kexec"

// leaving are on the way out of a kernel, as far as it has them. What of it runs from a copy, or when
// nothing of this kernel is left, cannot be spliced.
var leaving = []string{
	"kernel_kexec", "device_shutdown", "kernel_restart_prepare", "migrate_to_reboot_cpu", "machine_shutdown", "machine_kexec", "machine_kexec_prepare",
	"native_machine_shutdown", "relocate_kernel", "identity_mapped", "virtual_mapped", "swap_pages", // amd64
	"cpu_soft_restart", "arm64_relocate_new_kernel", "machine_kexec_post_load", // arm64
	"machine_kexec_mask_interrupts", "riscv_kexec_norelocate", // riscv64
}

// kexecCPU: with addresses of 52 bits, as QEMU's richest CPU has them, the stock kernel 6.12 faults in
// trans_pgd_create_copy, and nothing needs to be spliced for that.
var kexecCPU = map[string]string{"arm64": "cortex-a72"}

func kexecGuests(arch string) []Guest {
	all := []*wire.Point{entry(syscallEntry(arch, "getppid"))}
	for _, f := range leaving {
		all = append(all, &wire.Point{Function: f, Each: wire.Each_INSTRUCTION})
	}
	return []Guest{{Name: "guest", CPUs: 2, CPU: kexecCPU[arch], Time: vm.Host, Boots: true, Programs: []string{kexecPackage}, OwnKernel: true, Memory: 768, Ends: status.Crashed,
		Job: job(skipping("splice", all), run("kexec", ProgramPath(kexecPackage), KernelPath))}}
}

// noRoot is what a kernel says at the end that has begun without an initramfs.
const noRoot = "VFS: Unable to mount root fs"

func checkKexec(t *T) {
	const g = "guest"
	t.expect("the other kernel comes as far as a kernel without a root does", t.Guests[g].Crash, noRoot, gomega.ContainSubstring(noRoot))
	t.atLeast("points on the way there", float64(len(t.made(g, "splice"))), 100)
	t.Metrics["kexec.points"] = report.Metric{Value: float64(len(t.made(g, "splice"))), Unit: "points", N: 1}
}

// mishapGuests have guest/churn try one kind of mishap. Of all steps, each so manyth is one at
// which a caller is killed.
func mishapGuests(kind string, points, stride int) func(string) []Guest {
	return func(string) []Guest {
		g := churnGuest("guest", 2, time.Hour, "-points", strconv.Itoa(points), "-stride", strconv.Itoa(stride), kind)
		g.Modules = nil
		return []Guest{g}
	}
}

// walked are the calls of which each allocation must have failed, and failed again, and lost nothing.
var walked = []string{"load", "area", "read", "read without probes", "batch", "undo", "code with sites", "batch of copies", "moment", "moment of lists", "wait", "rings"}

// localWalked is walked where CPUs have cells of their own.
const localWalked = "local cells"

// daemonMade is what the daemon that nobody has killed must have made, in each of its batches.
var daemonMade = []string{"functions that are copied", "records", "points by each mechanism"}

func checkMishap(kind string) func(*T) {
	return func(t *T) {
		const g = "guest"
		seen, all := map[string]int{}, 0
		for _, r := range t.stormRecords(g, "churn") {
			t.expect(r.Name, r.Detail, "ok", gomega.Satisfy(func(string) bool { return r.OK }))
			seen[r.Name] = r.N
			if strings.HasPrefix(r.Name, kind+": ") {
				all += r.N
			}
		}
		if kind == "fails" {
			t.failed(seen)
		} else {
			t.killed(seen)
		}
		t.unharmed("", g, seen)
		t.Metrics[kind+".tried"] = report.Metric{Value: float64(all), Unit: kind, N: 1}
	}
}

func (t *T) failed(seen map[string]int) {
	calls := walked
	if t.Arch == "amd64" {
		calls = append(slices.Clone(calls), localWalked)
	}
	for _, call := range calls {
		t.atLeast("allocations of "+call, float64(seen["fails: "+call]), 1)
		t.atLeast("times that they failed again: "+call, float64(seen["kernel memory that is not given back: fails: "+call]), 1)
	}
	t.atLeast("allocations of release", float64(seen["fails: release"]), 1)
}

func (t *T) killed(seen map[string]int) {
	for _, batch := range []string{"first", "again"} {
		for _, what := range daemonMade {
			t.atLeast(what+" of the daemon's batch "+batch, float64(seen[what+" of the daemon's batch "+batch]), 1)
		}
	}
}

// sleeps are the ways to sleep, as far as the kernel's own test of them goes: it wakes at once.
// Only where a kernel has the last state is its memory written, of which the last step fails, for
// there is nowhere to write it to, as the kernel then says.
// To sleep with nothing but memory on is what QEMU's PC can; its clock wakes it. The registers of its
// bridge that say where power is switched off are not restored by its firmware (SeaBIOS 1.16, q35).
var sleeps = []struct{ name, command, only string }{
	{"freezer", "echo freezer >/sys/power/pm_test && echo freeze >/sys/power/state", ""},
	{"devices", "echo devices >/sys/power/pm_test && echo freeze >/sys/power/state", ""},
	{"hibernate-core", "echo core >/sys/power/pm_test && echo disk >/sys/power/state", ""},
	{"hibernate-nowhere", "echo none >/sys/power/pm_test && ! echo disk >/sys/power/state && dmesg | grep -q 'Cannot get swap writer'", ""},
	{"memory", `echo deep >/sys/power/mem_sleep && echo +2 >/sys/class/rtc/rtc0/wakealarm && echo mem >/sys/power/state
		bridge=/sys/bus/pci/devices/0000:00:1f.0/config
		printf '\001\006' | dd of=$bridge bs=1 seek=64 conv=notrunc && printf '\200' | dd of=$bridge bs=1 seek=68 conv=notrunc`, "amd64"},
}

// sleepsOf are those that an ISA's machine has.
func sleepsOf(arch string) (out []struct{ name, command, only string }) {
	for _, s := range sleeps {
		if s.only == "" || s.only == arch {
			out = append(out, s)
		}
	}
	return out
}

// woken are on the way to sleep and back, in which some of them cannot be spliced.
var woken = map[string][]string{"amd64": {
	"x86_acpi_suspend_lowlevel", "do_suspend_lowlevel", "wakeup_long64", "save_processor_state", "restore_processor_state",
	"native_write_msr", "native_write_cr0", "native_write_cr4", "acpi_suspend_enter", "suspend_devices_and_enter", "syscore_resume",
}}

func powerGuests(arch string) []Guest {
	null := syscallEntry(arch, "getppid")
	all := []*wire.Point{entry(null)}
	for _, f := range append([]string{"vfs_read", "copy_process", "cpuhp_invoke_callback", "freeze_processes", "thaw_processes", "hibernation_snapshot", "dpm_suspend", "dpm_resume"}, slices.Concat(coming[arch], woken[arch])...) {
		all = append(all, &wire.Point{Function: f, Each: wire.Each_INSTRUCTION})
	}
	steps := append(evenSteps(all[0]),
		snapshot("before", ""),
		shell("states", "cat /sys/power/state; cat /sys/power/pm_test; [ ! -e /sys/module/suspend/parameters/pm_test_delay ] || echo 1 >/sys/module/suspend/parameters/pm_test_delay"),
		briefly(skipping("splice", all)),
	)
	for k, s := range sleepsOf(arch) {
		steps = append(steps, shell(s.name, s.command), bench(nth("work", k), "null", 2), readStill(nth("count", k)))
	}
	steps = append(steps, shell("cpus", "cat /sys/devices/system/cpu/online"), unsplice("splice"), snapshot("after", "before"))
	return []Guest{{Name: "guest", CPUs: 2, Time: vm.Host, Boots: true, Job: job(steps...)}}
}

func checkPower(t *T) {
	const g = "guest"
	t.ran(g, "states")
	points := t.made(g, "splice")
	t.atLeast("points on the way to sleep and back", float64(len(points)), 2000)
	p, done, even := points[0], uint64(0), t.evenOf(g)
	for k, s := range sleepsOf(t.Arch) {
		t.ran(g, s.name)
		for _, b := range t.benches(g, nth("work", k)) {
			done += b.TotalOp
		}
		t.equal(s.name+": counter = what the workload did, and a shell for each sleep", t.stillCounts(g, nth("count", k))[p.Address], done+uint64((k+1)*ofShell))
		even.hold(t, g, nth("count", k))
	}
	even.found(t, "power")
	t.equal("CPUs that are there", strings.TrimSpace(string(t.ran(g, "cpus")[0])), "0-1")
	t.equal("ranges of text that differ afterwards", len(t.done(g, "after").Text.Differing), 0)
	t.Metrics["power.points"] = report.Metric{Value: float64(len(points)), Unit: "points", N: 1}
	t.Metrics["power.sleeps"] = report.Metric{Value: float64(len(sleepsOf(t.Arch))), Unit: "sleeps", N: 1}
}
