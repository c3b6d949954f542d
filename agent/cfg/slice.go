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
// and the index was compared with a constant before, on every path. Only if all
// of that is found, and every entry leads to an instruction of the same function
// (or a cold half), are the targets believed.

// value is what a register is found to hold.
type value struct {
	kind   valueKind
	c      int64  // vConst; the base of vAddr and of vSum; the table of vLoad
	from   origin // vOpaque; the index of vAddr, vLoad, vSum
	shift  uint8  // of the index in vAddr, vLoad
	limit  int64  // the index is below it by the way it was made; 0: not known
	size   uint8  // of an entry, in bytes
	signed bool
	table  int64 // of vSum
	scale  uint8 // of vSum: the entry is shifted left by so much
}

type valueKind uint8

const (
	vOpaque valueKind = iota // made by an instruction that is not followed
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
	fuel  int
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
	opaque := value{from: here}
	s.fuel--
	if s.fuel < 0 || s.busy[here] || s.g.mark[b]&(Entry|Orphan) != 0 {
		return opaque
	}
	s.busy[here] = true
	defer delete(s.busy, here)
	var got value
	n := 0
	for _, p := range s.preds.Of(b) {
		v := s.value(p, len(s.block(p)), r)
		if v.kind == vOpaque && s.busy[v.from] { // around a loop: as it came in
			continue
		}
		if n > 0 && v != got {
			return opaque
		}
		got = v
		n++
	}
	if n == 0 {
		return opaque
	}
	return got
}

// made is the value that instruction k of b gives to r.
func (s *slicer) made(b Block, k int, op isa.Op, r isa.Reg) value {
	opaque := value{from: origin{b, k + 1, r}}
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
		if v.kind == vAddr && v.c == 0 && v.shift >= 32 && op.Imm <= int64(v.shift) { // cut to 32 bits, and scaled
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

// add is extend(v) << Shift + Imm.
func (s *slicer) add(v value, op isa.Op, opaque value) value {
	switch {
	case v.kind == vConst && op.Size == 0:
		return value{kind: vConst, c: v.c<<op.Shift + op.Imm}
	case op.Shift == 0 && op.Imm == 0:
		return v
	case v.kind == vOpaque && op.Imm == 0:
		return value{kind: vAddr, from: v.from, shift: op.Shift, limit: v.limit}
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
	case b.kind == vOpaque:
		return value{kind: vAddr, c: a.c, from: b.from, shift: op.Shift, limit: b.limit}
	case b.kind == vAddr && op.Shift == 0 && op.Size == 0:
		b.c += a.c
		return b
	case b.kind == vLoad:
		v := value{kind: vSum, c: a.c, table: b.c, from: b.from, shift: b.shift, limit: b.limit, size: b.size, signed: b.signed, scale: op.Shift}
		if op.Size != 0 && op.Size <= b.size {
			v.signed = op.Signed
		}
		return v
	}
	return opaque
}

// targets resolves the jump that ends b; nil if it cannot be.
func (s *slicer) targets(b Block) []Pos {
	s.fuel = maxFuel
	l := s.block(b)
	if len(l) == 0 || l[len(l)-1].op.Kind != isa.OpJump {
		return nil
	}
	jump := l[len(l)-1].op
	v := s.value(b, len(l)-1, jump.A)
	if jump.Imm != 0 || v.kind == vLoad && v.size != 8 || v.kind != vLoad && v.kind != vSum {
		return nil
	}
	limit := v.limit
	if limit == 0 {
		s.fuel = maxFuel
		limit = s.limit(b, v.from, map[Block]bool{})
	}
	if limit <= 0 || limit > maxEntries {
		return nil
	}
	return s.read(b, v, int(limit))
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
	return ok1 && ok2 && (f.Addr == h.Addr || isCold(h.Name) || isCold(f.Name))
}

// limit finds how many values the index can have at the start of b, by the
// comparisons on all paths that lead there.
func (s *slicer) limit(b Block, from origin, seen map[Block]bool) int64 {
	s.fuel--
	if s.fuel < 0 || seen[b] || s.g.mark[b]&(Entry|Orphan) != 0 || from.b == b && from.k > 0 {
		return 0
	}
	seen[b] = true
	var most int64
	list := s.preds.Of(b)
	for _, p := range list {
		n := s.compared(p, b, from)
		if n == 0 && from.b == p && from.k > 0 {
			return 0
		}
		if n == 0 {
			n = s.limit(p, from, seen)
		}
		if n == 0 {
			return 0
		}
		most = max(most, n)
	}
	return most
}

// compared is the limit that the branch at the end of p sets for b.
func (s *slicer) compared(p, b Block, from origin) int64 {
	if s.g.kind[p] != KindCond || s.g.target[p] == p+1 {
		return 0
	}
	taken := s.g.target[p] == b
	l := s.block(p)
	last := l[len(l)-1].op
	switch last.Kind {
	case isa.OpCmpBranch:
		return s.comparedRegs(p, len(l)-1, last, taken, from)
	case isa.OpBranch:
		q, k := s.flagsFrom(p, len(l)-1)
		if k < 0 || s.block(q)[k].op.Kind != isa.OpCmp {
			return 0
		}
		cmp := s.block(q)[k].op
		if v := s.value(q, k, cmp.A); v.kind == vOpaque && v.from == from {
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
		if len(list) != 1 || s.g.mark[b]&Entry != 0 || s.g.kind[list[0]] == KindCall || s.g.kind[list[0]] == KindIndirectCall {
			return b, -1
		}
		b = list[0]
		k = len(s.block(b))
	}
	return b, -1
}

// comparedRegs: one side is the index, the other a constant.
func (s *slicer) comparedRegs(p Block, k int, op isa.Op, taken bool, from origin) int64 {
	a, b := s.value(p, k, op.A), s.value(p, k, op.B)
	switch {
	case a.kind == vOpaque && a.from == from && b.kind == vConst:
		return below(op.Imm, b.c, taken)
	case b.kind == vOpaque && b.from == from && a.kind == vConst:
		swapped := map[int64]int64{isa.CondBelow: isa.CondAbove, isa.CondAboveEqual: isa.CondBelowEqual}[op.Imm]
		return below(swapped, a.c, taken)
	}
	return 0
}

// below is the number of values that an index has after "index cond n" came out
// as taken says; 0 if there is no bound.
func below(cond, n int64, taken bool) int64 {
	switch {
	case cond == isa.CondAbove && !taken, cond == isa.CondBelowEqual && taken:
		return n + 1
	case cond == isa.CondAboveEqual && !taken, cond == isa.CondBelow && taken:
		return n
	}
	return 0
}
