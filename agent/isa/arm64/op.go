package arm64

import "kerninst/agent/isa"

// Op tells what one instruction computes; see isa.Op. The zero register is no
// operand of an Op, except where a move of it makes a constant.
func Op(b []byte, a isa.Addr) isa.Op {
	if len(b) < 4 {
		return isa.Op{}
	}
	w := word(isa.ByteOrder.Uint32(b))
	for _, f := range ops {
		if uint32(w)&f.mask == f.code {
			return f.op(w, a)
		}
	}
	return isa.Op{}
}

// ops lists the encodings that are followed (Arm ARM C4.1), the fixed bits of
// each.
var ops = []struct {
	mask, code uint32
	op         func(word, isa.Addr) isa.Op
}{
	{0x9f000000, 0x10000000, func(w word, a isa.Addr) isa.Op { // adr
		return isa.Op{Kind: isa.OpConst, Dst: w.dst(), Imm: int64(a) + w.immADR()}
	}},
	{0x9f000000, 0x90000000, func(w word, a isa.Addr) isa.Op { // adrp
		return isa.Op{Kind: isa.OpConst, Dst: w.dst(), Imm: int64(a)&^0xfff + w.immADR()<<12}
	}},
	{0xff800000, 0x91000000, func(w word, _ isa.Addr) isa.Op { // add x, x, #imm
		return isa.Op{Kind: isa.OpAdd, Dst: w.dst(), A: w.first(), Imm: w.imm12()}
	}},
	{0xff800000, 0xd1000000, func(w word, _ isa.Addr) isa.Op { // sub x, x, #imm
		return isa.Op{Kind: isa.OpAdd, Dst: w.dst(), A: w.first(), Imm: -w.imm12()}
	}},
	{0x7f80001f, 0x7100001f, func(w word, _ isa.Addr) isa.Op { // cmp #imm
		return isa.Op{Kind: isa.OpCmp, A: w.first(), Imm: w.imm12(), Size: w.size()}
	}},
	{0x7f800000, 0x52800000, func(w word, _ isa.Addr) isa.Op { // movz
		return isa.Op{Kind: isa.OpConst, Dst: w.dst(), Imm: int64(w.bits(20, 5)) << (16 * w.bits(22, 21))}
	}},
	{0x7fe0ffe0, 0x2a0003e0, func(w word, _ isa.Addr) isa.Op { // mov register
		return isa.Op{Kind: isa.OpAdd, Dst: w.dst(), A: isa.Reg(w.bits(20, 16)), Size: w.size()}
	}},
	{0x7fbf0000, 0x12000000, func(w word, _ isa.Addr) isa.Op { // and with a mask of low bits
		if n := w.bits(22, 22); n != w.bits(31, 31) || n == 0 && w.bits(15, 10) >= 32 { // a mask that repeats itself
			return isa.Op{}
		}
		return isa.Op{Kind: isa.OpAnd, Dst: w.dst(), A: w.first(), Imm: int64(uint64(1)<<(w.bits(15, 10)+1) - 1)}
	}},
	{0xffe00000, 0x8b200000, func(w word, _ isa.Addr) isa.Op { // add x, x, extended
		e := w.bits(15, 13)
		return isa.Op{Kind: isa.OpAddReg, Dst: w.dst(), A: w.first(), B: isa.Reg(w.bits(20, 16)),
			Shift: uint8(w.bits(12, 10)), Size: 1 << (e & 3), Signed: e >= 4}
	}},
	{0xffe00000, 0x8b000000, func(w word, _ isa.Addr) isa.Op { // add x, x, x lsl
		return isa.Op{Kind: isa.OpAddReg, Dst: w.dst(), A: w.first(), B: isa.Reg(w.bits(20, 16)), Shift: uint8(w.bits(15, 10))}
	}},
	{0x3fe00c00, 0x38600800, loadRegister},
	{0x3fe00c00, 0x38a00800, loadRegister},
	{0xffc00000, 0xf9400000, func(w word, _ isa.Addr) isa.Op { // ldr x, [x, #imm]
		return isa.Op{Kind: isa.OpLoad, Dst: w.dst(), A: w.first(), Imm: int64(w.bits(21, 10)) * 8, Size: 8}
	}},
	{0xffc00000, 0x39400000, func(w word, _ isa.Addr) isa.Op { // ldrb w, [x, #imm]
		return isa.Op{Kind: isa.OpLoad, Dst: w.dst(), A: w.first(), Imm: int64(w.bits(21, 10)), Size: 1}
	}},
	{0xff000010, 0x54000000, func(w word, _ isa.Addr) isa.Op {
		return isa.Op{Kind: isa.OpBranch, Imm: map[uint32]int64{2: isa.CondAboveEqual, 3: isa.CondBelow,
			8: isa.CondAbove, 9: isa.CondBelowEqual}[w.bits(3, 0)]}
	}},
	{0xfffffc1f, 0xd61f0000, func(w word, _ isa.Addr) isa.Op { return isa.Op{Kind: isa.OpJump, A: w.first()} }},
}

func (w word) dst() isa.Reg   { return isa.Reg(w.bits(4, 0)) }
func (w word) first() isa.Reg { return isa.Reg(w.bits(9, 5)) }

// size is 8 or 4 bytes by the sf bit.
func (w word) size() uint8 { return 4 << w.bits(31, 31) }

// immADR is immhi:immlo.
func (w word) immADR() int64 { return w.signed(23, 5)<<2 | int64(w.bits(30, 29)) }

// imm12 is the immediate of add and sub, shifted by 12 if sh is set.
func (w word) imm12() int64 { return int64(w.bits(21, 10)) << (12 * w.bits(22, 22)) }

// loadRegister: ldrb, ldrh, ldr, ldrsb, ldrsh, ldrsw with a register offset.
//
//	size 111 0 00 opc 1 Rm option S 10 Rn Rt
func loadRegister(w word, _ isa.Addr) isa.Op {
	o := isa.Op{Kind: isa.OpLoadReg, Dst: w.dst(), A: w.first(), B: isa.Reg(w.bits(20, 16)),
		Size: 1 << w.bits(31, 30), Signed: w.bits(23, 22) > 1}
	if w.bits(12, 12) == 1 {
		o.Shift = uint8(w.bits(31, 30))
	}
	switch w.bits(15, 13) {
	case 2, 6: // uxtw, sxtw: the same for an index that is known to be small
		o.Imm = 4
	case 3: // lsl
	default:
		return isa.Op{}
	}
	return o
}
