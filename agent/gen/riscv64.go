package gen

import (
	"fmt"

	"kerninst/agent/isa"
	"kerninst/agent/isa/riscv64"
)

// orderRiscv64 starts with temporaries and arguments. t0 and ra come last: a
// jump through them looks like a return to the CPU's predictor.
var orderRiscv64 = []isa.Reg{
	6, 7, 28, 29, 30, 31, 17, 16, 15, 14, 13, 12, 11, 10,
	9, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 5, 1,
}

// countRiscv64 is auipc, li, amoadd. The cell lies a multiple of 4096 bytes
// behind the patch, so an auipc that is the patch's first instruction needs no
// addi; after a save it does.
func countRiscv64(b *builder) {
	regs, save := choose(orderRiscv64, b.in.Free[0], 2)
	b.state(b.point, 0, nil)
	if len(save) > 0 {
		b.emit(riscv64.Push(save...))
		b.state(b.point, 16, save)
		b.out.Spilled = len(save)
	}
	code, n, err := riscv64.Address(regs[0], b.pc(), b.in.Cell)
	b.emit(code, n, reach(err))
	b.one(riscv64.LoadImm(regs[1], 1))
	b.one(riscv64.AtomicAdd(regs[1], regs[0]))
	if len(save) > 0 {
		b.emit(riscv64.Pop(save...))
	}
}

// backRiscv64 is one jal where that reaches, else auipc and jalr through a
// register that is free behind the window.
func backRiscv64(b *builder) {
	if code, err := riscv64.Jump(b.pc(), b.in.Back); err == nil {
		b.one(code, nil)
		return
	}
	regs, save := choose(orderRiscv64, b.in.Free[len(b.in.Free)-1], 1)
	if len(save) > 0 {
		b.err = fmt.Errorf("%w at %v for the way back", ErrNoRegister, b.in.Back)
		return
	}
	code, err := riscv64.FarJump(regs[0], b.pc(), b.in.Back)
	b.emit(code, 2, reach(err))
}

func entryRiscv64(from, to isa.Addr, r isa.Reg) ([]byte, int, error) {
	code, err := riscv64.FarJump(r, from, to)
	return code, 2, reach(err)
}
