package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"kerninst/agent/isa"
	"kerninst/agent/kdev"
	"kerninst/agent/ktext"
	"kerninst/agent/plan"
	"kerninst/guest/check"
)

const (
	napFile   = "/lib/kerninst/nap.ko"
	napAwake  = "/sys/module/nap/parameters/awake"
	napAsleep = "/sys/module/nap/parameters/asleep"
	// napLimit bounds the wait for a task to get there, and back.
	napLimit = 20 * time.Second
)

// sleepable is a system call in which a task may sleep: getppid has an RCU read
// section. Nobody else in the guest calls umask.
const sleepable = "umask"

// sleepers: a task that is asleep inside a patch keeps its memory, not its
// point, and keeps the module when everybody else lets go.
func (e *env) sleepers() error {
	ko, err := os.ReadFile(napFile)
	if err != nil {
		return err
	}
	if err := e.initialising(ko); err != nil {
		return err
	}
	if err := kdev.Load(ko, ""); err != nil {
		return err
	}
	s, p, err := e.sleeper()
	if err != nil {
		return err
	}
	if err := e.undoUnderSleeper(s, p); err != nil {
		return err
	}
	if err := e.undoUnderPromise(s); err != nil {
		return err
	}
	if e.arch.Name == "amd64" { // others write a batch while nobody runs
		if err := e.failedUnderSleeper(s); err != nil {
			return err
		}
	}
	if err := e.closeUnderSleeper(s); err != nil {
		return err
	}
	return kdev.Unload("nap")
}

// sleeper is a splice whose patch calls nap and goes on to a counter's patch.
// The code begins where a second counter's patch was planned, so that what that
// one's plan writes at the point leads to it.
func (e *env) sleeper() (kdev.Splice, *plan.Plan, error) {
	fail := func(err error) (kdev.Splice, *plan.Plan, error) { return kdev.Splice{}, nil, err }
	fn, err := e.text.Function("", ktext.Syscall(e.arch.Name, sleepable))
	if err != nil {
		return fail(err)
	}
	counter, err := e.planIn(fn.Name, 0)
	if err != nil {
		return fail(err)
	}
	last, err := e.planIn(fn.Name, 0) // behind it, the area is empty
	if err != nil {
		return fail(err)
	}
	nap, err := symbol("nap")
	if err != nil {
		return fail(err)
	}
	code, err := callThenJump[e.arch.Name](last.Patch, nap, counter.Patch)
	if err != nil {
		return fail(err)
	}
	s := whole(last)
	s.PatchLen, s.Awake = len(code), false
	return s, counter, e.dev.WriteCode(s.Patch, code)
}

func symbol(name string) (isa.Addr, error) {
	list, err := os.ReadFile("/proc/kallsyms")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(list)) {
		if f := strings.Fields(line); len(f) > 2 && f[2] == name {
			a, err := strconv.ParseUint(f[0], 16, 64)
			return isa.Addr(a), err
		}
	}
	return 0, fmt.Errorf("no symbol %s", name)
}

// callThenJump is code at an address that calls one function and jumps to
// another place, and changes nothing but memory below the stack pointer.
var callThenJump = map[string]func(at, call, jump isa.Addr) ([]byte, error){
	"amd64": func(at, call, jump isa.Addr) ([]byte, error) {
		c, j := int64(call-at)-5, int64(jump-at)-10
		if c != int64(int32(c)) || j != int64(int32(j)) {
			return nil, outOfReach(at, call)
		}
		code := binary.LittleEndian.AppendUint32([]byte{0xe8}, uint32(c)) // call
		return binary.LittleEndian.AppendUint32(append(code, 0xe9), uint32(j)), nil
	},
	"arm64": func(at, call, jump isa.Addr) ([]byte, error) {
		j := int64(jump-at) - 36
		if j < -1<<27 || j >= 1<<27 {
			return nil, outOfReach(at, jump)
		}
		// Modules may be further away than a bl reaches.
		part := func(n int) uint32 { return uint32(call>>(16*n)) & 0xffff << 5 }
		return words(
			0xa9be7bfd,                        // stp x29, x30, [sp, #-32]!
			0xa90147f0,                        // stp x16, x17, [sp, #16]
			0xd2800010|part(0),                // movz x16
			0xf2a00010|part(1),                // movk x16, lsl #16
			0xf2c00010|part(2),                // movk x16, lsl #32
			0xf2e00010|part(3),                // movk x16, lsl #48
			0xd63f0200,                        // blr x16
			0xa94147f0,                        // ldp x16, x17, [sp, #16]
			0xa8c27bfd,                        // ldp x29, x30, [sp], #32
			0x14000000|uint32(j>>2)&0x3ffffff, // b
		), nil
	},
	"riscv64": func(at, call, jump isa.Addr) ([]byte, error) {
		c, j := int64(call-at)-8, int64(jump-at)-24
		if c != int64(int32(c)) || c+0x800 != int64(int32(c+0x800)) || j < -1<<20 || j >= 1<<20 {
			return nil, outOfReach(at, call)
		}
		code := words(
			0xff010113,                            // addi sp, sp, -16
			0x00113023,                            // sd ra, 0(sp)
			0x00000097|uint32(c+0x800)&0xfffff000, // auipc ra
			0x000080e7|uint32(c)<<20,              // jalr ra, lo(ra)
			0x00013083,                            // ld ra, 0(sp)
			0x01010113,                            // addi sp, sp, 16
		)
		return append(code, jal(uint32(j))...), nil
	},
}

func outOfReach(at, to isa.Addr) error { return fmt.Errorf("%v is out of %v's reach", to, at) }

func words(list ...uint32) (code []byte) {
	for _, w := range list {
		code = binary.LittleEndian.AppendUint32(code, w)
	}
	return code
}

// napper is a task that calls umask, and what it said.
type napper struct {
	cmd *exec.Cmd
	out bytes.Buffer
}

// startNapper returns when the task is asleep in the patch.
func startNapper() (*napper, error) {
	if err := os.WriteFile(napAwake, []byte("0"), 0); err != nil {
		return nil, err
	}
	n := &napper{cmd: self("umask")}
	n.cmd.Stdout = &n.out
	if err := n.cmd.Start(); err != nil {
		return nil, err
	}
	return n, awaitNappers("1")
}

// napIn makes a splice and returns when a task is asleep in its patch.
func (e *env) napIn(s kdev.Splice) ([]uint32, *napper, error) {
	ids, err := e.dev.Splice([]kdev.Splice{s})
	if err != nil {
		return nil, nil, err
	}
	n, err := startNapper()
	return ids, n, err
}

func (n *napper) wake() error {
	return errors.Join(os.WriteFile(napAwake, []byte("1"), 0), awaitNappers("0"), n.cmd.Wait())
}

// awaitNappers looks every 10 ms: nothing tells when a task falls asleep.
func awaitNappers(want string) error {
	for end := time.Now().Add(napLimit); ; time.Sleep(10 * time.Millisecond) {
		if err := awaited(want); err == nil || time.Now().After(end) {
			return err
		}
	}
}

func awaited(want string) error {
	got, err := os.ReadFile(napAsleep)
	if err == nil && strings.TrimSpace(string(got)) != want {
		err = fmt.Errorf("%s tasks asleep in a patch, want %s", bytes.TrimSpace(got), want)
	}
	return err
}

// initialising: text of a module that may yet fail to load is nobody's to splice.
func (e *env) initialising(ko []byte) error {
	loaded := make(chan error)
	go func() { loaded <- kdev.Load(ko, "fail=1") }()
	if err := awaitNappers("1"); err != nil {
		return err
	}
	at, err := symbol("nap_until_awake")
	if err != nil {
		return err
	}
	check.Errno("splice: in a module that is being loaded", splice(func(_ *env, s *kdev.Splice) { s.Point = at + behindFtrace })(e), unix.EACCES)
	if err := os.WriteFile(napAwake, []byte("1"), 0); err != nil {
		return err
	}
	check.Errno("loading fails when it is meant to", <-loaded, unix.EIO)
	return nil
}

// failedUnderSleeper: while a batch that fails waits for its window, and is taken back, a
// task may get into one of its patches, and sleep there.
func (e *env) failedUnderSleeper(s kdev.Splice) error {
	s.Window = true
	if err := os.WriteFile(napAwake, []byte("0"), 0); err != nil {
		return err
	}
	masks := self("masks")
	if err := masks.Start(); err != nil {
		return err
	}
	bad := whole(e.one)
	bad.Old[0] ^= 1
	tries, wrong := 0, 0
	for end := time.Now().Add(napLimit); awaited("1") != nil; tries++ {
		if _, err := e.dev.Splice([]kdev.Splice{s, bad}); !errors.Is(err, unix.EILSEQ) {
			wrong++
		}
		if time.Now().After(end) {
			break
		}
	}
	check.Report("a batch with one that is wrong", tries, wrong == 0 && awaited("1") == nil, "%d answered something else; %v", wrong, awaited("1"))
	code := make([]byte, s.PatchLen)
	if err := e.dev.Read(s.Patch, code); err != nil {
		return err
	}
	check.Errno("code under who came by a failed batch", e.dev.WriteCode(s.Patch, code), unix.EBUSY)
	check.Errno("free the area under who came by a failed batch", e.dev.FreeArea(e.area), unix.EBUSY)
	err := errors.Join(os.WriteFile(napAwake, []byte("1"), 0), awaitNappers("0"), masks.Process.Kill())
	_ = masks.Wait() // it was killed
	check.Errno("code when who came by a failed batch has left", e.dev.WriteCode(s.Patch, code), 0)
	return err
}

// masks calls umask for ever.
func masks() error {
	for {
		syscall.Umask(0o022)
	}
}

// umask sets the mask twice and says what it was told of the first setting.
func umask() error {
	syscall.Umask(0o123)
	_, err := fmt.Printf("%o\n", syscall.Umask(0o022))
	return err
}

func (e *env) undoUnderSleeper(s kdev.Splice, counter *plan.Plan) error {
	e.area.Store(counter.Cell, 0)
	ids, n, err := e.napIn(s)
	if err != nil {
		return err
	}
	check.Errno("undo with a sleeper", e.dev.Undo(ids), 0)
	now := make([]byte, len(s.Old))
	if err := e.dev.Read(s.Point, now); err != nil {
		return err
	}
	check.Report("undo with a sleeper restores the point", 1, bytes.Equal(now, s.Old), "%x, want %x", now, s.Old)
	st, err := e.dev.Stats()
	if err != nil {
		return err
	}
	check.Report("a sleeper's patch is quarantined", 1, st.Quarantined == uint64(s.PatchLen), "%d bytes, want %d", st.Quarantined, s.PatchLen)
	code := make([]byte, s.PatchLen)
	if err := e.dev.Read(s.Patch, code); err != nil {
		return err
	}
	check.Errno("code under a sleeper", e.dev.WriteCode(s.Patch, code), unix.EBUSY)
	check.Errno("free the area under a sleeper", e.dev.FreeArea(e.area), unix.EBUSY)
	if err := n.wake(); err != nil {
		return err
	}
	check.Errno("code when the sleeper has left", e.dev.WriteCode(s.Patch, code), 0)
	hits := e.hits(counter)
	check.Report("a sleeper went on to where it belongs", 1, hits == 1 && n.out.String() == "123\n", "%d hits, umask said %q", hits, n.out.String())
	return nil
}

// undoUnderPromise: where nobody falls asleep, as the daemon says, sleeping tasks are
// not looked at. This one does sleep there, and comes back to code that nobody has
// written over.
func (e *env) undoUnderPromise(s kdev.Splice) error {
	s.Awake = true
	ids, n, err := e.napIn(s)
	if err != nil {
		return err
	}
	check.Errno("undo with a sleeper where nobody sleeps", e.dev.Undo(ids), 0)
	st, err := e.settled()
	check.Report("a word on a sleeper's stack is an old one", 1, st.Quarantined == 0, "%d bytes are quarantined", st.Quarantined)
	return errors.Join(err, n.wake())
}

// closeUnderSleeper lets go of the device, and of all else.
func (e *env) closeUnderSleeper(s kdev.Splice) error {
	_, n, err := e.napIn(s)
	if err != nil {
		return err
	}
	if err := e.dev.Close(); err != nil {
		return err
	}
	check.Errno("unload under a sleeper", kdev.Unload(kdev.ModuleName), unix.EAGAIN)
	if err := n.wake(); err != nil {
		return err
	}
	check.Errno("unload by itself when the sleeper has left", kdev.UnloadWhenFree(kdev.ModuleName, napLimit), 0)
	again, err := open()
	if err != nil {
		return err
	}
	*e = *again
	st, err := e.dev.Stats()
	check.Report("all is gone when the sleeper has left", 1, err == nil && st.Areas == 2 && st.Splices == 0 && st.Quarantined == 0, "%+v (%v)", st, err)
	return nil
}
