package cfg

import "kerninst/agent/isa"

// Trails. How many values the index of a table can have is said by a comparison on each path to
// the jump. Often what was compared is not the register that the table is read with but its like:
// an extension of it, or what was loaded from the same place a second time, since a compiler has
// lw and lwu for two expressions. So the index is followed backwards path by path as what it is at
// each place, a register or a place in memory, and compared with what each branch compares.

// held is where the index is at some point: the low bits of a register, or of memory of size bytes
// at that register + off; at off, if that is no register.
type held struct {
	reg  isa.Reg
	bits uint8 // 1 to 64
	mem  bool
	off  int64
	size uint8
}

// name is what the index is called at a point of one block: what instruction k-1 has made, or, if
// k is 0, what is held where the block begins.
type name struct {
	k int
	held
}

// back follows h backwards from before instruction k of b to where b begins, and tells see each
// name that it has on the way, the last one included; until there is none, or see has enough.
func (s *slicer) back(b Block, k int, h held, see func(name) (enough bool)) (atStart held, ok bool) {
	l := s.block(b)
	for k--; k >= 0; k-- {
		i, op := l[k].insn, l[k].op
		if h.mem {
			if m := s.loaded(b, k, h.bits); m == h && op.Dst != h.reg && see(name{k + 1, held{reg: op.Dst, bits: m.bits}}) {
				return held{}, false
			}
			if i.Traits&isa.Store != 0 && !s.saves(i, h) {
				return held{}, false
			}
		}
		if !(i.Writes | i.Clobbers).Has(h.reg) {
			continue
		}
		if !h.mem && see(name{k + 1, h}) {
			return held{}, false
		}
		if h, ok = s.madeOf(b, k, h); !ok {
			return held{}, false
		}
	}
	return h, !see(name{0, h})
}

// madeOf is what the index was before instruction k, which made it, if that only moves, extends
// or loads. A value that is extended by its sign is the low bits of it, where it is small.
func (s *slicer) madeOf(b Block, k int, h held) (held, bool) {
	l := s.block(b)
	op := l[k].op
	if op.Dst != h.reg {
		return held{}, false
	}
	from := held{reg: op.A, bits: h.bits, mem: h.mem, off: h.off, size: h.size}
	moved := op.Kind == isa.OpAdd && op.Shift == 0 && op.Imm == 0 && op.Size == 0
	switch {
	case h.mem:
		return from, moved
	case moved:
		return from, true
	case op.Kind == isa.OpAdd && op.Shift == 0 && op.Imm == 0:
		from.bits = min(h.bits, 8*op.Size)
		return from, true
	case op.Kind == isa.OpAnd && op.Imm > 0 && op.Imm&(op.Imm+1) == 0:
		from.bits = min(h.bits, width(op.Imm))
		return from, true
	case op.Kind == isa.OpShr && k > 0:
		left := l[k-1].op
		from.reg, from.bits = left.A, min(h.bits, 64-left.Shift)
		return from, left.Kind == isa.OpAdd && left.Dst == op.A && int64(left.Shift) == op.Imm && left.Imm == 0 && left.Size == 0
	case op.Kind == isa.OpLoad:
		return s.loaded(b, k, h.bits), true
	}
	return held{}, false
}

// nowhere is no register: memory is at an address that is known.
const nowhere = ^isa.Reg(0)

// loaded is the memory of which instruction k of b, if it loads, has so many bits.
func (s *slicer) loaded(b Block, k int, bits uint8) held {
	op := s.block(b)[k].op
	if op.Kind != isa.OpLoad {
		return held{}
	}
	h := held{reg: op.A, bits: min(bits, 8*op.Size), mem: true, off: op.Imm, size: op.Size}
	if at := s.value(b, k, op.A); at.kind == vConst {
		h.reg, h.off = nowhere, at.c+op.Imm
	}
	return h
}

// saves reports whether an instruction stores what a callee has to keep on the stack, as at the begin of
// a function or where it turns out that more is needed: no pointer leads to that place. Of h, which is itself on the stack, by
// whichever of two registers, that is not known.
func (s *slicer) saves(i isa.Insn, h held) bool {
	if h.reg == s.g.Arch.SP || h.reg == s.g.Arch.FP {
		return false
	}
	return i.Traits&isa.Load == 0 && i.Reads&^s.g.Arch.Saved == 0 && i.Reads.Has(s.g.Arch.SP)
}

// width of a mask of low bits.
func width(mask int64) (n uint8) {
	for ; mask != 0; mask >>= 1 {
		n++
	}
	return n
}

// trail is the search for one index.
type trail struct {
	*slicer
	known map[place]int64
}

// place is what the index is where a block begins.
type place struct {
	b Block
	held
}

// targetsByTrail resolves the jump that ends b, if the index is compared where it is seen.
func (s *slicer) targetsByTrail(b Block) []Pos {
	s.shallow = true
	defer func() { s.shallow = false }()
	v, ok := s.tableAt(b)
	if !ok {
		return nil
	}
	n := s.trailLimit(b, v)
	if v.limit > 0 && v.limit < n {
		n = v.limit
	}
	if n <= 0 || n > maxEntries {
		return nil
	}
	return s.read(b, v, int(n))
}

// trailLimit is how many values the index of v can have at the end of b; 0: that is not found.
func (s *slicer) trailLimit(b Block, v value) int64 {
	if v.from.b != b {
		return 0
	}
	h := held{reg: v.from.reg, bits: 64}
	if v.bits > 0 {
		h.bits = v.bits
	}
	h, ok := s.back(b, v.from.k, h, func(name) bool { return false })
	if !ok {
		return 0
	}
	return (&trail{s, map[place]int64{}}).limit(b, h)
}

// limit is how many values what is held where b begins can have, by all paths to there.
func (t *trail) limit(b Block, h held) int64 {
	at := place{b, h}
	if n, ok := t.known[at]; ok {
		return n
	}
	list := t.preds.Of(b)
	if len(t.known) > maxFuel || t.g.mark[b]&(Entry|Orphan) != 0 || len(list) == 0 && t.all {
		return 0
	}
	t.known[at] = noLimit
	most := int64(noLimit)
	for _, p := range list {
		n := t.over(p, b, h)
		if n == 0 {
			most = 0
			break
		}
		most = max(most, n)
	}
	t.known[at] = most
	return most
}

// over is the same of one way to b, that from p.
func (t *trail) over(p, b Block, h held) int64 {
	fault := t.g.mark[p]&FaultSite != 0 && b != p+1 // what is in p has not been done
	if fault || h.mem && calls>>t.g.kind[p]&1 != 0 || !h.mem && t.loses(p, h.reg) {
		return 0
	}
	c, compares := t.comparison(p, b)
	limit := int64(0)
	before, ok := t.back(p, len(t.block(p)), h, func(n name) bool {
		if compares && c.b == p && c.of.k == n.k && c.of.like(n.held) {
			limit = c.limit
		}
		return limit > 0
	})
	switch {
	case limit > 0:
		return limit
	case !ok:
		return 0
	case compares && c.b != p: // flags of a block further up, which alone leads here
		return t.further(p, before, c)
	}
	return t.limit(p, before)
}

// further looks for the index in the blocks above p, each of which is the only one that leads to the next, up to where
// the comparison is.
func (t *trail) further(p Block, h held, c comparison) int64 {
	limit := int64(0)
	for q := p; q != c.b; {
		q = t.preds.Of(q)[0]
		var ok bool
		h, ok = t.back(q, len(t.block(q)), h, func(n name) bool {
			if q == c.b && c.of.k == n.k && c.of.like(n.held) {
				limit = c.limit
			}
			return limit > 0
		})
		if !ok {
			return limit
		}
	}
	return t.limit(c.b, h)
}

// like reports whether what is said of n, that it is small, holds for h.
func (n name) like(h held) bool {
	return n.reg == h.reg && n.mem == h.mem && n.off == h.off && n.size == h.size && h.bits <= n.bits
}

// comparison says that what has a name in b is below a limit.
type comparison struct {
	b     Block
	of    name
	limit int64
}

// comparison is what the branch at the end of p says where b follows.
func (s *slicer) comparison(p, b Block) (c comparison, ok bool) {
	if s.g.kind[p] != KindCond || s.g.target[p] == p+1 {
		return c, false
	}
	taken := s.g.target[p] == b
	l := s.block(p)
	last := l[len(l)-1].op
	s.fuel = maxFuel
	switch last.Kind {
	case isa.OpCmpBranch:
		k := len(l) - 1
		if v := s.value(p, k, last.B); v.kind == vConst {
			return s.compares(p, k, last.A, 64, below(last.Imm, v.c, taken))
		}
		if v := s.value(p, k, last.A); v.kind == vConst {
			return s.compares(p, k, last.B, 64, below(swapped[last.Imm], v.c, taken))
		}
	case isa.OpBranch:
		q, k := s.flagsFrom(p, len(l)-1)
		if k >= 0 && s.block(q)[k].op.Kind == isa.OpCmp {
			cmp := s.block(q)[k].op
			return s.compares(q, k, cmp.A, 8*cmp.Size, below(last.Imm, cmp.Imm, taken))
		}
	}
	return c, false
}

// compares names what a register holds before instruction k of b.
func (s *slicer) compares(b Block, k int, r isa.Reg, bits uint8, limit int64) (c comparison, ok bool) {
	c = comparison{b: b, limit: limit}
	named := false
	s.back(b, k, held{reg: r, bits: bits}, func(n name) bool {
		c.of, named = n, true
		return n.k > 0 && s.block(b)[n.k-1].op.Kind == isa.OpLoad
	})
	return c, named && limit > 0
}
