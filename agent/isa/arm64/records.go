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
