package plan

import (
	"kerninst/agent/gen"
	"kerninst/agent/isa"
	"kerninst/agent/pad"
	"kerninst/agent/place"
)

// A springboard (amd64). One instruction of two bytes or more is replaced by one
// jmp rel8 to padding in front of a function, where a jmp rel32 leads to the patch.
// What remains of the instruction behind the two bytes is never executed: nothing
// jumps into the middle of an instruction, and the patch returns behind it.
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
//     which every CPU and every task that was preempted between the two jumps has
//     gone on.
//   - An interrupt, an NMI or a preemption between the two jumps: it returns to the
//     springboard, which is there as long as above. No register or flag has changed.
//   - A page fault: none. The springboard is mapped text and accesses no memory.
//   - The kernel's own writers: padding is written for mitigations at boot or when a
//     module is loaded, and only where it still is nops; ours is not. Ours in turn is
//     undone only where it is still ours. Probes are barred from it while it lives.

// springboard replaces one instruction by a short jump to a springboard.
func (fn *function) springboard(req Request, at int) (*Plan, *Refusal) {
	i := fn.insns[at]
	n, lo, hi := gen.HopReach(fn.text.Arch)
	if i.Len < n {
		return nil, refuse(TooShort, "%s is %d bytes, the shortest jump needs %d", fn.name(at), i.Len, n)
	}
	if req.Taken != nil && req.Taken(i.Addr, i.End()) {
		return nil, refuse(AlreadySpliced, "%s overlaps a live splice", fn.name(at))
	}
	finder := req.Padding
	if finder == nil {
		finder = pad.New(fn.text)
	}
	w := place.Window{Lo: i.Addr + isa.Addr(lo), Hi: i.Addr + isa.Addr(hi) + 1}
	found, err := finder.Near(w.Lo, w.Hi)
	if err != nil {
		return nil, unreadable(err)
	}
	var gaps []place.Window
	for _, g := range found {
		gaps = append(gaps, place.Window{Lo: g.Lo, Hi: g.Hi})
	}
	free := func(lo, hi isa.Addr) bool { return req.Taken == nil || !req.Taken(lo, hi) }
	if req.Heap == nil {
		return nil, refuse(OutOfReach, "there is no patch memory")
	}
	board, ok := req.Heap.PeekBoard(amd64JumpLen, gaps, w, free)
	switch {
	case ok:
		return fn.build(req, window{mechanism: Springboard, first: at, count: 1, replaced: n, board: board})
	case len(gaps) == 0:
		return nil, refuse(NoSpringboard, "%s is %d bytes, and no padding lies within %d bytes for a springboard",
			fn.name(at), i.Len, hi)
	}
	return nil, refuse(NoSpringboard, "%s is %d bytes, and the %d runs of padding within %d bytes have no room for another springboard",
		fn.name(at), i.Len, len(gaps), hi)
}
