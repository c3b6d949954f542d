package riscv64

import (
	"fmt"

	"kerninst/agent/isa"
)

func emit32(w uint32) []byte { return isa.ByteOrder.AppendUint32(nil, w) }
func emit16(h uint16) []byte { return isa.ByteOrder.AppendUint16(nil, h) }

// general checks that every register is x1 to x31.
func general(what string, rs ...isa.Reg) error {
	for _, r := range rs {
		if r == 0 || r > 31 {
			return fmt.Errorf("%s: register %d is not x1 to x31", what, r)
		}
	}
	return nil
}

// split divides a displacement into what auipc and a signed 12-bit immediate
// add: the upper part is rounded so that the lower fits.
func split(what string, from, to isa.Addr) (hi uint32, lo int32, err error) {
	d := int64(to - from)
	h := (d + 0x800) >> 12
	if h < -1<<19 || h >= 1<<19 {
		return 0, 0, fmt.Errorf("%s: %v is %d bytes from %v, more than 2 GiB", what, to, d, from)
	}
	return uint32(h) << 12, int32(d - h<<12), nil
}

// auipc:  31      12 11 7 6     0
//
//	imm[31:12] | rd | 0010111
func auipc(rd isa.Reg, hi uint32) []byte { return emit32(hi | uint32(rd)<<7 | 0x17) }

// immediate packs the I form; lo must be in [-2048, 2047].
//
//	31    20 19 15 14   12 11 7 6    0
//	imm12   | rs1 | funct3 | rd | opcode
func immediate(lo int32, rs1 isa.Reg, funct3 uint32, rd isa.Reg, opcode uint32) []byte {
	return emit32(uint32(lo)<<20 | uint32(rs1)<<15 | funct3<<12 | uint32(rd)<<7 | opcode)
}

// FarJumpLen is the length of FarJump.
const FarJumpLen = 8

// FarJump encodes auipc r; jalr x0, lo(r): a jump anywhere within 2 GiB, at the
// price of a register.
func FarJump(r isa.Reg, from, to isa.Addr) ([]byte, error) {
	if err := general("far jump", r); err != nil {
		return nil, err
	}
	hi, lo, err := split("far jump", from, to)
	if err != nil {
		return nil, err
	}
	return append(auipc(r, hi), immediate(lo, r, 0, 0, 0x67)...), nil
}

// FarCallLen is the length of FarCall.
const FarCallLen = 8

// FarCall encodes auipc r; jalr r, lo(r): a call anywhere within 2 GiB. r then holds
// where to go on.
func FarCall(r isa.Reg, from, to isa.Addr) ([]byte, error) {
	if err := general("far call", r); err != nil {
		return nil, err
	}
	hi, lo, err := split("far call", from, to)
	if err != nil {
		return nil, err
	}
	return append(auipc(r, hi), immediate(lo, r, 0, r, 0x67)...), nil
}

// Jump encodes jal x0 (see immJ for the scattered displacement).
func Jump(from, to isa.Addr) ([]byte, error) {
	d := int64(to - from)
	if d%2 != 0 || d < -JumpReach || d >= JumpReach {
		return nil, tooFar{"jal", "1 MiB", from, to}
	}
	u := uint32(d)
	return emit32(u>>20&1<<31 | u>>1&0x3ff<<21 | u>>11&1<<20 | u>>12&0xff<<12 | 0x6f), nil
}

// NearCall encodes jal ra, which reaches as far as Jump.
func NearCall(from, to isa.Addr) ([]byte, error) {
	b, err := Jump(from, to)
	if err != nil {
		return nil, err
	}
	return emit32(isa.ByteOrder.Uint32(b) | uint32(RA)<<7), nil
}

// How far Jump and ShortJump reach, in bytes: up to, but not including, as many ahead.
const (
	JumpLen, JumpReach           = 4, 1 << 20
	ShortJumpLen, ShortJumpReach = 2, 1 << 11
)

// tooFar is why a jump is not possible. Mostly something else is then tried.
type tooFar struct {
	what, reach string
	from, to    isa.Addr
}

func (e tooFar) Error() string {
	return fmt.Sprintf("%s: %v is not a halfword within %s of %v", e.what, e.to, e.reach, e.from)
}

// ShortJump encodes c.j (see immCJ for the scattered displacement).
func ShortJump(from, to isa.Addr) ([]byte, error) {
	d := int64(to - from)
	if d%2 != 0 || d < -ShortJumpReach || d >= ShortJumpReach {
		return nil, tooFar{"c.j", "2 KiB", from, to}
	}
	u := uint32(d)
	w := u>>11&1<<12 | u>>4&1<<11 | u>>8&3<<9 | u>>10&1<<8 | u>>6&1<<7 | u>>7&1<<6 | u>>1&7<<3 | u>>5&1<<2
	return []byte{byte(w | 1), byte(w>>8 | 0xa0)}, nil
}

// Address encodes auipc r and, unless the low twelve bits of the way are zero,
// addi r, r, lo. It returns the number of instructions.
func Address(r isa.Reg, a, to isa.Addr) ([]byte, int, error) {
	if err := general("address", r); err != nil {
		return nil, 0, err
	}
	hi, lo, err := split("address", a, to)
	if err != nil || lo == 0 {
		return auipc(r, hi), 1, err
	}
	return append(auipc(r, hi), immediate(lo, r, 0, r, 0x13)...), 2, nil
}

// LoadImm encodes c.li.
//
//	15 13 12     11 7 6      2 1 0
//	010 | imm[5] | rd | imm[4:0] | 01
func LoadImm(r isa.Reg, v int8) ([]byte, error) {
	if err := general("c.li", r); err != nil {
		return nil, err
	}
	if v < -32 || v > 31 {
		return nil, fmt.Errorf("c.li: %d is not in -32 to 31", v)
	}
	u := uint16(v) & 0x3f
	return emit16(2<<13 | u>>5<<12 | uint16(r)<<7 | u&0x1f<<2 | 1), nil
}

// AtomicAdd encodes amoadd.d x0, src, (base).
//
//	31   27 26 25 24 20 19 15 14 12 11 7 6     0
//	00000 | aq rl| rs2 | rs1 | 011 | rd | 0101111
func AtomicAdd(src, base isa.Reg) ([]byte, error) {
	if err := general("amoadd.d", src, base); err != nil {
		return nil, err
	}
	return emit32(uint32(src)<<20 | uint32(base)<<15 | 3<<12 | 0x2f), nil
}

// maxPushed is how many registers Push saves at the most.
const maxPushed = 16

// PushLen is the length of what moves sp in Push, in bytes.
const PushLen = 4

// Frame is what Push takes of the stack for n registers, in bytes; sp stays aligned
// to 16.
func Frame(n int) int { return (n + 1) / 2 * 16 }

// Push moves sp down and saves registers from there on; Pop takes them
// back. Both return the number of instructions.
//
//	c.sdsp  15 13 12  7    6   2 1 0      c.ldsp  15 13 12     11 7 6 5 4   2 1 0
//	        111 | uimm[5:3|8:6] | rs2 | 10        011 | uimm[5] | rd | [4:3|8:6] | 10
func Push(rs ...isa.Reg) ([]byte, int, error) {
	if err := pushable(rs); err != nil {
		return nil, 0, err
	}
	b := immediate(int32(-Frame(len(rs))), SP, 0, SP, 0x13)
	for k, r := range rs {
		b = append(b, emit16(7<<13|uint16(k&7)<<10|uint16(k>>3)<<7|uint16(r)<<2|2)...)
	}
	return b, 1 + len(rs), nil
}

// Pop is the inverse of Push with the same registers.
func Pop(rs ...isa.Reg) ([]byte, int, error) {
	if err := pushable(rs); err != nil {
		return nil, 0, err
	}
	var b []byte
	for k, r := range rs {
		b = append(b, emit16(3<<13|uint16(r)<<7|uint16(k&3)<<5|uint16(k>>2&1)<<12|uint16(k>>3)<<2|2)...)
	}
	return append(b, immediate(int32(Frame(len(rs))), SP, 0, SP, 0x13)...), 1 + len(rs), nil
}

func pushable(rs []isa.Reg) error {
	if len(rs) < 1 || len(rs) > maxPushed {
		return fmt.Errorf("push or pop: 1 to %d registers, not %d", maxPushed, len(rs))
	}
	return general("push or pop", rs...)
}
