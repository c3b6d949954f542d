package main

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"kerninst/agent/isa"
	"kerninst/agent/kdev"
	"kerninst/agent/plan"
	"kerninst/agent/snippet"
	"kerninst/guest/check"
)

// variant is one way of getting from the point to its patch.
type variant struct {
	name   string
	boards []kdev.Splice // that the point jumps to
	point  kdev.Splice
	counts *plan.Plan // whose counter it is
	waits  bool       // for a quiescence, each time that it is made
	traps  bool
	slow   bool // its boards do
}

// toggles is how often it is made and undone where others are so often.
func (v variant) toggles(n int) int {
	if v.waits {
		return max(4, n/200)
	}
	return n
}

// refusals is how often it is refused: what can be refused half made.
func (v variant) refusals(n int) int {
	switch {
	case v.waits || v.slow:
		return 4
	case len(v.boards) > 0:
		return len(v.boards) * n / 50
	case v.traps:
		return n / 50
	}
	return 0
}

// variants are those of each length that the ISA can write.
var variants = map[string]func(*env) ([]variant, error){
	"amd64":   (*env).amd64Variants,
	"arm64":   func(e *env) ([]variant, error) { return []variant{e.planned()}, nil },
	"riscv64": (*env).riscv64Variants,
}

// planned is the splice as the planner makes it.
func (e *env) planned() variant {
	s := whole(e.one)
	return variant{name: fmt.Sprintf("%d bytes", len(s.New)), point: s, counts: e.one}
}

// boarded is a splice as the planner makes it for an instruction that is too short for
// a jump: by a jump in padding, or by a copy of the patch there.
func (e *env) boarded(name string, s snippet.Snippet, copied bool) (variant, error) {
	for from := isa.Off(0); ; {
		p, err := e.planWith(s, plan.Springboard, e.fn.Name, from)
		if err != nil {
			return variant{}, fmt.Errorf("%s: no such plan: %w", name, err)
		}
		if from = p.Offset + isa.Off(p.Displaced[0].Len); p.Board.Whole != copied {
			continue
		}
		return variant{name: name, boards: []kdev.Splice{board(p)}, point: whole(p), counts: p}, nil
	}
}

// tooLong counts like the counter, in the first of its cells, and is longer than a copy
// of a patch may be.
const tooLong = "c0 sum\nc1 sum\nc2 sum\nc3 sum\ncount c0 1\ncount c1 1\ncount c2 1\ncount c3 1\n"

// amd64Variants adds to the planned jmp rel32 those of two to four bytes: a jmp
// rel8, behind segment prefixes that it ignores, to the padding before the
// function, where a jmp rel32 leads on or a copy of a patch is. A kernel without padding
// (6.1) has but the others.
func (e *env) amd64Variants() ([]variant, error) {
	const padding = 16
	board := whole(e.one)
	board.Point = e.fn.Addr - padding
	board.Old, board.New = make([]byte, 5), make([]byte, 5)
	board.Springboard = true
	if err := e.dev.Read(board.Point, board.Old); err != nil {
		return nil, err
	}
	long, err := snippet.Parse(tooLong)
	if err != nil {
		return nil, err
	}
	others, err := e.unpadded(long)
	switch {
	case err != nil:
		return nil, err
	case bytes.Equal(board.Old, bytes.Repeat([]byte{0x90}, 5)):
	case strings.HasPrefix(release(), "6.1."):
		return others, nil
	default:
		return nil, fmt.Errorf("no padding before %v: %x", e.fn, board.Old)
	}
	board.New[0] = 0xe9
	binary.LittleEndian.PutUint32(board.New[1:], uint32(board.Patch-board.Point-5))
	var out []variant
	for n := 2; n <= 4; n++ {
		s := whole(e.one)
		d := int64(board.Point) - int64(s.Point) - int64(n)
		if d != int64(int8(d)) {
			return nil, fmt.Errorf("%v is %d bytes from the padding", s.Point, d)
		}
		s.Old = s.Old[:n]
		s.New = append(bytes.Repeat([]byte{0x2e}, n-2), 0xeb, byte(d))
		out = append(out, variant{name: fmt.Sprintf("%d bytes", n), boards: []kdev.Splice{board}, point: s, counts: e.one})
	}
	near, err := e.boarded("2 bytes to a jump in padding", long, false)
	if err != nil {
		return nil, err
	}
	copied, err := e.boarded("2 bytes to a copy of the patch", snippet.Counter(), true)
	if err != nil {
		return nil, err
	}
	return append(append(out, near, copied), others...), nil
}

// unpadded are the ways for which there need not be padding.
func (e *env) unpadded(long snippet.Snippet) ([]variant, error) {
	p, err := e.planBy(plan.Quiesced, e.fn.Name, 0)
	if err != nil {
		return nil, err
	}
	window := variant{name: fmt.Sprintf("5 bytes of %d instructions", len(p.Displaced)), point: whole(p), counts: p, waits: true}
	stretch, err := e.inAStretch("2 bytes to where a stretch was", long)
	if err != nil {
		return nil, err
	}
	pun, err := e.planBy(plan.Pun, e.fn.Name, 0)
	if err != nil {
		return nil, err
	}
	punned := variant{name: "a jump that others complete", point: whole(pun), counts: pun}
	return []variant{window, stretch, punned, e.planned()}, nil
}

// inAStretch is one jmp rel8 to a jump in a stretch of its own function that was moved away
// for it, as if no padding were in reach.
func (e *env) inAStretch(name string, s snippet.Snippet) (variant, error) {
	p, refusal := plan.Search(e.text, plan.Request{
		Function: e.fn.Name, Mechanism: plan.Springboard, Snippet: s, Heap: &e.heap,
		Taken: func(lo, hi isa.Addr) bool { return lo < e.fn.Addr || hi > e.fn.End() },
	})
	if refusal != nil {
		return variant{}, fmt.Errorf("no springboard in a stretch: %w", refusal)
	}
	if err := e.write(p); err != nil {
		return variant{}, err
	}
	return variant{name: name, boards: []kdev.Splice{away(p), board(p)}, point: whole(p), counts: p, slow: true}, nil
}

// riscv64Variants adds to the planned window one jal. It replaces only the
// window's first instruction, which has to be as long; the others stay in
// place for a CPU that is between them, and the patch runs them all.
func (e *env) riscv64Variants() ([]variant, error) {
	p := e.one
	for p.Displaced[0].Len != 4 {
		var err error
		if p, err = e.plan(p.Offset + isa.Off(p.Displaced[0].Len)); err != nil {
			return nil, fmt.Errorf("no window begins with four bytes: %w", err)
		}
	}
	d := int64(p.Patch) - int64(p.Point)
	if d < -1<<20 || d >= 1<<20 {
		return nil, fmt.Errorf("the patch is %d bytes from the point, a jal reaches 1 MiB", d)
	}
	s := whole(p)
	s.Window, s.Old, s.New = false, s.Old[:4], jal(uint32(d))
	long, err := snippet.Parse(tooLong)
	if err != nil {
		return nil, err
	}
	board, err := e.inAFunction("4 bytes to where a function was", long)
	if err != nil {
		return nil, err
	}
	copied, err := e.inAFunction("4 bytes to a copy where a function was", snippet.Counter())
	return []variant{{name: "4 bytes", point: s, counts: p}, board, copied, e.planned()}, err
}

// inAFunction is one jal to a springboard in a function that was moved away for it: a jump
// on, or a copy of a patch that is short enough. It is behind the window that fail has
// refused.
func (e *env) inAFunction(name string, s snippet.Snippet) (variant, error) {
	next, err := e.plan(e.one.Offset + isa.Off(e.one.Back-e.one.Point))
	if err != nil {
		return variant{}, err
	}
	p, err := e.planWith(s, plan.Springboard, e.fn.Name, next.Offset+isa.Off(next.Back-next.Point))
	if err != nil {
		return variant{}, fmt.Errorf("no springboard in another function: %w", err)
	}
	return variant{name: name, boards: []kdev.Splice{away(p), board(p)}, point: whole(p), counts: p}, nil
}

// jal is "jal x0, d": imm[20|10:1|11|19:12] rd opcode.
func jal(d uint32) []byte {
	return binary.LittleEndian.AppendUint32(nil, d>>20&1<<31|d>>1&0x3ff<<21|d>>11&1<<20|d>>12&0xff<<12|0x6f)
}

func (e *env) storms(toggles, calls int) error {
	list, err := variants[e.arch.Name](e)
	if err != nil {
		return err
	}
	last, err := e.breakpoint()
	if err != nil {
		return err
	}
	list = append(list, last)
	for _, v := range list {
		if err := e.storm(v, v.toggles(toggles)); err != nil {
			return fmt.Errorf("%s: %w", v.name, err)
		}
		if err := e.remake(v, max(10, toggles/100)); err != nil {
			return fmt.Errorf("%s: %w", v.name, err)
		}
		if err := e.exact(v, calls); err != nil {
			return fmt.Errorf("%s: %w", v.name, err)
		}
		if err := e.fail(v, v.refusals(toggles)); err != nil {
			return fmt.Errorf("%s: %w", v.name, err)
		}
	}
	return nil
}

// storm toggles while the last CPU does nothing but pass the point.
func (e *env) storm(v variant, toggles int) error {
	cpu := e.info.CPUs - 1
	if cpu == 0 {
		return errors.New("needs a second CPU")
	}
	e.cells(v.counts).Store(v.counts.Cell, 0)
	l, err := startLooper(cpu)
	if err != nil {
		return err
	}
	// They stay: undoing one waits for quiescence, a third of a second.
	boards, err := e.dev.Splice(v.boards)
	start := time.Now()
	done, kept := 0, 0
	for ; err == nil && done < toggles; done++ {
		var ids []uint32
		if ids, err = e.dev.Splice([]kdev.Splice{v.point}); err == nil {
			err = e.dev.UndoNoWait(ids)
		}
		if err == nil && len(v.boards) == 0 && done%max(1, toggles/rewrites) == 0 {
			if err = e.again(v.point); errors.Is(err, unix.EBUSY) {
				kept, err = kept+1, nil
			}
		}
	}
	took := time.Since(start)
	calls, loopErr := l.stop()
	err = errors.Join(err, e.dev.Undo(boards))
	if len(v.boards) == 0 { // nobody is left whose stack could have a word of it
		err = errors.Join(err, e.againAfterReads(v.point))
	}
	hits := e.hits(v.counts)
	// Arrivals at the unspliced point are not hits, so fewer are expected; a
	// storm that nobody passed through would show nothing.
	check.Report("toggles of "+v.name+" under load", done, err == nil && loopErr == nil && hits > 0 && hits <= calls && kept < rewrites,
		"%d hits in %d calls of another CPU, %v, patch kept %d times for a word on a stack (%v, %v)", hits, calls, took.Round(time.Millisecond), kept, err, loopErr)
	return nil
}

// remake makes all of it and takes all of it back while the last CPU passes by: what has
// to wait for others is written while they come and go.
func (e *env) remake(v variant, times int) error {
	if !v.slow {
		return nil
	}
	e.cells(v.counts).Store(v.counts.Cell, 0)
	l, err := startLooper(e.info.CPUs - 1)
	if err != nil {
		return err
	}
	done := 0
	for ; err == nil && done < times; done++ {
		var ids []uint32
		if ids, err = e.dev.Splice(append(slices.Clone(v.boards), v.point)); err == nil {
			err = e.dev.UndoNoWait(ids)
		}
	}
	calls, loopErr := l.stop()
	hits := e.hits(v.counts)
	check.Report("remakes of "+v.name+" under load", done, err == nil && loopErr == nil && hits > 0 && hits <= calls,
		"%d hits in %d calls of another CPU (%v, %v)", hits, calls, err, loopErr)
	return nil
}

// rewrites is how often a storm writes the patch anew: each waits for a quiescence. Any
// word on a stack keeps a patch (guest/module/quiesce.c), so one that an interrupt in it
// left may, while whoever was interrupted runs.
const rewrites = 8

// again writes the patch of a splice that was undone as it is, with what is said of its
// stack.
func (e *env) again(s kdev.Splice) error {
	code := make([]byte, s.PatchLen)
	if err := e.dev.Read(s.Patch, code); err != nil {
		return err
	}
	return e.dev.WriteCode(s.Patch, code, kdev.Frame{Orig: s.Point})
}

// againAfterReads writes a patch after so many calls of the device which were told of its
// address that their frames have left it all over the caller's stack: each system call has
// its frames elsewhere (randomize_kstack_offset).
func (e *env) againAfterReads(s kdev.Splice) error {
	for range 3 {
		for range 200 {
			if err := e.dev.Read(s.Patch, make([]byte, s.PatchLen)); err != nil {
				return err
			}
		}
		if err := e.again(s); err != nil {
			return fmt.Errorf("after reads of it: %w", err)
		}
	}
	return nil
}

// fail has batches refused at their last splice while the last CPU passes the point:
// whoever is between a point and its springboard then leaves it by what was there.
func (e *env) fail(v variant, times int) error {
	if times == 0 {
		return nil
	}
	p, err := e.plan(e.one.Offset + isa.Off(e.one.Back-e.one.Point))
	for err == nil && v.counts.Touches(p.Point, p.End()) {
		p, err = e.plan(p.Offset + isa.Off(p.Back-p.Point))
	}
	if err != nil {
		return err
	}
	bad := whole(p)
	bad.Old[0] ^= 1
	l, err := startLooper(e.info.CPUs - 1)
	if err != nil {
		return err
	}
	wrong := 0
	for range times {
		if _, err := e.dev.Splice(append(slices.Clone(v.boards), v.point, bad)); !errors.Is(err, unix.EILSEQ) {
			wrong++
		}
	}
	_, loopErr := l.stop()
	left := 0
	for _, b := range append(slices.Clone(v.boards), v.point) {
		now := make([]byte, len(b.Old))
		if err := e.dev.Read(b.Point, now); err != nil {
			return err
		}
		if !bytes.Equal(now, b.Old) {
			left++
		}
	}
	check.Report("refused batches with "+v.name, times, wrong == 0 && left == 0 && loopErr == nil,
		"%d answered something else, %d places are not as they were (%v)", wrong, left, loopErr)
	return nil
}

// exact counts with all CPUs on one point, and again when it is undone.
func (e *env) exact(v variant, calls int) error {
	ids, err := e.dev.Splice(append(slices.Clone(v.boards), v.point))
	if err != nil {
		return err
	}
	e.cells(v.counts).Store(v.counts.Cell, 0)
	want, err := e.callAll(calls)
	if err != nil {
		return err
	}
	got := e.hits(v.counts)
	check.Report("count of "+v.name, want, got == uint64(want), "%d hits, %d calls", got, want)
	if err := e.dev.Undo(ids); err != nil {
		return err
	}
	if _, err := e.callAll(10); err != nil {
		return err
	}
	check.Report("no hit of "+v.name+" after undo", 10, e.hits(v.counts) == got, "%d hits more", e.hits(v.counts)-got)
	return nil
}

// self is this program, in another role.
func self(role ...string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe", role...)
	cmd.Stderr = os.Stderr
	return cmd
}

// callAll makes that many calls on every CPU at once; the result is their sum.
func (e *env) callAll(each int) (int, error) {
	var started []*exec.Cmd
	var errs []error
	for cpu := range e.info.CPUs {
		cmd := self("call", strconv.Itoa(cpu), strconv.Itoa(each))
		if err := cmd.Start(); err != nil {
			errs = append(errs, err)
			break
		}
		started = append(started, cmd)
	}
	for _, cmd := range started {
		errs = append(errs, cmd.Wait())
	}
	return each * len(started), errors.Join(errs...)
}

type looper struct {
	cmd *exec.Cmd
	in  io.Closer
	out *bufio.Reader
}

// startLooper returns when the loop runs.
func startLooper(cpu int) (*looper, error) {
	l := &looper{cmd: self("loop", strconv.Itoa(cpu))}
	in, err := l.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := l.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	l.in, l.out = in, bufio.NewReader(out)
	if err := l.cmd.Start(); err != nil {
		return nil, err
	}
	_, err = l.out.ReadString('\n')
	return l, err
}

// stop is how many calls the loop made. It is an error if one went wrong.
func (l *looper) stop() (uint64, error) {
	err := l.in.Close()
	line, readErr := l.out.ReadString('\n')
	if err := errors.Join(err, l.cmd.Wait()); err != nil {
		return 0, err
	}
	n, numErr := strconv.ParseUint(strings.TrimSpace(line), 10, 64)
	return n, errors.Join(readErr, numErr)
}

// pin keeps all threads of this process, present and future, on one CPU.
func pin(cpu string) error {
	n, err := strconv.Atoi(cpu)
	if err != nil {
		return err
	}
	var set unix.CPUSet
	set.Set(n)
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return err
	}
	for _, t := range tasks {
		tid, err := strconv.Atoi(t.Name())
		if err == nil {
			err = unix.SchedSetaffinity(tid, &set)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// getppid makes one call, whose result must be what it always was.
func getppid(parent uintptr) error {
	if got, _, _ := unix.RawSyscall(unix.SYS_GETPPID, 0, 0, 0); got != parent {
		return fmt.Errorf("getppid gave %d, not %d", got, parent)
	}
	return nil
}

func loop(cpu string) error {
	if err := pin(cpu); err != nil {
		return err
	}
	var stopped atomic.Bool
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // ends when the other side does
		stopped.Store(true)
	}()
	parent, _, _ := unix.RawSyscall(unix.SYS_GETPPID, 0, 0, 0)
	fmt.Println("ready")
	calls := 1
	for ; !stopped.Load(); calls++ {
		if err := getppid(parent); err != nil {
			return err
		}
	}
	fmt.Println(calls)
	return nil
}

func call(cpu, times string) error {
	n, err := strconv.Atoi(times)
	if err == nil {
		err = pin(cpu)
	}
	if err != nil {
		return err
	}
	parent, _, _ := unix.RawSyscall(unix.SYS_GETPPID, 0, 0, 0)
	for i := 1; i < n; i++ {
		if err := getppid(parent); err != nil {
			return err
		}
	}
	return nil
}

// hold makes a splice and never ends.
func hold() error {
	e, err := open()
	if err != nil {
		return err
	}
	if _, err := e.dev.Splice([]kdev.Splice{whole(e.one)}); err != nil {
		return err
	}
	fmt.Println("holding")
	return unix.Pause()
}

// killed: when the holder of a live splice is killed, the module undoes it.
func killed(before *check.Text) error {
	holder := self("hold")
	out, err := holder.StdoutPipe()
	if err != nil {
		return err
	}
	if err := holder.Start(); err != nil {
		return err
	}
	_, err = bufio.NewReader(out).ReadString('\n')
	if err != nil {
		return errors.Join(err, holder.Wait())
	}
	check.Errno("unload while held", kdev.Unload(kdev.ModuleName), unix.EAGAIN)
	if err := holder.Process.Kill(); err != nil {
		return err
	}
	_ = holder.Wait() // it was killed; the device is closed by now
	e, err := open()
	check.Errno("open after kill -9", err, 0)
	if err != nil {
		return nil
	}
	if err := errors.Join(e.unchanged(before), e.dev.Close()); err != nil {
		return err
	}
	check.Errno("unload", kdev.UnloadWhenFree(kdev.ModuleName, napLimit), 0)
	return nil
}
