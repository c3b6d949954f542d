package main

import (
	"bytes"
	"errors"

	"golang.org/x/sys/unix"

	"kerninst/agent/isa"
	"kerninst/agent/kdev"
	"kerninst/agent/place"
	"kerninst/agent/snippet"
	"kerninst/guest/check"
)

// spans are about splices that say that a function is nobody's any more. On kernels
// that preempt themselves no window is made, and that is said last.
var spans = []refusal{
	{"splice: no window, with dead bytes", unix.EINVAL, splice(func(_ *env, s *kdev.Splice) { s.Window, s.Span = false, 64 })},
	{"splice: no more dead bytes than are written", unix.EINVAL, splice(func(_ *env, s *kdev.Splice) { s.Window, s.Span = true, len(s.New) })},
	{"splice: more dead bytes than are copied", unix.EINVAL, splice(func(_ *env, s *kdev.Splice) { s.Window, s.Span = true, s.PatchLen+1 })},
	{"splice: a springboard with dead bytes", unix.EINVAL, splice(func(_ *env, s *kdev.Splice) { s.Window, s.Springboard, s.Span = true, true, s.PatchLen })},
}

// moves checks what may be done to a function, or a stretch of one, that was moved away.
func (e *env) moves(calls int) error {
	plans := map[string]func(*env, string, snippet.Snippet) (variant, error){"amd64": (*env).inAStretch, "riscv64": (*env).inAFunction}[e.arch.Name]
	if plans == nil {
		return nil
	}
	long, err := snippet.Parse(tooLong)
	if err != nil {
		return err
	}
	v, err := plans(e, "a point with a board where code was", long)
	if err != nil {
		return err
	}
	moved, board := v.boards[0], v.boards[1]
	body := place.Window{Lo: moved.Point, Hi: moved.Point + isa.Addr(moved.Span)}
	if err := e.probedFunction(moved); err != nil {
		return err
	}
	ids, err := e.dev.Splice([]kdev.Splice{moved, board, v.point})
	if err != nil {
		return err
	}
	e.area.Store(v.counts.Cell, 0)
	want, err := e.callAll(calls)
	if err != nil {
		return err
	}
	check.Report("count of "+v.name+", once", want, e.hits(v.counts) == uint64(want), "%d hits, %d calls", e.hits(v.counts), want)
	n := len(moved.New)
	check.Errno("undo of a function with a springboard in it", e.dev.Undo(ids[:1]), unix.EBUSY)
	check.Errno("undo of a springboard that is jumped to", e.dev.Undo(ids[:2]), unix.EBUSY)
	for name, s := range map[string]kdev.Splice{
		"a window in dead bytes":            {Point: body.Hi - isa.Addr(n), Patch: moved.Patch, PatchLen: n, Window: true},
		"a springboard where one is":        {Point: board.Point + 4, Patch: board.Patch, PatchLen: board.PatchLen, Springboard: true},
		"a springboard on the written ones": {Point: moved.Point + 4, Patch: board.Patch, PatchLen: board.PatchLen, Springboard: true},
	} {
		s.Old, s.New = make([]byte, n), bytes.Clone(board.New)
		_, err := e.dev.Splice([]kdev.Splice{s})
		check.Errno("splice: "+name, err, unix.EEXIST)
	}
	detach, err := attachTracefs(board.Point, true)
	if err == nil {
		err = errors.Join(detach(), errors.New("it was let in"))
	}
	check.Errno("a kprobe in dead bytes", err, unix.EINVAL)
	return e.dev.Undo(ids)
}

// probedFunction: a function in which there is a kprobe stays where it is.
func (e *env) probedFunction(moved kdev.Splice) error {
	detach, err := attachTracefs(moved.Point, false)
	if err != nil {
		return err
	}
	_, err = e.dev.Splice([]kdev.Splice{moved})
	check.Errno("splice: a function with a kprobe is moved away", err, unix.EBUSY)
	return detach()
}
