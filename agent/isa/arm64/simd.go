package arm64

import (
	"math/bits"

	"kerninst/agent/isa"
)

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
		return isAllocated(w)
	case w.bits(31, 30) == 0b01 && w.bit(28): // one element
		return isAllocated(w)
	case !w.bit(30) && w.bit(28): // floating point
		if w.bit(24) { // three sources
			return !w.bit(31) && !w.bit(29) && w.bits(23, 22) != 2
		}
		return floatingPoint(w, i)
	}
	return w.bits(31, 24) == 0b11001110 && hashing(w)
}

// hashing: three and four sources, SHA512, SM3, SM4. Bits 23:21 choose, then 15:10.
func hashing(w word) bool {
	op := w.bits(15, 10)
	switch w.bits(23, 21) {
	case 0, 1: // eor3, bcax
		return !w.bit(15)
	case 2: // sm3ss1, sm3tt
		return !w.bit(15) || w.bits(15, 14) == 2
	case 3: // sha512h, sha512h2, sha512su1, rax1; sm3partw1, sm3partw2, sm4ekey
		return op >= 0b100000 && op <= 0b100011 || op >= 0b110000 && op <= 0b110010
	case 4: // xar
		return true
	case 6: // sha512su0, sm4e
		return w.bits(20, 16) == 0 && (op == 0b100000 || op == 0b100001)
	}
	return false
}

// vectorCopy: bits 14:11 choose dup, smov, umov, ins.
//
//	31 30 29 28    21 20 16 15 14 11 10 9  5 4  0
//	0 | Q|op|01110000| imm5|0 | imm4 | 1| Rn | Rd
//
// The lowest bit that is set in imm5 is the size of an element.
func vectorCopy(w word, i *isa.Insn) bool {
	size, whole := uint(bits.TrailingZeros32(w.bits(20, 16))), w.bit(30)
	if w.bit(29) { // ins between elements
		return whole && size <= 3
	}
	switch w.bits(14, 11) {
	case 0b0000: // dup
		return size < 3 || size == 3 && whole
	case 0b0001: // dup from a general register
		i.Reads = w.gpr(rn)
		return size < 3 || size == 3 && whole
	case 0b0011: // ins from a general register
		i.Reads = w.gpr(rn)
		return whole && size <= 3
	case 0b0101: // smov
		i.Writes = w.gpr(rd)
		return size < 2 || size == 2 && whole
	case 0b0111: // umov
		i.Writes = w.gpr(rd)
		return size < 3 && !whole || size == 3 && whole
	}
	return false
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
	case w.bit(31) || w.bits(23, 22) == 2:
		return false
	case w.bits(13, 10) == 0b1000: // fcmp
		i.Writes = flags
		return w.bits(15, 14) == 0 && w.bits(2, 0) == 0
	case w.bits(11, 10) == 0b01: // fccmp
		i.Reads, i.Writes = flags, flags
	case w.bits(11, 10) == 0b11: // fcsel
		i.Reads = flags
	case w.bits(14, 10) == 0b10000:
		return floatSource(w.bits(20, 15), w.bits(23, 22))
	case w.bits(12, 10) == 0b100: // a constant
		return w.bits(9, 5) == 0
	case w.bits(11, 10) == 0b10: // two sources
		return w.bits(15, 12) <= 8
	default:
		return false
	}
	return true
}

// floatSource says whether an operation on one source exists in a format: 0 single, 1
// double, 3 half precision.
func floatSource(op, format uint32) bool {
	switch op {
	case 0, 1, 2, 3: // fmov, fabs, fneg, fsqrt
		return true
	case 4, 5, 7: // fcvt to single, double, half
		return op&3 != format
	case 6: // bfcvt
		return format == 1
	case 8, 9, 10, 11, 12, 14, 15: // frint
		return true
	case 16, 17, 18, 19: // frint32, frint64
		return format < 2
	}
	return false
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
	if !w.bit(21) {
		return fixedPoint(w)
	}
	sf, format := w.bit(31), w.bits(23, 22)
	switch rounding := w.bits(20, 19); {
	case op < 2: // fcvtns … fcvtzu
		return format != 2
	case op < 6: // scvtf, ucvtf, fcvtas, fcvtau
		return format != 2 && rounding == 0
	case rounding == 3: // fjcvtzs
		return op == 6 && !sf && format == 1
	case rounding == 1: // fmov of the upper half
		return sf && format == 2
	case sf:
		return rounding == 0 && (format == 1 || format == 3)
	default:
		return rounding == 0 && (format == 0 || format == 3)
	}
}

// fixedPoint: scvtf and ucvtf to the nearest, fcvtzs and fcvtzu to zero. Bits 15:10 are
// 64 less the bits behind the point.
func fixedPoint(w word) bool {
	sf, format, rounding, op := w.bit(31), w.bits(23, 22), w.bits(20, 19), w.bits(18, 16)
	known := rounding == 0 && (op == 2 || op == 3) || rounding == 3 && op < 2
	return known && format != 2 && (sf || w.bit(15))
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
