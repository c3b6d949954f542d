package arm64

import "kerninst/agent/isa"

// loadStore: bits 29:28, 26 (vector), 24:23, 21 and 11:10 choose (C4.1.96).
func loadStore(w word, i *isa.Insn) bool {
	i.Traits = isa.Mem
	i.Reads = w.gprSP(rn)
	switch {
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

// exclusive: exclusives, ordered accesses, compare and swap.
//
//	31 30 29    24 23 22 21 20 16 15 14 10 9  5 4  0
//	size | 001000 |o2| L|o1| Rs  |o0| Rt2 | Rn | Rt
func exclusive(w word, i *isa.Insn) bool {
	load, data := w.bit(22), w.gpr(rd)
	switch o2, o1 := w.bit(23), w.bit(21); {
	case !o2 && !o1: // ldxr, stxr and their ordered forms
		i.Traits |= isa.Exclusive
		if load {
			i.Traits |= isa.Opens
			i.Writes = data
		} else {
			i.Reads |= data
			i.Writes = w.gpr(rs)
		}
		return w.bits(14, 10) == 31 && (!load || w.bits(20, 16) == 31)
	case !o2 && w.bit(31): // ldxp, stxp
		i.Traits |= isa.Exclusive
		if load {
			i.Traits |= isa.Opens
			i.Writes = data | w.gpr(rt2)
		} else {
			i.Reads |= data | w.gpr(rt2)
			i.Writes = w.gpr(rs)
		}
		return !load || w.bits(20, 16) == 31
	case !o2: // casp: pairs of registers, even numbered
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
		i.Reads |= data | w.gpr(rs)
		i.Writes = w.gpr(rs)
		return w.bits(14, 10) == 31
	}
}

// literal: ldr from a PC-relative address; opc 3 is prfm.
func literal(w word, i *isa.Insn) bool {
	i.Traits |= isa.PCRel
	i.Reads = 0
	opc := w.bits(31, 30)
	if !w.bit(26) && opc != 3 {
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
	if mode == 1 || mode == 3 { // post-indexed, pre-indexed
		i.Writes = w.gprSP(rn)
	}
	if w.bit(26) {
		return opc != 3
	}
	data := w.gpr(rd) | w.gpr(rt2)
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
		return f != formUser && (opc < 2 || size == 0)
	}
	data := w.gpr(rd)
	switch {
	case opc == 0:
		i.Reads |= data
		return true
	case opc == 2 && size == 3: // prfm
		i.Traits &^= isa.Mem
		return f == formOffset || f == formUnscaled
	case opc == 3 && size >= 2:
		return false
	}
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
	i.Writes = w.gpr(rd)
	switch o3, opc := w.bit(15), w.bits(14, 12); {
	case !o3, opc == 0:
		i.Reads |= w.gpr(rs)
		return true
	case opc == 4: // ldapr
		return w.bit(23) && !w.bit(22) && w.bits(20, 16) == 31
	}
	return false
}
