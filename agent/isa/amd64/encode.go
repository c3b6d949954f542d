package amd64

import (
	"bytes"
	"fmt"
	"math"

	"kerninst/agent/isa"
)

// displacement is what an instruction that ends at end adds to reach to.
func displacement(what string, end, to isa.Addr) (uint32, error) {
	d := int64(to - end)
	if d < math.MinInt32 || d > math.MaxInt32 {
		return 0, fmt.Errorf("%s: %v is %d bytes from %v, more than 2 GiB", what, to, d, end)
	}
	return uint32(int32(d)), nil
}

// JumpLen is the length of Jump.
const JumpLen = 5

// Jump encodes jmp rel32 at from (SDM volume 2, JMP).
//
//	e9 | rel32
func Jump(from, to isa.Addr) ([]byte, error) {
	d, err := displacement("jmp", from+JumpLen, to)
	if err != nil {
		return nil, err
	}
	return isa.ByteOrder.AppendUint32([]byte{0xe9}, d), nil
}

// PunnedJump encodes, at from, a jmp rel32 behind so many prefixes that a jump ignores (SDM
// volume 2, 2.1.1: segment overrides).
//
//	2e ... | e9 | rel32
func PunnedJump(from, to isa.Addr, prefixes int) ([]byte, error) {
	if prefixes < 0 || prefixes > JumpLen {
		return nil, fmt.Errorf("jmp: %d prefixes", prefixes)
	}
	code, err := Jump(from+isa.Addr(prefixes), to)
	return append(bytes.Repeat([]byte{0x2e}, prefixes), code...), err
}

// Call encodes call rel32 at from (SDM volume 2, CALL). It writes the return address
// below the stack pointer.
func Call(from, to isa.Addr) ([]byte, error) {
	d, err := displacement("call", from+JumpLen, to)
	if err != nil {
		return nil, err
	}
	return isa.ByteOrder.AppendUint32([]byte{0xe8}, d), nil
}

// ShortJumpLen is the length of ShortJump.
const ShortJumpLen = 2

// ShortJump encodes jmp rel8 at from (SDM volume 2, JMP). It reaches from 128
// bytes before its end to 127 behind it.
//
//	eb | rel8
func ShortJump(from, to isa.Addr) ([]byte, error) {
	d := int64(to - from - ShortJumpLen)
	if d < math.MinInt8 || d > math.MaxInt8 {
		return nil, fmt.Errorf("jmp: %v is %d bytes from %v, more than a short one reaches", to, d, from+ShortJumpLen)
	}
	return []byte{0xeb, byte(d)}, nil
}

// LockInc encodes lock incq cell(%rip) at a (SDM volume 2, INC). It is the only
// form of an increment that loses nothing when several CPUs run it at once.
//
//	f0   | 48    | ff     | 00 000 101 | disp32
//	lock | REX.W | opcode | ModRM: /0, rip-relative
func LockInc(a, cell isa.Addr) ([]byte, error) {
	const n = 8
	d, err := displacement("lock incq", a+n, cell)
	if err != nil {
		return nil, err
	}
	return isa.ByteOrder.AppendUint32([]byte{0xf0, 0x48, 0xff, 0x05}, d), nil
}

// Nop5 is the nop of five bytes that the kernel writes for static keys (arch/x86/include/asm/nops.h).
var Nop5 = []byte{0x0f, 0x1f, 0x44, 0x00, 0x00}

// PushFlags encodes pushfq, PopFlags popfq.
func PushFlags() []byte { return []byte{0x9c} }

// PopFlags restores what PushFlags saved.
func PopFlags() []byte { return []byte{0x9d} }

// IsNop reports whether code is one nop, of whatever length (SDM volume 2, NOP): 90, or 0f 1f, behind any number of
// prefixes for operands' and segments' sizes that mean nothing there.
func IsNop(code []byte) bool {
	for len(code) > 1 && (code[0] == 0x66 || code[0] == 0x2e) {
		code = code[1:]
	}
	return len(code) == 1 && code[0] == 0x90 || len(code) > 2 && code[0] == 0x0f && code[1] == 0x1f
}
