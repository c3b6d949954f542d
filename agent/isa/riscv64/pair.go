package riscv64

import "kerninst/agent/isa"

// Opcodes whose immediate of twelve bits is added to rs1 (unprivileged ISA, "RV32/64G Instruction Set Listings").
const loadCode, addCode, storeCode = 0x03, 0x13, 0x23

// Pair reads two instructions that follow each other, the first of which is at a. If the first is auipc, and the second
// adds its immediate to that for an address, as addi, a load or a store of four bytes, it returns the register that has the
// upper part between them, and the address.
func Pair(upper, lower []byte, a isa.Addr) (r isa.Reg, to isa.Addr, ok bool) {
	if len(upper) != 4 || len(lower) != 4 {
		return 0, 0, false
	}
	u, w := word(isa.ByteOrder.Uint32(upper)), word(isa.ByteOrder.Uint32(lower))
	r = isa.Reg(u.bits(11, 7))
	if u.bits(6, 0) != 0x17 || r == 0 || isa.Reg(w.bits(19, 15)) != r {
		return 0, 0, false
	}
	imm := w.immI()
	switch op := w.bits(6, 0); {
	case op == loadCode, op == addCode && w.bits(14, 12) == 0:
	case op == storeCode && isa.Reg(w.bits(24, 20)) != r:
		imm = int64(int32(w)>>25)<<5 | int64(w.bits(11, 7))
	default:
		return 0, 0, false
	}
	return r, isa.Addr(int64(a) + u.immU() + imm), true
}

// PairAt encodes auipc at a and, behind it, what Pair has read as lower, which go by way of r to an address within 2 GiB.
func PairAt(lower []byte, r isa.Reg, a, to isa.Addr) ([]byte, error) {
	hi, lo, err := split("address", a, to)
	w, imm := isa.ByteOrder.Uint32(lower), uint32(lo)
	if w&0x7f == storeCode { // 31 25: imm[11:5], 11 7: imm[4:0]
		w = w&0x01fff07f | imm>>5<<25 | imm&0x1f<<7
	} else { // 31 20: imm[11:0]
		w = w&0x000fffff | imm<<20
	}
	return append(auipc(r, hi), emit32(w)...), err
}

// IsNop reports whether code is nop (addi x0, x0, 0) or c.nop.
func IsNop(code []byte) bool {
	switch len(code) {
	case 2:
		return isa.ByteOrder.Uint16(code) == 1
	case 4:
		return isa.ByteOrder.Uint32(code) == addCode
	}
	return false
}
