// Package place does the address arithmetic of patch memory: which windows
// patches may lie in, and which slots of an area are free.
//
// An area is CodeLen bytes of code and as many bytes of cells, directly behind it or,
// where the code is in the module's text, elsewhere. The way from a patch to its cell
// is the same everywhere in the area. A slot is a whole cache line
// (Line bytes) or several; as the cells mirror the code, each patch has the
// lines behind it to itself, and two counters never share one.
//
// Slots are clean (never used), used (a patch is or may be live) or dirty (freed: traps,
// or what a task may be asleep in, are there). A clean slot is taken before a dirty one,
// and that before one of both, the lowest first, so that the same requests always get the
// same addresses.
package place

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"slices"

	"kerninst/agent/isa"
)

// Line is the size of a cache line and the alignment of patches.
const Line = 64

// Window is a range of addresses, Hi excluded.
type Window struct{ Lo, Hi isa.Addr }

// Empty reports whether the window holds nothing.
func (w Window) Empty() bool { return w.Lo >= w.Hi }

// Size is its length in bytes.
func (w Window) Size() uint64 {
	if w.Empty() {
		return 0
	}
	return uint64(w.Hi - w.Lo)
}

// Intersect is the part that both windows share.
func (w Window) Intersect(v Window) Window { return Window{max(w.Lo, v.Lo), min(w.Hi, v.Hi)} }

// Holds reports whether n bytes at a lie inside.
func (w Window) Holds(a isa.Addr, n int) bool {
	return a >= w.Lo && a < w.Hi && uint64(w.Hi-a) >= uint64(n)
}

// reach is how far the jump to a patch and the jump back go, in bytes either
// way. The margin keeps the ends of a patch and of a window in reach as well.
var reach = map[string]struct{ jump, margin uint64 }{
	"amd64":   {1 << 31, 4096}, // jmp rel32; the counter's disp32 is shorter
	"arm64":   {1 << 27, 4096}, // b imm26
	"riscv64": {1 << 31, 8192}, // auipc and jalr: the low part is signed
}

// Reach is the window in which a patch for any point in [lo, hi) may lie.
func Reach(arch *isa.Arch, lo, hi isa.Addr) Window {
	r, ok := reach[arch.Name]
	if !ok || hi < lo {
		return Window{}
	}
	return around(isa.Addr(r.jump-r.margin), lo, hi)
}

// farReach is how far a jump goes that takes a register, where that is farther.
var farReach = map[string]uint64{
	"arm64": 1<<32 - 1<<28, // adrp, add and br; less what lies in reach of b
}

// FarReach is the window that any address in reach of [lo, hi) reaches by way of a
// register, and from which any is reached so; empty where the ISA has nothing farther
// than what Reach says.
func FarReach(arch *isa.Arch, lo, hi isa.Addr) Window {
	d, ok := farReach[arch.Name]
	if !ok || hi < lo {
		return Window{}
	}
	return around(isa.Addr(d), lo, hi)
}

// around is what lies within d of all of [lo, hi).
func around(d, lo, hi isa.Addr) Window {
	w := Window{Lo: hi - d, Hi: lo + d}
	if w.Lo > hi { // below address 0
		w.Lo = 0
	}
	if w.Hi < lo { // above the highest address
		w.Hi = ^isa.Addr(0)
	}
	return w
}

// maxCodeLen bounds an area where the way to the cell is short: adr on arm64
// reaches 1 MiB.
var maxCodeLen = map[string]int{"arm64": 1<<20 - 4096}

// LargestCode is the most code that an area may have that is allowed so much.
func LargestCode(arch *isa.Arch, allowed int) int {
	if m, ok := maxCodeLen[arch.Name]; ok {
		return min(m, allowed)
	}
	return allowed
}

// CheckCodeLen says why an area of n bytes of code is not possible.
func CheckCodeLen(arch *isa.Arch, n int) error {
	if n <= 0 || n%4096 != 0 {
		return fmt.Errorf("area of %d bytes: code must be whole pages of 4096", n)
	}
	if m, ok := maxCodeLen[arch.Name]; ok && n > m {
		return fmt.Errorf("area of %d bytes: on %s the cell behind it is reached only up to %d", n, arch.Name, m)
	}
	return nil
}

// state of a line.
type state uint8

const (
	clean state = iota
	used
	dirty
)

// Area is patch memory that exists.
type Area struct {
	ID      uint32
	Addr    isa.Addr
	CodeLen int
	cells   isa.Addr
	annex   bool
	page    bool
	lines   []state
	low     [dirty + 1]int // below which no line is clean, or dirty
}

// NewArea describes an area with its cells, of which every slot is clean. It panics if
// the area is not aligned to lines.
func NewArea(id uint32, a, cells isa.Addr, codeLen int) *Area {
	if uint64(a)%Line != 0 || codeLen%Line != 0 {
		panic(fmt.Sprintf("place: area %v of %d bytes is not aligned to %d", a, codeLen, Line))
	}
	return &Area{ID: id, Addr: a, CodeLen: codeLen, cells: cells, lines: make([]state, codeLen/Line)}
}

// NewAnnex describes the area whose patches may fault, with its cells. It panics as
// NewArea does.
func NewAnnex(id uint32, a, cells isa.Addr, codeLen int) *Area {
	r := NewArea(id, a, cells, codeLen)
	r.annex = true
	return r
}

// Unused is how many of the area's lines are not in use.
func (r *Area) Unused() (n int) {
	for _, l := range r.lines {
		if l != used {
			n++
		}
	}
	return n
}

// Annex reports whether the kernel accepts faults of patches in the area.
func (r *Area) Annex() bool { return r.annex }

// Cell is the address of the cell of a patch.
func (r *Area) Cell(patch isa.Addr) isa.Addr { return patch - r.Addr + r.cells }

// Code is the window that the area's code fills.
func (r *Area) Code() Window { return Window{r.Addr, r.Addr + isa.Addr(r.CodeLen)} }

// find is the lowest run of n lines inside w, and outside another window, that are in
// one of the states, or -1.
func (r *Area) find(n int, states []state, w, not Window) int {
	run, from := 0, len(r.lines)
	for _, s := range states {
		for r.low[s] < len(r.lines) && r.lines[r.low[s]] != s {
			r.low[s]++
		}
		from = min(from, r.low[s])
	}
	for k, l := range r.lines[from:] {
		k += from
		at := r.Addr + isa.Addr(k*Line)
		if !slices.Contains(states, l) || !w.Holds(at, Line) || !not.Intersect(Window{at, at + Line}).Empty() {
			run = 0
			continue
		}
		if run++; run == n {
			return k - n + 1
		}
	}
	return -1
}

// Heap is the areas that patches are placed in, and the slots of springboards.
type Heap struct {
	areas   []*Area   // in order of address
	plain   []*Area   // of those, all but pages, of which there may be thousands
	boards  []Window  // those in use, in order
	evicted []Evicted // in order
	gaps    []int     // of each, the most bytes in one piece that no springboard has
	locals  Locals
	sites   sites
	room    []Window // where pages may be made
	make    func(a isa.Addr) (*Area, error)
}

// Add puts an area into the heap.
func (h *Heap) Add(r *Area) {
	h.areas = inserted(h.areas, r)
	if !r.page {
		h.plain = inserted(h.plain, r)
	}
}

func inserted(to []*Area, r *Area) []*Area {
	k, _ := slices.BinarySearchFunc(to, r.Addr, byAddr)
	return slices.Insert(to, k, r)
}

func byAddr(r *Area, a isa.Addr) int { return cmp.Compare(r.Addr, a) }

// Copy is the same memory, for who tries what would fit: what is taken of one is not of the other. No pages are
// made in a copy.
func (h *Heap) Copy() *Heap {
	c := &Heap{boards: slices.Clone(h.boards), evicted: slices.Clone(h.evicted), gaps: slices.Clone(h.gaps)}
	c.sites = sites{h.sites.most, maps.Clone(h.sites.taken)}
	c.locals = Locals{h.locals.addr, slices.Clone(h.locals.words), h.locals.low}
	for _, r := range h.areas {
		area := *r
		area.lines = slices.Clone(r.lines)
		c.Add(&area)
	}
	return c
}

// Areas lists the areas in order of address.
func (h *Heap) Areas() []*Area { return h.areas }

// Find is the area that holds a patch.
func (h *Heap) Find(patch isa.Addr) (*Area, bool) {
	k, _ := slices.BinarySearchFunc(h.areas, patch+1, byAddr) // the first behind it
	if k == 0 || !h.areas[k-1].Code().Holds(patch, 1) {
		return nil, false
	}
	return h.areas[k-1], true
}

func lines(n int) int { return (n + Line - 1) / Line }

// Peek finds where Take would put n bytes inside w; in the annex those that may fault,
// and only those.
func (h *Heap) Peek(n int, w Window, faults bool) (isa.Addr, *Area, bool) {
	return h.PeekBeside(n, w, faults, Window{})
}

// PeekBeside is Peek, when Take has put something else into a window first.
func (h *Heap) PeekBeside(n int, w Window, faults bool, other Window) (isa.Addr, *Area, bool) {
	for _, s := range [][]state{{clean}, {dirty}, {clean, dirty}} {
		for _, r := range h.plain {
			if r.annex != faults {
				continue
			}
			if k := r.find(lines(n), s, w, other); k >= 0 {
				return r.Addr + isa.Addr(k*Line), r, true
			}
		}
	}
	return 0, nil, false
}

// PeekOn finds, among slots outside the annex, one of n bytes inside w and outside another
// window that begins as far behind a page's begin as a does.
func (h *Heap) PeekOn(n int, w, other Window, a isa.Addr) (isa.Addr, bool) {
	for _, s := range [][]state{{clean}, {dirty}, {clean, dirty}} {
		for _, r := range h.plain {
			first := r.Addr + (a-r.Addr)%page
			for at := first; !r.annex && r.Code().Holds(at, lines(n)*Line); at += page {
				slot := Window{at, at + isa.Addr(lines(n)*Line)}
				k := int(at-r.Addr) / Line
				if slot.Intersect(w) == slot && slot.Intersect(other).Empty() && !slices.ContainsFunc(r.lines[k:k+lines(n)], func(l state) bool { return !slices.Contains(s, l) }) {
					return at, true
				}
			}
		}
	}
	return 0, false
}

// Slots are the unused slots of n bytes in w, outside the annex and pages, clean ones first.
func (h *Heap) Slots(n int, w Window) iter.Seq[isa.Addr] {
	return func(yield func(isa.Addr) bool) {
		for _, s := range [][]state{{clean}, {dirty}} {
			for _, r := range h.plain {
				if r.annex {
					continue
				}
				for from := w; ; {
					k := r.find(lines(n), s, from, Window{})
					if k < 0 {
						break
					}
					a := r.Addr + isa.Addr(k*Line)
					if !yield(a) {
						return
					}
					from.Lo = a + 1
				}
			}
		}
	}
}

const page = 4096

// Take marks the slot of n bytes at a as used. It reports whether all of it
// was free.
func (h *Heap) Take(a isa.Addr, n int) bool {
	r, first, ok := h.slot(a, n)
	if !ok {
		return false
	}
	for _, l := range r.lines[first : first+lines(n)] {
		if l == used {
			return false
		}
	}
	r.set(first, lines(n), used)
	return true
}

// Free marks the slot of n bytes at a as dirty. It reports whether all of it
// was used.
func (h *Heap) Free(a isa.Addr, n int) bool {
	r, first, ok := h.slot(a, n)
	if !ok {
		return false
	}
	for _, l := range r.lines[first : first+lines(n)] {
		if l != used {
			return false
		}
	}
	r.set(first, lines(n), dirty)
	delete(h.sites.taken, a)
	return true
}

func (h *Heap) slot(a isa.Addr, n int) (*Area, int, bool) {
	r, ok := h.Find(a)
	if !ok || uint64(a-r.Addr)%Line != 0 || n <= 0 || !r.Code().Holds(a, lines(n)*Line) {
		return nil, 0, false
	}
	return r, int(a-r.Addr) / Line, true
}

func (r *Area) set(first, n int, s state) {
	for k := first; k < first+n; k++ {
		r.lines[k] = s
		r.low[s] = min(r.low[s], k)
	}
}

// Unused reports whether all lines of a window are of one area, and free; none are in an
// empty window.
func (h *Heap) Unused(w Window) bool {
	if w.Empty() {
		return true
	}
	r, first, ok := h.slot(w.Lo, int(w.Size()))
	return ok && !slices.Contains(r.lines[first:first+lines(int(w.Size()))], used)
}

// Usage counts the lines of the heap by state.
func (h *Heap) Usage() (cleanLines, usedLines, dirtyLines int) {
	for _, r := range h.areas {
		for _, l := range r.lines {
			switch l {
			case clean:
				cleanLines++
			case used:
				usedLines++
			case dirty:
				dirtyLines++
			}
		}
	}
	return
}
