package place

import (
	"testing"

	"kerninst/agent/isa"
	"kerninst/agent/isa/all"
)

func arch(t *testing.T, name string) *isa.Arch {
	t.Helper()
	a, err := all.Lookup(name)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestReach(t *testing.T) {
	const text, end isa.Addr = 0xffffffff80000000, 0xffffffff81000000
	for _, c := range []struct {
		arch         string
		lo, hi       isa.Addr
		wantLo, want isa.Addr
	}{
		{"arm64", 0xffff800080000000, 0xffff800081000000, 0xffff800081000000 - 1<<27 + 4096, 0xffff800080000000 + 1<<27 - 4096},
		{"amd64", text, end, 0xffffffff81000000 - 1<<31 + 4096, 0xfffffffffffff000},
		{"amd64", text + 1<<20, end, 0xffffffff81000000 - 1<<31 + 4096, ^isa.Addr(0)}, // clamped at the top
		{"riscv64", text, end, 0xffffffff81000000 - 1<<31 + 8192, 0xffffffffffffe000},
		{"amd64", 0x1000, 0x2000, 0, 0x1000 + 1<<31 - 4096}, // and at the bottom
	} {
		w := Reach(arch(t, c.arch), c.lo, c.hi)
		if w.Lo != c.wantLo || w.Hi != c.want {
			t.Errorf("%s %v-%v: %v-%v, want %v-%v", c.arch, c.lo, c.hi, w.Lo, w.Hi, c.wantLo, c.want)
		}
	}
	if w := Reach(arch(t, "arm64"), 0, 1<<30); w.Size() != 0 {
		t.Errorf("points 1 GiB apart share the window %v", w)
	}
}

// TestFarReach: what is in reach of a point, from either end of the window, is within 4 GiB.
func TestFarReach(t *testing.T) {
	const lo, hi isa.Addr = 0xffff800080000000, 0xffff800080000004
	a := arch(t, "arm64")
	w, near := FarReach(a, lo, hi), Reach(a, lo, hi)
	if w.Intersect(near) != near || w.Lo < hi-1<<32 || w.Hi > lo+1<<32 {
		t.Errorf("%v-%v", w.Lo, w.Hi)
	}
	if uint64(w.Hi-near.Lo) > 1<<32 || uint64(near.Hi-w.Lo) > 1<<32 || w.Size() < 1<<32 {
		t.Errorf("%v-%v is too far from %v-%v", w.Lo, w.Hi, near.Lo, near.Hi)
	}
	for _, name := range []string{"amd64", "riscv64"} {
		if w := FarReach(arch(t, name), lo, hi); !w.Empty() {
			t.Errorf("%s: %v", name, w)
		}
	}
	if w := FarReach(a, hi, lo); !w.Empty() {
		t.Errorf("from behind to before: %v", w)
	}
}

func TestCheckCodeLen(t *testing.T) {
	for _, c := range []struct {
		arch string
		n    int
		ok   bool
	}{
		{"amd64", 4096, true}, {"amd64", 4095, false}, {"amd64", 0, false}, {"riscv64", 16 << 20, true},
		{"arm64", 1 << 20, false}, {"arm64", 1<<20 - 4096, true},
	} {
		if err := CheckCodeLen(arch(t, c.arch), c.n); (err == nil) != c.ok {
			t.Errorf("%s %d: %v", c.arch, c.n, err)
		}
	}
}

// take is Peek and Take of what it found.
func take(t *testing.T, h *Heap, n int, w Window) isa.Addr {
	t.Helper()
	a, _, ok := h.Peek(n, w, false)
	if !ok || !h.Take(a, n) {
		t.Fatalf("no %d bytes in %v", n, w)
	}
	return a
}

var everywhere = Window{0, ^isa.Addr(0)}

func TestHeap(t *testing.T) {
	h := &Heap{}
	h.Add(NewArea(2, 0x20000, 0x20000+4096, 4096))
	h.Add(NewArea(1, 0x10000, 0x10000+4096, 4096))
	for k := range isa.Addr(4) {
		if a := take(t, h, 60, everywhere); a != 0x10000+k*Line {
			t.Errorf("slot %d at %v", k, a)
		}
	}
	if !h.Free(0x10000, 60) || h.Free(0x10000, 60) {
		t.Error("a slot is freed once")
	}
	if a := take(t, h, 1, everywhere); a != 0x10100 {
		t.Errorf("a dirty slot at %v came before a clean one", a)
	}
	if a := take(t, h, 65, everywhere); a != 0x10140 {
		t.Errorf("two lines at %v", a)
	}
	if h.Take(0x10180, 1) || h.Take(0x10181, 1) || h.Take(0x30000, 1) || h.Take(0x10fc0, 65) {
		t.Error("took what is used, not aligned, outside, or runs over the end")
	}
	if a := take(t, h, 1, Window{0x20fc0, 0x21000}); a != 0x20fc0 {
		t.Errorf("the window's only slot at %v", a)
	}
	if a, _, ok := h.Peek(1, Window{0x20fc0, 0x21000}, false); ok {
		t.Errorf("found %v in a full window", a)
	}
	r, ok := h.Find(0x10040)
	if !ok || r.ID != 1 || r.Cell(0x10040) != 0x11040 {
		t.Errorf("area %+v", r)
	}
	c, u, d := h.Usage()
	if c+u+d != 128 || u != 7 || d != 1 {
		t.Errorf("%d clean, %d used, %d dirty", c, u, d)
	}
}

// TestDirtyIsReused fills an area, frees one slot and gets exactly that.
func TestDirtyIsReused(t *testing.T) {
	h := &Heap{}
	h.Add(NewArea(1, 0x10000, 0x10000+4096, 4096))
	for range 4096 / Line {
		take(t, h, Line, everywhere)
	}
	if a, _, ok := h.Peek(1, everywhere, false); ok {
		t.Fatalf("found %v in a full heap", a)
	}
	h.Free(0x10400, Line)
	if a := take(t, h, Line, everywhere); a != 0x10400 {
		t.Errorf("reused %v", a)
	}
}

// TestMixedIsUsed: what is free in one piece is enough, whether or not all of it was
// used before.
func TestMixedIsUsed(t *testing.T) {
	h := &Heap{}
	h.Add(NewArea(1, 0x10000, 0x10000+4096, 4096))
	a := take(t, h, 4096/2, everywhere)
	h.Free(a, 4096/2)
	if a, _, ok := h.Peek(4096, everywhere, false); !ok || a != 0x10000 {
		t.Errorf("4096 free bytes: %v, %v", a, ok)
	}
	take(t, h, Line, Window{0x10800, 0x10840})
	if a, _, ok := h.Peek(4096/2+Line, everywhere, false); ok {
		t.Errorf("found %v, more than there is in one piece", a)
	}
}

// TestAnnex: what may fault goes into the annex, and nothing else does.
func TestAnnex(t *testing.T) {
	var h Heap
	h.Add(NewArea(1, 0x10000, 0x10000+4096, 4096))
	if a, _, ok := h.Peek(1, everywhere, true); ok {
		t.Errorf("%v for what may fault, without an annex", a)
	}
	h.Add(NewAnnex(2, 0x8000, 0x90000, 4096))
	a, r, ok := h.Peek(1, everywhere, true)
	if !ok || a != 0x8000 || !r.Annex() || r.Cell(a+64) != 0x90040 {
		t.Errorf("%v in %+v, %v", a, r, ok)
	}
	if a, r, ok := h.Peek(1, everywhere, false); !ok || a != 0x10000 || r.Annex() || r.Cell(a+64) != 0x11040 {
		t.Errorf("%v in %+v, %v", a, r, ok)
	}
}

// TestOn: slots that begin as far behind a page's begin as an address does, and what lies
// between them.
func TestOn(t *testing.T) {
	const at = isa.Addr(0x100000)
	h := &Heap{}
	h.Add(NewArea(1, at+Line, at+0x10040, 3*4096-Line))
	all := Window{Lo: 0, Hi: 1 << 32}
	for _, c := range []struct {
		like  isa.Addr
		w     Window
		other Window
		want  isa.Addr
	}{
		{0x7000 + 5*Line, all, Window{}, at + 5*Line},
		{0x7000, all, Window{}, at + 4096}, // the area begins behind its page's begin
		{0x7000 + 5*Line, Window{Lo: at + 4096, Hi: 1 << 32}, Window{}, at + 4096 + 5*Line},
		{0x7000 + 5*Line, all, Window{Lo: at + 5*Line, Hi: at + 5*Line + 1}, at + 4096 + 5*Line},
		{0x7000 + 63*Line, Window{Lo: 0, Hi: at + 4096}, Window{}, at + 63*Line},
	} {
		if a, ok := h.PeekOn(Line, c.w, c.other, c.like); !ok || a != c.want {
			t.Errorf("like %v in %v: %v, %v; want %v", c.like, c.w, a, ok, c.want)
		}
	}
	for k := range 3 {
		if a, ok := h.PeekOn(Line, all, Window{}, 5*Line); !ok || a != at+isa.Addr(k*4096+5*Line) || !h.Take(a, Line) {
			t.Errorf("slot %d of its kind: %v, %v", k, a, ok)
		}
	}
	if a, ok := h.PeekOn(Line, all, Window{}, 5*Line); ok {
		t.Errorf("a fourth in three pages: %v", a)
	}
	for _, c := range []struct {
		lo, hi isa.Addr
		want   bool
	}{
		{at + 6*Line, at + 4096, true},
		{at + 6*Line, at + 6*Line, true},
		{at + 4*Line, at + 7*Line, false},
		{at, at + 2*Line, false}, // not of the area
	} {
		if got := h.Unused(Window{Lo: c.lo, Hi: c.hi}); got != c.want {
			t.Errorf("%v to %v unused: %v", c.lo, c.hi, got)
		}
	}
}

// TestCopy: what is taken of a copy of a heap is not taken of the heap, nor the other way.
func TestCopy(t *testing.T) {
	h := &Heap{}
	h.Add(NewArea(1, 0x10000, 0x20000, 256))
	h.AddLocals(0x100, 64)
	c := h.Copy()
	all := Window{Lo: 0, Hi: 1 << 40}
	if !c.Take(0x10000, 64) || !h.Take(0x10040, 64) || !c.TakeBoard(0x5000, 8) {
		t.Fatal("not taken")
	}
	a, area, ok := h.Peek(64, all, false)
	b, _, _ := c.Peek(64, all, false)
	if !ok || a != 0x10000 || b != 0x10040 || area.Cell(a) != 0x20000 || h.Boards() != 0 || c.Boards() != 1 {
		t.Errorf("the next slot is %v, and %v in the copy; %d and %d springboards", a, b, h.Boards(), c.Boards())
	}
	words, _ := c.PeekLocals(2)
	if len(words) != 2 || !c.TakeLocal(words[0]) {
		t.Error("no words in the copy")
	}
	if again, _ := h.PeekLocals(2); len(again) != 2 || again[0] != words[0] {
		t.Errorf("the copy took %v, and there are %v", words, again)
	}
}
