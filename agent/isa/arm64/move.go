package arm64

import (
	"fmt"

	"kerninst/agent/isa"
)

// Move encodes an instruction at another address. A call loads the address behind
// the original one into the link register and branches, so that what is called
// returns there.
//
// A branch through a register other than x16 and x17 is no call to a landing pad
// (BTI): that matters in a kernel built with CONFIG_ARM64_BTI_KERNEL, which GCC
// cannot make (arch/arm64/Kconfig).
func Move(i isa.Insn, code []byte, to isa.Addr, _ isa.RegSet) (isa.Moved, error) {
	if err := i.Stays(); err != nil {
		return isa.Moved{}, err
	}
	w := word(isa.ByteOrder.Uint32(code))
	switch {
	case i.Flow == isa.FlowJump:
		b, err := Jump(to, i.Target)
		return isa.Moved{Code: b, Insns: 1, Ends: true}, err
	case i.Flow == isa.FlowCond:
		return condition(w, i, to)
	case i.Flow == isa.FlowCall:
		return call(i, to)
	case i.Flow == isa.FlowIndirectCall:
		return indirectCall(w, i, to)
	case i.Traits&isa.PCRel != 0:
		return operand(w, i, to)
	}
	return isa.Moved{Code: emit(uint32(w)), Insns: 1, Ends: i.Flow != isa.FlowNone}, nil
}

// opposites lists the conditional branches (Arm ARM C4.1.94): what they are
// recognised by, the field of their distance in words, and the bit that turns them
// into their opposites.
//
//	b.cond  01010100 | imm19 | 0 | cond
//	cbz     sf | 011010 | op | imm19 | Rt
//	tbz     b5 | 011011 | op | b40 | imm14 | Rt
var opposites = []struct{ mask, code, distance, flip uint32 }{
	{0xff000010, 0x54000000, 0x00ffffe0, 1},
	{0x7e000000, 0x34000000, 0x00ffffe0, 1 << 24},
	{0x7e000000, 0x36000000, 0x0007ffe0, 1 << 24},
}

// condition branches on the opposite over a branch, which reaches more.
func condition(w word, i isa.Insn, to isa.Addr) (isa.Moved, error) {
	const over = 2 << 5 // words
	for _, o := range opposites {
		if uint32(w)&o.mask != o.code {
			continue
		}
		if o.flip == 1 && w.bits(3, 1) == 7 {
			return isa.Moved{}, isa.Stays("a condition that always holds")
		}
		jump, err := Jump(to+4, i.Target)
		return isa.Moved{Code: append(emit((uint32(w)&^o.distance|over)^o.flip), jump...), Insns: 2,
			Waypoints: []isa.Waypoint{{Off: 4, Orig: i.Target}}}, err
	}
	return isa.Moved{}, isa.Stays("a branch on a condition")
}

// Aim encodes a conditional branch that lies at from as leading to another place, if that is in its own
// reach: 1 MiB, of tbz and tbnz 32 KiB.
func Aim(code []byte, from, to isa.Addr) ([]byte, error) {
	w := isa.ByteOrder.Uint32(code)
	for _, o := range opposites {
		if w&o.mask != o.code {
			continue
		}
		reach := int64(o.distance>>5+1) / 2 // words
		d := int64(to - from)
		if d%4 != 0 || d/4 < -reach || d/4 >= reach {
			return nil, fmt.Errorf("a branch at %v does not reach %v", from, to)
		}
		return emit(w&^o.distance | uint32(d/4)<<5&o.distance), nil
	}
	return nil, isa.Stays("a branch on a condition")
}

func call(i isa.Insn, to isa.Addr) (isa.Moved, error) {
	b, err := Address(LR, to, i.End())
	if err != nil {
		return isa.Moved{}, err
	}
	jump, err := Jump(to+isa.Addr(len(b)), i.Target)
	return isa.Moved{Code: append(b, jump...), Insns: len(b)/4 + 1, Ends: true,
		Waypoints: []isa.Waypoint{{Off: len(b), Orig: i.Target}}}, err
}

// indirectCall makes br of blr (Arm ARM C6.2, BLR and BR: bit 21).
//
//	1101011 | 0 0 op | 11111 | 000000 | Rn | 00000
func indirectCall(w word, i isa.Insn, to isa.Addr) (isa.Moved, error) {
	const mask, blr, link = 0xfffffc1f, 0xd63f0000, 1 << 21
	if uint32(w)&mask != blr {
		return isa.Moved{}, isa.Stays("a call that authenticates")
	}
	if w.bits(9, 5) == uint32(LR) {
		return isa.Moved{}, isa.Stays("a call by way of the link register")
	}
	b, err := Address(LR, to, i.End())
	return isa.Moved{Code: append(b, emit(uint32(w)&^link)...), Insns: len(b)/4 + 1, Ends: true}, err
}

// operand moves what forms an address relative to its own, or loads from one.
//
//	adr   op | immlo | 10000 | immhi | Rd     op 1: adrp
//	ldr   opc | 011 | V | 00 | imm19 | Rt     opc 0: w, 1: x, 2: sw, 3: prfm
func operand(w word, i isa.Insn, to isa.Addr) (isa.Moved, error) {
	rt := isa.Reg(w.bits(4, 0))
	if w.bits(28, 24) == 0b10000 {
		if rt == zr {
			return isa.Moved{}, isa.Stays("an address for nobody")
		}
		b, err := Address(rt, to, isa.Addr(Op(emit(uint32(w)), i.Addr).Imm))
		return isa.Moved{Code: b, Insns: len(b) / 4}, err
	}
	opc := w.bits(31, 30)
	if w.bits(29, 24) != 0b011000 || opc == 3 || rt == zr {
		return isa.Moved{}, isa.Stays("a load of a literal that is in no general register")
	}
	from := i.Addr + isa.Addr(w.signed(23, 5)*4)
	b, err := Address(rt, to, from)
	// ldr Rt, [Rt]: size 10 or 11, opc 01, or 10 with the sign (C6.2, LDR immediate)
	load := [...]uint32{0xb9400000, 0xf9400000, 0xb9800000}[opc] | uint32(rt)<<5 | uint32(rt)
	return isa.Moved{Code: append(b, emit(load)...), Insns: len(b)/4 + 1}, err
}

// zr is the number that means the zero register where SP is not meant.
const zr = 31

// Address encodes adr where that reaches, adrp where the low twelve bits are zero,
// and else adrp and add (Arm ARM C6.2, ADRP and ADD immediate).
//
//	adrp  1 | immlo | 10000 | immhi | Rd     add  100100010 | 0 | imm12 | Rn | Rd
func Address(rd isa.Reg, a, to isa.Addr) ([]byte, error) {
	if b, err := Adr(rd, a, to); err == nil {
		return b, nil
	}
	if err := general("adrp", rd); err != nil {
		return nil, err
	}
	d := int64(to>>12) - int64(a>>12)
	if d < -1<<20 || d >= 1<<20 {
		return nil, fmt.Errorf("adrp: %v is not within 4 GiB of %v", to, a)
	}
	u := uint32(d) & (1<<21 - 1)
	b := emit(1<<31 | 0b10000<<24 | u&3<<29 | u>>2<<5 | uint32(rd))
	if low := uint32(to & 0xfff); low != 0 {
		b = append(b, emit(0x91000000|low<<10|uint32(rd)<<5|uint32(rd))...)
	}
	return b, nil
}
