package gen

import (
	"kerninst/agent/isa"
	"kerninst/agent/isa/arm64"
)

// orderArm64 starts with the registers that calls may destroy anyway. The link
// register and those that functions must keep come last.
var orderArm64 = []isa.Reg{
	16, 17, 9, 10, 11, 12, 13, 14, 15, 8, 7, 6, 5, 4, 3, 2, 1, 0,
	19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 30,
}

// countArm64 needs a register for the cell's address and one for the number.
func countArm64(b *builder) {
	if !b.in.Features.LSE {
		b.err = ErrNoAtomics
		return
	}
	regs, save := choose(orderArm64, b.in.Free[0], 2)
	b.state(b.point, 0, nil)
	if len(save) > 0 {
		b.one(arm64.Push(save...))
		b.state(b.point, 16, save)
		b.out.Spilled = len(save)
	}
	code, err := arm64.Adr(regs[0], b.pc(), b.in.Cell)
	b.one(code, reach(err))
	b.one(arm64.MovImm(regs[1], 1))
	b.one(arm64.AtomicAdd(regs[1], regs[0]))
	if len(save) > 0 {
		b.one(arm64.Pop(save...))
	}
}

func backArm64(b *builder) {
	code, err := arm64.Jump(b.pc(), b.in.Back)
	b.one(code, reach(err))
}

func entryArm64(from, to isa.Addr, _ isa.Reg) ([]byte, int, error) {
	code, err := arm64.Jump(from, to)
	return code, 1, reach(err)
}
