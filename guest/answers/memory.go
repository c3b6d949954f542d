package main

import (
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// touched is what comes of reading or writing a byte somewhere.
func touched(at *byte, write bool) (what string) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if recover() != nil {
			what = "fault"
		}
	}()
	if write {
		*at = 7
		return "written"
	}
	return fmt.Sprint("has ", *at)
}

func mappings(a *asker) {
	page := os.Getpagesize()
	content := text(5*page + 100)
	must(0, os.WriteFile(a.path("mapped"), content, 0o600))
	fd := must(unix.Open(a.path("mapped"), unix.O_RDWR, 0))
	whole := must(unix.Mmap(fd, 0, 6*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED))
	shared := whole[:len(content)]
	private := must(unix.Mmap(fd, int64(page), 2*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE))
	a.says("Mmap", "a file", sum(shared), sum(private))
	shared[page+5], private[6] = shared[page+5]+1, 99
	b := make([]byte, 8)
	n, err := unix.Pread(fd, b, int64(page))
	a.says("Mmap", "written by one and the other", n, ok(err), sum(b), private[5] == shared[page+5])
	a.says("Mmap", "msync", ok(unix.Msync(whole, unix.MS_SYNC)), ok(unix.Msync(whole, 77)))
	a.says("PageFault", "what is behind the end of its page", sum(whole[len(content):]))
	long := must(unix.Mmap(fd, 0, 8*page, unix.PROT_READ, unix.MAP_SHARED))
	a.says("PageFault", "what is behind the file's end", touched(&long[5*page+50], false), touched(&long[7*page], false))
	a.says("PageFault", "to nowhere from there", result(call(unix.SYS_WRITE, uintptr(fd), at(long[7*page:]), 10)))
	a.says("ProtFault", "what may only be read", touched(&long[0], true), touched(&long[0], false))
	a.says("ProtFault", "a call that writes there", result(call(unix.SYS_PREAD64, uintptr(fd), at(long), 10, 0)))
	a.says("ProtFault", "mprotect", ok(unix.Mprotect(long, unix.PROT_NONE)), touched(&long[0], false), ok(unix.Mprotect(long, unix.PROT_READ)), touched(&long[page], false), ok(unix.Mprotect(long, 1<<20)))
	a.says("ProtFault", "nobody's", touched(unmapped(), false), touched(unmapped(), true))
	for _, m := range [][]byte{whole, private, long} {
		a.says("Mmap", "munmap", ok(unix.Munmap(m)))
	}
	unix.Close(fd)
	anonymous(a, page)
	a.says("Mmap", "maps that cannot be", result(call(unix.SYS_MMAP, 0, 0, 1, unix.MAP_PRIVATE|unix.MAP_ANON)), result(call(unix.SYS_MMAP, 0, 4096, 1, 0, 9999, 0)), result(call(unix.SYS_MMAP, 0, 4096, 1, unix.MAP_SHARED, 9999, 0)), result(call(unix.SYS_MUNMAP, 1, 4096)), result(call(unix.SYS_MUNMAP, nowhere, 4096)))
}

// unmapped is a byte of a page that was a process's, and is nobody's.
func unmapped() *byte {
	b := must(unix.MmapPtr(-1, 0, nil, 1<<20, unix.PROT_READ, unix.MAP_PRIVATE|unix.MAP_ANON))
	must(0, unix.MunmapPtr(b, 1<<20))
	return (*byte)(b)
}

func anonymous(a *asker, page int) {
	b := must(unix.Mmap(-1, 0, 300*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON))
	zero := func() bool { return !slices.ContainsFunc(b, func(x byte) bool { return x != 0 }) }
	a.says("PageFaultAnon", "new", zero())
	for k := 0; k < len(b); k += page {
		b[k+k/page] = byte(k / page)
	}
	a.says("PageFaultAnon", "written", sum(b))
	there := make([]byte, 300)
	_, err := call(unix.SYS_MINCORE, at(b), uintptr(len(b)), at(there))
	a.says("PageFaultAnon", "mincore", ok(err), sum(there))
	a.says("PageFaultAnon", "madvise", ok(unix.Madvise(b, unix.MADV_DONTNEED)), zero(), ok(unix.Madvise(b, 9999)))
	copy(b, text(len(b)))
	more, err := unix.Mremap(b, 500*page, unix.MREMAP_MAYMOVE)
	a.says("Mmap", "mremap", ok(err), sum(more))
	less, err := unix.Mremap(more, 100*page, 0)
	a.says("Mmap", "mremap", ok(err), sum(less))
	a.says("Mmap", "mlock", ok(unix.Mlock(less[:page])), ok(unix.Munlock(less[:page])))
	a.says("Mmap", "munmap", ok(unix.Munmap(less)))
}

func files(a *asker) {
	for _, size := range []int{0, 10 << 10} {
		create, remove := fmt.Sprintf("FileCreate/%dK", size>>10), fmt.Sprintf("FileDelete/%dK", size>>10)
		must(0, os.Mkdir(a.path("many"), 0o755))
		for k := range 40 {
			name := a.path(fmt.Sprintf("many/%d", k))
			if err := os.WriteFile(name, text(size+k), 0o644); err != nil || k%10 == 0 {
				a.says(create, fmt.Sprint("file ", k), ok(err), sum(must(os.ReadFile(name))))
			}
		}
		var names []string
		for _, e := range must(os.ReadDir(a.path("many"))) {
			names = append(names, e.Name())
		}
		a.says(create, "all", strings.Join(names, " "))
		a.says(remove, "a directory that is not empty", ok(unix.Rmdir(a.path("many"))))
		for _, n := range names {
			if err := unix.Unlink(a.path("many/" + n)); err != nil {
				a.says(remove, n, err)
			}
		}
		a.says(remove, "again", ok(unix.Unlink(a.path("many/1"))), ok(unix.Unlink(a.path("many"))), ok(unix.Rmdir(a.path("many"))))
	}
	names(a)
	content := must(os.ReadFile(must(os.Readlink("/proc/self/exe"))))
	f := must(os.Open("/proc/self/exe"))
	defer f.Close()
	all, err := io.ReadAll(f)
	a.says("FileRead", "this program", ok(err), sum(all) == sum(content))
	m := must(unix.Mmap(int(f.Fd()), 0, len(content), unix.PROT_READ, unix.MAP_SHARED))
	a.says("FileMmapRead", "this program", sum(m) == sum(content), ok(unix.Munmap(m)))
	to := must(os.Create(a.path("copied")))
	n, err := unix.Sendfile(int(to.Fd()), int(f.Fd()), new(int64), 100000)
	to.Close()
	a.says("FileRead", "sendfile", n, ok(err), sum(must(os.ReadFile(a.path("copied")))) == sum(content[:n]))
}

// names asks what names can do.
func names(a *asker) {
	const op = "FileCreate/0K"
	p := a.path
	must(0, os.WriteFile(p("one"), text(20), 0o600))
	var s unix.Stat_t
	links := func() string { err := unix.Stat(p("one"), &s); return shown(&s, err) }
	a.says(op, "link", ok(unix.Link(p("one"), p("two"))), links(), ok(unix.Link(p("one"), p("two"))), ok(unix.Link(p("d"), p("dd"))))
	a.says(op, "rename", ok(unix.Rename(p("two"), p("three"))), ok(unix.Rename(p("two"), p("three"))), ok(unix.Rename(p("d"), p("d/e/x"))), ok(unix.Rename(p("one"), p("d"))))
	a.says(op, "exchange", ok(unix.Renameat2(-1, p("one"), -1, p("d"), unix.RENAME_EXCHANGE)), links(), ok(unix.Renameat2(-1, p("one"), -1, p("d"), unix.RENAME_EXCHANGE)), ok(unix.Renameat2(-1, p("three"), -1, p("d"), unix.RENAME_NOREPLACE)))
	b := make([]byte, 5)
	a.says(op, "readlink", result(unix.Readlink(p("to"), b)), string(b[:4]), result(unix.Readlink(p("one"), b)))
	a.says(op, "chmod", ok(unix.Chmod(p("one"), 0o4755)), links(), ok(unix.Chmod(p("no"), 0)))
	times := []unix.Timespec{{Sec: 1234, Nsec: 5}, {Sec: 5678}}
	err := unix.UtimesNanoAt(-100, p("one"), times, 0)
	unix.Stat(p("one"), &s)
	a.says(op, "times", ok(err), s.Atim.Sec, s.Atim.Nsec, s.Mtim.Sec)
	a.says(op, "attributes", ok(unix.Setxattr(p("one"), "user.x", []byte("y"), 0)), result(unix.Getxattr(p("one"), "user.none", b)))
	a.says(op, "mkdir", ok(unix.Mkdir(p("d"), 0o700)), ok(unix.Mkdir(p("n/n"), 0o700)), ok(unix.Mkfifo(p("fifo"), 0o600)), ok(unix.Mkfifo(p("fifo"), 0o600)))
	must(0, unix.Chdir(p("d")))
	cwd := must(os.Readlink("/proc/self/cwd"))
	a.says(op, "chdir", strings.TrimPrefix(cwd, a.dir), ok(unix.Chdir(p("one"))), ok(unix.Chdir("e/f")), ok(unix.Chdir("/")))
	a.says(op, "allocate", ok(allocate(p("one"))), links())
}

func allocate(name string) error {
	f := must(os.OpenFile(name, os.O_RDWR, 0))
	defer f.Close()
	return unix.Fallocate(int(f.Fd()), 0, 0, 30000)
}
