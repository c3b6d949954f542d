//go:build linux

package kdev

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// ModuleName is the name of the module in the kernel, ModuleFile where the lab's guests have it.
const (
	ModuleName = "kerninst"
	ModuleFile = "/lib/kerninst/kerninst.ko"
)

// Load loads a module into the running kernel, with the given parameters. The
// unexported symbols that it lists are taken from /proc/kallsyms. A module that
// lists none (peer.ko) is loaded as it is.
func Load(ko []byte, params string) error {
	f, err := os.Open("/proc/kallsyms")
	if err != nil {
		return err
	}
	defer f.Close()
	return LoadFrom(ko, params, f)
}

// LoadFrom is Load for a caller that has read /proc/kallsyms already: reading
// it takes a slow guest a second.
func LoadFrom(ko []byte, params string, kallsyms io.Reader) error {
	names, err := Internals(ko)
	if err != nil {
		return err
	}
	if len(names) > 0 {
		syms, err := ReadKallsyms(kallsyms, names)
		if err != nil {
			return err
		}
		if ko, err = ResolveModule(ko, syms.Find); err != nil {
			return err
		}
	}
	if err := unix.InitModule(ko, params); err != nil {
		return fmt.Errorf("load module: %w%s", err, loadHint(err))
	}
	return nil
}

// LoadOnce loads the module from a file unless it is there.
func LoadOnce(file string, kallsyms io.Reader) error {
	if _, err := os.Stat("/sys/module/" + ModuleName); !os.IsNotExist(err) {
		return err
	}
	ko, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	return LoadFrom(ko, "", kallsyms)
}

// loadHint says what the kernel means; its log says which symbol or check.
func loadHint(err error) string {
	switch {
	case errors.Is(err, unix.EEXIST):
		return " (it is loaded already)"
	case errors.Is(err, unix.EPERM):
		return " (needs root, a kernel that is not locked down, and kerninst.lab=1 on the kernel command line or i_accept_the_risk=1; see the kernel log)"
	case errors.Is(err, unix.ENOEXEC), errors.Is(err, unix.EINVAL):
		return " (built for another kernel, or what its parameters ask for is refused; see the kernel log)"
	}
	return ""
}

// Unload removes a module by name. It fails with EBUSY while its device is open
// or something that it did could not be undone.
func Unload(name string) error {
	if err := unix.DeleteModule(name, unix.O_NONBLOCK); err != nil {
		hint := ""
		if errors.Is(err, unix.EBUSY) || errors.Is(err, unix.EAGAIN) {
			hint = " (in use: close the device, and remove what sits on its splices)"
		}
		return fmt.Errorf("unload module %s: %w%s", name, err, hint)
	}
	return nil
}

// UnloadWhenFree is Unload when the module lets itself go within the limit: after
// its device was closed it keeps what a task may still be in, and looks again and
// again (guest/module/core.c).
func UnloadWhenFree(name string, limit time.Duration) error {
	// The kernel tells nobody when a module has let go of itself.
	for end := time.Now().Add(limit); ; time.Sleep(50 * time.Millisecond) {
		err := Unload(name)
		if !errors.Is(err, unix.EAGAIN) || time.Now().After(end) {
			return err
		}
	}
}
