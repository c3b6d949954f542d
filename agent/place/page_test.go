package place

import (
	"errors"
	"fmt"
	"testing"

	"kerninst/agent/isa"
)

const pageBase isa.Addr = 0xffffffff10000000

// withPages is a heap with room for so many pages, of which the kernel has none to give
// where taken says so.
func withPages(pages int, taken ...isa.Addr) *Heap {
	h, id := &Heap{}, uint32(0)
	h.Pages([]Window{{pageBase, pageBase + isa.Addr(pages)*pageSpan}}, func(a isa.Addr) (*Area, error) {
		for _, x := range taken {
			if a < x+pageSpan && x < a+pageSpan {
				return nil, errors.New("taken")
			}
		}
		id++
		return NewPage(id, a), nil
	})
	return h
}

// TestPeekPage: a slot begins in the window, and all of it lies in a page that fits in the
// room.
func TestPeekPage(t *testing.T) {
	for _, c := range []struct {
		what   string
		lo, hi isa.Addr // of the window, from the room's begin
		n      int
		want   isa.Addr // likewise; -1: none
	}{
		{"far more than the room", 0, 1 << 24, 64, 0},
		{"from below it", ^isa.Addr(1<<24 - 1), 1, 64, 0},
		{"all below it", ^isa.Addr(1<<24 - 1), 0, 64, ^isa.Addr(0)},
		{"within a line", 1, 64, 64, ^isa.Addr(0)},
		{"the next line's begin", 1, 65, 64, 64},
		{"256 bytes anywhere", 0x123, 0x223, 64, 0x140},
		{"the last line", 4032, 4033, 64, 4032},
		{"over the page's end", 4032, 4033, 65, ^isa.Addr(0)},
		{"from one page to the next", 4000, 4200, 128, 4096},
		{"the last page that fits", 3 * 4096, 3*4096 + 1, 64, 3 * 4096},
		{"in what stays unmapped behind it", 4 * 4096, 4*4096 + 64, 64, ^isa.Addr(0)},
	} {
		h := withPages(2)
		a, r, ok := h.PeekPage(c.n, Window{pageBase + c.lo, pageBase + c.hi})
		if want := c.want != ^isa.Addr(0); ok != want || ok && (a != pageBase+c.want || !r.Page() || r.Cell(a) != a+PageLen || !r.Code().Holds(a, c.n)) {
			t.Errorf("%s: %v in %+v, %v", c.what, a, r, ok)
		}
		if len(h.Areas()) != 0 {
			t.Errorf("%s: who looks makes none", c.what)
		}
	}
}

// TestPagesAreShared: what leads near lies in one page until that is full, other patches
// never do, and none overlaps another.
func TestPagesAreShared(t *testing.T) {
	h := withPages(100)
	for k := range 200 {
		a, r, ok := h.PeekPage(64, Window{pageBase, pageBase + 1<<24})
		if !ok || h.MakePage(r) != nil || !h.Take(a, 64) {
			t.Fatalf("patch %d: %v, %v", k, a, ok)
		}
		if want := pageBase + isa.Addr(k/64)*pageSpan + isa.Addr(k%64*64); a != want {
			t.Fatalf("patch %d is at %v, not %v", k, a, want)
		}
	}
	if n := len(h.Areas()); n != 4 {
		t.Errorf("%d pages", n)
	}
	if a, _, ok := h.Peek(64, Window{0, ^isa.Addr(0)}, false); ok {
		t.Errorf("what needs no page is at %v", a)
	}
	// A page right before or behind another would have its cells, or what stays unmapped.
	for _, at := range []isa.Addr{pageBase + pageSpan - PageLen, pageBase + PageLen} {
		if a, r, ok := h.PeekPage(64, Window{at, at + 64}); ok {
			t.Errorf("at %v: %v in %v", at, a, r.Addr)
		}
	}
	if !h.Free(pageBase+128, 64) {
		t.Fatal("not used")
	}
	if a, _, ok := h.PeekPage(64, Window{pageBase, pageBase + 4096}); !ok || a != pageBase+128 {
		t.Errorf("after one was freed: %v, %v", a, ok)
	}
}

// TestDeniedPages: where the kernel has no page, the next is looked for, and that one never
// again.
func TestDeniedPages(t *testing.T) {
	h := withPages(3, pageBase+4096)
	all := Window{pageBase, pageBase + 1<<24}
	tries := ""
	for range 6 {
		a, r, ok := h.PeekPage(64, all)
		if !ok {
			tries += "none "
			continue
		}
		err := h.MakePage(r)
		tries += fmt.Sprintf("%d,%v ", (a-pageBase)/PageLen, err == nil)
		if err == nil {
			break
		}
	}
	if tries != "0,false 3,false 6,true " {
		t.Errorf("pages looked for: %s", tries)
	}
	if a, _, ok := h.PeekPage(64, Window{pageBase, pageBase + 6*PageLen}); ok {
		t.Errorf("%v is denied", a)
	}
}

// TestPageRoom: it has nothing of the image wherever that is, nor what modules come to
// first; other ISAs have none.
func TestPageRoom(t *testing.T) {
	const modules, end isa.Addr = 0xffffffffc0000000, 0xffffffffff000000
	for _, text := range []isa.Addr{0xffffffff81000000, 0xffffffff9e800000, 0xffffffffbf000000} {
		room := PageRoom(arch(t, "amd64"), text)
		size := uint64(0)
		for _, w := range room {
			size += w.Size()
			if !w.Intersect(Window{text, min(text+100<<20, modules)}).Empty() || !w.Intersect(Window{modules, modules + moduleRoom}).Empty() || w.Lo < 0xffffffff00000000 || w.Hi > end || w.Lo%4096 != 0 {
				t.Errorf("text at %v: %v to %v", text, w.Lo, w.Hi)
			}
		}
		if size < 3<<30 {
			t.Errorf("text at %v: %d bytes in %d windows", text, size, len(room))
		}
	}
	for name, text := range map[string]isa.Addr{"amd64": 0xffff888000000000, "arm64": 0xffff800080000000, "riscv64": 0xffffffff80000000} {
		if room := PageRoom(arch(t, name), text); room != nil {
			t.Errorf("%s: %v", name, room)
		}
	}
	if _, _, ok := (&Heap{}).PeekPage(64, Window{0, ^isa.Addr(0)}); ok {
		t.Error("a heap without room has pages")
	}
}
