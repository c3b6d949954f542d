package arm64

import "kerninst/agent/isa"

// FarJump is a jump through a register to anywhere within 4 GiB: an address and br.
// n is the number of instructions.
func FarJump(r isa.Reg, from, to isa.Addr) (code []byte, n int, err error) {
	code, err = Address(r, from, to)
	if err != nil {
		return nil, 0, err
	}
	jump, err := JumpThrough(r)
	return append(code, jump...), len(code)/4 + 1, err
}

// Far decodes a FarJump: where it leads, by which register, and how long it is.
//
//	adr   0 | immlo | 10000 | immhi | Rd     add  100100010 | 0 | imm12 | Rn | Rd
//	adrp  1 | immlo | 10000 | immhi | Rd     br   1101011000011111000000 | Rn | 00000
func Far(b []byte, a isa.Addr) (to isa.Addr, r isa.Reg, n int, ok bool) {
	at := func(k int) word {
		if len(b) < 4*k+4 {
			return 0 // udf
		}
		return word(isa.ByteOrder.Uint32(b[4*k:]))
	}
	w := at(0)
	if w.bits(28, 24) != 0b10000 {
		return 0, 0, 0, false
	}
	r = isa.Reg(w.bits(4, 0))
	to = isa.Addr(Op(b[:4], a).Imm)
	k := 1
	if x := at(k); w.bits(31, 31) == 1 && uint32(x)&^(0xfff<<10) == 0x91000000|uint32(r)<<5|uint32(r) {
		to += isa.Addr(x.bits(21, 10))
		k++
	}
	return to, r, 4*k + 4, r < zr && uint32(at(k)) == 0xd61f0000|uint32(r)<<5
}
