package riscv64

import (
	"fmt"

	"kerninst/agent/isa"
)

// Encodings of what snippets compute (the unprivileged manual's RV64I and A). All
// are on 64 bits.

// ALU is funct7 and funct3 of an operation.
type ALU struct{ funct7, funct3 uint32 }

var (
	Add = ALU{0, 0}
	Sub = ALU{0x20, 0}
	Xor = ALU{0, 4}
	Or  = ALU{0, 6}
	And = ALU{0, 7}
)

// ALUReg encodes op rd, rs1, rs2.
//
//	31   25 24 20 19 15 14   12 11 7 6     0
//	funct7 | rs2 | rs1 | funct3 | rd | 0110011
func ALUReg(op ALU, rd, rs1, rs2 isa.Reg) ([]byte, error) {
	w := op.funct7<<25 | uint32(rs2)<<20 | uint32(rs1)<<15 | op.funct3<<12 | uint32(rd)<<7 | 0x33
	return emit32(w), general("operation", rd, rs1, rs2)
}

// FitsImm reports whether v is a sign-extended 12-bit immediate.
func FitsImm(v uint64) bool { return int64(v) >= -2048 && int64(v) <= 2047 }

// ALUImm encodes op rd, rs1, v; there is no Sub.
func ALUImm(op ALU, rd, rs1 isa.Reg, v uint64) ([]byte, error) {
	if op == Sub || !FitsImm(v) {
		return nil, fmt.Errorf("no immediate operation with %d", int64(v))
	}
	return immediate(int32(v), rs1, op.funct3, rd, 0x13), general("operation", rd, rs1)
}

// MoveReg encodes mv rd, rs.
func MoveReg(rd, rs isa.Reg) ([]byte, error) { return ALUImm(Add, rd, rs, 0) }

// ShiftImm encodes slli, srli or srai rd, rs1, n.
func ShiftImm(left, signed bool, rd, rs1 isa.Reg, n uint8) ([]byte, error) {
	if n > 63 {
		return nil, fmt.Errorf("shift by %d", n)
	}
	f, imm := uint32(5), int32(n)
	switch {
	case left:
		f = 1
	case signed:
		imm |= 0x400
	}
	return immediate(imm, rs1, f, rd, 0x13), general("shift", rd, rs1)
}

// Constant encodes any constant; n is the number of instructions, 8 at the most:
// what fits 32 bits by lui and addiw, the rest by shifting what lies above its
// lowest twelve bits into place.
func Constant(rd isa.Reg, v uint64) (code []byte, n int, err error) {
	if err := general("constant", rd); err != nil {
		return nil, 0, err
	}
	code, n = constant(rd, int64(v))
	return code, n, nil
}

func constant(rd isa.Reg, v int64) ([]byte, int) {
	lo := v << 52 >> 52
	switch {
	case v == lo:
		return immediate(int32(v), 0, 0, rd, 0x13), 1
	case v == int64(int32(v)):
		code := emit32(uint32(v-lo)&^0xfff | uint32(rd)<<7 | 0x37) // lui
		if lo == 0 {
			return code, 1
		}
		return append(code, immediate(int32(lo), rd, 0, rd, 0x1b)...), 2 // addiw
	}
	shift := uint8(12)
	rest := (v - lo) >> 12
	for rest&1 == 0 {
		rest >>= 1
		shift++
	}
	code, n := constant(rd, rest)
	code = append(code, immediate(int32(shift), rd, 1, rd, 0x13)...)
	n++
	if lo != 0 {
		code = append(code, immediate(int32(lo), rd, 0, rd, 0x13)...)
		n++
	}
	return code, n
}

// Conditions of JumpIf: funct3.
const (
	Equal        = 0
	NotEqual     = 1
	Less         = 4
	GreaterEqual = 5
	Below        = 6
	AboveEqual   = 7
)

// JumpIf encodes a branch that compares two registers; register 0 is zero.
//
//	31      30   25 24 20 19 15 14   12 11   8      7  6     0
//	imm[12]| [10:5] | rs2 | rs1 | funct3 | [4:1] | [11] | 1100011
func JumpIf(cond uint32, rs1, rs2 isa.Reg, from, to isa.Addr) ([]byte, error) {
	d := int64(to - from)
	if d%2 != 0 || d < -1<<12 || d >= 1<<12 {
		return nil, fmt.Errorf("branch: %v is not a halfword within 4 KiB of %v", to, from)
	}
	u := uint32(d)
	return emit32(u>>12&1<<31 | u>>5&0x3f<<25 | uint32(rs2)<<20 | uint32(rs1)<<15 |
		cond<<12 | u>>1&0xf<<8 | u>>11&1<<7 | 0x63), nil
}

// Atomic is funct5 of an operation on memory.
type Atomic uint32

const (
	AtomicSum         Atomic = 0x00
	AtomicMinSigned   Atomic = 0x10
	AtomicMaxSigned   Atomic = 0x14
	AtomicMinUnsigned Atomic = 0x18
	AtomicMaxUnsigned Atomic = 0x1c
)

// AtomicOp encodes amo<op>.d rd, src, (base): rd becomes what was there; register
// 0 for rd drops it.
func AtomicOp(op Atomic, rd, src, base isa.Reg) ([]byte, error) {
	b, err := AtomicAdd(src, base)
	if err != nil {
		return nil, err
	}
	return emit32(isa.ByteOrder.Uint32(b) | uint32(op)<<27 | uint32(rd)<<7), nil
}

// StoreAt encodes sd src, off(base).
//
//	31     25 24 20 19 15 14 12 11   7 6     0
//	imm[11:5]| rs2 | rs1 | 011 | [4:0] | 0100011
func StoreAt(base isa.Reg, off int, src isa.Reg) ([]byte, error) {
	if off < -2048 || off > 2047 {
		return nil, fmt.Errorf("sd: offset %d", off)
	}
	u := uint32(off)
	return emit32(u>>5&0x7f<<25 | uint32(src)<<20 | uint32(base)<<15 | 3<<12 | u&0x1f<<7 | 0x23), general("sd", base, src)
}

// FenceStores encodes fence w,w: what was written before is seen before.
func FenceStores() []byte { return emit32(0x0110000f) }

// ReadTime encodes rdtime rd.
func ReadTime(rd isa.Reg) ([]byte, error) {
	return emit32(0xc0102073 | uint32(rd)<<7), general("rdtime", rd)
}
