package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"kerninst/agent/gen"
	"kerninst/agent/index"
	"kerninst/agent/isa"
	"kerninst/agent/kdev"
	"kerninst/agent/ktext"
	"kerninst/agent/plan"
	"kerninst/guest/check"
)

// userAccess are functions that access a user's memory on the way of what
// userFaults does; each kernel has some of them, most in one of the forms.
var userAccess = []string{
	"strncpy_from_user", "strnlen_user", "filldir64", "__clear_user", "rep_stos_alternative",
	"_copy_from_iter", "_copy_to_iter", "_copy_from_user", "_copy_to_user", "rep_movs_alternative", "copy_page_from_iter_atomic",
	"__arch_copy_from_user", "__arch_copy_to_user", "__arch_clear_user",
	"fallback_scalar_usercopy", "__asm_copy_from_user", "__asm_copy_to_user", "__asm_vector_usercopy",
}

// accesses plans the counter at each of their instructions that has an entry in the
// exception table, and writes the patches.
func (e *env) accesses() (plans []*plan.Plan, refused []string, err error) {
	links, err := e.text.Links("")
	if err != nil {
		return nil, nil, err
	}
	view, err := index.NewView(nil, e.text) // each function by itself
	if err != nil {
		return nil, nil, err
	}
	facts := func(f ktext.Func) (plan.Facts, error) {
		fn, err := view.Function(f)
		if err != nil {
			return plan.Facts{}, err
		}
		return plan.Facts{Source: plan.SourceFunction, Free: fn.Free}, nil
	}
	for _, name := range userAccess {
		f, err := e.text.Function("", name)
		if err != nil {
			continue // not in this kernel
		}
		for _, l := range links.Faults {
			if l.Site < f.Addr || l.Site >= f.End() {
				continue
			}
			p, r := plan.At(e.text, f, plan.Request{
				Offset: isa.Off(l.Site - f.Addr), Heap: &e.heap, Facts: facts,
				Features: gen.Features{LSE: e.info.LSE(), NoWindows: e.info.NoWindows(), Preempted: e.info.Preempted(), NoTraps: !e.info.Traps()},
				Apart:    e.arch.Name == "arm64" && len(plans)%2 == 0, // KASLR may make it all of them
				Taken: func(lo, hi isa.Addr) bool {
					for _, q := range plans {
						if q.Touches(lo, hi) {
							return true
						}
					}
					return false
				},
			})
			if r != nil {
				refused = append(refused, r.Error())
				continue
			}
			if p.Fault == 0 {
				return nil, nil, fmt.Errorf("%s+%#x has an entry in the exception table, its plan none", name, uint64(p.Offset))
			}
			if err := e.write(p); err != nil {
				return nil, nil, err
			}
			e.cells(p).Store(p.Cell, 0)
			plans = append(plans, p)
		}
	}
	return plans, refused, nil
}

// cells are the area in which a plan's cell is: with the part of its patch that counts.
func (e *env) cells(p *plan.Plan) *kdev.Area {
	if p.Fault != 0 && p.Annex == nil {
		return e.annex
	}
	for _, a := range e.pages {
		if p.Cell >= a.Cells() && p.Cell < a.Cells()+isa.Addr(a.CodeLen) {
			return a
		}
	}
	return e.area
}

// hits is what a plan's counter has counted since its cell was 0.
func (e *env) hits(p *plan.Plan) uint64 {
	return gen.Hits(e.cells(p).Load(p.Cell), gen.Unit(e.arch, p.Snippet, p.Cell))
}

// batchOf is what the module is asked for: what is moved away first, once, then springboards
// before their points.
func batchOf(plans []*plan.Plan) (batch []kdev.Splice) {
	moved := map[isa.Addr]bool{}
	for _, p := range plans {
		s := whole(p)
		if e := p.Moves(); e != nil && !moved[e.Body] {
			moved[e.Body] = true
			batch = append(batch, away(p))
		}
		if p.Board != nil {
			batch = append(batch, board(p))
		}
		if p.Fault != 0 {
			s.Fault, s.Original = p.Fault, p.Point
		}
		if p.Annex != nil {
			s.Annex, s.AnnexLen = p.Annex.Addr, len(p.Annex.Code)
		}
		batch = append(batch, s)
	}
	return batch
}

// faulters: system calls that are given bad, half good and not yet present memory
// come to the same with a patch at each access to it. Who sleeps over a fault in a
// patch that is undone meanwhile leaves it unharmed, and keeps it until then.
func (e *env) faulters() error {
	plans, refused, err := e.accesses()
	if err != nil {
		return err
	}
	if e.arch.Name == "riscv64" && len(plans) == 0 {
		// System instructions and other accesses are too near.
		check.Report("accesses to a user's memory are refused", len(refused), len(refused) > 0, "%s", strings.Join(refused, "; "))
		return nil
	}
	if len(plans) > 0 {
		e.refuseFaults(plans[0])
	}
	bare, err := userFaults()
	if err != nil {
		return err
	}
	ids, err := e.dev.Splice(batchOf(plans))
	check.Report("splices of accesses to a user's memory", len(plans), err == nil && len(plans) >= 3, "%d spliced, %d refused (the first: %s), %v", len(plans), len(refused), strings.Join(refused[:min(1, len(refused))], ""), err)
	if err != nil {
		return nil
	}
	for _, f := range foreigners {
		detach, err := f.attach(plans[0].Fault)
		check.Report(f.name+" in patches of the module's own text", 1, err != nil, "want a refusal, got %v", err)
		if err != nil {
			continue
		}
		if err := detach(); err != nil {
			return err
		}
	}
	spliced, err := userFaults()
	if err != nil {
		return err
	}
	check.Report("system calls with a bad user's memory", len(bare), strings.Join(bare, "; ") == strings.Join(spliced, "; "),
		"bare: %s; spliced: %s", strings.Join(bare, "; "), strings.Join(spliced, "; "))
	came, hits, parts := 0, uint64(0), 0
	for _, p := range plans {
		if p.Annex != nil {
			parts++
		}
		if n := e.hits(p); n > 0 {
			came, hits = came+1, hits+n
		}
	}
	check.Report("accesses in patches", int(hits), came >= 2 && (parts > 0) == (e.arch.Name == "arm64"), "%d hits at %d of %d points, %d of them with patches of two parts", hits, came, len(plans), parts)
	n, half := e.held(plans)
	check.Report("live patches are written to", len(plans), n == len(plans) && half == nil, "%d of %d are refused, %d of them by half", n, len(plans), len(half))
	return e.undoUnderFault(ids, plans)
}

// undoUnderFault undoes splices while a task sleeps over a fault in one of them.
func (e *env) undoUnderFault(ids []uint32, plans []*plan.Plan) error {
	page, uffd, err := missingPage()
	if err != nil {
		return err
	}
	defer unix.Close(uffd)
	opened := make(chan syscall.Errno)
	ownThread(func() { opened <- openAt(page) })
	var msg [32]byte // struct uffd_msg: somebody waits for the page
	if _, err := unix.Read(uffd, msg[:]); err != nil {
		return err
	}
	check.Errno("undo under who sleeps over a fault", e.dev.Undo(ids), 0)
	st, err := e.dev.Stats()
	if err != nil {
		return err
	}
	check.Report("a patch is kept for who sleeps over a fault", 1, st.Quarantined > 0, "%d bytes are quarantined", st.Quarantined)
	n, half := e.held(plans)
	windows := e.arch.Name == "amd64" // the others have none where accesses to a user's memory are
	if windows {
		asked, refused := e.windowsOver(plans)
		// None where his point has a jump already, as most have on a kernel without padding.
		kept, _ := e.held(short(plans))
		check.Report("a longer window is refused where who sleeps over a fault comes back into it", asked, (refused > 0) == (kept > 0) && (refused > 0 || 2*asked < len(plans)),
			"%d of %d windows, %d kept", refused, asked, kept)
	}
	check.Report("both parts of a patch are kept for who sleeps over a fault", n, n > 0 && n < len(plans) && half == nil, "%d of %d, %d of them by half", n, len(plans), len(half))
	if err := zeroPage(uffd, page); err != nil {
		return err
	}
	check.Errno("open of what was not there", <-opened, unix.ENOENT)
	st, err = e.settled()
	if windows {
		asked, refused := e.windowsOver(plans)
		check.Report("such a window is let in when he has left", asked, asked > 0 && refused == 0, "%d of %d windows are refused", refused, asked)
	}
	check.Report("the patch is free when he has left", 1, st.Quarantined == 0, "%d bytes are quarantined", st.Quarantined)
	return err
}

// short are those by a splice that has no room for a jump.
func short(plans []*plan.Plan) []*plan.Plan {
	return slices.DeleteFunc(slices.Clone(plans), func(p *plan.Plan) bool { return len(p.New) >= 5 })
}

// windowsOver asks for a window of five bytes at each point that a shorter splice had, and counts
// those of which the module says that somebody may come back into them. None is made: each
// is of bytes that are not there, which is looked at behind that.
func (e *env) windowsOver(plans []*plan.Plan) (asked, refused int) {
	for _, p := range short(plans) {
		s := whole(p)
		s.Window, s.Awake, s.Trap, s.Home = true, false, false, false
		s.Old, s.New = make([]byte, 5), []byte{0xe9, 0, 0, 0, 0}
		binary.LittleEndian.PutUint32(s.New[1:], uint32(p.Patch-p.Point-5))
		if e.dev.Read(s.Point, s.Old) != nil {
			continue
		}
		s.Old[4] ^= 1
		_, err := e.dev.Splice([]kdev.Splice{s})
		asked++
		if errors.Is(err, unix.EBUSY) {
			refused++
		} else if !errors.Is(err, unix.EILSEQ) {
			check.Errno("a window of bytes that are not there", err, unix.EILSEQ)
		}
	}
	return asked, refused
}

// ownThread runs f on a thread that ends with it. What a fault has left on the kernel
// stack of one that lives on is found there for as long as it sleeps, and holds patches.
func ownThread(f func()) {
	go func() {
		runtime.LockOSThread() // and not unlocked, so that it ends; but the first one would stay
		if unix.Gettid() == unix.Getpid() {
			ownThread(f)
			return
		}
		if err := blockSignals(); err != nil {
			check.Errno("signals of a thread blocked", err, 0)
		}
		f()
	}()
}

// blockSignals keeps signals from this thread, for as long as it is. One that is pending ends a call
// early: getdents64 gives the names that it has by then (fs/readdir.c, filldir64), and Go's
// runtime sends SIGURG to a thread that it takes for too long in one goroutine.
func blockSignals() error {
	var all unix.Sigset_t
	for i := range all.Val {
		all.Val[i] = ^all.Val[i]
	}
	return unix.PthreadSigmask(unix.SIG_BLOCK, &all, nil)
}

func openAt(path uintptr) syscall.Errno {
	fd, _, errno := syscall.Syscall6(unix.SYS_OPENAT, ^uintptr(99), path, unix.O_RDONLY, 0, 0, 0) // AT_FDCWD
	if errno == 0 {
		unix.Close(int(fd))
	}
	return errno
}

// userFaults makes calls with memory of each kind and lists what came of them.
//
// They are done on a thread that ends: see ownThread. Where the kernel preempts itself, one
// that lives on would keep the patch that it was preempted in.
func userFaults() (out []string, err error) {
	done := make(chan struct{})
	ownThread(func() {
		out, err = userFaultsHere()
		close(done)
	})
	<-done
	return out, err
}

func userFaultsHere() (out []string, err error) {
	const page = 4096
	m, err := unix.Mmap(-1, 0, 4*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return nil, err
	}
	defer unix.Munmap(m)
	if err := unix.Mprotect(m[page:2*page], unix.PROT_NONE); err != nil {
		return nil, err
	}
	base := uintptr(unsafe.Pointer(&m[0]))
	note := func(what string, n uintptr, errno syscall.Errno) {
		out = append(out, fmt.Sprintf("%s %d %v", what, int(n), errno))
	}
	const good = "/proc/version"
	name := append([]byte(good), 0)
	copy(m[page-len(name):], name)
	note("open at the end of a page", 0, openAt(base+page-uintptr(len(name))))
	copy(m[page-len(good):], good)
	note("open across the end", 0, openAt(base+page-uintptr(len(good))))
	for _, bad := range []uintptr{0, 8, base + page, 1 << 62, ^uintptr(0) - 4095} {
		note("open at a bad address", 0, openAt(bad))
	}
	zero, err := os.Open("/dev/zero")
	if err != nil {
		return nil, err
	}
	defer zero.Close()
	maps, err := os.Open("/proc/self/status")
	if err != nil {
		return nil, err
	}
	defer maps.Close()
	dir, err := os.Open("/bin")
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	var pipe [2]int
	if err := unix.Pipe(pipe[:]); err != nil {
		return nil, err
	}
	defer unix.Close(pipe[0])
	defer unix.Close(pipe[1])
	for _, c := range []struct {
		what string
		nr   uintptr
		fd   int
	}{
		{"read zeros", unix.SYS_READ, int(zero.Fd())},
		{"read text", unix.SYS_READ, int(maps.Fd())},
		{"read names", unix.SYS_GETDENTS64, int(dir.Fd())},
		{"write", unix.SYS_WRITE, pipe[1]},
		{"read a pipe", unix.SYS_READ, pipe[0]},
	} {
		for _, off := range []uintptr{page - 100, page - 1, page, 2 * page, 3*page - 50} {
			n, _, errno := syscall.Syscall(c.nr, uintptr(c.fd), base+off, 200)
			if c.nr == unix.SYS_READ && c.fd == int(maps.Fd()) && errno == 0 {
				n = 1 // how long it is differs
			}
			note(fmt.Sprintf("%s at %d", c.what, off), n, errno)
		}
	}
	var st unix.Stat_t
	note("stat", 0, errnoOf(unix.Stat("/bin", &st)))
	return out, nil
}

func errnoOf(err error) syscall.Errno {
	var n syscall.Errno
	errors.As(err, &n)
	return n
}

// missingPage is a page that is not there until zeroPage, and whom to ask
// (userfaultfd(2), linux/userfaultfd.h).
func missingPage() (page uintptr, uffd int, err error) {
	const (
		api      = 0xaa
		ioAPI    = 0xc018aa3f
		register = 0xc020aa00
		missing  = 1
	)
	fd, _, errno := syscall.Syscall(unix.SYS_USERFAULTFD, unix.O_CLOEXEC, 0, 0)
	if errno != 0 {
		return 0, 0, errno
	}
	m, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return 0, 0, err
	}
	page = uintptr(unsafe.Pointer(&m[0]))
	hello := [3]uint64{api, 0, 0}
	if _, _, errno := syscall.Syscall(unix.SYS_IOCTL, fd, ioAPI, uintptr(unsafe.Pointer(&hello))); errno != 0 {
		return 0, 0, fmt.Errorf("userfaultfd: %w", errno)
	}
	span := [4]uint64{uint64(page), 4096, missing, 0}
	if _, _, errno := syscall.Syscall(unix.SYS_IOCTL, fd, register, uintptr(unsafe.Pointer(&span))); errno != 0 {
		return 0, 0, fmt.Errorf("userfaultfd: register: %w", errno)
	}
	return page, int(fd), nil
}

// zeroPage gives who waits a page of zeros.
func zeroPage(uffd int, page uintptr) error {
	const ioZero = 0xc020aa04
	span := [4]uint64{uint64(page), 4096, 0, 0}
	if _, _, errno := syscall.Syscall(unix.SYS_IOCTL, uintptr(uffd), ioZero, uintptr(unsafe.Pointer(&span))); errno != 0 {
		return fmt.Errorf("userfaultfd: zero page: %w", errno)
	}
	return nil
}
