package cfg

import (
	"kerninst/agent/isa"
	"kerninst/agent/ktext"
)

// Jump tables. From an indirect jump, the register it uses is followed backwards
// to what computed it. Compilers make two forms:
//
//	label + extend(table[index]) << shift     entries are distances
//	table[index]                              entries are addresses
//
// where label and table are constants that may have been made in another block,
// and the index, or its like (trail.go), was compared with a constant before, on every path.
// Only if all of that is found, and every entry leads to an instruction of the same function
// (or a cold half), are the targets believed.
//
// Behind a table in a loop lie blocks that only the table leads to, and that lead
// back in front of it. So tables are looked for as if blocks that nothing is seen
// to reach did not exist; once all are linked, each must be found again, with every
// block counting where some jump's targets are still unknown (confirm).

// value is what a register is found to hold.
type value struct {
	kind   valueKind
	c      int64  // vConst; the base of vAddr and of vSum; the table of vLoad
	from   origin // vOpaque; the index of vAddr, vLoad, vSum
	shift  uint8  // of the index in vAddr, vLoad
	limit  int64  // the index is below it by the way it was made; 0: not known
	size   uint8  // of an entry, in bytes
	signed bool
	bits   uint8 // of vAddr, vLoad, vSum: the index is so many low bits, extended; 0: all
	table  int64 // of vSum
	scale  uint8 // of vSum: the entry is shifted left by so much
}

type valueKind uint8

const (
	vNone   valueKind = iota // of no path that is seen
	vOpaque                  // made by an instruction that is not followed
	vHalf                    // the low 32 bits of one, extended by their sign
	vConst
	vAddr // c + index << shift
	vLoad // the entry at c + index << shift
	vSum  // c + the entry at table + index << shift, << scale
)

// origin is where a value was made: before instruction k of a block.
type origin struct {
	b   Block
	k   int
	reg isa.Reg
}

// slicer follows registers backwards in one graph. It keeps decoded blocks of
// the function at hand.
type slicer struct {
	g     *Graph
	text  *ktext.Text
	preds *Lists
	insns map[Block][]step
	busy  map[origin]bool
	// consts are the constants that were looked for in the function at hand; of no
	// kind where there is none.
	consts map[origin]value
	fuel   int
	// unknown names the functions for which all is set.
	unknown map[string]bool
	// all: what nothing is seen to reach counts too, in the function at hand.
	all bool
	// shallow: registers are followed into other blocks for constants only.
	shallow bool
}

type step struct {
	insn isa.Insn
	op   isa.Op
}

// maxFuel bounds the work on one jump, in blocks entered.
const maxFuel = 2000

// maxEntries bounds a table.
const maxEntries = 1024

func (s *slicer) block(b Block) []step {
	if l, ok := s.insns[b]; ok {
		return l
	}
	var l []step
	s.g.Insns(b, func(i isa.Insn) {
		p, _ := s.g.Pos(i.Addr)
		l = append(l, step{i, s.g.Arch.Op(s.g.Code(p), i.Addr)})
	})
	s.insns[b] = l
	return l
}

// value of a register before instruction k of b.
func (s *slicer) value(b Block, k int, r isa.Reg) value {
	if r == 0 && s.g.Arch.Name == "riscv64" {
		return value{kind: vConst}
	}
	l := s.block(b)
	for k--; k >= 0; k-- {
		if (l[k].insn.Writes | l[k].insn.Clobbers).Has(r) {
			return s.made(b, k, l[k].op, r)
		}
	}
	return s.atStart(b, r)
}

// atStart is the value of a register where b begins: what all predecessors
// agree on.
func (s *slicer) atStart(b Block, r isa.Reg) value {
	here := origin{b, 0, r}
	opaque := value{kind: vOpaque, from: here}
	s.fuel--
	if s.fuel < 0 || s.busy[here] || s.g.mark[b]&(Entry|Orphan) != 0 {
		return opaque
	}
	s.busy[here] = true
	defer delete(s.busy, here)
	if v, ok := s.constant(b, r); ok {
		return v
	}
	if s.shallow {
		return opaque
	}
	var got value
	n := 0
	for _, p := range s.preds.Of(b) {
		v := s.atEnd(p, r)
		if v.kind == vNone || v.kind == vOpaque && s.busy[v.from] { // around a loop: as it came in
			continue
		}
		if n > 0 && v != got {
			return opaque
		}
		got = v
		n++
	}
	if n == 0 && s.all {
		return opaque
	}
	return got
}

// atEnd is the value of a register behind b: a call leaves only what it has to.
func (s *slicer) atEnd(b Block, r isa.Reg) value {
	n := len(s.block(b))
	if s.loses(b, r) {
		return value{kind: vOpaque, from: origin{b, n, r}}
	}
	return s.value(b, n, r)
}

// loses reports whether b ends in a call that need not keep r.
func (s *slicer) loses(b Block, r isa.Reg) bool {
	return calls>>s.g.kind[b]&1 != 0 && !s.g.Arch.Saved.Has(r)
}

// calls lists the kinds of blocks in which something else runs before the next block.
const calls = 1<<KindCall | 1<<KindCallLocal | 1<<KindIndirectCall | 1<<KindStaticCall | 1<<KindGate

// constant finds the constant that every instruction gives to a register from which
// a path leads to the start of b: those of an interpreter's loop are made far away.
func (s *slicer) constant(b Block, r isa.Reg) (got value, ok bool) {
	key := origin{b, 0, r}
	if v, ok := s.consts[key]; ok {
		return v, v.kind == vConst
	}
	defer func() { s.consts[key] = got }()
	seen := map[Block]bool{b: true}
	for work := []Block{b}; len(work) > 0; {
		x := work[len(work)-1]
		work = work[:len(work)-1]
		list := s.preds.Of(x)
		if s.g.mark[x]&(Entry|Orphan) != 0 || len(seen) > maxFuel || len(list) == 0 && s.all {
			return value{}, false
		}
		for _, p := range list {
			if s.loses(p, r) {
				return value{}, false
			}
			l := s.block(p)
			k := len(l) - 1
			for k >= 0 && !(l[k].insn.Writes | l[k].insn.Clobbers).Has(r) {
				k--
			}
			if k < 0 && !seen[p] {
				seen[p] = true
				work = append(work, p)
			}
			if k < 0 {
				continue
			}
			v := s.made(p, k, l[k].op, r)
			if v.kind != vConst || got.kind == vConst && v != got {
				return value{}, false
			}
			got = v
		}
	}
	return got, got.kind == vConst
}

// made is the value that instruction k of b gives to r.
func (s *slicer) made(b Block, k int, op isa.Op, r isa.Reg) value {
	opaque := value{kind: vOpaque, from: origin{b, k + 1, r}}
	if op.Dst != r {
		return opaque
	}
	switch op.Kind {
	case isa.OpConst:
		return value{kind: vConst, c: op.Imm}
	case isa.OpAnd:
		if op.Imm > 0 && op.Imm&(op.Imm+1) == 0 {
			opaque.limit = op.Imm + 1
		}
	case isa.OpAdd:
		return s.add(s.value(b, k, op.A), op, opaque)
	case isa.OpShr:
		v := s.value(b, k, op.A)
		if v.kind == vAddr && v.c == 0 && v.bits == 0 && v.shift >= 32 && op.Imm <= int64(v.shift) { // cut, and scaled
			v.bits = 64 - v.shift
			v.shift -= uint8(op.Imm)
			return v
		}
	case isa.OpAddReg:
		return s.addReg(s.value(b, k, op.A), s.value(b, k, op.B), op, opaque)
	case isa.OpLoad:
		v := s.value(b, k, op.A)
		if v.kind == vAddr {
			v.kind, v.c, v.size, v.signed = vLoad, v.c+op.Imm, op.Size, op.Signed
			return v
		}
		if op.Size == 1 && !op.Signed {
			opaque.limit = 256
		}
	case isa.OpLoadReg:
		base, index := s.value(b, k, op.A), s.value(b, k, op.B)
		if base.kind == vConst && index.kind == vOpaque {
			return value{kind: vLoad, c: base.c, from: index.from, limit: index.limit, shift: op.Shift, size: op.Size, signed: op.Signed}
		}
		if op.Size == 1 && !op.Signed {
			opaque.limit = 256
		}
	}
	return opaque
}

// half is how many bits of v count as an index.
func half(v value) uint8 {
	if v.kind == vHalf {
		return 32
	}
	return 0
}

// add is extend(v) << Shift + Imm.
func (s *slicer) add(v value, op isa.Op, opaque value) value {
	switch {
	case op.Size == 4 && op.Signed:
		if v.kind == vOpaque && op.Shift == 0 && op.Imm == 0 {
			v.kind = vHalf
			return v
		}
		return opaque
	case v.kind == vConst && op.Size == 0:
		return value{kind: vConst, c: v.c<<op.Shift + op.Imm}
	case op.Shift == 0 && op.Imm == 0:
		return v
	case (v.kind == vOpaque || v.kind == vHalf) && op.Imm == 0:
		return value{kind: vAddr, from: v.from, shift: op.Shift, limit: v.limit, bits: half(v)}
	case v.kind == vAddr && v.c == 0 && v.shift == 0 && op.Imm == 0 && op.Size == 0: // cut, see OpShr
		v.shift = op.Shift
		return v
	case (v.kind == vAddr || v.kind == vSum) && op.Shift == 0 && op.Size == 0:
		v.c += op.Imm
		return v
	}
	return opaque
}

// addReg is a + extend(b) << Shift. Both orders occur.
func (s *slicer) addReg(a, b value, op isa.Op, opaque value) value {
	if op.Shift == 0 && op.Size == 0 && b.kind == vConst {
		a, b = b, a
	}
	if a.kind != vConst {
		return opaque
	}
	switch {
	case b.kind == vConst && op.Size == 0:
		return value{kind: vConst, c: a.c + b.c<<op.Shift}
	case b.kind == vOpaque || b.kind == vHalf:
		return value{kind: vAddr, c: a.c, from: b.from, shift: op.Shift, limit: b.limit, bits: half(b)}
	case b.kind == vAddr && op.Shift == 0 && op.Size == 0:
		b.c += a.c
		return b
	case b.kind == vLoad:
		v := value{kind: vSum, c: a.c, table: b.c, from: b.from, shift: b.shift, bits: b.bits, limit: b.limit, size: b.size, signed: b.signed, scale: op.Shift}
		if op.Size != 0 && op.Size <= b.size {
			v.signed = op.Signed
		}
		return v
	}
	return opaque
}

// targets resolves the jump that ends b; nil if it cannot be.
func (s *slicer) targets(b Block) []Pos {
	if list := s.targetsByTrail(b); list != nil {
		return list
	}
	v, ok := s.tableAt(b)
	if !ok {
		return nil
	}
	s.fuel = maxFuel
	limit := s.limit(b, index{v.from, v.bits}, map[Block]int64{})
	if v.limit > 0 && (limit <= 0 || v.limit < limit) {
		limit = v.limit
	}
	if limit <= 0 || limit > maxEntries {
		return nil
	}
	return s.read(b, v, int(limit))
}

// tableAt is where the jump that ends b goes, if that is by a table.
func (s *slicer) tableAt(b Block) (v value, ok bool) {
	s.fuel = maxFuel
	l := s.block(b)
	if len(l) == 0 || l[len(l)-1].op.Kind != isa.OpJump {
		return v, false
	}
	jump := l[len(l)-1].op
	v = s.value(b, len(l)-1, jump.A)
	return v, jump.Imm == 0 && (v.kind == vLoad && v.size == 8 || v.kind == vSum)
}

// read takes the targets from the table.
func (s *slicer) read(b Block, v value, n int) []Pos {
	table := v.table
	if v.kind == vLoad {
		table = v.c
	}
	raw := make([]byte, (n-1)<<v.shift+int(v.size))
	if s.text.Read(isa.Addr(table), raw) != nil {
		return nil
	}
	var out []Pos
	for k := range n {
		e := entry(raw[k<<v.shift:], v.size, v.signed)
		a := isa.Addr(e)
		if v.kind == vSum {
			a = isa.Addr(v.c + e<<v.scale)
		}
		if !s.g.Boundary(a) || !s.belongs(b, a) {
			return nil
		}
		p, _ := s.g.Pos(a)
		out = append(out, p)
	}
	return out
}

// entry reads one of size bytes.
func entry(b []byte, size uint8, signed bool) int64 {
	var u uint64
	for k := range size {
		u |= uint64(b[k]) << (8 * k)
	}
	if free := 64 - 8*size; signed {
		return int64(u<<free) >> free
	}
	return int64(u)
}

// belongs reports whether a is in the function of b, or in a cold half.
func (s *slicer) belongs(b Block, a isa.Addr) bool {
	f, ok1 := s.text.Locate(s.g.Start(b))
	h, ok2 := s.text.Locate(a)
	return ok1 && ok2 && (f.Addr == h.Addr || (isCold(h.Name) || isCold(f.Name)) && wholeName(f) == wholeName(h))
}

// index is what a table is read with.
type index struct {
	origin
	bits uint8 // so many low ones of it; 0: all
}

// noLimit is for paths that need not be looked at: they come around a loop.
const noLimit = -1

// limit finds how many values the index can have at the start of b, by the
// comparisons on all paths that lead there; 0 if one has none. known holds what
// was found, and noLimit while it is being looked for.
func (s *slicer) limit(b Block, x index, known map[Block]int64) int64 {
	if n, ok := known[b]; ok {
		return n
	}
	s.fuel--
	if s.fuel < 0 || s.g.mark[b]&(Entry|Orphan) != 0 || x.b == b && x.k > 0 {
		return 0
	}
	known[b] = noLimit
	known[b] = s.limitBefore(b, x, known)
	return known[b]
}

func (s *slicer) limitBefore(b Block, x index, known map[Block]int64) int64 {
	list := s.preds.Of(b)
	if len(list) == 0 && s.all {
		return 0
	}
	most := int64(noLimit)
	for _, p := range list {
		n := s.compared(p, b, x)
		if n == 0 && x.b == p && x.k > 0 {
			return 0
		}
		if n == 0 {
			n = s.limit(p, x, known)
		}
		if n == 0 {
			return 0
		}
		most = max(most, n)
	}
	return most
}

// compared is the limit that the branch at the end of p sets for b.
func (s *slicer) compared(p, b Block, x index) int64 {
	if s.g.kind[p] != KindCond || s.g.target[p] == p+1 {
		return 0
	}
	taken := s.g.target[p] == b
	l := s.block(p)
	last := l[len(l)-1].op
	switch last.Kind {
	case isa.OpCmpBranch:
		return s.comparedRegs(p, len(l)-1, last, taken, x)
	case isa.OpBranch:
		q, k := s.flagsFrom(p, len(l)-1)
		if k < 0 || s.block(q)[k].op.Kind != isa.OpCmp {
			return 0
		}
		cmp := s.block(q)[k].op
		if x.is(s.value(q, k, cmp.A)) {
			return below(last.Imm, cmp.Imm, taken)
		}
	}
	return 0
}

// flagsFrom finds the instruction that set the flags before instruction k of b:
// in b, or in a chain of only predecessors.
func (s *slicer) flagsFrom(b Block, k int) (Block, int) {
	for range 8 {
		l := s.block(b)
		for k--; k >= 0; k-- {
			if (l[k].insn.Writes | l[k].insn.Clobbers).Has(s.g.Arch.Flags) {
				return b, k
			}
		}
		list := s.preds.Of(b)
		if len(list) != 1 || s.g.mark[b]&Entry != 0 || calls>>s.g.kind[list[0]]&1 != 0 {
			return b, -1
		}
		b = list[0]
		k = len(s.block(b))
	}
	return b, -1
}

// is reports whether v is the index, or its low half where that is what counts. A
// whole that is small is what its half is; a half that is small does not say what
// the whole is.
func (x index) is(v value) bool {
	return v.from == x.origin && (v.kind == vOpaque || x.bits > 0 && x.bits <= 32 && v.kind == vHalf)
}

// comparedRegs: one side is the index, the other a constant.
func (s *slicer) comparedRegs(p Block, k int, op isa.Op, taken bool, x index) int64 {
	a, b := s.value(p, k, op.A), s.value(p, k, op.B)
	switch {
	case x.is(a) && b.kind == vConst:
		return below(op.Imm, b.c, taken)
	case x.is(b) && a.kind == vConst:
		return below(swapped[op.Imm], a.c, taken)
	}
	return 0
}

// swapped are conditions of A against B as those of B against A.
var swapped = map[int64]int64{isa.CondBelow: isa.CondAbove, isa.CondAboveEqual: isa.CondBelowEqual}

// below is the number of values that an index has after "index cond n" came out
// as taken says; 0 if there is no bound, as below what is no number of values: all are compared without a sign.
func below(cond, n int64, taken bool) int64 {
	switch {
	case cond == isa.CondAbove && !taken, cond == isa.CondBelowEqual && taken:
		return max(n+1, 0)
	case cond == isa.CondAboveEqual && !taken, cond == isa.CondBelow && taken:
		return max(n, 0)
	}
	return 0
}
