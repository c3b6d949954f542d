package main

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"os"
	"runtime"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// fdt is where a kernel shows the devices that it was told of, and its command line.
const fdt = "/sys/firmware/fdt"

// Where things come to lie, behind the first of the machine's memory: any place that is not that
// of the kernel which runs.
const (
	kernelAt = 256 << 20
	fdtAt    = 384 << 20
	hopAt    = 386 << 20
	align    = 2 << 20 // of a kernel: Documentation/arch/arm64/booting.rst, .../riscv/boot.rst
)

// segment is struct kexec_segment of linux/kexec.h.
type segment struct {
	buf    unsafe.Pointer
	size   uintptr
	at     uintptr
	memory uintptr
}

func segmentOf(b []byte, at, memory uintptr) segment {
	page := uintptr(os.Getpagesize())
	return segment{unsafe.Pointer(&b[0]), uintptr(len(b)), at, (max(memory, uintptr(len(b))) + page - 1) &^ (page - 1)}
}

// imageSize is where the header of a kernel of arm64 and riscv64 has how much memory it takes.
const imageSize = 16

// loadSegments gives the kernel another one piece by piece, with its own description of the machine.
func loadSegments(file string) error {
	kernel, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	machine, err := os.ReadFile(fdt)
	if err != nil {
		return err
	}
	base, err := firstMemory()
	if err != nil {
		return err
	}
	entry := base + kernelAt
	all := []segment{
		segmentOf(kernel, entry, uintptr(binary.LittleEndian.Uint64(kernel[imageSize:]))),
		segmentOf(machine, base+fdtAt, 0), // which riscv64's kernel finds by itself
	}
	if runtime.GOARCH == "arm64" {
		all, entry = append(all, segmentOf(hop(base+fdtAt, entry), base+hopAt, 0)), base+hopAt
	}
	if _, _, errno := unix.Syscall6(unix.SYS_KEXEC_LOAD, entry, uintptr(len(all)), uintptr(unsafe.Pointer(&all[0])), 0, 0, 0); errno != 0 {
		return fmt.Errorf("kexec_load: %w", errno)
	}
	return nil
}

// hop is arm64's code that jumps to a kernel with the description of its machine in x0.
func hop(machine, kernel uintptr) (code []byte) {
	for _, word := range []uint32{
		0x58000080, // ldr x0, machine
		0x580000a4, // ldr x4, kernel
		0xd61f0080, // br x4
		0xd503201f, // nop
	} {
		code = binary.LittleEndian.AppendUint32(code, word)
	}
	code = binary.LittleEndian.AppendUint64(code, uint64(machine))
	return binary.LittleEndian.AppendUint64(code, uint64(kernel))
}

// firstMemory is where the machine's memory begins, as far as a kernel can lie there.
func firstMemory() (uintptr, error) {
	f, err := os.Open("/proc/iomem")
	if err != nil {
		return 0, err
	}
	defer f.Close()
	for in := bufio.NewScanner(f); in.Scan(); {
		var lo, hi uintptr
		if n, _ := fmt.Sscanf(in.Text(), "%x-%x", &lo, &hi); n == 2 && strings.HasSuffix(in.Text(), ": System RAM") {
			return (lo + align - 1) &^ (align - 1), nil
		}
	}
	return 0, fmt.Errorf("/proc/iomem: no System RAM")
}
