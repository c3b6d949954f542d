package amd64

import "kerninst/agent/isa"

// CallFor encodes a call in place of a jump. The operand of one by way of memory is read
// before the return address is pushed, as it was without (SDM volume 2, CALL and JMP: ff
// /2 and ff /4).
func CallFor(i isa.Insn, code []byte, to isa.Addr) (isa.Moved, error) {
	if err := i.Stays(); err != nil {
		return isa.Moved{}, err
	}
	if i.Flow == isa.FlowJump {
		b, err := Call(to, i.Target)
		return isa.Moved{Code: b, Insns: 1}, err
	}
	op := 0
	for isPrefix(code[op]) {
		op++
	}
	if code[op]&0xf0 == 0x40 { // REX
		op++
	}
	if i.Flow != isa.FlowIndirectJump || code[op] != 0xff || code[op+1]>>3&7 != 4 {
		return isa.Moved{}, isa.Stays("a jump of another kind")
	}
	b, err := retarget(i, code[:i.Len], 0, to)
	if err != nil {
		return isa.Moved{}, err
	}
	b[op+1] ^= (2 ^ 4) << 3
	return isa.Moved{Code: b, Insns: 1}, nil
}
