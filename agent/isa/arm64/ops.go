package arm64

import (
	"fmt"

	"kerninst/agent/isa"
)

// Encodings of what snippets compute (Arm ARM C6.2). All are on 64 bits.

// three packs Rm, a shift of it by amount, Rn and Rd.
//
//	31     24 23 22 21 20 16 15  10 9  5 4  0
//	opcode   | shift|0| Rm  | imm6 | Rn | Rd
func three(opcode uint32, rd, rn, rm isa.Reg, amount uint32) []byte {
	return emit(opcode | uint32(rm)<<16 | amount<<10 | uint32(rn)<<5 | uint32(rd))
}

// zeroReg is the register number that reads as zero.
const zeroReg = 31

// ALU is the opcode of an operation on registers, the second shifted left.
type ALU uint32

const (
	Add  ALU = 0x8b000000
	Sub  ALU = 0xcb000000
	Subs ALU = 0xeb000000
	And  ALU = 0x8a000000
	Orr  ALU = 0xaa000000
	Eor  ALU = 0xca000000
)

// ALUReg encodes op rd, rn, rm, lsl #shift.
func ALUReg(op ALU, rd, rn, rm isa.Reg, shift uint8) ([]byte, error) {
	if shift > 63 {
		return nil, fmt.Errorf("shift by %d", shift)
	}
	return three(uint32(op), rd, rn, rm, uint32(shift)), general("operation", rd, rn, rm)
}

// MoveReg encodes mov rd, rn.
func MoveReg(rd, rn isa.Reg) ([]byte, error) {
	return three(uint32(Orr), rd, zeroReg, rn, 0), general("mov", rd, rn)
}

// Compare encodes cmp rn, rm.
func Compare(rn, rm isa.Reg) ([]byte, error) {
	return three(uint32(Subs), zeroReg, rn, rm, 0), general("cmp", rn, rm)
}

// FitsImm reports whether v is an immediate of AddImm, SubImm and CompareImm.
func FitsImm(v uint64) bool { return v < 1<<12 }

// immediate packs a 12-bit immediate.
//
//	31     22 21   10 9  5 4  0
//	opcode   | imm12 | Rn | Rd
func immediate(opcode uint32, rd, rn isa.Reg, v uint64) ([]byte, error) {
	if !FitsImm(v) {
		return nil, fmt.Errorf("immediate %d has more than 12 bits", v)
	}
	return emit(opcode | uint32(v)<<10 | uint32(rn)<<5 | uint32(rd)), nil
}

// AddImm encodes add rd, rn, #v; either may be SP.
func AddImm(rd, rn isa.Reg, v uint64) ([]byte, error) { return immediate(0x91000000, rd, rn, v) }

// SubImm encodes sub rd, rn, #v; either may be SP.
func SubImm(rd, rn isa.Reg, v uint64) ([]byte, error) { return immediate(0xd1000000, rd, rn, v) }

// CompareImm encodes cmp rn, #v.
func CompareImm(rn isa.Reg, v uint64) ([]byte, error) { return immediate(0xf1000000, zeroReg, rn, v) }

// LoadImm encodes a constant by movz or movn and as many movk as it takes; n is
// the number of instructions.
//
//	31 30 29 28    23 22 21 20   5 4  0
//	 1 | op | 100101 | hw  | imm16 | Rd    op: 00 movn, 10 movz, 11 movk
func LoadImm(rd isa.Reg, v uint64) (code []byte, n int, err error) {
	const movn, movz, movk = 0x92800000, 0xd2800000, 0xf2800000
	first, rest := uint32(movz), uint64(0)
	ones := 0
	for k := 0; k < 64; k += 16 {
		if v>>k&0xffff == 0xffff {
			ones++
		}
	}
	if ones > 1 { // start from all ones
		first, rest = movn, 0xffff
	}
	for k := 0; k < 64; k += 16 {
		half := v >> k & 0xffff
		if half == rest {
			continue
		}
		op := uint32(movk)
		if n == 0 {
			op, half = first, half^rest
		}
		code = append(code, emit(op|uint32(k/16)<<21|uint32(half)<<5|uint32(rd))...)
		n++
	}
	if n == 0 { // all halves are the rest
		code, n = emit(first|uint32(rd)), 1
	}
	return code, n, general("constant", rd)
}

// bitfield packs ubfm or sbfm.
//
//	31      23 22 21  16 15  10 9  5 4  0
//	opcode    | 1| immr | imms | Rn | Rd
func bitfield(signed bool, rd, rn isa.Reg, immr, imms uint32) ([]byte, error) {
	opcode := uint32(0xd3400000)
	if signed {
		opcode = 0x93400000
	}
	return emit(opcode | immr&63<<16 | imms&63<<10 | uint32(rn)<<5 | uint32(rd)), general("bit field", rd, rn)
}

// ShiftLeft encodes lsl rd, rn, #n.
func ShiftLeft(rd, rn isa.Reg, n uint8) ([]byte, error) {
	return bitfield(false, rd, rn, uint32(64-n), uint32(63-n))
}

// ShiftRight encodes lsr or asr rd, rn, #n.
func ShiftRight(signed bool, rd, rn isa.Reg, n uint8) ([]byte, error) {
	return bitfield(signed, rd, rn, uint32(n), 63)
}

// Extend encodes the extension of the low bytes of rn to 64 bits.
func Extend(rd, rn isa.Reg, bytes int, signed bool) ([]byte, error) {
	return bitfield(signed, rd, rn, 0, uint32(8*bytes-1))
}

// Conditions of JumpIf.
const (
	Equal        = 0
	NotEqual     = 1
	AboveEqual   = 2
	Below        = 3
	Above        = 8
	BelowEqual   = 9
	GreaterEqual = 10
	Less         = 11
	Greater      = 12
	LessEqual    = 13
)

// near packs a distance in words of 19 bits.
func near(what string, opcode uint32, from, to isa.Addr) ([]byte, error) {
	d := int64(to - from)
	if d%4 != 0 || d < -1<<20 || d >= 1<<20 {
		return nil, fmt.Errorf("%s: %v is not a word within 1 MiB of %v", what, to, from)
	}
	return emit(opcode | uint32(d/4)&(1<<19-1)<<5), nil
}

// JumpIf encodes b.cond.
//
//	31      24 23   5 4 3  0
//	01010100  | imm19 |0|cond
func JumpIf(cond uint32, from, to isa.Addr) ([]byte, error) {
	return near("b.cond", 0x54000000|cond, from, to)
}

// JumpIfNotZero encodes cbnz rt.
//
//	31      24 23   5 4  0
//	10110101  | imm19 | Rt
func JumpIfNotZero(rt isa.Reg, from, to isa.Addr) ([]byte, error) {
	if err := general("cbnz", rt); err != nil {
		return nil, err
	}
	return near("cbnz", 0xb5000000|uint32(rt), from, to)
}

// JumpIfZero encodes cbz rt.
//
//	31      24 23   5 4  0
//	10110100  | imm19 | Rt
func JumpIfZero(rt isa.Reg, from, to isa.Addr) ([]byte, error) {
	if err := general("cbz", rt); err != nil {
		return nil, err
	}
	return near("cbz", 0xb4000000|uint32(rt), from, to)
}

// JumpThrough encodes br rn. Where it leads, a landing pad has to stand if the page
// asks for them: through x16 and x17 those of calls serve, too (Arm ARM D8.4.6.1).
//
//	31                   10 9  5 4   0
//	1101011000011111000000 | Rn | 00000
func JumpThrough(rn isa.Reg) ([]byte, error) {
	return emit(0xd61f0000 | uint32(rn)<<5), general("br", rn)
}

// Atomic is an operation on memory: bits 14 to 12 of its instruction.
type Atomic uint32

const (
	AtomicSum         Atomic = 0
	AtomicMaxSigned   Atomic = 4
	AtomicMinSigned   Atomic = 5
	AtomicMaxUnsigned Atomic = 6
	AtomicMinUnsigned Atomic = 7
)

// AtomicOp encodes st<op> rs, [rn]. It needs FEAT_LSE.
func AtomicOp(op Atomic, rs, rn isa.Reg) ([]byte, error) {
	b, err := AtomicAdd(rs, rn)
	if err != nil {
		return nil, err
	}
	return emit(isa.ByteOrder.Uint32(b) | uint32(op)<<12), nil
}

// AtomicFetchAdd encodes ldadd rs, rt, [rn]: rt becomes what was there. It needs
// FEAT_LSE.
func AtomicFetchAdd(rs, rt, rn isa.Reg) ([]byte, error) {
	b, err := AtomicAdd(rs, rn)
	if err != nil {
		return nil, err
	}
	return emit(isa.ByteOrder.Uint32(b)&^31 | uint32(rt)), general("ldadd", rt)
}

// LoadExclusive encodes ldxr rt, [rn].
func LoadExclusive(rt, rn isa.Reg) ([]byte, error) {
	return emit(0xc85f7c00 | uint32(rn)<<5 | uint32(rt)), general("ldxr", rt, rn)
}

// StoreExclusive encodes stxr ws, rt, [rn]: rs becomes 0, or 1 if nothing was stored.
// It must be none of the others (C6.2: CONSTRAINED UNPREDICTABLE).
func StoreExclusive(rs, rt, rn isa.Reg) ([]byte, error) {
	if rs == rt || rs == rn {
		return nil, fmt.Errorf("stxr: %v is used twice", rs)
	}
	return emit(0xc8007c00 | uint32(rs)<<16 | uint32(rn)<<5 | uint32(rt)), general("stxr", rs, rt, rn)
}

// StoreAt encodes str rt, [rn, #off]; off is a multiple of 8 below 32768.
func StoreAt(rn isa.Reg, off int, rt isa.Reg) ([]byte, error) {
	if off < 0 || off%8 != 0 || off >= 8<<12 {
		return nil, fmt.Errorf("str: offset %d", off)
	}
	return emit(0xf9000000 | uint32(off/8)<<10 | uint32(rn)<<5 | uint32(rt)), general("str", rn, rt)
}

// StorePairAt encodes stp rt, rt2, [rn, #off]; off is a multiple of 8 from -512 to 504.
func StorePairAt(rn isa.Reg, off int, rt, rt2 isa.Reg) ([]byte, error) {
	if off%8 != 0 || off < -512 || off > 504 {
		return nil, fmt.Errorf("stp: offset %d", off)
	}
	return emit(0xa9000000 | uint32(off/8)&0x7f<<15 | uint32(rt2)<<10 | uint32(rn)<<5 | uint32(rt)), general("stp", rn, rt, rt2)
}

// StoreRelease encodes stlr rt, [rn]: what was written before is seen before.
func StoreRelease(rn, rt isa.Reg) ([]byte, error) {
	return emit(0xc89ffc00 | uint32(rn)<<5 | uint32(rt)), general("stlr", rn, rt)
}

// ReadFlags encodes mrs rt, nzcv, WriteFlags msr nzcv, rt.
func ReadFlags(rt isa.Reg) ([]byte, error) { return emit(0xd53b4200 | uint32(rt)), general("mrs", rt) }

// WriteFlags is the inverse of ReadFlags.
func WriteFlags(rt isa.Reg) ([]byte, error) { return emit(0xd51b4200 | uint32(rt)), general("msr", rt) }

// ReadTime encodes mrs rt, cntvct_el0.
func ReadTime(rt isa.Reg) ([]byte, error) { return emit(0xd53be040 | uint32(rt)), general("mrs", rt) }
