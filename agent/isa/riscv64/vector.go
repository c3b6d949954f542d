package riscv64

import "kerninst/agent/isa"

// Floating point and vectors, as far as they touch general registers. Vector
// and floating-point registers are not tracked.

// fused: fmadd, fmsub, fnmsub, fnmadd.
func fused(w word, i *isa.Insn) bool {
	i.Traits = isa.Vector
	return w.bits(26, 25) < 2
}

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
	return f.known && w.bits(26, 25) < 2 && w.bits(14, 12) <= floatForms[w.bits(31, 27)]
}

// floatForms is the highest funct3 of operations that have no rounding mode.
var floatForms = func() (t [32]uint32) {
	for f := range t {
		t[f] = 7
	}
	t[0x04], t[0x05], t[0x14], t[0x1c], t[0x1e] = 2, 1, 2, 1, 0
	return t
}()

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
	return vectorFuncs[f]>>w.bits(31, 26)&1 != 0
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
		switch w.bits(24, 20) {
		case 0, 8, 11:
		case 16:
			if i.Traits&isa.Load == 0 {
				return false
			}
		default:
			return false
		}
	case 2:
		i.Reads |= w.rs2()
	}
	return w.bits(28, 28) == 0 // wider elements are reserved
}

// vectorCryptoFuncs lists funct6 of the cryptographic operations; all their
// operands are vectors or constants.
var vectorCryptoFuncs = set6(0x20, 0x21, 0x22, 0x28, 0x29, 0x2a, 0x2b, 0x2c, 0x2d, 0x2e, 0x2f)

func vectorCrypto(w word, i *isa.Insn) bool {
	i.Traits = isa.Vector
	return w.bits(14, 12) == 2 && w.bits(25, 25) == 1 && vectorCryptoFuncs>>w.bits(31, 26)&1 != 0
}
