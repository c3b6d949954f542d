package place_test

import (
	"slices"
	"testing"

	"kerninst/agent/isa"
	"kerninst/agent/place"
)

func TestEvicted(t *testing.T) {
	h := &place.Heap{}
	h.Add(place.NewArea(1, 0x10000, 0x10000+256, 256))
	body := func(lo, hi, patch isa.Addr) place.Evicted {
		return place.Evicted{Body: place.Window{Lo: lo, Hi: hi}, Room: place.Window{Lo: lo + 8, Hi: hi}, Patch: patch, Slot: int(hi - lo)}
	}
	a, b := body(0x1000, 0x1040, 0x10000), body(0x2000, 0x2040, 0x10040)
	for _, c := range []struct {
		what string
		e    place.Evicted
		want bool
	}{
		{"one behind", b, true}, {"one before", a, true}, {"the same again", a, true},
		{"its copy elsewhere", body(0x1000, 0x1040, 0x10080), false},
		{"over its end", body(0x1020, 0x1060, 0x10080), false},
		{"over the next one's begin", body(0x1ff0, 0x2010, 0x10080), false},
		{"into a slot in use", body(0x3000, 0x3040, 0x10040), false},
		{"outside the heap", body(0x3000, 0x3040, 0x20000), false},
	} {
		if got := h.Evict(c.e); got != c.want {
			t.Errorf("%s: %v", c.what, got)
		}
	}
	if e := h.Evicted(); len(e) != 2 || e[0] != a || e[1] != b {
		t.Errorf("the heap has %v", e)
	}
	for at, want := range map[isa.Addr]bool{0xfff: false, 0x1000: true, 0x103f: true, 0x1040: false, 0x2010: true} {
		if _, ok := h.Moved(at); ok != want {
			t.Errorf("%v is in a body: %v", at, ok)
		}
	}
	for w, want := range map[place.Window]bool{
		{Lo: 0xf00, Hi: 0x1000}: true, {Lo: 0xf00, Hi: 0x1002}: false, {Lo: 0x1010, Hi: 0x1020}: false,
		{Lo: 0x103e, Hi: 0x1050}: false, {Lo: 0x1040, Hi: 0x2000}: true, {Lo: 0xf00, Hi: 0x3000}: false, {Lo: 0x2040, Hi: 0x3000}: true,
	} {
		if h.Stays(w) != want {
			t.Errorf("all of %v stays: %v", w, !want)
		}
		if got := slices.Collect(h.RoomIn(w, 8)); (len(got) == 0) != want {
			t.Errorf("in %v are %v", w, got)
		}
	}
	if got := slices.Collect(h.RoomIn(place.Window{Lo: 0x103f, Hi: 0x2001}, 8)); len(got) != 2 || got[0] != a || got[1] != b {
		t.Errorf("of two bodies some bytes are in a window, and it has %v", got)
	}
	if !h.TakeBoard(0x1038, 8) || h.Restore(0x1000) || !h.FreeBoard(0x1038) || !h.Restore(0x1000) || h.Restore(0x1000) {
		t.Error("a body is given back with its last springboard, once")
	}
	if !h.Take(a.Patch, a.Slot) {
		t.Error("its copy's slot is not free")
	}
}

// TestRoomIn: a body is visited as long as springboards leave room in one piece.
func TestRoomIn(t *testing.T) {
	h := &place.Heap{}
	h.Add(place.NewArea(1, 0x10000, 0x10000+256, 256))
	all := place.Window{Lo: 0x1000, Hi: 0x3000}
	for k, lo := range []isa.Addr{0x1000, 0x2000} {
		if !h.TakeBoard(lo+0x10, 8) || !h.Evict(place.Evicted{Body: place.Window{Lo: lo, Hi: lo + 0x20}, Room: place.Window{Lo: lo + 8, Hi: lo + 0x20}, Patch: 0x10000 + isa.Addr(k)*64, Slot: 32}) {
			t.Fatal("not moved away")
		}
	}
	rooms := func(n int) (out []isa.Addr) {
		for e := range h.RoomIn(all, n) {
			out = append(out, e.Body.Lo)
		}
		return out
	}
	for _, step := range []struct {
		what       string
		do         func() bool
		eight, all int // bodies with room for so many bytes, and for all but the first jump
	}{
		{"one springboard in each, in the middle", func() bool { return true }, 2, 0},
		{"two in the first", func() bool { return h.TakeBoard(0x1018, 8) }, 2, 0},
		{"no room in the first", func() bool { return h.TakeBoard(0x1008, 8) }, 1, 0},
		{"none in the second, none given", func() bool { return h.TakeBoard(0x200c, 4) && h.TakeBoard(0x201c, 4) }, 0, 0},
		{"one of the second given back", func() bool { return h.FreeBoard(0x200c) }, 1, 0},
		{"all of the second given back", func() bool { return h.FreeBoard(0x2010) && h.FreeBoard(0x201c) }, 1, 1},
		{"the second where it was", func() bool { return h.Restore(0x2000) }, 0, 0},
		{"one of the first given back", func() bool { return h.FreeBoard(0x1010) }, 1, 0},
	} {
		if !step.do() || len(rooms(8)) != step.eight || len(rooms(24)) != step.all {
			t.Errorf("%s: %v have room for 8 bytes, %v for 24", step.what, rooms(8), rooms(24))
		}
	}
}
