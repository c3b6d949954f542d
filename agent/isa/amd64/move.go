package amd64

import (
	"fmt"
	"math"

	"kerninst/agent/isa"
)

// Move encodes an instruction at another address. The stack and the flags are
// as they were; a call pushes the address behind the original one and jumps, so
// that what is called returns there.
func Move(i isa.Insn, code []byte, to isa.Addr, _ isa.RegSet) (isa.Moved, error) {
	if err := i.Stays(); err != nil {
		return isa.Moved{}, err
	}
	code = code[:i.Len]
	op := 0
	for isPrefix(code[op]) {
		op++
	}
	switch i.Flow {
	case isa.FlowJump:
		b, err := Jump(to, i.Target)
		return isa.Moved{Code: b, Insns: 1, Ends: true}, err
	case isa.FlowCond:
		b, err := condition(code[op:], to, i.Target)
		return isa.Moved{Code: b, Insns: 1}, err
	case isa.FlowCall:
		return call(i, to)
	case isa.FlowIndirectCall:
		return indirectCall(i, code, op, to)
	}
	b, err := retarget(i, code, 0, to)
	return isa.Moved{Code: b, Insns: 1, Ends: i.Flow != isa.FlowNone}, err
}

// retarget copies code so that an operand at a distance from the instruction's
// end stays where it is; before is the number of bytes that come before code.
func retarget(i isa.Insn, code []byte, before int, to isa.Addr) ([]byte, error) {
	out := append([]byte(nil), code...)
	if i.Rel32 == 0 {
		if i.Traits&isa.PCRel != 0 {
			return nil, isa.Stays("an operand whose address is cut to 32 bits")
		}
		return out, nil
	}
	d, err := displacement("operand", to+isa.Addr(before+len(code)), i.Operand)
	isa.ByteOrder.PutUint32(out[i.Rel32:], d)
	return out, err
}

// condition encodes jcc rel32 (SDM volume 2, Jcc); code begins with the opcode of
// either form.
//
//	70+cc | rel8        0f | 80+cc | rel32
func condition(code []byte, to, target isa.Addr) ([]byte, error) {
	cc := code[0]
	if cc == 0x0f {
		cc = code[1]
	} else if cc&0xf0 != 0x70 {
		return nil, isa.Stays("a jump that counts, or looks at rcx,")
	}
	const n = 6
	d, err := displacement("jcc", to+n, target)
	return isa.ByteOrder.AppendUint32([]byte{0x0f, 0x80 | cc&0xf}, d), err
}

// pushLen is the length of push.
const pushLen = 5

// push encodes push of an address that the immediate's sign extends to: in the upper
// 2 GiB, where kernels are, or the lowest (SDM volume 2, PUSH).
//
//	68 | imm32
func push(a isa.Addr) ([]byte, error) {
	if int64(a) < math.MinInt32 || int64(a) > math.MaxInt32 {
		return nil, fmt.Errorf("push: %v is not in the upper or the lowest 2 GiB", a)
	}
	return isa.ByteOrder.AppendUint32([]byte{0x68}, uint32(a)), nil
}

func call(i isa.Insn, to isa.Addr) (isa.Moved, error) {
	b, err := push(i.End())
	if err != nil {
		return isa.Moved{}, err
	}
	jump, err := Jump(to+pushLen, i.Target)
	return isa.Moved{Code: append(b, jump...), Insns: 2, Ends: true,
		Waypoints: []isa.Waypoint{{Off: pushLen, Orig: i.Target}}}, err
}

// indirectCall makes a jump of a call by the register field of ModRM (SDM volume
// 2, CALL and JMP: ff /2 and ff /4). The push comes first, so the operand must not
// stand relative to the stack pointer.
func indirectCall(i isa.Insn, code []byte, op int, to isa.Addr) (isa.Moved, error) {
	if code[op] != 0xff || code[op+1]>>3&7 != 2 {
		return isa.Moved{}, isa.Stays("a far call")
	}
	modrm := code[op+1]
	base := modrm & 7
	if base == 4 && modrm < 0xc0 {
		base = code[op+2] & 7
	}
	extended := op > 0 && code[op-1]&0xf1 == 0x41 // REX.B
	if base == byte(RSP) && !extended {
		return isa.Moved{}, isa.Stays("a call by way of the stack pointer")
	}
	b, err := push(i.End())
	if err != nil {
		return isa.Moved{}, err
	}
	jump, err := retarget(i, code, pushLen, to)
	if err != nil {
		return isa.Moved{}, err
	}
	jump[op+1] ^= (2 ^ 4) << 3
	return isa.Moved{Code: append(b, jump...), Insns: 2, Ends: true,
		Waypoints: []isa.Waypoint{{Off: pushLen, Orig: i.Addr, SP: 8}}}, nil
}
