package plan

import (
	"slices"

	"kerninst/agent/gen"
	"kerninst/agent/isa"
	"kerninst/agent/place"
)

// A springboard (amd64). One instruction of two bytes or more is replaced by one
// jmp rel8 to padding in front of a function, where a jmp rel32 leads to the patch, or
// where a copy of the patch is that is short enough: it costs one jump less. Where no
// padding is in reach, nor a window possible (window.go), the jmp rel32 lies in a stretch
// of code that was moved away (stretch.go). What
// remains of the instruction behind the two bytes is never executed: nothing jumps
// into the middle of an instruction, and the patch returns behind it.
//
// Written are the patch, the springboard, the point, in this order, each before the
// next can lead to it; undone in reverse, with a quiescence after the point. What
// whoever is there meets:
//
//   - Another CPU, an interrupt or an NMI at the point while it changes: the kernel's
//     writer puts a breakpoint over the first byte, and emulates, for whoever hits it,
//     a jump to the patch itself, going in and coming out alike. Before, in between
//     and after, the point is the whole old instruction or a way to the patch.
//   - At the springboard while it is written: nobody; nothing leads there yet. While it
//     is taken away: nobody either. No point has led there for a whole quiescence, in
//     which every CPU and every task that was preempted on it has gone on. A copy of
//     a patch calls nothing and has no fault that is waited for (what has an entry in
//     the exception table is not copied), so no task sleeps in it.
//   - An interrupt, an NMI or a preemption on it: it returns there, and it is there as
//     long as above. Between two jumps no register or flag has changed; in a copy, what
//     the patch says.
//   - A page fault: none, of the jump; of a copy, as in the patch.
//   - A backtrace from an interrupt there: padding has the unwind rule of its function's
//     entry (objtool gives it that), so behind a copy for a point with more on the stack
//     the next frame may be misread, within the stack, while it lasts. In a patch it is
//     what the module says (guest/module/arch/amd64/frames.c).
//   - The same on one in a stretch: likewise, by the rule of the instruction that was there.
//   - The kernel's own writers: padding is written for mitigations at boot or when a
//     module is loaded, and only where it still is nops; ours is not. Ours in turn is
//     undone only where it is still ours. Probes are barred from it while it lives.

// springboard replaces one instruction by a short jump to a springboard.
func (fn *function) springboard(req Request, at int) (*Plan, *Refusal) {
	i := fn.insns[at]
	n, lo, hi := gen.HopReach(fn.text.Arch, i.Len)
	if n == 0 {
		return nil, refuse(TooShort, "%s is %d bytes, and no jump is as short", fn.name(at), i.Len)
	}
	if req.Taken != nil && req.Taken(i.Addr, i.End()) {
		return nil, refuse(AlreadySpliced, "%s overlaps a live splice", fn.name(at))
	}
	w := place.Window{Lo: i.Addr + isa.Addr(lo), Hi: i.Addr + isa.Addr(hi) + 1}
	found, err := fn.finder(req).Near(i.Addr, w.Lo, w.Hi)
	if err != nil {
		return nil, unreadable(err)
	}
	var gaps []place.Window
	for _, g := range found {
		gaps = append(gaps, place.Window{Lo: g.Lo, Hi: g.Hi})
	}
	if req.Heap == nil {
		return nil, refuse(OutOfReach, "there is no patch memory")
	}
	jump := window{mechanism: Springboard, first: at, count: 1, replaced: n}
	in, r := fn.input(req, jump)
	if r != nil {
		return nil, r
	}
	in.Near = true
	// A fault in padding would have no fixup.
	area, _ := req.Heap.Find(in.Patch)
	if board, ok := fn.wholeBoard(in, req, gaps, w); ok && !area.Annex() {
		jump.board, jump.whole = board, true
		return fn.build(req, jump)
	}
	// To add to memory of all CPUs takes a byte less, and a jump costs more than that.
	in.Locals = nil
	if board, ok := fn.wholeBoard(in, req, gaps, w); ok && !area.Annex() {
		jump.board, jump.whole, jump.shared = board, true, true
		return fn.build(req, jump)
	}
	board, ok := req.Heap.PeekBoard(amd64JumpLen, 1, gaps, w, req.untouched)
	switch {
	case ok:
		jump.board = board
		return fn.build(req, jump)
	case len(gaps) == 0:
		return nil, refuse(NoSpringboard, "%s is %d bytes, and no padding lies within %d bytes for a springboard",
			fn.name(at), i.Len, hi)
	}
	return nil, refuse(NoSpringboard, "%s is %d bytes, and the %d runs of padding within %d bytes have no room for another springboard: splice fewer points there at once",
		fn.name(at), i.Len, len(gaps), hi)
}

// beside replaces one instruction by a short jump to a springboard in a stretch that is
// moved away for it. It is the last way: it waits like a window, and others pay for it.
func (fn *function) beside(req Request, at int) (*Plan, *Refusal) {
	i := fn.insns[at]
	n, lo, hi := gen.HopReach(fn.text.Arch, i.Len)
	switch {
	case n == 0:
		return nil, refuse(TooShort, "%s is %d bytes, and no jump is as short", fn.place(at), i.Len)
	case slices.Contains(req.Without, Quiesced):
		return nil, refuse(UnsupportedMechanism, "what makes room for a springboard is moved away by a window, and %v is forbidden", Quiesced)
	}
	w := window{mechanism: Springboard, first: at, count: 1, replaced: n}
	in, r := fn.input(req, w)
	if r != nil {
		return nil, r
	}
	reach := place.Window{Lo: i.Addr + isa.Addr(lo), Hi: i.Addr + isa.Addr(hi) + 1}
	return fn.makeRoom(req, in, w, want{reach, amd64JumpLen, fn.text.Arch.MinLen}, (*function).pieces)
}

// untouched reports whether no live splice touches [lo, hi).
func (req Request) untouched(lo, hi isa.Addr) bool { return req.Taken == nil || !req.Taken(lo, hi) }

// wholeBoard finds a gap for a copy of the patch: one from which a short jump leads
// back, and that leaves another gap in reach for the next point here. A copy takes
// most of a gap, in which there is room for three jumps.
func (fn *function) wholeBoard(in gen.Input, req Request, gaps []place.Window, reach place.Window) (isa.Addr, bool) {
	if in.Clone != nil {
		return 0, false
	}
	in.Patch = fn.insns[0].Addr             // how long it is does not depend on where it is
	out, err := gen.Patch(fn.text.Arch, in) // of none that calls: who walks up a stack would be lost in padding
	if err != nil || len(out.Code) > longestCopy {
		return 0, false
	}
	n, lo, hi := gen.HopReach(fn.text.Arch, amd64JumpLen)
	back := isa.Addr(len(out.Code) - n) // from its begin to the jump back
	near := reach.Intersect(place.Window{Lo: in.Back - back - isa.Addr(hi), Hi: in.Back - back - isa.Addr(lo) + 1})
	board, ok := req.Heap.PeekBoard(len(out.Code), 1, gaps, near, req.untouched)
	if !ok {
		return 0, false
	}
	others := slices.DeleteFunc(slices.Clone(gaps), func(g place.Window) bool { return g.Holds(board, 1) })
	_, ok = req.Heap.PeekBoard(amd64JumpLen, 1, others, reach, req.untouched)
	return board, ok
}

// wholeAt is the copy of a patch as it is at a.
func wholeAt(arch *isa.Arch, in gen.Input, a isa.Addr) (*Board, int, error) {
	in.Patch = a
	out, err := gen.Patch(arch, in)
	return &Board{Addr: a, New: out.Code, Whole: true, Start: out.Start, States: out.States}, out.Added, err
}
