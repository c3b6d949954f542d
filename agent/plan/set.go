package plan

import (
	"cmp"
	"slices"

	"kerninst/agent/isa"
	"kerninst/agent/place"
)

// Set is plans that are live together, or will be, found by what they touch: a question
// about one place costs the same however many there are. The zero Set is empty. It is not
// for use by several goroutines at once.
type Set struct {
	squares map[isa.Addr][]*Plan // by the square of addresses that they have some of
	asked   map[isa.Addr]int
	locals  map[isa.Addr]*Plan // by the cell in per-CPU memory
	clones  []cloneIn
	n       int
}

// cloneIn is a clone's entry, and what it is a copy of, in order.
type cloneIn struct {
	entry  *Plan
	copied [][2]isa.Addr
}

// square is the size of a Set's squares, in bytes: more than most of what a plan has in
// one piece.
const square = 256

// usualSquares are more than most plans have any of.
const usualSquares = 8

// mostWindows is how many a plan may have.
const mostWindows = 6

// Windows are the addresses that a plan has: of text, and of patch memory.
func (p *Plan) Windows() []place.Window {
	return p.windows(make([]place.Window, 0, mostWindows))
}

func (p *Plan) windows(out []place.Window) []place.Window {
	if p.In != nil { // which has them
		return out
	}
	out = append(p.slots(out, true), place.Window{Lo: p.Point, Hi: p.End()})
	if b := p.Board; b != nil {
		out = append(out, place.Window{Lo: b.Addr, Hi: b.End()})
	}
	if e := p.Moves(); e != nil {
		out = append(out, place.Window{Lo: e.Body, Hi: e.End()})
	}
	return out
}

// Slots are the parts of the heap that a plan takes, with or without that of what it
// moves away.
func (p *Plan) Slots(moved bool) []place.Window {
	return p.slots(make([]place.Window, 0, mostWindows), moved)
}

func (p *Plan) slots(out []place.Window, moved bool) []place.Window {
	out = append(out, place.Window{Lo: p.Patch, Hi: p.Patch + isa.Addr(p.Slot)})
	if a := p.Annex; a != nil {
		out = append(out, place.Window{Lo: a.Addr, Hi: a.Addr + isa.Addr(len(a.Code))})
	}
	if e := p.Moves(); moved && e != nil {
		out = append(out, place.Window{Lo: e.Patch, Hi: e.Patch + isa.Addr(e.Slot)})
	}
	return out
}

// squaresOf adds those that a plan has some of, each once.
func squaresOf(p *Plan, out []isa.Addr) []isa.Addr {
	var room [mostWindows]place.Window
	for _, w := range p.windows(room[:0]) {
		for k := w.Lo / square; k*square < w.Hi; k++ {
			if !slices.Contains(out, k) {
				out = append(out, k)
			}
		}
	}
	return out
}

// Len is how many plans it has.
func (s *Set) Len() int { return s.n }

// Add puts a plan into the set, which does not have it.
func (s *Set) Add(p *Plan) {
	if s.squares == nil {
		s.squares, s.asked, s.locals = map[isa.Addr][]*Plan{}, map[isa.Addr]int{}, map[isa.Addr]*Plan{}
	}
	s.n++
	if p.Clone != nil {
		s.clones = append(s.clones, cloneIn{p, p.Clone.Copied()})
	}
	s.asked[p.Asked()]++
	var room [usualSquares]isa.Addr
	for _, k := range squaresOf(p, room[:0]) {
		s.squares[k] = append(s.squares[k], p)
	}
	for _, a := range p.Locals {
		if a != 0 {
			s.locals[a] = p
		}
	}
}

// Remove takes a plan out of the set, which has it.
func (s *Set) Remove(p *Plan) {
	s.n--
	s.clones = slices.DeleteFunc(s.clones, func(c cloneIn) bool { return c.entry == p })
	if s.asked[p.Asked()]--; s.asked[p.Asked()] == 0 {
		delete(s.asked, p.Asked())
	}
	var room [usualSquares]isa.Addr
	for _, k := range squaresOf(p, room[:0]) {
		if s.squares[k] = slices.DeleteFunc(s.squares[k], func(q *Plan) bool { return q == p }); len(s.squares[k]) == 0 {
			delete(s.squares, k)
		}
	}
	for _, a := range p.Locals {
		if s.locals[a] == p {
			delete(s.locals, a)
		}
	}
}

// Asked reports whether a is the instrumentation point of one of the plans.
func (s *Set) Asked(a isa.Addr) bool { return s.asked[a] > 0 }

// Local is the plan that has a cell in per-CPU memory; nil: none has it.
func (s *Set) Local(a isa.Addr) *Plan { return s.locals[a] }

// Copied is the entry of a clone that has a copy of what is at an address; nil: none has.
func (s *Set) Copied(a isa.Addr) *Plan {
	for _, c := range s.clones {
		k, found := slices.BinarySearchFunc(c.copied, a, func(r [2]isa.Addr, a isa.Addr) int { return cmp.Compare(r[0], a) })
		if found || k > 0 && a < c.copied[k-1][1] {
			return c.entry
		}
	}
	return nil
}

// Touches reports whether one of the plans displaces, overwrites or evicts any of [lo, hi).
func (s *Set) Touches(lo, hi isa.Addr) bool {
	return slices.ContainsFunc(s.Near(place.Window{Lo: lo, Hi: hi}), func(p *Plan) bool { return p.Touches(lo, hi) })
}

// Near are the plans that may have any of the windows: all that do, and others. Each is
// there once.
func (s *Set) Near(windows ...place.Window) (out []*Plan) {
	if s.n == 0 {
		return nil
	}
	for _, w := range windows {
		for k := w.Lo / square; k*square < w.Hi; k++ {
			for _, p := range s.squares[k] {
				if !slices.Contains(out, p) { // they are few
					out = append(out, p)
				}
			}
		}
	}
	return out
}
