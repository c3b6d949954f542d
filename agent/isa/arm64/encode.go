package arm64

import (
	"fmt"

	"kerninst/agent/isa"
)

func emit(w uint32) []byte { return isa.ByteOrder.AppendUint32(nil, w) }

// general checks that every register is X0 to X30.
func general(what string, rs ...isa.Reg) error {
	for _, r := range rs {
		if r > LR {
			return fmt.Errorf("%s: %s is no general register", what, regName(r))
		}
	}
	return nil
}

// JumpReach is how far Jump goes, in bytes: up to, but not including, as many ahead.
const JumpReach = 1 << 27

// Jump encodes b (Arm ARM C6.2, B).
//
//	31    26 25       0
//	000101  | imm26      target = pc + imm26*4
func Jump(from, to isa.Addr) ([]byte, error) {
	d := int64(to - from)
	if d%4 != 0 || d < -JumpReach || d >= JumpReach {
		return nil, fmt.Errorf("b: %v is not a word within 128 MiB of %v", to, from)
	}
	return emit(0b000101<<26 | uint32(d/4)&(1<<26-1)), nil
}

// Adr encodes adr (Arm ARM C6.2, ADR).
//
//	31 30    29 28   24 23    5 4  0
//	 0 | immlo | 10000 | immhi | Rd    Rd = pc + immhi:immlo
func Adr(rd isa.Reg, a, to isa.Addr) ([]byte, error) {
	if err := general("adr", rd); err != nil {
		return nil, err
	}
	d := int64(to - a)
	if d < -1<<20 || d >= 1<<20 {
		return nil, fmt.Errorf("adr: %v is not within 1 MiB of %v", to, a)
	}
	u := uint32(d) & (1<<21 - 1)
	return emit(0b10000<<24 | u&3<<29 | u>>2<<5 | uint32(rd)), nil
}

// MovImm encodes movz Xd, #imm (Arm ARM C6.2, MOVZ).
//
//	31 30 29 28    23 22 21 20   5 4  0
//	 1 | 10 | 100101 | hw  | imm16 | Rd
func MovImm(rd isa.Reg, imm uint16) ([]byte, error) {
	if err := general("movz", rd); err != nil {
		return nil, err
	}
	return emit(0b110100101<<23 | uint32(imm)<<5 | uint32(rd)), nil
}

// AtomicAdd encodes stadd Xs, [Xn], which is ldadd with the zero register as
// destination (Arm ARM C6.2, LDADD). It needs FEAT_LSE.
//
//	31 30 29    24 23 22 21 20 16 15 14 12 11 10 9  5 4   0
//	size | 111000 | A| R| 1| Rs  | 0 | 000 | 0 0 | Rn | 11111
func AtomicAdd(rs, rn isa.Reg) ([]byte, error) {
	if err := general("stadd", rs, rn); err != nil {
		return nil, err
	}
	return emit(3<<30 | 0b111000<<24 | 1<<21 | uint32(rs)<<16 | uint32(rn)<<5 | 31), nil
}

// Push saves one or two registers below SP, which moves by 16 bytes; Pop takes
// them back (Arm ARM C6.2, STP, LDP, STR and LDR with write-back).
//
//	stp/ldp  31 30 29 27 26 25 23 22 21  15 14 10 9  5 4  0
//	          opc | 101 | 0| mode| L| imm7 | Rt2 | Rn | Rt
//	str/ldr  31 30 29 27 26 25 24 23 22 21 20  12 11 10 9  5 4  0
//	         size | 111 | 0| 00  | opc | 0| imm9 | mode| Rn | Rt
func Push(rs ...isa.Reg) ([]byte, error) { return move(false, rs) }

// Pop is the inverse of Push with the same registers.
func Pop(rs ...isa.Reg) ([]byte, error) { return move(true, rs) }

// frame is what Push takes of the stack; SP stays aligned to 16.
const frame = 16

func move(load bool, rs []isa.Reg) ([]byte, error) {
	if err := general("push or pop", rs...); err != nil {
		return nil, err
	}
	l := uint32(0)
	if load {
		l = 1
	}
	n := uint32(SP) << 5
	switch {
	case len(rs) == 2 && rs[0] != rs[1]:
		const scaled = frame / 8
		mode, imm := uint32(3), uint32(1<<7-scaled) // pre-indexed, -16
		if load {
			mode, imm = 1, scaled // post-indexed, 16
		}
		return emit(2<<30 | 0b101<<27 | mode<<23 | l<<22 | imm<<15 | uint32(rs[1])<<10 | n | uint32(rs[0])), nil
	case len(rs) == 1:
		mode, imm := uint32(3), uint32(1<<9-frame)
		if load {
			mode, imm = 1, frame
		}
		return emit(3<<30 | 0b111<<27 | l<<22 | imm<<12 | mode<<10 | n | uint32(rs[0])), nil
	}
	return nil, fmt.Errorf("push or pop: one or two different registers, not %d", len(rs))
}
