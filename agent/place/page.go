package place

import (
	"cmp"
	"slices"

	"kerninst/agent/isa"
)

// Pages are areas of one page, made one by one where a punned jump happens to lead. Only
// such jumps' patches lie in them: whatever reaches more lies in the other areas, which
// stack walks know (guest/module/arch/amd64/frames.c).

// PageLen is the code of a page, in bytes. Its cells are right behind it, and behind those
// is as much that stays unmapped.
const PageLen = page

const pageSpan = 3 * PageLen

// Pages says where pages may be made, in order of address, and with what; the heap takes
// what is made at an address to be the area of a page there.
func (h *Heap) Pages(room []Window, make func(a isa.Addr) (*Area, error)) {
	h.room, h.make = slices.Clone(room), make
}

// NewPage describes an area of one page.
func NewPage(id uint32, a isa.Addr) *Area {
	r := NewArea(id, a, a+PageLen, PageLen)
	r.page = true
	return r
}

// Page reports whether the area is a page.
func (r *Area) Page() bool { return r.page }

// PeekPage finds a slot of n bytes that begins in w, in a page that is there or else in
// one that may be made. The lowest wins.
func (h *Heap) PeekPage(n int, w Window) (isa.Addr, *Area, bool) {
	for _, s := range [][]state{{clean}, {dirty}, {clean, dirty}} {
		k, _ := slices.BinarySearchFunc(h.areas, w.Lo-min(w.Lo, PageLen-1), byAddr) // a page before ends before
		for ; k < len(h.areas) && h.areas[k].Addr < w.Hi; k++ {
			r := h.areas[k]
			if !r.page {
				continue
			}
			if a, ok := r.slotFrom(n, s, w); ok {
				return a, r, true
			}
		}
	}
	for _, free := range h.room {
		if a, r, ok := h.newPage(n, w, free); ok {
			return a, r, true
		}
	}
	return 0, nil, false
}

// slotFrom is the lowest slot of n bytes, all lines of which are in some states, that
// begins in w.
func (r *Area) slotFrom(n int, states []state, w Window) (isa.Addr, bool) {
	begins := w.Intersect(r.Code())
	if begins.Empty() {
		return 0, false
	}
	k := r.find(lines(n), states, Window{begins.Lo, min(begins.Hi+isa.Addr(lines(n)*Line), r.Code().Hi)}, Window{})
	a := r.Addr + isa.Addr(k*Line)
	return a, k >= 0 && a < w.Hi
}

// newPage looks for the lowest page in some room that has such a slot.
func (h *Heap) newPage(n int, w, room Window) (isa.Addr, *Area, bool) {
	for at := max(room.Lo, w.Lo&^(PageLen-1)); at < w.Hi && room.Holds(at, pageSpan); {
		if r := h.nearPage(at); r != nil {
			at = r.Addr + pageSpan
			continue
		}
		r := NewPage(0, at)
		if a, ok := r.slotFrom(n, []state{clean}, w); ok {
			return a, r, true
		}
		at += PageLen
	}
	return 0, nil, false
}

// nearPage is a page with which one at a would overlap; nil: there is none.
func (h *Heap) nearPage(a isa.Addr) *Area {
	k, _ := slices.BinarySearchFunc(h.areas, a, func(r *Area, a isa.Addr) int { return cmp.Compare(r.Addr+pageSpan, a+1) })
	for ; k < len(h.areas) && h.areas[k].Addr < a+pageSpan; k++ {
		if h.areas[k].page {
			return h.areas[k]
		}
	}
	return nil
}

// MakePage makes the page that PeekPage has found, unless it is there. Where the kernel
// has none to give, none is looked for again.
func (h *Heap) MakePage(r *Area) error {
	if there, ok := h.Find(r.Addr); ok && there.page {
		return nil
	}
	made, err := h.make(r.Addr)
	if err != nil {
		h.deny(Window{r.Addr, r.Addr + pageSpan})
		return err
	}
	h.Add(made)
	return nil
}

// deny takes a window out of the room for pages.
func (h *Heap) deny(w Window) {
	var rest []Window
	for _, r := range h.room {
		for _, piece := range []Window{{r.Lo, min(r.Hi, w.Lo)}, {max(r.Lo, w.Hi), r.Hi}} {
			if !piece.Empty() {
				rest = append(rest, piece)
			}
		}
	}
	h.room = rest
}

// pageRoom is, by ISA, where pages may be made besides what is near the kernel's text: on
// amd64 the hole of 2 GiB below the mapping of the image and the part of the modules' area
// that modules hardly come to (Documentation/arch/x86/x86_64/mm.rst). The kernel's image,
// wherever KASLR has put it, and what comes first behind it are left out.
var pageRoom = map[string]struct{ lo, image, modules, hi isa.Addr }{
	"amd64": {0xffffffff00000000, 0xffffffff80000000, 0xffffffffc0000000, 0xffffffffff000000},
}

const (
	imageRoom  = 128 << 20 // more than any image takes, from its text on
	moduleRoom = 64 << 20  // for modules, from where the first one may lie
)

// PageRoom is where pages may be made for the kernel whose text begins at an address; nil
// where no jump is ever punned.
func PageRoom(arch *isa.Arch, text isa.Addr) []Window {
	p, ok := pageRoom[arch.Name]
	if !ok || text < p.image || text >= p.modules {
		return nil
	}
	var out []Window
	for _, w := range []Window{{p.lo, text &^ (2<<20 - 1)}, {text + imageRoom, p.modules}, {p.modules + moduleRoom, p.hi}} {
		if !w.Empty() {
			out = append(out, w)
		}
	}
	return out
}
