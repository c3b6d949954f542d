package place_test

import (
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
		if got := h.EvictedIn(w); (len(got) == 0) != want {
			t.Errorf("in %v are %v", w, got)
		}
	}
	if got := h.EvictedIn(place.Window{Lo: 0x103f, Hi: 0x2001}); len(got) != 2 || got[0] != a || got[1] != b {
		t.Errorf("of two bodies some bytes are in a window, and it has %v", got)
	}
	if !h.TakeBoard(0x1038, 8) || h.Restore(0x1000) || !h.FreeBoard(0x1038) || !h.Restore(0x1000) || h.Restore(0x1000) {
		t.Error("a body is given back with its last springboard, once")
	}
	if !h.Take(a.Patch, a.Slot) {
		t.Error("its copy's slot is not free")
	}
}
