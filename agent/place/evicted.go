package place

import (
	"cmp"
	"iter"
	"slices"

	"kerninst/agent/isa"
)

// Evicted is code that a copy stands in for, a function's body or a stretch of one:
// springboards go into Room.
type Evicted struct {
	Body  Window   // whole instructions, from the jump to the copy on
	Room  Window   // of it, what is behind that jump
	Patch isa.Addr // the copy
	Slot  int      // bytes of the heap that it holds
	// Stretch says that control goes on behind the body: the copy ends in a jump back.
	Stretch bool
	// Out and Back are what the jumps to the copy and back go through; 0 where they go
	// through no register.
	Out, Back isa.Reg
}

// Evicted lists the bodies, in order of address.
func (h *Heap) Evicted() []Evicted { return h.evicted }

// RoomIn visits the bodies that have any of a window, in order of address: those with room for n
// bytes in one piece. In a dense batch hardly any has.
func (h *Heap) RoomIn(w Window, n int) iter.Seq[Evicted] {
	return func(yield func(Evicted) bool) {
		k, _ := slices.BinarySearchFunc(h.evicted, w.Lo+1, func(e Evicted, a isa.Addr) int { return cmp.Compare(e.Body.Hi, a) })
		for ; k < len(h.evicted) && h.evicted[k].Body.Lo < w.Hi; k++ {
			if h.gaps[k] >= n && !yield(h.evicted[k]) {
				return
			}
		}
	}
}

// measure finds out anew how much room there is in the body that has a springboard at a.
func (h *Heap) measure(a isa.Addr) {
	k, _ := h.moved(a + 1)
	if k == 0 || !h.evicted[k-1].Room.Holds(a, 1) {
		return
	}
	room := h.evicted[k-1].Room
	from, most := room.Lo, isa.Addr(0)
	for b := h.board(room.Lo); b < len(h.boards) && h.boards[b].Lo < room.Hi; b++ {
		most = max(most, max(from, h.boards[b].Lo)-from)
		from = h.boards[b].Hi
	}
	h.gaps[k-1] = int(max(most, max(from, room.Hi)-from))
}

// Moved is the body that a lies in.
func (h *Heap) Moved(a isa.Addr) (Evicted, bool) {
	k, _ := h.moved(a + 1)
	if k == 0 || !h.evicted[k-1].Body.Holds(a, 1) {
		return Evicted{}, false
	}
	return h.evicted[k-1], true
}

// Stays reports whether no evicted body has any of a window.
func (h *Heap) Stays(w Window) bool {
	k, _ := h.moved(w.Hi)
	return k == 0 || h.evicted[k-1].Body.Hi <= w.Lo
}

func (h *Heap) moved(a isa.Addr) (int, bool) {
	return slices.BinarySearchFunc(h.evicted, a, func(e Evicted, a isa.Addr) int { return cmp.Compare(e.Body.Lo, a) })
}

// Evict takes the slot of a body's copy. A body that is there already stays as it is.
// It reports whether the heap has e now.
func (h *Heap) Evict(e Evicted) bool {
	k, ok := h.moved(e.Body.Lo)
	if ok {
		return h.evicted[k] == e
	}
	if k > 0 && h.evicted[k-1].Body.Hi > e.Body.Lo || k < len(h.evicted) && h.evicted[k].Body.Lo < e.Body.Hi || !h.Take(e.Patch, e.Slot) {
		return false
	}
	h.evicted, h.gaps = slices.Insert(h.evicted, k, e), slices.Insert(h.gaps, k, 0)
	h.measure(e.Room.Lo)
	return true
}

// Restore gives the slot of a body's copy back, unless springboards are in the body. It
// reports whether it did.
func (h *Heap) Restore(body isa.Addr) bool {
	k, ok := h.moved(body)
	if !ok {
		return false
	}
	e := h.evicted[k]
	if b := h.board(e.Body.Lo); b < len(h.boards) && h.boards[b].Lo < e.Body.Hi {
		return false
	}
	h.evicted, h.gaps = slices.Delete(h.evicted, k, k+1), slices.Delete(h.gaps, k, k+1)
	return h.Free(e.Patch, e.Slot)
}
