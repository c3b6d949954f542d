package images

import (
	"fmt"
	"runtime"
	"strings"
)

// target is one ISA as Debian, the kernel and the compilers name it.
type target struct {
	name    string   // of Debian, Go and the lab: all three agree
	triplet string   // of the compilers
	kbuild  string   // ARCH= of the kernel's makefiles
	level   string   // oldest CPU that Go may generate code for
	option  string   // of the kernel's configuration that is set for it
	images  []string // that QEMU boots, in a kernel's build directory
	// firmware is the machine's, in firmwarePackage; empty: QEMU's own will do.
	firmware string
	// unknown are options of the kernel's that ask the compiler for what the toolchain's does
	// not know; those built by it have none of them.
	unknown []string
}

var targets = []target{
	{"amd64", "x86_64-linux-gnu", "x86", "GOAMD64=v1", "X86_64", []string{"arch/x86/boot/bzImage"}, "", nil},
	{"arm64", "aarch64-linux-gnu", "arm64", "GOARM64=v8.0", "ARM64", []string{"arch/arm64/boot/Image", "arch/arm64/boot/Image.gz"}, "", nil},
	{"riscv64", "riscv64-linux-gnu", "riscv", "GORISCV64=rva20u64", "RISCV", []string{"arch/riscv/boot/Image"}, "usr/lib/riscv64-linux-gnu/opensbi/generic/fw_dynamic.bin",
		[]string{"CONFIG_TOOLCHAIN_HAS_ZACAS=", "CONFIG_TOOLCHAIN_HAS_ZABHA="}},
}

// lockedHosts are the hosts for which Refresh locks a toolchain. Others work,
// with what the mirror has.
var lockedHosts = []string{"amd64", "arm64"}

// Arches lists the targets.
func Arches() []string {
	var names []string
	for _, t := range targets {
		names = append(names, t.name)
	}
	return names
}

func targetOf(arch string) (target, error) {
	for _, t := range targets {
		if t.name == arch {
			return t, nil
		}
	}
	return target{}, fmt.Errorf("images: unknown architecture %q: want one of %s",
		arch, strings.Join(Arches(), ", "))
}

// hostArch is the Debian name of the machine we run on. Go's names differ for
// some, but for none that has a trixie cross compiler.
func hostArch() string { return runtime.GOARCH }

// debName is the triplet as package names spell it.
func (t target) debName() string { return strings.ReplaceAll(t.triplet, "_", "-") }

// gcc is the compiler for the target inside its toolchain root.
func (t target) gcc() string { return t.triplet + "-gcc-14" }

// unused are parts of the compilers' closure that nothing here runs or links:
// unpacking them would cost time and nothing else.
var unused = []struct{ prefix, why string }{
	{"libasan", "sanitizer run time"},
	{"libhwasan", "sanitizer run time"},
	{"liblsan", "sanitizer run time"},
	{"libtsan", "sanitizer run time"},
	{"libubsan", "sanitizer run time"},
	{"libssl", "wanted by coreutils for one faster checksum, loaded on demand"},
	{"openssl-provider-legacy", "comes with libssl"},
}

// toolchainPackages are the roots of the toolchain's closure; kernel is the
// release without its architecture. Of native packages there is the compiler
// for the target and the host's own, for emulator plugins.
func toolchainPackages(host string, t target, kernel string) []string {
	pkgs := []string{
		"base-files", "bash", "binutils", "coreutils", "dash", "findutils",
		"gawk", "gcc-14", "grep", "libc6-dev", "make", "perl-base", "sed",
		"linux-headers-" + kernel + "-common", "linux-kbuild-" + kernel,
	}
	if t.name != host {
		pkgs = append(pkgs, "gcc-14-"+t.debName(), "libc6-dev-"+t.name+"-cross")
	}
	return pkgs
}

// targetPackages are fetched for the target by name, without what they depend
// on: the kernel, its headers, the guest's programs and its machine's firmware.
func targetPackages(t target, kernel string) []string {
	pkgs := []string{
		"busybox-static",
		"linux-headers-" + kernel + "-" + t.name,
		imagePackage(t, kernel),
	}
	if t.firmware != "" {
		pkgs = append(pkgs, firmwarePackage)
	}
	return pkgs
}

// firmwarePackage has the firmware of riscv64. QEMU's own may be older than OpenSBI
// 1.3 (7.2.22 brings 1.1), which writes down where a CPU is to start after it has
// told it to. A CPU that does not sleep then, for an interrupt is pending, starts
// the kernel once more, over the one that runs: 3 of 160 boots on a busy host.
// Upstream mended it by "lib: sbi: Set the state of a hart to START_PENDING after
// the hart is ready". The package is for all architectures.
const firmwarePackage = "opensbi"

func imagePackage(t target, kernel string) string {
	return "linux-image-" + kernel + "-" + t.name
}
