package main

import (
	"bytes"
	"fmt"
	"hash/crc32"
	"os"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// call is a system call with whatever is asked of it, such as addresses where nothing is.
func call(nr uintptr, args ...uintptr) (int, error) {
	var all [6]uintptr
	copy(all[:], args)
	n, _, no := unix.Syscall6(nr, all[0], all[1], all[2], all[3], all[4], all[5])
	if no != 0 {
		return -1, no
	}
	return int(n), nil
}

// nowhere is an address that nobody has: that of the kernel's half's first page.
const nowhere = ^uintptr(0) - 4095

func at(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }

// halfThere are two pages of which the second cannot be touched.
func halfThere() []byte {
	page := os.Getpagesize()
	b := must(unix.Mmap(-1, 0, 2*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON))
	must(0, unix.Mprotect(b[page:], unix.PROT_NONE))
	return b
}

// text is what files are filled with: as many bytes, none of which repeats soon.
func text(n int) []byte {
	b := make([]byte, n)
	x := uint32(n)
	for k := range b {
		x = x*1664525 + 1013904223
		b[k] = byte(x >> 24)
	}
	return b
}

func sum(b []byte) string { return fmt.Sprintf("%d:%08x", len(b), crc32.ChecksumIEEE(b)) }

func null(a *asker) {
	status := string(must(os.ReadFile("/proc/self/status")))
	_, rest, _ := strings.Cut(status, "PPid:\t")
	parent, _, _ := strings.Cut(rest, "\n")
	a.says("Null", "getppid is what /proc says", fmt.Sprint(unix.Getppid()) == parent)
	a.says("Null", "umask", unix.Umask(0o27), unix.Umask(0o22))
	a.says("Null", "getpgid of nobody", result(unix.Getpgid(1<<30)))
	a.says("Null", "a call that there is not", result(call(100000)))
	var u unix.Utsname
	a.says("Null", "uname", ok(unix.Uname(&u)), unix.ByteSliceToString(u.Sysname[:]))
	a.says("Null", "uname into nowhere", result(call(unix.SYS_UNAME, nowhere)))
	a.says("Null", "getpriority", result(unix.Getpriority(unix.PRIO_PROCESS, 0)))
	a.says("Null", "sched_yield", result(call(unix.SYS_SCHED_YIELD)))
}

// result is what a call returns, or its error, as one answer.
func result(n int, err error) string {
	if err != nil {
		return word(err)
	}
	return fmt.Sprint(n)
}

func read(a *asker) {
	content := text(10000)
	must(0, os.WriteFile(a.path("read"), content, 0o644))
	fd := must(unix.Open(a.path("read"), unix.O_RDONLY, 0))
	defer unix.Close(fd)
	b := make([]byte, 16384)
	for _, n := range []int{0, 1, 2, 4095, 4096, 4097, 16384, 1} {
		got, err := unix.Read(fd, b[:n])
		a.says("Read", fmt.Sprintf("%d bytes", n), got, ok(err), sum(b[:max(got, 0)]))
	}
	for _, off := range []int64{0, 1, 4095, 9999, 10000, 1 << 40, -1} {
		got, err := unix.Pread(fd, b[:5000], off)
		a.says("Read", fmt.Sprintf("5000 bytes from %d", off), got, ok(err), sum(b[:max(got, 0)]))
	}
	iov := [][]byte{b[:3], b[10:4106], nil, b[5000:5001]}
	got, err := unix.Preadv(fd, iov, 17)
	a.says("Read", "in parts", got, ok(err), sum(bytes.Join(iov, nil)))
	half, page := halfThere(), os.Getpagesize()
	defer unix.Munmap(half)
	a.says("Read", "to nowhere", result(call(unix.SYS_PREAD64, uintptr(fd), nowhere, 8, 0)))
	a.says("Read", "to what is half there", result(call(unix.SYS_PREAD64, uintptr(fd), at(half)+uintptr(page)-100, 300, 0)), sum(half[page-100:page]))
	a.says("Read", "parts of which one is half there", result(unix.Preadv(fd, [][]byte{b[:10], half[page-8:], b[20:30]}, 0)))
	a.says("Read", "as much as cannot be", result(call(unix.SYS_READ, uintptr(fd), at(b), ^uintptr(0))))
	a.says("Read", "from nobody", result(unix.Read(9999, b)), result(unix.Read(-1, b)))
	w := must(unix.Open(a.path("read"), unix.O_WRONLY, 0))
	a.says("Read", "what is open for writing", result(unix.Read(w, b)))
	unix.Close(w)
	d := must(unix.Open(a.dir, unix.O_RDONLY, 0))
	a.says("Read", "a directory", result(unix.Read(d, b)))
	unix.Close(d)
	for _, name := range []string{"/dev/zero", "/dev/null"} {
		fd := must(unix.Open(name, unix.O_RDWR, 0))
		for k := range b {
			b[k] = 1
		}
		got, err := unix.Read(fd, b[:9000])
		a.says("Read", name, got, ok(err), sum(b[:9001]))
		a.says("Read", name+" to nowhere", result(call(unix.SYS_READ, uintptr(fd), nowhere, 100)))
		unix.Close(fd)
	}
	for _, name := range []string{"/proc/self/comm", "/proc/sys/kernel/ostype", "/sys/kernel/mm/transparent_hugepage/enabled"} {
		got, err := os.ReadFile(name)
		a.says("Read", name, strings.TrimSpace(string(got)), ok(err))
	}
}

func write(a *asker) {
	name := a.path("write")
	fd := must(unix.Open(name, unix.O_RDWR|unix.O_CREAT, 0o600))
	defer unix.Close(fd)
	content := text(9000)
	now := func() string { return sum(must(os.ReadFile(name))) }
	for _, n := range []int{0, 1, 4096, 9000} {
		a.says("Write", fmt.Sprintf("%d bytes", n), result(unix.Write(fd, content[:n])), now())
	}
	a.says("Write", "beyond the end", result(unix.Pwrite(fd, content[:100], 20000)), now())
	a.says("Write", "in parts", result(unix.Pwritev(fd, [][]byte{content[:3], nil, content[7:5000]}, 50)), now())
	half, page := halfThere(), os.Getpagesize()
	defer unix.Munmap(half)
	a.says("Write", "from nowhere", result(call(unix.SYS_PWRITE64, uintptr(fd), nowhere, 8, 0)), now())
	a.says("Write", "from what is half there", result(call(unix.SYS_PWRITE64, uintptr(fd), at(half)+uintptr(page)-10, 30, 0)), now())
	a.says("Write", "before the begin", result(unix.Pwrite(fd, content, -5)))
	for _, to := range []struct {
		off    int64
		whence int
	}{{5, unix.SEEK_SET}, {7, unix.SEEK_CUR}, {-1, unix.SEEK_END}, {-1, unix.SEEK_SET}, {0, 77}, {12000, unix.SEEK_HOLE}, {1 << 40, unix.SEEK_DATA}} {
		off, err := unix.Seek(fd, to.off, to.whence)
		a.says("Write", fmt.Sprintf("seek %d %d", to.off, to.whence), off, ok(err))
	}
	a.says("Write", "cut", ok(unix.Ftruncate(fd, 1234)), now())
	a.says("Write", "longer", ok(unix.Ftruncate(fd, 5000)), now())
	a.says("Write", "to less than nothing", ok(unix.Ftruncate(fd, -1)))
	ap := must(unix.Open(name, unix.O_WRONLY|unix.O_APPEND, 0))
	a.says("Write", "at the end", result(unix.Write(ap, content[:11])), now())
	unix.Close(ap)
	r := must(unix.Open(name, unix.O_RDONLY, 0))
	a.says("Write", "what is open for reading", result(unix.Write(r, content)), ok(unix.Ftruncate(r, 0)))
	unix.Close(r)
	a.says("Write", "to disk", ok(unix.Fsync(fd)), ok(unix.Fdatasync(fd)))
	nobody := must(unix.Open("/dev/null", unix.O_WRONLY, 0))
	a.says("Write", "/dev/null", result(unix.Write(nobody, content)), result(call(unix.SYS_WRITE, uintptr(nobody), nowhere, 100)))
	unix.Close(nobody)
	full := must(unix.Open("/dev/full", unix.O_WRONLY, 0))
	a.says("Write", "/dev/full", result(unix.Write(full, content)))
	unix.Close(full)
}

// shown is what of a file is of no time and no place.
func shown(s *unix.Stat_t, err error) string {
	if err != nil {
		return word(err)
	}
	return fmt.Sprintf("mode %o, %d links, of %d:%d, %d bytes, rdev %d", s.Mode, s.Nlink, s.Uid, s.Gid, s.Size, s.Rdev)
}

func stat(a *asker) {
	must(0, os.WriteFile(a.path("stat"), text(777), 0o640))
	must(0, os.Symlink("stat", a.path("to")))
	must(0, os.Symlink("circle", a.path("circle")))
	must(0, os.Symlink("nothing", a.path("dangling")))
	must(0, os.MkdirAll(a.path("d/e/f"), 0o711))
	must(0, os.WriteFile(a.path("d/e/f/g"), nil, 0o600))
	for _, name := range []string{"stat", "to", "circle", "dangling", "d", "d/e/f/g", "d/e/../e/./f//g", "stat/x", "nothing", "", strings.Repeat("x", 255), strings.Repeat("x", 256), strings.Repeat("x/", 2100)} {
		var s unix.Stat_t
		question := name
		if len(name) > 30 {
			question = fmt.Sprintf("%d letters", len(name))
		}
		path := a.path(name)
		if name == "" {
			path = ""
		}
		err := unix.Stat(path, &s)
		a.says("Stat", question, shown(&s, err))
		err = unix.Lstat(path, &s)
		a.says("Stat", question+", not followed", shown(&s, err))
	}
	for _, name := range []string{"/dev/null", "/proc/self/stat", "/", "/proc/1/exe", "/proc/self/fd/9999"} {
		var s unix.Stat_t
		err := unix.Stat(name, &s)
		s.Nlink = 0 // of the root others come and go
		if name == "/" || name == "/proc/1/exe" {
			s.Size = 0
		}
		a.says("Stat", name, shown(&s, err))
	}
	a.says("Stat", "a name that is nowhere", result(call(unix.SYS_STATX, ^uintptr(99), nowhere, 0, unix.STATX_BASIC_STATS, nowhere)))
	var x unix.Statx_t
	err := unix.Statx(unix.AT_FDCWD, a.path("stat"), 0, unix.STATX_BASIC_STATS, &x)
	a.says("Stat", "statx", ok(err), fmt.Sprintf("%o %d %d", x.Mode, x.Nlink, x.Size), x.Mask&unix.STATX_BASIC_STATS)
	a.says("Stat", "access", ok(unix.Access(a.path("stat"), unix.R_OK)), ok(unix.Access(a.path("nothing"), unix.F_OK)), ok(unix.Access(a.path("stat"), 77)))
	var fs unix.Statfs_t
	a.says("Stat", "statfs of /proc", ok(unix.Statfs("/proc", &fs)), fmt.Sprintf("%x", fs.Type))

	fd := must(unix.Open(a.path("stat"), unix.O_RDONLY, 0))
	var s unix.Stat_t
	err = unix.Fstat(fd, &s)
	a.says("Fstat", "a file", shown(&s, err))
	unix.Close(fd)
	a.says("Fstat", "what was closed", ok(unix.Fstat(fd, &s)))
	p := pipe(0)
	err = unix.Fstat(p[0], &s)
	a.says("Fstat", "a pipe", shown(&s, err))
	a.says("Fstat", "into nowhere", result(call(unix.SYS_FSTAT, uintptr(p[0]), nowhere)))
	p.close()
	d := must(unix.Open(a.path("d"), unix.O_DIRECTORY, 0))
	err = unix.Fstatat(d, "e/f/g", &s, 0)
	a.says("Fstat", "from a directory on", shown(&s, err), ok(unix.Fstatat(d, "x", &s, 0)), ok(unix.Fstatat(9999, "x", &s, 0)))
	err = unix.Fstatat(d, "", &s, unix.AT_EMPTY_PATH)
	s.Size = 0
	a.says("Fstat", "that directory", shown(&s, err))
	unix.Close(d)
}

func openClose(a *asker) {
	open := func(name string, flags int) string {
		fd, err := unix.Open(a.path(name), flags, 0o666)
		if err != nil {
			return word(err)
		}
		got, _ := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
		return fmt.Sprintf("flags %o, closed %v, again %v", got, ok(unix.Close(fd)), ok(unix.Close(fd)))
	}
	for _, c := range []struct {
		what, name string
		flags      int
	}{
		{"a file", "stat", unix.O_RDONLY}, {"for all", "stat", unix.O_RDWR | unix.O_APPEND | unix.O_NONBLOCK}, {"what there is not", "no", unix.O_RDWR},
		{"new", "new", unix.O_RDWR | unix.O_CREAT | unix.O_EXCL}, {"new again", "new", unix.O_RDWR | unix.O_CREAT | unix.O_EXCL}, {"cut", "new", unix.O_WRONLY | unix.O_TRUNC},
		{"a file as a directory", "stat", unix.O_DIRECTORY}, {"a directory for writing", "d", unix.O_WRONLY}, {"a link, not followed", "to", unix.O_NOFOLLOW},
		{"a circle", "circle", unix.O_RDONLY}, {"a path alone", "to", unix.O_PATH | unix.O_NOFOLLOW}, {"where a link leads, new", "dangling", unix.O_CREAT | unix.O_WRONLY},
		{"without a name", "d", unix.O_TMPFILE | unix.O_RDWR}, {"through a file", "stat/x", unix.O_RDONLY},
	} {
		a.says("OpenClose", c.what, open(c.name, c.flags))
	}
	a.says("OpenClose", "a name that is nowhere", result(call(unix.SYS_OPENAT, ^uintptr(99), nowhere, 0)))
	fd := must(unix.Open(a.path("stat"), unix.O_RDONLY, 0))
	two := must(unix.Dup(fd))
	b := make([]byte, 10)
	_, err := unix.Read(two, b)
	off, _ := unix.Seek(fd, 0, unix.SEEK_CUR)
	a.says("OpenClose", "twice the same", ok(err), off)
	a.says("OpenClose", "dup3", result(unix.Dup(9999)), ok(unix.Dup3(fd, fd, 0)), ok(unix.Dup3(fd, two, unix.O_CLOEXEC)))
	got, err := unix.FcntlInt(uintptr(two), unix.F_GETFD, 0)
	a.says("OpenClose", "closed at execve", got, ok(err))
	a.says("OpenClose", "locks", ok(unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB)), ok(unix.Flock(9999, unix.LOCK_EX)))
	other := must(unix.Open(a.path("stat"), unix.O_RDONLY, 0))
	a.says("OpenClose", "who comes later", ok(unix.Flock(other, unix.LOCK_EX|unix.LOCK_NB)), ok(unix.Flock(fd, unix.LOCK_UN)), ok(unix.Flock(other, unix.LOCK_SH|unix.LOCK_NB)))
	for _, fd := range []int{fd, two, other} {
		a.says("OpenClose", "close", ok(unix.Close(fd)))
	}
	_, err = unix.FcntlInt(^uintptr(0), unix.F_GETFL, 0)
	a.says("OpenClose", "of nobody", ok(err), ok(unix.Close(-1)))
	var lim syscall.Rlimit
	a.says("OpenClose", "limits", ok(syscall.Getrlimit(syscall.RLIMIT_CORE, &lim)), ok(syscall.Getrlimit(99, &lim)))
}
