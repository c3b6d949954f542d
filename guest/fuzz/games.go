package main

import (
	"golang.org/x/sys/unix"
)

// A mapping of cells is memory of the kernel's that the program may write and never run. It
// outlives its area and the descriptor.

type mapping struct {
	addr, len uintptr
	prot      int
}

const mostMappings = 12

// play maps cells, changes mappings and gives them back, in any order.
func (f *fuzzer) play() {
	if len(f.maps) < mostMappings && f.rng.IntN(3) > 0 {
		f.mapSome()
		return
	}
	if len(f.maps) == 0 {
		return
	}
	k := f.rng.IntN(len(f.maps))
	m := f.maps[k]
	switch f.rng.IntN(8) {
	case 0:
		f.mayNot("cells that are made executable", protect(m, unix.PROT_READ|unix.PROT_EXEC))
	case 1:
		protect(m, m.prot&unix.PROT_READ)
		protect(m, m.prot)
	case 2: // none may grow: VM_DONTEXPAND
		_, _, errno := unix.Syscall6(unix.SYS_MREMAP, m.addr, m.len, 2*m.len, unix.MREMAP_MAYMOVE, 0, 0)
		f.mayNot("cells that grow", errno)
	case 3:
		unix.Syscall(unix.SYS_MADVISE, m.addr, m.len, uintptr([]int{unix.MADV_DONTNEED, unix.MADV_DOFORK, unix.MADV_REMOVE, unix.MADV_FREE, unix.MADV_HUGEPAGE, unix.MADV_WIPEONFORK}[f.rng.IntN(6)]))
	case 4:
		unix.Syscall(unix.SYS_MSYNC, m.addr, m.len, unix.MS_SYNC)
		unix.Syscall(unix.SYS_MLOCK, m.addr, m.len, 0)
		unix.Syscall(unix.SYS_MUNLOCK, m.addr, m.len, 0)
	case 5: // as what a call takes
		ioctl(f.fd, calls[f.rng.IntN(len(calls))].cmd, m.addr)
	default:
		unmap(m)
		f.maps = append(f.maps[:k], f.maps[k+1:]...)
	}
	f.Games++
}

func protect(m mapping, prot int) unix.Errno {
	_, _, errno := unix.Syscall(unix.SYS_MPROTECT, m.addr, m.len, uintptr(prot))
	return errno
}

func unmap(m mapping) { unix.Syscall(unix.SYS_MUNMAP, m.addr, m.len, 0) }

// mapSome maps cells of an area, or what is none's.
func (f *fuzzer) mapSome() {
	off := f.odd(length) &^ 4095
	n := uintptr(4096 * (1 + f.rng.IntN(4)))
	if a := f.area(); a != nil && f.rng.IntN(4) > 0 {
		off = a.offset
		if f.rng.IntN(4) == 0 {
			off += 4096
		}
	}
	prot := []int{unix.PROT_READ, unix.PROT_READ | unix.PROT_WRITE, unix.PROT_NONE, unix.PROT_READ | unix.PROT_EXEC}[f.rng.IntN(4)]
	how := []int{unix.MAP_SHARED, unix.MAP_SHARED, unix.MAP_PRIVATE, unix.MAP_SHARED | unix.MAP_POPULATE}[f.rng.IntN(4)]
	addr, _, errno := unix.Syscall6(unix.SYS_MMAP, 0, n, uintptr(prot), uintptr(how), uintptr(f.fd), uintptr(off))
	f.Answers["mmap "+unix.ErrnoName(errno)]++
	f.Games++
	if errno != 0 {
		return
	}
	if prot&unix.PROT_EXEC != 0 {
		f.mayNot("cells that are mapped to be executed", errno)
	}
	if how&unix.MAP_PRIVATE != 0 {
		f.mayNot("cells of one's own", errno)
	}
	f.maps = append(f.maps, mapping{addr, n, prot})
}

// mayNot notes what the module has to refuse.
func (f *fuzzer) mayNot(what string, errno unix.Errno) {
	f.Asked[what]++
	if errno == 0 {
		f.Wrong[what]++
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
		f.Asked["the device is opened twice"]++
		if err != f.openErrno {
			f.Wrong["the device is opened twice"]++
		}
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
