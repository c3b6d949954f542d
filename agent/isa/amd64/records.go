package amd64

import "kerninst/agent/isa"

// Encodings of what looks into tasks and changes records (SDM volume 2).

// based is a memory operand off(base) with a displacement of 32 bits, and REX.W unless
// narrow. RSP and R12 as a base take an SIB byte.
func based(opcode []byte, narrow bool, reg, base isa.Reg, off int32) []byte {
	out := rexModRM(opcode, 2, reg, base)
	if narrow {
		out[0] &^= 8
	}
	if base&7 == RSP {
		out = append(out, 0x24)
	}
	return isa.ByteOrder.AppendUint32(out, uint32(off))
}

// indexed is a memory operand off(base,index,8), of which index is not RSP.
//
//	REX.WRXB | opcode | 10 reg 100 | 11 index base | disp32
func indexed(opcode []byte, reg, base, index isa.Reg, off int32) []byte {
	out := append([]byte{0x48 | byte(reg>>3)<<2 | byte(index>>3)<<1 | byte(base>>3)}, opcode...)
	out = append(out, 0x80|byte(reg&7)<<3|4, 0xc0|byte(index&7)<<3|byte(base&7))
	return isa.ByteOrder.AppendUint32(out, uint32(off))
}

// StoreIndexed encodes mov s, off(base,index), of which index is not RSP.
//
//	REX.WRXB | 89 | 01 reg 100 | 00 index base | disp8
func StoreIndexed(base, index isa.Reg, off int8, s isa.Reg) []byte {
	return []byte{0x48 | byte(s>>3)<<2 | byte(index>>3)<<1 | byte(base>>3), 0x89, 0x44 | byte(s&7)<<3, byte(index&7)<<3 | byte(base&7), byte(off)}
}

// StoreImmIndexed encodes movq imm, off(base,index), of which index is not RSP; imm is extended by
// its sign.
//
//	REX.WXB | c7 | 01 000 100 | 00 index base | disp8 | imm32
func StoreImmIndexed(base, index isa.Reg, off int8, imm int32) []byte {
	out := []byte{0x48 | byte(index>>3)<<1 | byte(base>>3), 0xc7, 0x44, byte(index&7)<<3 | byte(base&7), byte(off)}
	return isa.ByteOrder.AppendUint32(out, uint32(imm))
}

// LockExchangeAddAt encodes lock xadd s, (base): see LockExchangeAdd.
func LockExchangeAddAt(s, base isa.Reg) []byte {
	return append([]byte{0xf0}, based([]byte{0x0f, 0xc1}, false, s, base, 0)...)
}

// AddLower encodes add imm, d on the lower halves: the upper one of d is cleared.
func AddLower(d isa.Reg, imm int32) []byte {
	out := []byte{0x81, 0xc0 | byte(d&7)}
	if d >= 8 {
		out = append([]byte{0x41}, out...)
	}
	return isa.ByteOrder.AppendUint32(out, uint32(imm))
}

// LocalLoad encodes mov %gs:cell, d.
func LocalLoad(d isa.Reg, cell isa.Addr) ([]byte, error) { return perCPU("mov", 0x8b, d, cell) }

// LoadFrom encodes the load of 1, 2, 4 or 8 bytes at off(base), extended to 64 bits.
func LoadFrom(d, base isa.Reg, off int32, bytes int, signed bool) []byte {
	switch {
	case bytes == 1 && signed:
		return based([]byte{0x0f, 0xbe}, false, d, base, off)
	case bytes == 1:
		return based([]byte{0x0f, 0xb6}, false, d, base, off)
	case bytes == 2 && signed:
		return based([]byte{0x0f, 0xbf}, false, d, base, off)
	case bytes == 2:
		return based([]byte{0x0f, 0xb7}, false, d, base, off)
	case bytes == 4 && signed:
		return based([]byte{0x63}, false, d, base, off)
	}
	return based([]byte{0x8b}, bytes == 4, d, base, off) // to the lower half: clears the upper
}

// LockAddAt encodes lock add s, 8*(off+index)(base).
func LockAddAt(s, base, index isa.Reg, off int32) []byte {
	return append([]byte{0xf0}, indexed([]byte{0x01}, s, base, index, 8*off)...)
}

// LockAddImmAt encodes lock addq imm, 8*(off+index)(base), sign-extended.
func LockAddImmAt(imm int32, base, index isa.Reg, off int32) []byte {
	return isa.ByteOrder.AppendUint32(append([]byte{0xf0}, indexed([]byte{0x81}, 0, base, index, 8*off)...), uint32(imm))
}

// AddressAt encodes lea 8*(off+index)(base), d.
func AddressAt(d, base, index isa.Reg, off int32) []byte {
	return indexed([]byte{0x8d}, d, base, index, 8*off)
}

// LockCompareExchangeAt encodes lock cmpxchg s, (base): see LockCompareExchange.
func LockCompareExchangeAt(s, base isa.Reg) []byte {
	return append([]byte{0xf0}, based([]byte{0x0f, 0xb1}, false, s, base, 0)...)
}

// BitScan encodes bsr s, d: the number of the highest bit that is set; where none is, the
// zero flag is set, and d is not to be relied on.
func BitScan(d, s isa.Reg) []byte { return rexModRM([]byte{0x0f, 0xbd}, 3, d, s) }

// MoveIf encodes cmovcc s, d.
func MoveIf(cc byte, d, s isa.Reg) []byte { return rexModRM([]byte{0x0f, 0x40 | cc&15}, 3, d, s) }

// Multiply encodes imul s, d: the low 64 bits of the product.
func Multiply(d, s isa.Reg) []byte { return rexModRM([]byte{0x0f, 0xaf}, 3, d, s) }

// Divide encodes div s: RDX:RAX by s, the quotient in RAX.
func Divide(s isa.Reg) []byte { return rexModRM([]byte{0xf7}, 3, 6, s) }
