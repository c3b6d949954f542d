package main

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"kerninst/agent/gen"
	"kerninst/agent/isa"
	"kerninst/agent/kdev"
	"kerninst/agent/ktext"
	"kerninst/guest/check"
)

// refusal is a request that must be answered by one errno and change nothing.
type refusal struct {
	what string
	want unix.Errno
	do   func(e *env) error
}

// area asks for memory in a window; what is given by mistake is not used.
func area(lo, hi func(kdev.Info) isa.Addr, n int) func(*env) error {
	return func(e *env) error {
		_, err := e.dev.AllocArea(lo(e.info), hi(e.info), n)
		return err
	}
}

func at(a isa.Addr) func(kdev.Info) isa.Addr { return func(kdev.Info) isa.Addr { return a } }

func imageStart(i kdev.Info) isa.Addr { return i.ImageStart }
func imageEnd(i kdev.Info) isa.Addr   { return i.ImageEnd }
func areaLo(i kdev.Info) isa.Addr     { return i.AreaLo }
func areaHi(i kdev.Info) isa.Addr     { return i.AreaHi }

// splice asks for the prepared splice with something wrong about it.
func splice(spoil func(e *env, s *kdev.Splice)) func(*env) error {
	return func(e *env) error {
		s := whole(e.one)
		spoil(e, &s)
		ids, err := e.dev.Splice([]kdev.Splice{s})
		if err == nil {
			return e.dev.Undo(ids)
		}
		return err
	}
}

// local does something with local cells, the ones that there are.
func local(do func(*env, *kdev.Local) error) func(*env) error {
	return func(e *env) error {
		l, err := e.dev.AllocLocal(e.info.PageSize, e.info.CPUs)
		if err != nil {
			return err
		}
		return do(e, l)
	}
}

func read(from func(kdev.Info) isa.Addr) func(*env) error {
	return func(e *env) error { return e.dev.Read(from(e.info), make([]byte, 16)) }
}

func write(to func(*env) isa.Addr) func(*env) error {
	return func(e *env) error { return e.dev.WriteCode(to(e), make([]byte, 64)) }
}

// within asks for the prepared splice at an address whose text is off limits.
func within(what string, where func(*env) (isa.Addr, error)) refusal {
	return refusal{"splice: in " + what, unix.EACCES, func(e *env) error {
		a, err := where(e)
		if err != nil {
			return err
		}
		return splice(func(_ *env, s *kdev.Splice) { s.Point = a })(e)
	}}
}

// behindFtrace is how far into a function no ftrace site reaches, in bytes.
const behindFtrace = 16

func named(symbols map[string]string) func(*env) (isa.Addr, error) {
	return func(e *env) (isa.Addr, error) {
		name, ok := symbols[e.arch.Name]
		if !ok {
			name = symbols[""]
		}
		return symbol(name)
	}
}

// misled changes where the jump leads by the lowest of its bits that keeps it a
// jump of the same form.
func misled(e *env, s *kdev.Splice) {
	bit := map[string]struct{ at, by int }{"amd64": {1, 1}, "arm64": {0, 1}, "riscv64": {len(s.New) - 1, 1 << 3}}[e.arch.Name]
	s.New[bit.at] ^= byte(bit.by)
}

// misledErrno: amd64 compares when it writes, for other splices may complete a jump.
var misledErrno = map[string]unix.Errno{"amd64": unix.EILSEQ, "arm64": unix.EINVAL, "riscv64": unix.EINVAL}

// locals are about cells in per-CPU memory, where the ISA has an instruction for them.
var locals = []refusal{
	{"local cells of two pages", unix.EINVAL, func(e *env) error {
		_, err := e.dev.AllocLocal(2*e.info.PageSize, e.info.CPUs)
		return err
	}},
	{"local cells that are freed", unix.EBUSY, local(func(e *env, l *kdev.Local) error { return e.dev.FreeArea(&kdev.Area{ID: l.ID}) })},
	{"read local cells as an address", unix.EACCES, local(func(e *env, l *kdev.Local) error { return e.dev.Read(l.Addr, make([]byte, 16)) })},
	{"code into local cells", unix.ERANGE, local(func(e *env, l *kdev.Local) error { return e.dev.WriteCode(l.Addr, make([]byte, 64)) })},
	{"code to where local cells have none", unix.ERANGE, local(func(e *env, _ *kdev.Local) error { return e.dev.WriteCode(0, make([]byte, 64)) })},
}

var refused = []refusal{
	within("the module itself", func(*env) (isa.Addr, error) {
		a, err := symbol("ki_text_undo")
		return a + behindFtrace, err
	}),
	within("what ftrace rewrites", func(e *env) (isa.Addr, error) { return e.fn.Addr + 4, nil }),
	within("a static key", (*env).staticKey),
	within("code that is not to be instrumented", named(map[string]string{"": "irqentry_enter", "arm64": "el1h_64_sync_handler"})),
	within("text that was freed after boot", named(map[string]string{"": "_sinittext"})),
	within("data", named(map[string]string{"": "init_task"})),
	{"area at the last page", unix.EACCES, area(at(^isa.Addr(0xffe)), at(^isa.Addr(0)), 4096)},
	{"area over _text", unix.EACCES, area(imageStart, imageEnd, 4096)},
	{"area below the range", unix.EACCES, area(at(0x1000), areaLo, 4096)},
	{"area in user space", unix.EACCES, area(at(0x1000), at(0x100000), 4096)},
	{"area above the range", unix.EACCES, area(areaHi, at(^isa.Addr(0)), 4096)},
	{"area in an empty window", unix.EINVAL, area(areaLo, areaLo, 4096)},
	{"area of half a page", unix.EINVAL, area(areaLo, areaHi, 2048)},
	{"area too long", unix.EINVAL, area(areaLo, areaHi, 16<<20)},
	{"area where one is", unix.ENOSPC, func(e *env) error {
		_, err := e.dev.AllocArea(e.area.Addr, e.area.Addr+isa.Addr(2*areaSize), areaSize)
		return err
	}},
	{"read user memory", unix.EACCES, read(at(0x10000))},
	{"code outside areas", unix.ERANGE, write(func(e *env) isa.Addr { return e.info.TextStart })},
	{"code into cells", unix.ERANGE, write(func(e *env) isa.Addr { return e.area.Cells() })},
	{"code across the end", unix.ERANGE, write(func(e *env) isa.Addr { return e.area.Addr + isa.Addr(areaSize) - 32 })},
	{"splice: other bytes are there", unix.EILSEQ, splice(func(_ *env, s *kdev.Splice) { s.Old[0] ^= 1 })},
	{"splice: patch in the cells", unix.ERANGE, splice(func(e *env, s *kdev.Splice) { s.Patch = e.area.Cells() })},
	{"splice: patch without length", unix.EINVAL, splice(func(_ *env, s *kdev.Splice) { s.PatchLen = 0 })},
	{"splice: patch longer than its area", unix.ERANGE, splice(func(_ *env, s *kdev.Splice) { s.PatchLen = 2 * areaSize })},
	{"splice: too many bytes", unix.EINVAL, splice(func(_ *env, s *kdev.Splice) {
		s.Old, s.New = make([]byte, kdev.MaxPatch+1), make([]byte, kdev.MaxPatch+1)
	})},
	{"splice: twice in a batch", unix.EEXIST, func(e *env) error {
		s := whole(e.one)
		_, err := e.dev.Splice([]kdev.Splice{s, s})
		return err
	}},
	{"splice: the second of a batch is wrong", unix.EILSEQ, func(e *env) error {
		p, err := e.plan(e.one.Offset + isa.Off(e.one.Back-e.one.Point))
		if err != nil {
			return err
		}
		s := whole(p)
		s.Old[0] ^= 1
		_, err = e.dev.Splice([]kdev.Splice{whole(e.one), s})
		return err
	}},
	{"splice: code that is no springboard", unix.EINVAL, splice(func(_ *env, s *kdev.Splice) { s.Code = true })},
	{"splice: batch too long", unix.EINVAL, func(e *env) error {
		_, err := e.dev.Splice(make([]kdev.Splice, 4097))
		return err
	}},
	{"undo what is not there", unix.ENOENT, func(e *env) error { return e.dev.Undo([]uint32{1 << 31}) }},
	{"open twice", unix.EBUSY, func(*env) error { _, err := kdev.Open(); return err }},
	{"unload while open", unix.EAGAIN, func(*env) error { return kdev.Unload(kdev.ModuleName) }},
}

// whileLive are refused because a splice is live.
var whileLive = []refusal{
	{"splice over a live one", unix.EEXIST, splice(func(*env, *kdev.Splice) {})},
	{"code under a live splice", unix.EBUSY, func(e *env) error { return e.dev.WriteCode(e.one.Patch, e.one.Code) }},
	{"free the area of a live splice", unix.EBUSY, func(e *env) error { return e.dev.FreeArea(e.area) }},
}

// staticKey is a site whose bytes change with a key.
func (e *env) staticKey() (isa.Addr, error) {
	var found isa.Addr
	var failed error
	e.text.Functions("", func(f ktext.Func) bool {
		for a := f.Addr; a < f.End() && found == 0 && failed == nil; a += isa.Addr(e.arch.MinLen) {
			r, ok, err := e.text.Site(a, a+1)
			failed = err
			if ok && r.Class == ktext.StaticKey {
				found = a
			}
		}
		return found == 0 && failed == nil
	})
	if found == 0 && failed == nil {
		failed = errors.New("no static key in the kernel")
	}
	return found, failed
}

// weak opens the device without one of root's capabilities.
func weak(capability int) func(*env) error {
	return func(*env) error {
		out, err := self("weak", strconv.Itoa(capability)).Output()
		if err != nil {
			return err
		}
		n, err := strconv.Atoi(strings.TrimSpace(string(out)))
		if n != 0 {
			return unix.Errno(n)
		}
		return err
	}
}

// weaken drops a capability, becomes this program again, and opens the device.
func weaken(capability string) error {
	n, err := strconv.ParseUint(capability, 10, 8)
	if err != nil {
		return err
	}
	runtime.LockOSThread() // the thread that executes keeps what it dropped
	if err := unix.Prctl(unix.PR_CAPBSET_DROP, uintptr(n), 0, 0, 0); err != nil {
		return err
	}
	return unix.Exec("/proc/self/exe", []string{"storm", "opens"}, nil)
}

// opens prints the errno of opening the device.
func opens() error {
	var n unix.Errno
	d, err := kdev.Open()
	if err == nil {
		err = d.Close()
	} else if errors.As(err, &n) {
		err = nil
	}
	fmt.Println(int(n))
	return err
}

// locked: under lockdown nobody opens the device. That cannot be taken back.
func locked() error {
	e, err := open()
	if err == nil {
		err = e.dev.Close()
	}
	if err == nil {
		err = reopen()
	}
	check.Errno("open before lockdown", err, 0)
	const dir = "/sys/kernel/security"
	if err := unix.Mount("securityfs", dir, "securityfs", 0, ""); err != nil && !errors.Is(err, unix.EBUSY) {
		return err
	}
	if err := os.WriteFile(dir+"/lockdown", []byte("integrity"), 0); err != nil {
		return err
	}
	check.Errno("open under lockdown", reopen(), unix.EPERM)
	return nil
}

// reopen opens the device and closes it.
func reopen() error {
	d, err := kdev.Open()
	if err == nil {
		err = d.Close()
	}
	return err
}

// filledErrno: what may be behind a jump, amd64 compares when it is asked for; riscv64 takes
// any form of a window, of which other bytes are expected here than there are.
var filledErrno = map[string]unix.Errno{"amd64": unix.EINVAL, "arm64": unix.EINVAL, "riscv64": unix.EILSEQ}

// locals is what is refused of local cells. Of Debian's kernels, only 6.12 is known to have
// room for them in what the image has of per-CPU memory.
func (e *env) locals() []refusal {
	none := func(err unix.Errno) []refusal {
		return []refusal{{"local cells", err, local(func(*env, *kdev.Local) error { return nil })}}
	}
	if !gen.Locals(e.arch) {
		return none(unix.EOPNOTSUPP)
	}
	_, err := e.dev.AllocLocal(e.info.PageSize, e.info.CPUs)
	if errors.Is(err, unix.ENOSPC) && !strings.HasPrefix(release(), "6.12.") {
		return none(unix.ENOSPC)
	}
	return locals
}

func release() string {
	var u unix.Utsname
	_ = unix.Uname(&u) // which does not fail
	return unix.ByteSliceToString(u.Release[:])
}

func (e *env) filled() unix.Errno {
	if !whole(e.one).Window {
		return unix.EINVAL
	}
	return filledErrno[e.arch.Name]
}

func (e *env) refusals(rng *rand.Rand) error {
	e.refuse(rng, append(slices.Concat(refused, spans, badTraps, frames, e.locals(), waitsRefused),
		refusal{"splice: a jump that leads elsewhere", misledErrno[e.arch.Name], splice(misled)},
		refusal{"splice: a jump with something behind it", e.filled(), splice(func(_ *env, s *kdev.Splice) {
			s.Old, s.New = append(bytes.Clone(s.Old), 0, 0, 0, 0), append(bytes.Clone(s.New), 0, 0, 0, 0)
		})},
		refusal{"open without CAP_SYS_MODULE", unix.EPERM, weak(unix.CAP_SYS_MODULE)},
		refusal{"open without CAP_SYS_RAWIO", unix.EPERM, weak(unix.CAP_SYS_RAWIO)}))
	if err := e.sites(); err != nil {
		return err
	}
	ids, err := e.dev.Splice([]kdev.Splice{whole(e.one)})
	if err != nil {
		return err
	}
	e.refuse(rng, whileLive)
	check.Errno("undo the same one twice at once", e.dev.Undo([]uint32{ids[0], ids[0]}), unix.EINVAL)
	return e.undoUnderRegister(ids)
}

// undoUnderRegister: a user's register that holds an address in a patch is no task
// in that patch.
func (e *env) undoUnderRegister(ids []uint32) error {
	address := (e.one.Patch + 8).String()
	holder := self("register", address)
	if err := holder.Start(); err != nil {
		return err
	}
	err := errors.Join(awaitCall(holder.Process.Pid, address), e.dev.Undo(ids))
	st, err2 := e.settled()
	check.Report("a user's register holds no patch", 1, st.Quarantined == 0, "%d bytes are quarantined", st.Quarantined)
	err = errors.Join(err, err2, holder.Process.Kill())
	_ = holder.Wait() // it was killed
	return err
}

// awaitCall waits until a thread of a process sleeps in a call with that argument
// (proc(5), /proc/PID/syscall).
func awaitCall(pid int, argument string) error {
	for end := time.Now().Add(napLimit); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		calls, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/syscall", pid))
		if err != nil {
			return err
		}
		for _, c := range calls {
			if b, err := os.ReadFile(c); err == nil && bytes.Contains(b, []byte(argument)) {
				return nil
			}
		}
	}
	return fmt.Errorf("process %d does not sleep in a call with %s", pid, argument)
}

// register waits for ever in a call whose sixth argument, which the call does not
// have, is an address.
func register(address string) error {
	a, err := strconv.ParseUint(address, 0, 64)
	if err != nil {
		return err
	}
	for { // the Go runtime's own signals interrupt it
		if _, _, errno := unix.RawSyscall6(unix.SYS_PPOLL, 0, 0, 0, 0, 0, uintptr(a)); errno != unix.EINTR {
			return errno
		}
	}
}

// refuse asks in random order, and looks at the point after each.
func (e *env) refuse(rng *rand.Rand, rows []refusal) {
	here := make([]byte, 64)
	before := make([]byte, len(here))
	for _, k := range rng.Perm(len(rows)) {
		r := rows[k]
		err := e.dev.Read(e.fn.Addr, before)
		if err == nil {
			check.Errno(r.what, r.do(e), r.want)
			err = e.dev.Read(e.fn.Addr, here)
		}
		if err != nil || !bytes.Equal(here, before) {
			check.Report(r.what+": nothing changed", 1, false, "%x became %x (%v)", before, here, err)
		}
	}
}
