package riscv64

import "kerninst/agent/isa"

// Move encodes an instruction at another address. A call loads the address behind
// the original one and jumps, so that what is called returns there. Patches lie
// further away than jal reaches: direct flow takes a register.
func Move(i isa.Insn, code []byte, to isa.Addr, free isa.RegSet) (isa.Moved, error) {
	if err := i.Stays(); err != nil {
		return isa.Moved{}, err
	}
	op := Op(code, i.Addr)
	switch i.Flow {
	case isa.FlowCond:
		return condition(i, code, to, free)
	case isa.FlowJump:
		b, n, err := farJump(to, i.Target, free)
		return isa.Moved{Code: b, Insns: n, Ends: true}, err
	case isa.FlowCall:
		return call(i, to, free)
	case isa.FlowIndirectCall:
		return indirectCall(i, op, to, free)
	case isa.FlowReturn, isa.FlowIndirectJump:
		return isa.Moved{Code: append([]byte(nil), code[:i.Len]...), Insns: 1, Ends: true}, nil
	}
	if i.Traits&isa.PCRel == 0 {
		return isa.Moved{Code: append([]byte(nil), code[:i.Len]...), Insns: 1}, nil
	}
	if op.Kind != isa.OpConst || op.Dst == 0 {
		return isa.Moved{}, isa.Stays("an address for nobody")
	}
	b, n, err := Address(op.Dst, to, isa.Addr(op.Imm)) // auipc
	return isa.Moved{Code: b, Insns: n}, err
}

// scratch lists registers to jump through, the best first. The last two are link
// registers, by which CPUs predict returns (unprivileged ISA, JALR): a jump through one
// costs time, and does the same. s0 is not among them: backtraces go by it.
var scratch = []isa.Reg{6, 7, 28, 29, 30, 31, 17, 16, 15, 14, 13, 12, 11, 10, 9, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 5, 1}

func pick(free isa.RegSet) (isa.Reg, error) {
	for _, r := range scratch {
		if free.Has(r) {
			return r, nil
		}
	}
	return 0, isa.ErrNoRegister
}

// farJump is jal where that reaches, else auipc and jalr.
func farJump(from, to isa.Addr, free isa.RegSet) ([]byte, int, error) {
	if b, err := Jump(from, to); err == nil {
		return b, 1, nil
	}
	r, err := pick(free)
	if err != nil {
		return nil, 0, err
	}
	b, err := FarJump(r, from, to)
	return b, 2, err
}

// condition branches on the opposite over a jump: the lowest bit of funct3 turns
// each comparison into its opposite.
//
//	branch  imm | rs2 | rs1 | funct3 | imm | 1100011
//	c.beqz  110 | imm | rs1' | imm | 01      c.bnez  111, likewise: rs1' is x8 to x15
func condition(i isa.Insn, code []byte, to isa.Addr, free isa.RegSet) (isa.Moved, error) {
	w := aimless(code) ^ 1<<12
	jump, n, err := farJump(to+4, i.Target, free)
	if err != nil {
		return isa.Moved{}, err
	}
	over := uint32(4 + len(jump)) // 8 or 12: only bits 4:1 of the distance, at 11:8
	return isa.Moved{Code: append(emit32(w|over>>1<<8), jump...), Insns: 1 + n,
		Waypoints: []isa.Waypoint{{Off: 4, Orig: i.Target}}}, nil
}

// aimless is a branch of four bytes, without its distance.
func aimless(code []byte) uint32 {
	const branch = 0x63
	if code[0]&3 != 3 {
		h := uint32(isa.ByteOrder.Uint16(code))
		return (8+h>>7&7)<<15 | h>>13&1<<12 | branch
	}
	return isa.ByteOrder.Uint32(code) & 0x01fff07f
}

// Aim encodes a branch that lies at from as leading to another place, if that is within 4 KiB: in four bytes,
// whatever it had.
func Aim(code []byte, from, to isa.Addr) ([]byte, error) {
	w := aimless(code)
	return JumpIf(w>>12&7, isa.Reg(w>>15&31), isa.Reg(w>>20&31), from, to)
}

func call(i isa.Insn, to isa.Addr, free isa.RegSet) (isa.Moved, error) {
	link := i.Writes.Regs()[0]
	b, n, err := Address(link, to, i.End())
	if err != nil {
		return isa.Moved{}, err
	}
	jump, m, err := farJump(to+isa.Addr(len(b)), i.Target, free&^isa.Set(link))
	return isa.Moved{Code: append(b, jump...), Insns: n + m, Ends: true,
		Waypoints: []isa.Waypoint{{Off: len(b), Orig: i.Target}}}, err
}

// indirectCall makes a jump of a call (jalr and c.jalr). The second half of a call
// that takes two instructions jumps by way of the register that it links, which is
// put elsewhere first.
func indirectCall(i isa.Insn, op isa.Op, to isa.Addr, free isa.RegSet) (isa.Moved, error) {
	if op.Kind != isa.OpJump {
		return isa.Moved{}, isa.Stays("a call of another kind")
	}
	var b []byte
	n, by := 0, op.A
	if by == op.Dst {
		r, err := pick(free &^ isa.Set(by))
		if err != nil {
			return isa.Moved{}, err
		}
		b, n, by = immediate(0, op.A, 0, r, 0x13), 1, r // mv
	}
	link, m, err := Address(op.Dst, to+isa.Addr(len(b)), i.End())
	b = append(b, link...)
	return isa.Moved{Code: append(b, immediate(int32(op.Imm), by, 0, 0, 0x67)...), Insns: n + m + 1, Ends: true}, err
}
