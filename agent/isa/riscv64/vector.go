package riscv64

import "kerninst/agent/isa"

// Floating point and vectors, as far as they touch general registers. Vector
// and floating-point registers are not tracked.

// fused: fmadd, fmsub, fnmsub, fnmadd.
func fused(w word, i *isa.Insn) bool {
	i.Traits = isa.Vector
	return w.bits(26, 25) < 2 && w.rounds()
}

// rounds says whether bits 14:12 are a rounding mode: 5 and 6 are reserved, and
// illegal to execute.
func (w word) rounds() bool { return w.bits(14, 12) != 5 && w.bits(14, 12) != 6 }

// floatFuncs says for funct7 of OP-FP without its format bits (31:27) where the
// integer registers are.
var floatFuncs = [32]struct{ known, toInt, fromInt bool }{
	0x00: {known: true}, 0x01: {known: true}, 0x02: {known: true}, 0x03: {known: true}, // add sub mul div
	0x04: {known: true}, 0x05: {known: true}, // sign injection, min max
	0x08: {known: true}, 0x0b: {known: true}, // between formats, square root
	0x14: {known: true, toInt: true},                                     // comparisons
	0x18: {known: true, toInt: true}, 0x1a: {known: true, fromInt: true}, // conversions
	0x1c: {known: true, toInt: true}, 0x1e: {known: true, fromInt: true}, // moves, classification
}

// float: arithmetic on single and double precision.
//
//	31 27 26 25 24 20 19 15 14 12 11 7
//	funct | fmt | rs2 | rs1 | rm | rd
func float(w word, i *isa.Insn) bool {
	i.Traits = isa.Vector
	f := floatFuncs[w.bits(31, 27)]
	if f.toInt {
		i.Writes = w.rd()
	}
	if f.fromInt {
		i.Reads = w.rs1()
	}
	return f.known && w.bits(26, 25) < 2 && floatForm(w)
}

// floatForms is the highest funct3 of operations that have no rounding mode.
var floatForms = map[uint32]uint32{0x04: 2, 0x05: 1, 0x14: 2, 0x1c: 1, 0x1e: 0}

// floatSources has, for operations with one source, a bit for each value that their
// rs2 field may have: of conversions the other format, or the integer's width.
var floatSources = map[uint32]uint32{0x0b: 1 << 0, 0x08: 1<<0 | 1<<1, 0x18: 0xf, 0x1a: 0xf, 0x1c: 1 << 0, 0x1e: 1 << 0}

// floatForm says whether the fields of OP-FP that choose among forms are allocated.
func floatForm(w word) bool {
	f, rs2 := w.bits(31, 27), w.bits(24, 20)
	if most, ok := floatForms[f]; ok && w.bits(14, 12) > most || !ok && !w.rounds() {
		return false
	}
	if f == 0x08 && rs2 == w.bits(26, 25) { // between a format and itself
		return false
	}
	sources, ok := floatSources[f]
	return !ok || sources>>rs2&1 != 0
}

// vectorFuncs lists funct6 (bits 31:26) of the operations on vectors that
// exist, by funct3 (bits 14:12). Floating-point vectors are not described.
var vectorFuncs = [8]uint64{
	0: set6(0x00, 0x01, 0x02, 0x04, 0x05, 0x06, 0x07, 0x09, 0x0a, 0x0b, 0x0c, 0x0e, 0x10, 0x11, 0x12, 0x13, 0x14, 0x15, 0x17) |
		run6(0x18, 0x1d) | run6(0x20, 0x23) | set6(0x25, 0x27) | run6(0x28, 0x31) | set6(0x35),
	2: run6(0x00, 0x0d) | set6(0x10, 0x12, 0x14, 0x17) | run6(0x18, 0x27) | set6(0x29, 0x2b, 0x2d, 0x2f) | run6(0x30, 0x38) |
		set6(0x3a, 0x3b, 0x3c, 0x3d, 0x3f),
	3: set6(0x00, 0x03, 0x09, 0x0a, 0x0b, 0x0c, 0x0e, 0x0f, 0x10, 0x11, 0x14, 0x15, 0x17, 0x18, 0x19) | run6(0x1c, 0x21) |
		set6(0x25) | run6(0x27, 0x2f) | set6(0x35),
	4: set6(0x00, 0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x09, 0x0a, 0x0b, 0x0c, 0x0e, 0x0f) | run6(0x10, 0x15) |
		set6(0x17) | run6(0x18, 0x23) | set6(0x25, 0x27) | run6(0x28, 0x2f) | set6(0x35),
	6: run6(0x08, 0x0f) | set6(0x10) | run6(0x20, 0x27) | set6(0x29, 0x2b, 0x2d, 0x2f) | run6(0x30, 0x38) | run6(0x3a, 0x3f),
}

func set6(list ...uint) (m uint64) {
	for _, n := range list {
		m |= 1 << n
	}
	return m
}

func run6(lo, hi uint) uint64 { return 1<<(hi+1) - 1<<lo }

// vector: funct3 says what the first source is: 0 to 2 a vector, 3 a constant, 4
// and 6 a general register, 7 is vsetvli and kin.
//
//	31  26 25 24 20 19 15 14 12 11 7
//	funct6 |vm| vs2 | vs1 |funct3| vd
func vector(w word, i *isa.Insn) bool {
	i.Traits = isa.Vector
	f := w.bits(14, 12)
	if f == 7 {
		return vectorLength(w, i)
	}
	if f == 4 || f == 6 {
		i.Reads = w.rs1()
	}
	if f == 2 && w.bits(31, 26) == 0x10 { // vmv.x.s, vcpop.m, vfirst.m
		i.Writes = w.rd()
	}
	return vectorFuncs[f]>>w.bits(31, 26)&1 != 0 && vectorForm(w)
}

// vectorUnary has, for funct6 of operations on one vector (funct3 is 2), a bit for each
// value that their vs1 field may have.
var vectorUnary = map[uint32]uint32{
	0x10: 1<<0 | 1<<16 | 1<<17,       // vmv.x.s, vcpop.m, vfirst.m
	0x12: 0xfc | 0x7<<8 | 0x7<<12,    // vzext, vsext; Zvbb
	0x14: 1<<1 | 1<<2 | 1<<3 | 3<<16, // vmsbf, vmsof, vmsif, viota, vid
}

// vectorForm says whether mask bit and sources are allocated, for operations that
// are special about them.
func vectorForm(w word) bool {
	f, op, unmasked := w.bits(14, 12), w.bits(31, 26), w.bits(25, 25) == 1
	arithmetic := f == 0 || f == 3 || f == 4
	switch {
	case arithmetic && (op == 0x10 || op == 0x12): // vadc, vsbc
		return !unmasked
	case arithmetic && op == 0x17: // vmerge; vmv has no other vector
		return !unmasked || w.bits(24, 20) == 0
	case f == 3 && op == 0x27: // vmv<n>r.v
		n := w.bits(19, 15)
		return unmasked && (n == 0 || n == 1 || n == 3 || n == 7)
	case f == 2 && op == 0x17, f == 2 && op >= 0x18 && op <= 0x1f: // vcompress, operations on masks
		return unmasked
	case f == 2 && op == 0x10 && w.bits(19, 15) == 0: // vmv.x.s
		return unmasked
	case f == 2 && op == 0x14 && w.bits(19, 15) == 17: // vid has no source
		return w.bits(24, 20) == 0
	case f == 6 && op == 0x10: // vmv.s.x
		return unmasked && w.bits(24, 20) == 0
	}
	sources, ok := vectorUnary[op]
	return f != 2 || !ok || sources>>w.bits(19, 15)&1 != 0
}

// vectorLength: vsetvli (bit 31 clear), vsetivli (both set), vsetvl.
func vectorLength(w word, i *isa.Insn) bool {
	i.Writes = w.rd()
	switch {
	case w.bits(31, 31) == 0:
		i.Reads = w.rs1()
		return true
	case w.bits(30, 30) == 1: // the length is a constant
		return true
	}
	i.Reads = w.rs1() | w.rs2()
	return w.bits(30, 25) == 0
}

// vectorMemory: bits 27:26 choose unit stride, indexed, strided, indexed. With
// unit stride, bits 24:20 are 0, 8 for whole registers, 11 for masks, or 16 for
// loads that stop at a fault.
func vectorMemory(w word, i *isa.Insn) bool {
	switch w.bits(27, 26) {
	case 0:
		if !unitForm(w, i.Traits&isa.Load != 0) {
			return false
		}
	case 2:
		i.Reads |= w.rs2()
	}
	return w.bits(28, 28) == 0 // wider elements are reserved
}

// unitForm says whether a form with unit stride exists: whole registers and masks are
// not masked, bytes as stored, and of so many registers.
//
//	31 29 28 27 26 25 24   20 19 15 14  12 11 7
//	 nf |mew| mop |vm| lumop | rs1 | width | vd
func unitForm(w word, load bool) bool {
	nf, unmasked, bytes := w.bits(31, 29), w.bits(25, 25) == 1, w.bits(14, 12) == 0
	switch w.bits(24, 20) {
	case 0:
		return true
	case 8:
		return unmasked && nf&(nf+1) == 0 && (load || bytes)
	case 11:
		return unmasked && nf == 0 && bytes
	case 16: // stops at a fault
		return load
	}
	return false
}

// vectorCryptoFuncs lists funct6 of the cryptographic operations; all their
// operands are vectors or constants.
var vectorCryptoFuncs = set6(0x20, 0x21, 0x22, 0x28, 0x29, 0x2a, 0x2b, 0x2c, 0x2d, 0x2e, 0x2f)

// vectorCryptoUnary is vectorUnary for them: rounds of AES and SM4, and vgmul.
var vectorCryptoUnary = map[uint32]uint32{0x28: 0xf | 3<<16, 0x29: 0xf | 1<<7 | 1<<16}

func vectorCrypto(w word, i *isa.Insn) bool {
	i.Traits = isa.Vector
	sources, ok := vectorCryptoUnary[w.bits(31, 26)]
	return w.bits(14, 12) == 2 && w.bits(25, 25) == 1 && vectorCryptoFuncs>>w.bits(31, 26)&1 != 0 && (!ok || sources>>w.bits(19, 15)&1 != 0)
}
