// Late reads a file into two pages of memory, of which the second may be late: whoever copies there, the kernel, sleeps
// over the fault that it meets until a file is made. Then that page is there (userfaultfd(2)). It runs in a guest.
//
//	late FILE [UNTIL]
//
// It prints how many bytes were read, and the checksum of the pages (IEEE's CRC-32).
package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"runtime"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Calls of the device, as include/uapi/linux/userfaultfd.h declares them; they are alike on all ISAs here.
const (
	uffdAPI       = 0xaa
	ioctlAPI      = 0xc018aa3f
	ioctlRegister = 0xc020aa00
	ioctlZeropage = 0xc020aa04
	modeMissing   = 1
)

func main() {
	if len(os.Args) != 2 && len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: late FILE [UNTIL]")
		os.Exit(2)
	}
	if err := late(os.Args[1], os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, "late:", err)
		os.Exit(1)
	}
}

func late(file string, until []string) error {
	page := os.Getpagesize()
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	memory, err := unix.Mmap(-1, 0, 2*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return err
	}
	memory[0] = 1 // it is there
	came := make(chan error, 1)
	if len(until) == 0 {
		came <- nil
	} else {
		missing, err := withhold(memory[page:])
		if err != nil {
			return fmt.Errorf("userfaultfd: %w", err)
		}
		go func() {
			err := missing.comes(until[0])
			if err != nil {
				unix.Close(missing.fd) // or who reads sleeps for ever
			}
			came <- err
		}()
	}
	n, err := unix.Read(int(f.Fd()), memory)
	if err := errors.Join(err, <-came); err != nil {
		return err
	}
	fmt.Println(n, crc32.ChecksumIEEE(memory))
	return nil
}

// missing is memory that is not there yet.
type missing struct {
	fd         int
	begin, len uint64
}

// withhold has faults at memory wait.
func withhold(memory []byte) (*missing, error) {
	fd, _, errno := unix.Syscall(unix.SYS_USERFAULTFD, unix.O_CLOEXEC, 0, 0)
	if errno != 0 {
		return nil, errno
	}
	m := &missing{int(fd), uint64(uintptr(unsafe.Pointer(unsafe.SliceData(memory)))), uint64(len(memory))}
	if err := m.ioctl(ioctlAPI, uffdAPI, 0, 0); err != nil {
		return nil, err
	}
	return m, m.ioctl(ioctlRegister, m.begin, m.len, modeMissing, 0)
}

// comes waits for a file, which nothing tells of, and has the memory be there, as zeroes.
func (m *missing) comes(until string) error {
	for {
		if _, err := os.Stat(until); err == nil {
			return m.ioctl(ioctlZeropage, m.begin, m.len, 0, 0)
		} else if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		time.Sleep(10 * time.Millisecond) // a shell makes the file, in its own time
	}
}

// ioctl has these words as its argument.
func (m *missing) ioctl(request uintptr, words ...uint64) error {
	b := make([]byte, 0, 8*len(words))
	for _, w := range words {
		b = binary.NativeEndian.AppendUint64(b, w)
	}
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(m.fd), request, uintptr(unsafe.Pointer(unsafe.SliceData(b))))
	runtime.KeepAlive(b)
	if errno != 0 {
		return errno
	}
	return nil
}
