package arm64

import "kerninst/agent/isa"

// loadStore: bits 29:28, 26 (vector), 24:23, 21 and 11:10 choose (C4.1.96).
func loadStore(w word, i *isa.Insn) bool {
	i.Traits = isa.MayFault
	i.Reads = w.gprSP(rn)
	switch {
	case w.bits(29, 25) == 0b00110 && !w.bit(31):
		return structures(w, i)
	case w.bits(31, 24) == 0b11011001 && w.bit(21):
		return tags(w, i)
	case w.bits(29, 24) == 0b011001 && !w.bit(21) && w.bits(11, 10) == 0: // ldapur, stlur
		return single(w, i, formUnscaled) && (w.bits(31, 30) != 3 || w.bits(23, 22) < 2)
	case w.bits(29, 24) == 0b001000:
		return exclusive(w, i)
	case w.bits(29, 27) == 0b011 && w.bits(25, 24) == 0:
		return literal(w, i)
	case w.bits(29, 27) == 0b101 && !w.bit(25):
		return pair(w, i)
	case w.bits(29, 27) == 0b111 && w.bits(25, 24) == 1: // unsigned offset
		return single(w, i, formOffset)
	case w.bits(29, 27) == 0b111 && w.bits(25, 24) == 0 && !w.bit(21):
		return single(w, i, [4]form{formUnscaled, formWriteBack, formUser, formWriteBack}[w.bits(11, 10)])
	case w.bits(29, 27) == 0b111 && w.bits(25, 24) == 0 && w.bits(11, 10) == 2:
		i.Reads |= w.gpr(rm)
		return w.bit(14) && single(w, i, formOffset) // option 01x, 11x
	case w.bits(29, 27) == 0b111 && w.bits(25, 24) == 0 && w.bits(11, 10) == 0:
		return atomic(w, i)
	}
	return false
}

// direction is the trait of a load, or of a store.
func direction(load bool) isa.Traits {
	if load {
		return isa.Load
	}
	return isa.Store
}

// structures: ld1 to ld4 and st1 to st4 of several vectors or of one element.
// With bit 23, the base moves on by a constant (Rm is 31) or by a register.
//
//	31 30 29  25 24 23 22 21 20 16 15   10 9  5 4  0
//	0 | Q| 00110 |..| p| L| R| Rm  | opcode | Rn | Rt
func structures(w word, i *isa.Insn) bool {
	i.Traits |= direction(w.bit(22)) | isa.Vector
	form := w.bit(24) && w.oneElement() || !w.bit(24) && !w.bit(21) && w.wholeVectors()
	if !w.bit(23) {
		return form && w.bits(20, 16) == 0
	}
	i.Reads |= w.gpr(rm)
	i.Writes = w.gprSP(rn)
	return form
}

// wholeVectors says whether bits 15:12 are allocated: how many vectors, interleaved
// or one after the other; elements of 64 bits are interleaved in whole ones only.
func (w word) wholeVectors() bool {
	switch w.bits(15, 12) {
	case 2, 6, 7, 10: // ld1
		return true
	case 0, 4, 8: // ld4, ld3, ld2
		return w.bits(11, 10) != 3 || w.bit(30)
	}
	return false
}

// oneElement says the same of bits 15:10, which are opcode, S and size. The upper two
// bits of the opcode are how wide an element is, or that it is loaded into all.
func (w word) oneElement() bool {
	s, size := w.bit(12), w.bits(11, 10)
	switch w.bits(15, 14) {
	case 1: // 16 bits
		return size&1 == 0
	case 2: // 32 or 64 bits
		return size == 0 || size == 1 && !s
	case 3: // to all elements
		return w.bit(22) && !s
	}
	return true
}

// tags: memory tagging. Bits 11:10 are the form of stg and kin, or 0 for what
// transfers tags.
//
//	31    24 23 22 21 20 12 11 10 9  5 4  0
//	11011001 | opc | 1| imm9 | op2 | Rn | Rt
func tags(w word, i *isa.Insn) bool {
	i.Traits |= isa.Privileged
	opc, op2 := w.bits(23, 22), w.bits(11, 10)
	switch {
	case op2 != 0: // stg, stzg, st2g, stz2g
		i.Traits |= isa.Store
		i.Reads |= w.gprSP(rd)
		if op2 != 2 {
			i.Writes = w.gprSP(rn)
		}
		return true
	case opc == 1: // ldg replaces the tag in a pointer
		i.Traits |= isa.Load
		i.Reads |= w.gpr(rd)
		i.Writes = w.gpr(rd)
		return true
	case opc == 3: // ldgm
		i.Traits |= isa.Load
		i.Writes = w.gpr(rd)
	default: // stzgm, stgm
		i.Traits |= isa.Store
		i.Reads |= w.gpr(rd)
	}
	return w.bits(20, 12) == 0
}

// exclusive: exclusives, ordered accesses, compare and swap.
//
//	31 30 29    24 23 22 21 20 16 15 14 10 9  5 4  0
//	size | 001000 |o2| L|o1| Rs  |o0| Rt2 | Rn | Rt
//
// Between a load-exclusive and its store there may be direct branches (Arm ARM, B2.12.5:
// what may not are explicit memory effects, accesses to system registers, barriers of the
// instruction stream, exceptions and indirect branches): a load may be reached and left
// by one, and is then as near to its store as any cache line.
func exclusive(w word, i *isa.Insn) bool {
	load, data := w.bit(22), w.gpr(rd)
	i.Traits |= direction(load)
	switch o2, o1 := w.bit(23), w.bit(21); {
	case !o2 && !o1: // ldxr, stxr and their ordered forms
		i.Traits |= isa.Exclusive
		if load {
			i.Traits |= isa.Opens | isa.Apart
			i.Writes = data
		} else {
			i.Reads |= data
			i.Writes = w.gpr(rs)
		}
		return w.bits(14, 10) == 31 && (!load && w.statusApart(data) || load && w.bits(20, 16) == 31)
	case !o2 && w.bit(31): // ldxp, stxp
		i.Traits |= isa.Exclusive
		if load {
			i.Traits |= isa.Opens | isa.Apart
			i.Writes = data | w.gpr(rt2)
		} else {
			i.Reads |= data | w.gpr(rt2)
			i.Writes = w.gpr(rs)
		}
		twice := w.bits(4, 0) == w.bits(14, 10) // what is loaded is not defined
		return !load && w.statusApart(data|w.gpr(rt2)) || load && !twice && w.bits(20, 16) == 31
	case !o2: // casp: pairs of registers, even numbered
		i.Traits |= isa.Mem
		i.Reads |= data | data<<1 | w.gpr(rs) | w.gpr(rs)<<1
		i.Writes = w.gpr(rs) | w.gpr(rs)<<1
		odd := w.bit(0) || w.bit(16)
		zero := w.bits(4, 0) == 30 || w.bits(20, 16) == 30 // would name SP's number
		return w.bits(14, 10) == 31 && !odd && !zero
	case !o1: // ldar, stlr, ldlar, stllr
		if load {
			i.Writes = data
		} else {
			i.Reads |= data
		}
		return w.bits(14, 10) == 31 && w.bits(20, 16) == 31
	default: // cas
		i.Traits |= isa.Mem
		i.Reads |= data | w.gpr(rs)
		i.Writes = w.gpr(rs)
		return w.bits(14, 10) == 31
	}
}

// statusApart says whether the register for a store-exclusive's status is neither what
// is stored nor the base: what it does is not defined otherwise (stxr: CONSTRAINED
// UNPREDICTABLE).
func (w word) statusApart(data isa.RegSet) bool {
	base := w.gprSP(rn) &^ sp
	return w.gpr(rs)&(data|base) == 0
}

// literal: ldr from a PC-relative address; opc 3 is prfm.
func literal(w word, i *isa.Insn) bool {
	i.Traits |= isa.PCRel
	i.Reads = 0
	opc := w.bits(31, 30)
	switch {
	case w.bit(26):
		i.Traits |= isa.Load | isa.Vector
	case opc == 3: // prfm
		i.Traits = isa.PCRel
	default:
		i.Traits |= isa.Load
		i.Writes = w.gpr(rd)
	}
	return !w.bit(26) || opc != 3
}

// pair: ldp, stp, ldnp, stnp, ldpsw.
//
//	31 30 29 27 26 25 23 22 21   15 14 10 9  5 4  0
//	 opc | 101 | V| mode| L| imm7  | Rt2 | Rn | Rt
func pair(w word, i *isa.Insn) bool {
	opc, load, mode := w.bits(31, 30), w.bit(22), w.bits(24, 23)
	i.Traits |= direction(load)
	if mode == 1 || mode == 3 { // post-indexed, pre-indexed
		i.Writes = w.gprSP(rn)
	}
	if load && w.bits(4, 0) == w.bits(14, 10) { // what is loaded is not defined
		return false
	}
	if w.bit(26) {
		i.Traits |= isa.Vector
		return opc != 3
	}
	data := w.gpr(rd) | w.gpr(rt2)
	if i.Writes&data != 0 { // likewise the base
		return false
	}
	if load {
		i.Writes |= data
	} else {
		i.Reads |= data
	}
	switch opc {
	case 0, 2:
		return true
	case 1: // ldpsw; the store is memory tagging
		return load && mode != 0
	}
	return false
}

// form is how a single load or store addresses memory.
type form uint8

const (
	formOffset form = iota
	formUnscaled
	formWriteBack
	formUser // ldtr, sttr
)

// single: ldr, str and their kin.
//
//	31 30 29 27 26 25 24 23 22
//	size | 111 | V| ..  | opc
func single(w word, i *isa.Insn, f form) bool {
	size, opc := w.bits(31, 30), w.bits(23, 22)
	if f == formWriteBack {
		i.Writes = w.gprSP(rn)
	}
	if w.bit(26) { // vector register: 128 bits are size 0 with opc 2 or 3
		i.Traits |= direction(opc&1 != 0) | isa.Vector
		return f != formUser && (opc < 2 || size == 0)
	}
	data := w.gpr(rd)
	if i.Writes&data != 0 { // what becomes of the base is not defined, nor what is stored
		return false
	}
	switch {
	case opc == 0:
		i.Traits |= isa.Store
		i.Reads |= data
		return true
	case opc == 2 && size == 3: // prfm
		i.Traits &^= isa.MayFault
		return f == formOffset || f == formUnscaled
	case opc == 3 && size >= 2:
		return false
	}
	i.Traits |= isa.Load
	i.Writes |= data
	return true
}

// atomic: the LSE operations on memory, swp and ldapr.
//
//	31 30 29  24 23 22 21 20 16 15 14 12 11 10 9  5 4  0
//	size | 111000 |A| R| 1| Rs  |o3| opc | 0 0 | Rn | Rt
func atomic(w word, i *isa.Insn) bool {
	if w.bit(26) {
		return false
	}
	i.Traits |= isa.Mem
	i.Writes = w.gpr(rd)
	switch o3, opc := w.bit(15), w.bits(14, 12); {
	case !o3, opc == 0:
		i.Reads |= w.gpr(rs)
		return true
	case opc == 4: // ldapr
		i.Traits &^= isa.Store
		return w.bit(23) && !w.bit(22) && w.bits(20, 16) == 31
	}
	return false
}
