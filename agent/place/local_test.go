package place

import (
	"slices"
	"testing"

	"kerninst/agent/isa"
)

// TestLocals: a word goes from free to used to given back, and is free again only when
// nobody is asleep in what was undone.
func TestLocals(t *testing.T) {
	var h Heap
	if out, ok := h.PeekLocals(1); ok || out != nil {
		t.Errorf("a heap without local cells has %v", out)
	}
	h.AddLocals(0x1000, 32)
	out, ok := h.PeekLocals(2)
	if !ok || !slices.Equal(out, []isa.Addr{0x1000, 0x1008}) || !h.TakeLocal(0x1000) || !h.TakeLocal(0x1008) {
		t.Fatalf("%v, %v", out, ok)
	}
	for _, a := range []isa.Addr{0, 0xff8, 0x1004, 0x1020, 0x1008} {
		if h.TakeLocal(a) {
			t.Errorf("%v was taken: it is none of the words, or used", a)
		}
	}
	if _, ok := h.PeekLocals(3); ok {
		t.Error("three of four are free, and two are used")
	}
	if !h.FreeLocal(0x1000) || h.FreeLocal(0x1000) || h.TakeLocal(0x1000) {
		t.Error("a word that was given back is not dirty")
	}
	if out, _ := h.PeekLocals(1); !slices.Equal(out, []isa.Addr{0x1010}) {
		t.Errorf("%v is free, and somebody may be on the way to 0x1000", out)
	}
	h.CleanLocals()
	if out, _ := h.PeekLocals(3); !slices.Equal(out, []isa.Addr{0x1000, 0x1010, 0x1018}) {
		t.Errorf("%v are free when nobody is asleep", out)
	}
	if off, ok := h.Local(0x1018); !ok || off != 0x18 {
		t.Errorf("at %d, %v", off, ok)
	}
}
