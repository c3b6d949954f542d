package riscv64

import "kerninst/agent/isa"

// Op tells what one instruction computes; see isa.Op. X0 reads as register 0,
// whose value is always 0.
func Op(b []byte, a isa.Addr) isa.Op {
	if len(b) < 2 {
		return isa.Op{}
	}
	half := word(isa.ByteOrder.Uint16(b))
	if half&3 != 3 {
		return compressedOp(half)
	}
	if len(b) < 4 {
		return isa.Op{}
	}
	w := word(isa.ByteOrder.Uint32(b))
	rd, rs1, rs2 := isa.Reg(w.bits(11, 7)), isa.Reg(w.bits(19, 15)), isa.Reg(w.bits(24, 20))
	switch w.bits(6, 0) {
	case 0x17: // auipc
		return isa.Op{Kind: isa.OpConst, Dst: rd, Imm: int64(a) + w.immU()}
	case 0x37: // lui
		return isa.Op{Kind: isa.OpConst, Dst: rd, Imm: w.immU()}
	case 0x13:
		return immediateOp(w, rd, rs1)
	case 0x1b:
		if w.bits(14, 12) == 0 {
			return wordAdd(rd, rs1, w.immI())
		}
	case 0x33:
		return registerOp(w, rd, rs1, rs2)
	case 0x03: // lb lh lw ld lbu lhu lwu
		f := w.bits(14, 12)
		return isa.Op{Kind: isa.OpLoad, Dst: rd, A: rs1, Imm: w.immI(), Size: 1 << (f & 3), Signed: f < 4}
	case 0x63:
		return isa.Op{Kind: isa.OpCmpBranch, A: rs1, B: rs2, Imm: map[uint32]int64{6: isa.CondBelow, 7: isa.CondAboveEqual}[w.bits(14, 12)]}
	case 0x67:
		return isa.Op{Kind: isa.OpJump, Dst: rd, A: rs1, Imm: w.immI()}
	}
	return isa.Op{}
}

// constOrAdd is rd = rs1 + imm.
func constOrAdd(rd, rs1 isa.Reg, imm int64) isa.Op {
	if rs1 == 0 {
		return isa.Op{Kind: isa.OpConst, Dst: rd, Imm: imm}
	}
	return isa.Op{Kind: isa.OpAdd, Dst: rd, A: rs1, Imm: imm}
}

// wordAdd is addiw: rd = rs1 + imm, of which the low 32 bits are extended. Only
// without an immediate is it followed: sext.w.
func wordAdd(rd, rs1 isa.Reg, imm int64) isa.Op {
	if imm != 0 {
		return isa.Op{}
	}
	return isa.Op{Kind: isa.OpAdd, Dst: rd, A: rs1, Size: 4, Signed: true}
}

func immediateOp(w word, rd, rs1 isa.Reg) isa.Op {
	switch f := w.bits(14, 12); {
	case f == 0:
		return constOrAdd(rd, rs1, w.immI())
	case f == 1 && w.bits(31, 26) == 0:
		return isa.Op{Kind: isa.OpAdd, Dst: rd, A: rs1, Shift: uint8(w.bits(25, 20))}
	case f == 5 && w.bits(31, 26) == 0:
		return isa.Op{Kind: isa.OpShr, Dst: rd, A: rs1, Imm: int64(w.bits(25, 20))}
	case f == 7:
		return isa.Op{Kind: isa.OpAnd, Dst: rd, A: rs1, Imm: w.immI()}
	}
	return isa.Op{}
}

// registerOp knows add and sh1add, sh2add, sh3add.
func registerOp(w word, rd, rs1, rs2 isa.Reg) isa.Op {
	switch f, top := w.bits(14, 12), w.bits(31, 25); {
	case f == 0 && top == 0:
		return isa.Op{Kind: isa.OpAddReg, Dst: rd, A: rs1, B: rs2}
	case top == 0x10 && (f == 2 || f == 4 || f == 6):
		return isa.Op{Kind: isa.OpAddReg, Dst: rd, A: rs2, B: rs1, Shift: uint8(f / 2)}
	}
	return isa.Op{}
}

// compressedOp knows the compressed forms of the same.
func compressedOp(w word) isa.Op {
	rd, rs2 := isa.Reg(w.bits(11, 7)), isa.Reg(w.bits(6, 2))
	short, low := isa.Reg(w.bits(9, 7)+8), isa.Reg(w.bits(4, 2)+8)
	imm6 := signed(w.at(12, 12, 5)|w.bits(6, 2), 6)
	switch f := w.bits(15, 13); w & 3 {
	case 0:
		switch f {
		case 2: // c.lw
			return isa.Op{Kind: isa.OpLoad, Dst: low, A: short, Size: 4, Signed: true,
				Imm: int64(w.at(5, 5, 6) | w.at(12, 10, 3) | w.at(6, 6, 2))}
		case 3: // c.ld
			return isa.Op{Kind: isa.OpLoad, Dst: low, A: short, Size: 8, Imm: int64(w.at(6, 5, 6) | w.at(12, 10, 3))}
		}
	case 1:
		switch {
		case f == 0: // c.addi
			return constOrAdd(rd, rd, imm6)
		case f == 1 && rd != 0: // c.addiw
			return wordAdd(rd, rd, imm6)
		case f == 2: // c.li
			return isa.Op{Kind: isa.OpConst, Dst: rd, Imm: imm6}
		case f == 3 && rd != 2: // c.lui
			return isa.Op{Kind: isa.OpConst, Dst: rd, Imm: imm6 << 12}
		case f == 4 && w.bits(11, 10) == 0: // c.srli
			return isa.Op{Kind: isa.OpShr, Dst: short, A: short, Imm: int64(w.at(12, 12, 5) | w.bits(6, 2))}
		case f == 4 && w.bits(11, 10) == 2: // c.andi
			return isa.Op{Kind: isa.OpAnd, Dst: short, A: short, Imm: imm6}
		}
	case 2:
		switch {
		case f == 0: // c.slli
			return isa.Op{Kind: isa.OpAdd, Dst: rd, A: rd, Shift: uint8(w.at(12, 12, 5) | w.bits(6, 2))}
		case f == 2: // c.lwsp
			return isa.Op{Kind: isa.OpLoad, Dst: rd, A: SP, Size: 4, Signed: true,
				Imm: int64(w.at(3, 2, 6) | w.at(12, 12, 5) | w.at(6, 4, 2))}
		case f == 3: // c.ldsp
			return isa.Op{Kind: isa.OpLoad, Dst: rd, A: SP, Size: 8, Imm: int64(w.at(4, 2, 6) | w.at(12, 12, 5) | w.at(6, 5, 3))}
		case f == 4 && rs2 == 0 && rd != 0: // c.jr, c.jalr
			return isa.Op{Kind: isa.OpJump, Dst: isa.Reg(w.bits(12, 12)), A: rd}
		case f == 4 && !w.isAdd(): // c.mv
			return isa.Op{Kind: isa.OpAdd, Dst: rd, A: rs2}
		case f == 4 && rs2 != 0: // c.add
			return isa.Op{Kind: isa.OpAddReg, Dst: rd, A: rd, B: rs2}
		}
	}
	return isa.Op{}
}

func (w word) isAdd() bool { return w.bits(12, 12) == 1 }
