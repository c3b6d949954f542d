package main

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"kerninst/agent/isa"
	"kerninst/agent/isa/all"
	"kerninst/agent/kdev"
	"kerninst/agent/ktext"
)

const devicePath = "/dev/" + kdev.ModuleName

// victim is a function that nobody runs.
type victim struct {
	Addr uint64
	Code []byte
}

// site is code that the kernel finds by its address: by its entry, if that is a key's.
type site struct{ Orig, Entry uint64 }

// someSites are as many as are tried of each kind.
const someSites = 16

// sitesOf are some of a kernel's.
func sitesOf(text *ktext.Text) (out []site, err error) {
	links, err := text.Links("")
	if err != nil {
		return nil, err
	}
	for k := range min(someSites, len(links.Keys), len(links.Faults)) {
		key, fault := links.Keys[k*len(links.Keys)/someSites], links.Faults[k*len(links.Faults)/someSites]
		out = append(out, site{uint64(key.Site), uint64(key.Entry)}, site{uint64(fault.Site), 0})
	}
	return out, nil
}

// never are system calls that nothing in the guest makes, without what their functions'
// names begin with.
var never = []string{"swapoff", "acct", "quotactl", "mincore", "vhangup", "lookup_dcookie", "pivot_root", "settimeofday", "adjtimex", "sethostname"}

// kernel is what is known of the kernel before anything is called.
type kernel struct {
	Info    kdev.Info
	Victims []victim
	Sites   []site
	arch    *isa.Arch
}

// look loads the module if it is not there, and reads the victims' code.
func look() (*kernel, error) {
	kallsyms, err := os.ReadFile("/proc/kallsyms")
	if err != nil {
		return nil, err
	}
	if err := kdev.LoadOnce(kdev.ModuleFile, bytes.NewReader(kallsyms)); err != nil {
		return nil, err
	}
	dev, err := kdev.Open()
	if err != nil {
		return nil, err
	}
	defer dev.Close()
	k := &kernel{}
	if k.Info, err = dev.Info(); err != nil {
		return nil, err
	}
	if k.arch, err = all.Lookup(k.Info.Arch); err != nil {
		return nil, err
	}
	text, err := ktext.New(k.arch, bytes.NewReader(kallsyms), dev.Read, ktext.Options{})
	if err != nil {
		return nil, err
	}
	if k.Sites, err = sitesOf(text); err != nil {
		return nil, err
	}
	for _, name := range never {
		fn, err := text.Function("", ktext.Syscall(runtime.GOARCH, name))
		if err != nil {
			continue // this kernel has none
		}
		code, err := text.Code(fn)
		if err != nil {
			return nil, err
		}
		k.Victims = append(k.Victims, victim{uint64(fn.Addr), bytes.Clone(code)})
	}
	if len(k.Victims) < 4 {
		return nil, fmt.Errorf("only %d functions that nobody runs", len(k.Victims))
	}
	return k, nil
}

// openDevice waits for who has let go of it: the last mapping may have been another's.
func openDevice() (fd int, err error) {
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if fd, err = unix.Open(devicePath, unix.O_RDWR|unix.O_CLOEXEC, 0); err != unix.EBUSY || time.Now().After(end) {
			return fd, err
		}
	}
}

func ioctl(fd int, cmd, arg uintptr) unix.Errno {
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), cmd, arg)
	return errno
}

// addrOf is where memory is that the collector does not move: what mmap gave.
func addrOf(b []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) }
