package main

import (
	"errors"
	"runtime/debug"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// mapping is of cells: memory of the kernel's that the program may write and never run. It outlives
// its area and the descriptor, and no child has it.
type mapping struct {
	p     unsafe.Pointer // nil: there is none
	len   uintptr
	prot  int
	given bool // given back, so that it need not be memory any more

	written *uint64 // nil: none is
	is      uint64  // and what was written there
}

func (m *mapping) bytes() []byte   { return unsafe.Slice((*byte)(m.p), m.len) }
func (m *mapping) words() []uint64 { return unsafe.Slice((*uint64)(m.p), m.len/8) }

func (m *mapping) protect(prot int) unix.Errno { return errnoOf(unix.Mprotect(m.bytes(), prot)) }

func (m *mapping) unmap() {
	unix.MunmapPtr(m.p, m.len)
	*m = mapping{}
}

func errnoOf(err error) (errno unix.Errno) {
	errors.As(err, &errno)
	return errno
}

const mostMappings = 12

// play maps cells, changes mappings and gives them back, in any order.
func (f *fuzzer) play() {
	f.Games++
	slot := f.rng.IntN(mostMappings)
	m := &f.maps[slot]
	if m.p == nil {
		f.mapSome(m)
		return
	}
	switch f.rng.IntN(9) {
	case 0:
		f.mayNot("cells that are made executable", m.protect(unix.PROT_READ|unix.PROT_EXEC))
	case 1:
		m.protect(m.prot & unix.PROT_READ)
		m.protect(m.prot)
	case 2: // none may grow: VM_DONTEXPAND
		_, _, errno := unix.Syscall6(unix.SYS_MREMAP, uintptr(m.p), m.len, 2*m.len, unix.MREMAP_MAYMOVE, 0, 0)
		f.mayNot("cells that grow", errno)
	case 3:
		f.advise(m)
	case 4:
		unix.Msync(m.bytes(), unix.MS_SYNC)
		unix.Mlock(m.bytes())
		unix.Munlock(m.bytes())
	case 5: // as what a call takes
		ioctl(f.fd, calls[f.rng.IntN(len(calls))].cmd, uintptr(m.p))
	case 6:
		if f.rng.IntN(dear) < 4 {
			f.fork(m)
		}
	default:
		f.touch(slot)
		if f.rng.IntN(2) == 0 {
			m.unmap()
		}
	}
}

func (f *fuzzer) advise(m *mapping) {
	advice := []int{unix.MADV_DONTNEED, unix.MADV_DOFORK, unix.MADV_REMOVE, unix.MADV_FREE, unix.MADV_HUGEPAGE, unix.MADV_WIPEONFORK}[f.rng.IntN(6)]
	if unix.Madvise(m.bytes(), advice) == nil {
		m.given = m.given || advice == unix.MADV_DONTNEED
	}
}

// A page's first words are what calls take and write; behind them each slot of each thread has one, as
// several mappings may be of the same cells.
const (
	pageWords  = 4096 / 8
	firstSlots = 128 / 8
)

// touch holds that a mapping is memory which keeps what is written there, whatever has become of
// its area and of the descriptor.
func (f *fuzzer) touch(slot int) {
	m := &f.maps[slot]
	word := &m.words()[f.rng.IntN(int(m.len)/4096)*pageWords+firstSlots+f.stream*mostMappings+slot]
	switch {
	case m.prot&unix.PROT_READ == 0:
		return
	case m.given:
		load(word)
		return
	case m.prot&unix.PROT_WRITE == 0:
		_, ok := load(word)
		f.hold("cells that are read", ok)
		return
	}
	if m.written != nil {
		v, ok := load(m.written)
		f.hold("cells that keep what was written", ok && v == m.is)
	}
	m.written, m.is = word, f.rng.Uint64()
	stored := store(word, m.is)
	v, ok := load(word)
	f.hold("cells that are written and read", stored && ok && v == m.is)
}

// load reads a word, if it is memory: a fault is a panic, see debug.SetPanicOnFault.
func load(word *uint64) (v uint64, ok bool) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() { ok = recover() == nil }()
	return atomic.LoadUint64(word), true
}

func store(word *uint64, v uint64) (ok bool) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() { ok = recover() == nil }()
	atomic.StoreUint64(word, v)
	return true
}

// fork holds that a child has nothing where cells are mapped: VM_DONTCOPY. The child has this thread
// alone, so it does no more than to ask, by calls that go nowhere near the runtime.
func (f *fuzzer) fork(m *mapping) {
	at, n := uintptr(m.p), m.len
	pid, _, errno := unix.RawSyscall(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0)
	if errno == 0 && pid == 0 {
		_, _, errno = unix.RawSyscall(unix.SYS_MSYNC, at, n, unix.MS_ASYNC)
		unix.RawSyscall(unix.SYS_EXIT_GROUP, uintptr(errno), 0, 0)
	}
	var ended unix.WaitStatus
	if errno == 0 {
		for errno = unix.EINTR; errno == unix.EINTR; {
			_, err := unix.Wait4(int(pid), &ended, 0, nil)
			errno = errnoOf(err)
		}
	}
	f.hold("cells that no child has", errno == 0 && ended.Exited() && unix.Errno(ended.ExitStatus()) == unix.ENOMEM)
}

// mapSome maps cells of an area, or what is none's.
func (f *fuzzer) mapSome(m *mapping) {
	off, there := f.odd(length)&^4095, false
	n := uintptr(4096 * (1 + f.rng.IntN(4)))
	if a := f.area(); a != nil && f.rng.IntN(4) > 0 {
		off, there = a.offset, int(n) <= a.len
		if f.rng.IntN(4) == 0 {
			off, there = off+4096, false
		}
	}
	prot := []int{unix.PROT_READ, unix.PROT_READ | unix.PROT_WRITE, unix.PROT_NONE, unix.PROT_READ | unix.PROT_EXEC}[f.rng.IntN(4)]
	how := []int{unix.MAP_SHARED, unix.MAP_SHARED, unix.MAP_PRIVATE, unix.MAP_SHARED | unix.MAP_POPULATE}[f.rng.IntN(4)]
	p, err := unix.MmapPtr(f.fd, int64(off), nil, n, prot, how)
	errno := errnoOf(err)
	f.answered("mmap", errno)
	if there && prot&unix.PROT_EXEC != 0 {
		f.mayNot("cells that are mapped to be executed", errno)
	}
	if there && how&unix.MAP_PRIVATE != 0 {
		f.mayNot("cells of one's own", errno)
	}
	if errno == 0 {
		*m = mapping{p: p, len: n, prot: prot}
	}
}

// others asks for what the device has not, or has for one only.
func (f *fuzzer) others() {
	b := f.arena[bytesAt:][:64]
	switch f.rng.IntN(6) {
	case 0:
		fd, err := unix.Open(devicePath, unix.O_RDWR|unix.O_CLOEXEC, 0)
		if err == nil {
			unix.Close(fd)
		}
		f.hold("the device is opened twice", err == f.openErrno)
	case 1:
		unix.Read(f.fd, b)
	case 2:
		unix.Write(f.fd, b)
	case 3:
		unix.Seek(f.fd, int64(f.rng.Uint64()), f.rng.IntN(5))
	case 4:
		unix.Poll([]unix.PollFd{{Fd: int32(f.fd), Events: -1}}, 0)
	case 5:
		if fd, err := unix.FcntlInt(uintptr(f.fd), unix.F_DUPFD_CLOEXEC, 0); err == nil {
			unix.Fsync(fd)
			unix.Ftruncate(fd, 4096)
			unix.Close(fd)
		}
	}
	f.Games++
}
