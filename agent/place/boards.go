package place

import (
	"slices"

	"kerninst/agent/isa"
)

// Springboards lie in the kernel's own text, in gaps that nothing runs. A slot is
// free or used; freed ones need no state of their own: who frees them has put the
// kernel's bytes back, after nobody could be inside any more.

// PeekBoard finds where TakeBoard would put n bytes that begin in w and lie in one of
// the gaps, which are in order; free says what else may not be touched. The lowest
// address that is a multiple of step wins.
func (h *Heap) PeekBoard(n, step int, gaps []Window, w Window, free func(lo, hi isa.Addr) bool) (isa.Addr, bool) {
	up := func(a isa.Addr) isa.Addr { return (a + isa.Addr(step) - 1) / isa.Addr(step) * isa.Addr(step) }
	for _, g := range gaps {
		for a := up(max(g.Lo, w.Lo)); a < w.Hi && g.Holds(a, n); {
			if k := h.board(a); k < len(h.boards) && h.boards[k].Lo < a+isa.Addr(n) {
				a = up(h.boards[k].Hi)
				continue
			}
			if free(a, a+isa.Addr(n)) {
				return a, true
			}
			a = up(a + 1)
		}
	}
	return 0, false
}

// board is the index of the first slot in use that ends behind a.
func (h *Heap) board(a isa.Addr) int {
	k, _ := slices.BinarySearchFunc(h.boards, a+1, func(b Window, end isa.Addr) int {
		if b.Hi < end {
			return -1
		}
		return 1
	})
	return k
}

// TakeBoard marks n bytes at a as used. It reports whether all of them were free.
func (h *Heap) TakeBoard(a isa.Addr, n int) bool {
	k := h.board(a)
	if n <= 0 || k < len(h.boards) && h.boards[k].Lo < a+isa.Addr(n) {
		return false
	}
	h.boards = slices.Insert(h.boards, k, Window{a, a + isa.Addr(n)})
	h.measure(a)
	return true
}

// FreeBoard gives the slot that begins at a back. It reports whether it was used.
func (h *Heap) FreeBoard(a isa.Addr) bool {
	k := h.board(a)
	if k == len(h.boards) || h.boards[k].Lo != a {
		return false
	}
	h.boards = slices.Delete(h.boards, k, k+1)
	h.measure(a)
	return true
}

// Boards counts the slots in use.
func (h *Heap) Boards() int { return len(h.boards) }
