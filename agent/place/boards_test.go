package place_test

import (
	"testing"

	"kerninst/agent/isa"
	"kerninst/agent/place"
)

func TestBoards(t *testing.T) {
	h := &place.Heap{}
	gaps := []place.Window{{Lo: 100, Hi: 116}, {Lo: 200, Hi: 204}, {Lo: 300, Hi: 316}}
	nobody := func(lo, hi isa.Addr) bool { return true }
	take := func(w place.Window, free func(lo, hi isa.Addr) bool) isa.Addr {
		a, ok := h.PeekBoard(5, 1, gaps, w, free)
		if ok && !h.TakeBoard(a, 5) {
			t.Errorf("%v was offered and is not free", a)
		}
		return a
	}
	all := place.Window{Lo: 0, Hi: 400}
	for k, want := range []isa.Addr{100, 105, 110, 300} {
		if a := take(all, nobody); a != want {
			t.Errorf("slot %d at %v, want %v", k, a, want)
		}
	}
	// Somebody else's byte at 305 moves the next one.
	if a := take(all, func(lo, hi isa.Addr) bool { return lo > 305 || hi <= 305 }); a != 306 {
		t.Errorf("beside what is taken: %v", a)
	}
	if a := take(place.Window{Lo: 0, Hi: 311}, nobody); a != 0 { // 311 is free, and too far
		t.Errorf("%v is out of reach", a)
	}
	if h.TakeBoard(104, 2) || h.TakeBoard(109, 1) || h.TakeBoard(400, 0) || h.FreeBoard(101) || h.FreeBoard(400) || h.Boards() != 5 {
		t.Errorf("%d slots after calls that change nothing", h.Boards())
	}
	if !h.FreeBoard(105) || h.FreeBoard(105) {
		t.Error("freed never, or twice")
	}
	if a := take(all, nobody); a != 105 {
		t.Errorf("the freed slot is not taken again but %v", a)
	}
}
