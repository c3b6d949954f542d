package riscv64

import "kerninst/agent/isa"

// CallFor encodes a call in place of a jump: by way of ra, which nobody else has any use
// for there, or by the register that it goes through, which may be ra itself.
func CallFor(i isa.Insn, code []byte, to isa.Addr) (isa.Moved, error) {
	if err := i.Stays(); err != nil {
		return isa.Moved{}, err
	}
	if i.Flow == isa.FlowJump {
		b, err := FarCall(RA, to, i.Target)
		return isa.Moved{Code: b, Insns: 2}, err
	}
	op := Op(code, i.Addr)
	if i.Flow != isa.FlowIndirectJump || op.Kind != isa.OpJump || op.A == S0 || op.A == SP {
		return isa.Moved{}, isa.Stays("a jump of another kind")
	}
	return isa.Moved{Code: immediate(int32(op.Imm), op.A, 0, RA, 0x67), Insns: 1}, nil
}
