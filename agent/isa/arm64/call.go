package arm64

import (
	"fmt"

	"kerninst/agent/isa"
)

// CallFor encodes a call in place of a jump: bl of b, blr of br, which differ by a bit
// each (Arm ARM C6.2, B, BL, BR, BLR).
//
//	b, bl    op | 00101 | imm26                                   op 1: bl
//	br, blr  1101011 | 0 0 op | 11111 | 000000 | Rn | 00000       op 1: blr
func CallFor(i isa.Insn, code []byte, to isa.Addr) (isa.Moved, error) {
	const bl, mask, br, blr = 1 << 31, 0xfffffc1f, 0xd61f0000, 1 << 21
	if err := i.Stays(); err != nil {
		return isa.Moved{}, err
	}
	w := word(isa.ByteOrder.Uint32(code))
	switch {
	case i.Flow == isa.FlowJump:
		b, err := Jump(to, i.Target)
		if err != nil {
			return isa.Moved{}, err
		}
		return isa.Moved{Code: emit(isa.ByteOrder.Uint32(b) | bl), Insns: 1}, nil
	case i.Flow != isa.FlowIndirectJump || uint32(w)&mask != br:
		return isa.Moved{}, isa.Stays("a jump of another kind")
	}
	if r := isa.Reg(w.bits(9, 5)); r > LR || r == FP {
		return isa.Moved{}, isa.Stays(fmt.Sprintf("a jump by way of %s", regName(r)))
	}
	return isa.Moved{Code: emit(uint32(w) | blr), Insns: 1}, nil
}
