package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	"kerninst/agent/gen"
	"kerninst/agent/isa"
	"kerninst/agent/isa/all"
	"kerninst/agent/kdev"
	"kerninst/agent/ktext"
	"kerninst/agent/place"
	"kerninst/agent/plan"
	"kerninst/agent/snippet"
	"kerninst/guest/check"
)

const peerFile = "/lib/kerninst/peer.ko"

// areaSize is the code of the area, in bytes: on amd64 what is in the module's text, on
// riscv64 little enough for a jal to reach it and its cells.
var areaSize = map[string]int{"amd64": kdev.ArenaLen, "arm64": 16 << 10, "riscv64": 16 << 10}[runtime.GOARCH]

// victim is the system call whose function is under test.
const victim = "getppid"

// env is the opened device with an area in reach of the function under test, and, but
// on riscv64, of all of the kernel's text.
type env struct {
	dev   *kdev.Device
	info  kdev.Info
	arch  *isa.Arch
	text  *ktext.Text
	fn    ktext.Func
	area  *kdev.Area
	annex *kdev.Area
	pages []*kdev.Area // that punned jumps lead to
	heap  place.Heap
	one   *plan.Plan // of the function's first instruction that can be displaced
}

// open loads the module if it is not there and makes one plan.
func open() (*env, error) {
	kallsyms, err := os.ReadFile("/proc/kallsyms")
	if err != nil {
		return nil, err
	}
	if err := kdev.LoadOnce(kdev.ModuleFile, bytes.NewReader(kallsyms)); err != nil {
		return nil, err
	}
	e := &env{}
	if e.dev, err = kdev.Open(); err != nil {
		return nil, err
	}
	if e.info, err = e.dev.Info(); err != nil {
		return nil, err
	}
	if e.arch, err = all.Lookup(e.info.Arch); err != nil {
		return nil, err
	}
	if e.text, err = ktext.New(e.arch, bytes.NewReader(kallsyms), e.dev.Read, ktext.Options{}); err != nil {
		return nil, err
	}
	if e.fn, err = e.text.Function("", ktext.Syscall(e.arch.Name, victim)); err != nil {
		return nil, err
	}
	if err := e.reserve(); err != nil {
		return nil, err
	}
	if e.annex, err = e.dev.AllocAnnex(); err != nil {
		return nil, err
	}
	e.heap.Add(place.NewAnnex(e.annex.ID, e.annex.Addr, e.annex.Cells(), e.annex.CodeLen))
	e.one, err = e.plan(0)
	return e, err
}

// near is how far from the function its patches may be: a single jal reaches
// them on riscv64, and all that other ISAs have.
const near = 1000 << 10

func (e *env) reserve() (err error) {
	w := place.Reach(e.arch, e.info.TextStart, e.info.TextEnd)
	if e.arch.Name == "riscv64" {
		w = w.Intersect(place.Window{Lo: e.fn.Addr - near, Hi: e.fn.Addr + near})
	}
	e.area, err = e.dev.AllocArea(max(w.Lo, e.info.AreaLo), min(w.Hi, e.info.AreaHi), areaSize)
	if err == nil {
		e.heap.Add(place.NewArea(e.area.ID, e.area.Addr, e.area.Cells(), areaSize))
		e.heap.Pages(place.PageRoom(e.arch, e.info.TextStart), e.page)
	}
	return err
}

// plan plans the first point from an offset on, and writes its patch.
func (e *env) plan(from isa.Off) (*plan.Plan, error) { return e.planIn(e.fn.Name, from) }

func (e *env) planIn(function string, from isa.Off) (*plan.Plan, error) {
	return e.planBy(plan.MechanismInvalid, function, from)
}

func (e *env) planBy(m plan.Mechanism, function string, from isa.Off) (*plan.Plan, error) {
	return e.planWith(snippet.Counter(), m, function, from)
}

func (e *env) planWith(s snippet.Snippet, m plan.Mechanism, function string, from isa.Off) (*plan.Plan, error) {
	p, refusal := plan.Search(e.text, plan.Request{
		Function: function, Offset: from, Mechanism: m, Snippet: s, Heap: &e.heap,
		Features: gen.Features{LSE: e.info.LSE(), NoWindows: e.info.NoWindows(), Preempted: e.info.Preempted(), NoTraps: !e.info.Traps()},
	})
	if refusal != nil {
		return nil, refusal
	}
	return p, e.write(p)
}

// write puts a plan's patch where it belongs, with its state map, and the copy of what is
// moved away for it.
func (e *env) write(p *plan.Plan) error {
	if in := p.Moves(); in != nil {
		if err := e.dev.WriteCode(in.Patch, in.Copy, kdev.Frames(e.arch.Name, in.States)...); err != nil {
			return err
		}
	}
	err := e.dev.WriteCode(p.Patch, p.Code, kdev.Frames(e.arch.Name, p.States)...)
	if err == nil && p.Annex != nil {
		err = e.dev.WriteCode(p.Annex.Addr, p.Annex.Code, kdev.Frames(e.arch.Name, p.Annex.States)...)
	}
	return err
}

// whole is the splice that a plan describes, as the daemon would ask for it. Its bytes
// are its own.
func whole(p *plan.Plan) kdev.Splice {
	return kdev.Splice{
		Point: p.Point, Patch: p.Patch, PatchLen: len(p.Code),
		Old: bytes.Clone(p.Old), New: bytes.Clone(p.New), Window: p.Window, Awake: p.Fault == 0, Trap: p.Mechanism == plan.Trap, Home: p.Home,
	}
}

// board is its springboard, likewise.
func board(p *plan.Plan) kdev.Splice {
	s, b := whole(p), p.Board
	s.Point, s.Old, s.New = b.Addr, bytes.Clone(b.Old), bytes.Clone(b.New)
	s.Window, s.Springboard, s.Code = false, true, b.Whole
	return s
}

// away is what makes room for its springboard, or completes its jump, likewise.
func away(p *plan.Plan) kdev.Splice {
	in := p.Moves()
	s := kdev.Splice{
		Point: in.Body, Patch: in.Patch, PatchLen: len(in.Copy), Old: bytes.Clone(in.Code[:len(in.New)]), New: bytes.Clone(in.New),
		Awake: true,
	}
	if !in.Alone {
		s.Window, s.Span = true, len(in.Code)
	}
	return s
}

func (e *env) snapshot() (*check.Text, error) { return check.Snapshot(e.dev, e.info, e.text) }

// unchanged checks that all text is as before and nothing is left in it.
func (e *env) unchanged(before *check.Text) error {
	differ, first, err := before.Differing(e.dev)
	if err != nil {
		return err
	}
	check.Report("text is as before", 1, differ == 0, "%d bytes differ, the first at %v", differ, first)
	st, err := e.settled()
	if err != nil {
		return err
	}
	check.Report("nothing is live or quarantined", 1, st.Splices == 0 && st.Quarantined == 0 && st.Spliced == st.Unspliced, "%+v", st)
	return nil
}

// settled waits until nothing is quarantined: a word that lies about on a stack may
// look like an address in a patch for as long as its task sleeps. Each undo looks again; own
// threads that sleep are woken for something else, and whoever sleeps on is told of.
func (e *env) settled() (kdev.Stats, error) {
	for end := time.Now().Add(napLimit); ; time.Sleep(100 * time.Millisecond) {
		st, err := e.dev.Stats()
		if err != nil || st.Quarantined == 0 {
			return st, err
		}
		if time.Now().After(end) {
			return st, tellSleepers()
		}
		if err := stir(); err != nil {
			return st, err
		}
		ids, err := e.dev.Splice([]kdev.Splice{whole(e.one)})
		if err == nil {
			err = e.dev.Undo(ids)
		}
		if err != nil {
			return st, err
		}
	}
}

// stir has each of the process's threads at once, but the runtime's monitor, read a file: the
// kernel's functions on the way have other frames than those in which it waits.
func stir() error {
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return err
	}
	var all, done sync.WaitGroup
	errs := make([]error, len(threads))
	all.Add(len(threads)) // before the first waits
	for i := range errs {
		done.Go(func() {
			runtime.LockOSThread() // its thread is not another one's before all have one
			defer runtime.UnlockOSThread()
			all.Done()
			all.Wait()
			_, errs[i] = os.ReadFile("/proc/self/stat")
		})
	}
	done.Wait()
	return errors.Join(errs...)
}

// tellSleepers has the console say where each task is, for who looks for the one that keeps a patch.
func tellSleepers() error {
	tasks, err := filepath.Glob("/proc/[0-9]*/task/*")
	if err != nil {
		return err
	}
	var all []byte
	for _, t := range tasks {
		name, err := os.ReadFile(t + "/comm")
		stack, err2 := os.ReadFile(t + "/stack")
		if err == nil && err2 == nil && len(stack) > 0 {
			all = fmt.Appendf(all, "%s %s%s", t, name, stack)
		}
	}
	return os.WriteFile("/dev/console", all, 0)
}
