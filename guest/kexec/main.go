// Kexec starts another kernel in the place of the one that runs, as kexec -l and -e do: one
// without an initramfs, which says at its end that it finds no root. It runs in a guest.
//
//	kexec FILE
package main

import (
	"fmt"
	"os"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: kexec FILE")
		os.Exit(2)
	}
	load := loadSegments
	if runtime.GOARCH == "amd64" { // of Debian's, only this kernel takes files (KEXEC_FILE)
		load = loadFile
	}
	err := load(os.Args[1])
	if err == nil {
		err = unix.Reboot(unix.LINUX_REBOOT_CMD_KEXEC)
	}
	fmt.Fprintln(os.Stderr, "kexec:", err) // who is here has not left
	os.Exit(1)
}

// loadFile has the kernel prepare itself for another one, with its own command line.
func loadFile(file string) error {
	kernel, err := os.Open(file)
	if err != nil {
		return err
	}
	defer kernel.Close()
	line, err := os.ReadFile("/proc/cmdline")
	if err != nil {
		return err
	}
	if err := unix.KexecFileLoad(int(kernel.Fd()), -1, strings.TrimSpace(string(line)), unix.KEXEC_FILE_NO_INITRAMFS); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return nil
}
