package arm64

import (
	"fmt"
	"math/bits"

	"kerninst/agent/isa"
)

// Encodings of what looks into tasks and changes records (Arm ARM C6.2).

// ReadTask encodes mrs rt, sp_el0: in the kernel, that is the task that runs.
func ReadTask(rt isa.Reg) ([]byte, error) { return emit(0xd5384100 | uint32(rt)), general("mrs", rt) }

// LoadAt encodes the load of 1, 2, 4 or 8 bytes at [rn, #off], extended to 64 bits; off is
// a multiple of as many, below 4096 times that.
//
//	31 30 29      24 23 22 21   10 9  5 4  0
//	size | 111001  | opc | imm12 | Rn | Rt
func LoadAt(rt, rn isa.Reg, off int32, bytes int, signed bool) ([]byte, error) {
	if off < 0 || int(off)%bytes != 0 || int(off)/bytes >= 1<<12 {
		return nil, fmt.Errorf("ldr: offset %d of %d bytes", off, bytes)
	}
	opc := uint32(1)
	if signed && bytes < 8 {
		opc = 2
	}
	size := uint32(bits.Len(uint(bytes)) - 1)
	return emit(size<<30 | 0x39000000 | opc<<22 | uint32(int(off)/bytes)<<10 | uint32(rn)<<5 | uint32(rt)), general("ldr", rt, rn)
}

// ReadPerCPU encodes mrs rt, tpidr_el1: how far this CPU's memory is from where addresses of
// per-CPU memory say, in a kernel that runs at EL1.
func ReadPerCPU(rt isa.Reg) ([]byte, error) {
	return emit(0xd538d080 | uint32(rt)), general("mrs", rt)
}

// LoadIndexed encodes ldr rt, [rn, rm].
func LoadIndexed(rt, rn, rm isa.Reg) ([]byte, error) {
	return emit(0xf8606800 | uint32(rm)<<16 | uint32(rn)<<5 | uint32(rt)), general("ldr", rt, rn, rm)
}

// LoadLiteral encodes ldr rt, to at from: in reach are 1 MiB either way.
//
//	01 011 0 00 | imm19 | Rt
func LoadLiteral(rt isa.Reg, from, to isa.Addr) ([]byte, error) {
	return near("ldr", 0x58000000|uint32(rt), from, to)
}

// AddHalf encodes add rd, rn, wm, uxth #shift: of rm the lower half word alone is added, shifted
// left by 4 bits at the most.
//
//	1 00 01011 00 1 | Rm | 001 | imm3 | Rn | Rd
func AddHalf(rd, rn, rm isa.Reg, shift uint8) ([]byte, error) {
	if shift > 4 {
		return nil, fmt.Errorf("add: half word shifted by %d", shift)
	}
	return emit(0x8b202000 | uint32(rm)<<16 | uint32(shift)<<10 | uint32(rn)<<5 | uint32(rd)), general("add", rd, rn, rm)
}

// KeepLow encodes and rd, rn, #1<<bits - 1, of which there are 1 to 63.
//
//	1 00 100100 1 | immr 0 | imms bits-1 | Rn | Rd
func KeepLow(rd, rn isa.Reg, bits uint8) ([]byte, error) {
	return emit(0x92400000 | uint32(bits-1)&63<<10 | uint32(rn)<<5 | uint32(rd)), general("and", rd, rn)
}

// PutHigh encodes movk rd, #v, lsl #48.
func PutHigh(rd isa.Reg, v uint16) ([]byte, error) {
	return emit(0xf2e00000 | uint32(v)<<5 | uint32(rd)), general("movk", rd)
}

// JumpIfPositive encodes tbz rt, #63: in reach are 32 KiB either way.
func JumpIfPositive(rt isa.Reg, from, to isa.Addr) ([]byte, error) {
	return JumpIfBit(false, rt, 63, from, to)
}

// JumpIfBit encodes tbnz, or tbz, rt, #bit: in reach are 32 KiB either way.
//
//	b5 011011 op | b40 | imm14 | Rt     op 1: tbnz
func JumpIfBit(set bool, rt isa.Reg, bit uint8, from, to isa.Addr) ([]byte, error) {
	d := int64(to - from)
	if d%4 != 0 || d < -1<<15 || d >= 1<<15 {
		return nil, fmt.Errorf("tbz: %v is not in reach of %v", to, from)
	}
	op := uint32(0)
	if set {
		op = 1 << 24
	}
	return emit(0x36000000 | op | uint32(bit)>>5<<31 | uint32(bit)&31<<19 | uint32(d/4)&0x3fff<<5 | uint32(rt)), general("tbz", rt)
}

// LoadAcquire encodes ldar rt, [rn]: what is read behind it is not read before.
func LoadAcquire(rt, rn isa.Reg) ([]byte, error) {
	return emit(0xc8dffc00 | uint32(rn)<<5 | uint32(rt)), general("ldar", rt, rn)
}

// AtomicFetch encodes ld<op> rs, rt, [rn]: rt becomes what was there. It needs FEAT_LSE.
func AtomicFetch(op Atomic, rs, rt, rn isa.Reg) ([]byte, error) {
	b, err := AtomicFetchAdd(rs, rt, rn)
	if err != nil {
		return nil, err
	}
	return emit(isa.ByteOrder.Uint32(b) | uint32(op)<<12), nil
}

// CountZeros encodes clz rd, rn: 64 for 0.
func CountZeros(rd, rn isa.Reg) ([]byte, error) {
	return emit(0xdac01000 | uint32(rn)<<5 | uint32(rd)), general("clz", rd, rn)
}

// Select encodes csel rd, rn, rm, cond.
func Select(cond uint32, rd, rn, rm isa.Reg) ([]byte, error) {
	return emit(0x9a800000 | uint32(rm)<<16 | cond<<12 | uint32(rn)<<5 | uint32(rd)), general("csel", rd, rn, rm)
}

// Multiply encodes mul rd, rn, rm.
func Multiply(rd, rn, rm isa.Reg) ([]byte, error) {
	return emit(0x9b007c00 | uint32(rm)<<16 | uint32(rn)<<5 | uint32(rd)), general("mul", rd, rn, rm)
}

// Divide encodes udiv rd, rn, rm.
func Divide(rd, rn, rm isa.Reg) ([]byte, error) {
	return emit(0x9ac00800 | uint32(rm)<<16 | uint32(rn)<<5 | uint32(rd)), general("udiv", rd, rn, rm)
}
