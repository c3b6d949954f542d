package arm64

import "kerninst/agent/isa"

// Floating point and vectors, as far as they touch general registers and flags.
// Vector and predicate registers are not tracked.

// simd: scalar and vector data processing (C4.1.97). Bits 31:28 choose.
func simd(w word, i *isa.Insn) bool {
	i.Traits = isa.Vector
	switch {
	case !w.bit(31) && !w.bit(28): // vectors
		if w.bits(28, 21) == 0b01110000 && !w.bit(15) && w.bit(10) {
			return vectorCopy(w, i)
		}
		return true
	case w.bits(31, 30) == 0b01 && w.bit(28): // one element
		return true
	case !w.bit(30) && w.bit(28): // floating point
		return w.bit(24) && !w.bit(31) || floatingPoint(w, i)
	}
	return w.bits(31, 28) == 0b1100 // three and four sources: SHA3, SM3, SHA512
}

// vectorCopy: bits 14:11 choose dup, smov, umov, ins.
//
//	31 30 29 28    21 20 16 15 14 11 10 9  5 4  0
//	0 | Q|op|01110000| imm5|0 | imm4 | 1| Rn | Rd
func vectorCopy(w word, i *isa.Insn) bool {
	if w.bit(29) {
		return true // between elements
	}
	switch w.bits(14, 11) {
	case 0b0001, 0b0011: // from a general register
		i.Reads = w.gpr(rn)
	case 0b0101, 0b0111: // smov, umov
		i.Writes = w.gpr(rd)
	case 0b0000:
	default:
		return false
	}
	return true
}

// floatingPoint: bits 15:10 choose.
//
//	31 30 29 28   24 23  22 21 20 16 15  10 9  5 4  0
//	sf| 0| S| 11110 | ptype |..| ..  | ...  | Rn | Rd
func floatingPoint(w word, i *isa.Insn) bool {
	if w.bit(24) || w.bit(29) {
		return false
	}
	switch {
	case !w.bit(21): // fixed point
		return convert(w, i)
	case w.bits(15, 10) == 0: // integer
		return convert(w, i)
	case w.bit(31):
		return false
	case w.bits(13, 10) == 0b1000: // fcmp
		i.Writes = flags
		return w.bits(15, 14) == 0 && w.bits(2, 0) == 0
	case w.bits(11, 10) == 0b01: // fccmp
		i.Reads, i.Writes = flags, flags
	case w.bits(11, 10) == 0b11: // fcsel
		i.Reads = flags
	case w.bits(14, 10) == 0b10000, w.bits(12, 10) == 0b100, w.bits(11, 10) == 0b10:
		// one source, a constant, two sources
	default:
		return false
	}
	return true
}

// convert: bits 18:16 are 2, 3 and 7 from a general register, else to one.
func convert(w word, i *isa.Insn) bool {
	op := w.bits(18, 16)
	switch op {
	case 2, 3, 7:
		i.Reads = w.gpr(rn)
	default:
		i.Writes = w.gpr(rd)
	}
	if w.bit(21) && w.bits(20, 16) == 0b11110 { // fjcvtzs
		i.Writes |= flags
	}
	return w.bit(21) || op < 4
}

// scalableRows lists what the kernel uses of SVE and SME to save and restore
// state and to ask for vector lengths.
var scalableRows = []struct {
	mask, bits word
	effect     func(w word, i *isa.Insn)
}{
	{0xfffff800, 0x04bf5000, scalarResult}, // rdvl
	{0xfffff800, 0x04bf5800, scalarResult}, // rdsvl
	{0xff30fc00, 0x0420e000, scalarResult}, // cntb, cnth, cntw, cntd
	{0xffe0f800, 0x04205000, addLength},    // addvl
	{0xffe0f800, 0x04605000, addLength},    // addpl
	{0xffc0e000, 0x85804000, loadVector},   // ldr z
	{0xffc0e010, 0x85800000, loadVector},   // ldr p
	{0xffc0e000, 0xe5804000, storeVector},  // str z
	{0xffc0e010, 0xe5800000, storeVector},  // str p
	{0xfffffff0, 0x2519f000, nil},          // rdffr
	{0xfffffe1f, 0x25289000, nil},          // wrffr
	{0xfffffff0, 0x2518e400, nil},          // pfalse
	{0xff3ffc10, 0x2518e000, nil},          // ptrue
	{0xffff9c10, 0xe1000000, loadArray},    // ldr za
	{0xffff9c10, 0xe1200000, storeArray},   // str za
	{0xfffffc1f, 0xe11f8000, loadVector},   // ldr zt0
	{0xfffffc1f, 0xe13f8000, storeVector},  // str zt0
}

func scalable(w word, i *isa.Insn) bool {
	for k := range scalableRows {
		if r := &scalableRows[k]; w&r.mask == r.bits {
			i.Traits = isa.Vector
			if r.effect != nil {
				r.effect(w, i)
			}
			return true
		}
	}
	return false
}

func scalarResult(w word, i *isa.Insn) { i.Writes = w.gpr(rd) }
func addLength(w word, i *isa.Insn)    { i.Reads, i.Writes = w.gprSP(rm), w.gprSP(rd) }

func loadVector(w word, i *isa.Insn) {
	i.Reads = w.gprSP(rn)
	i.Traits |= isa.Load | isa.MayFault
}

func storeVector(w word, i *isa.Insn) {
	i.Reads = w.gprSP(rn)
	i.Traits |= isa.Store | isa.MayFault
}

// The rows of the array are counted by w12 to w15, in bits 14:13.
func loadArray(w word, i *isa.Insn) {
	loadVector(w, i)
	i.Reads |= 1 << (12 + w.bits(14, 13))
}

func storeArray(w word, i *isa.Insn) {
	storeVector(w, i)
	i.Reads |= 1 << (12 + w.bits(14, 13))
}
