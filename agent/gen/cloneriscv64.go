package gen

import (
	"kerninst/agent/isa"
	"kerninst/agent/isa/riscv64"
)

// What clones take on riscv64. Who begins to run a function has the temporary registers to himself
// (RISC-V calling convention, integer registers). Branches reach 4 KiB, jumps 1 MiB, which no clone has:
// in a clone a jump takes no register, and out of it one.

const gateRiscv64Reg = isa.Reg(6) // t1: t0 is who traces

// beginsRiscv64 are t1 to t6.
var beginsRiscv64 = isa.Set(6, 7, 28, 29, 30, 31)

// gateRiscv64 goes to the original if its ftrace site is not bare: where there is auipc, or a breakpoint, for the nop.
func gateRiscv64(b *builder, g *Gate) {
	r := gateRiscv64Reg
	b.loadRiscv64At(r, g.Site)
	code, err := riscv64.ALUImm(riscv64.Add, r, r, -uint64(g.Bare))
	b.emit(code, 0, err)
	b.jump(func(from, to isa.Addr) ([]byte, error) { return riscv64.JumpIf(riscv64.Equal, r, 0, from, to) }, b.pc()+4+riscv64.FarJumpLen)
	b.jump(func(from, to isa.Addr) ([]byte, error) { return riscv64.FarJump(r, from, to) }, g.Function)
}

// loadRiscv64At loads 32 bits from an address, extended by their sign.
func (b *builder) loadRiscv64At(r isa.Reg, at isa.Addr) {
	code, _, err := riscv64.LoadNear(r, b.pc(), at, 4)
	b.emit(code, 0, reach(err))
}

// overRiscv64 jumps on a condition, by a branch on its opposite over a jump: it has the same length wherever
// it leads.
func overRiscv64(opposite uint32, r, s isa.Reg) encoder {
	return func(from, to isa.Addr) ([]byte, error) {
		over, err := riscv64.JumpIf(opposite, r, s, from, from+4+riscv64.JumpLen)
		if err != nil {
			return nil, err
		}
		jump, err := riscv64.Jump(from+4, to)
		return append(over, jump...), err
	}
}

// keyRiscv64 jumps if a key is not, or is, 0.
func keyRiscv64(b *builder, x *Cloned, to isa.Addr) {
	r := b.spare(orderRiscv64, x, 1)[0]
	b.loadRiscv64At(r, x.Key.Enabled)
	opposite := uint32(riscv64.Equal)
	if x.Key.Off {
		opposite = riscv64.NotEqual
	}
	b.jump(overRiscv64(opposite, r, 0), to)
}

var linksRiscv64 = linker{
	scratch: 1,
	isHeld: func(b *builder, x *Cloned, f isa.Addr) {
		code, _, err := riscv64.Address(b.spare(orderRiscv64, x, 1)[0], b.pc(), f)
		b.emit(code, 0, reach(err))
	},
	onEqual: func(x *Cloned) encoder {
		return overRiscv64(riscv64.NotEqual, *x.By, spare(orderRiscv64, x, 1)[0])
	},
	onOther: func(x *Cloned) encoder { return overRiscv64(riscv64.Equal, *x.By, spare(orderRiscv64, x, 1)[0]) },
	note: func(b *builder, x *Cloned, f, cell isa.Addr) {
		b.saving(orderRiscv64, x, pushRiscv64, popRiscv64, func(at, v isa.Reg) {
			code, _, err := riscv64.Address(v, b.pc(), f)
			b.emit(code, 0, reach(err))
			b.noteRiscv64(at, v, v, cell)
		})
	},
	noteR: func(b *builder, x *Cloned, cell isa.Addr) {
		b.saving(orderRiscv64, x, pushRiscv64, popRiscv64, func(at, n isa.Reg) { b.noteRiscv64(at, *x.By, n, cell) })
	},
}

// noteRiscv64 stores what a register holds, and adds one to the word behind, by way of another. Of two CPUs at
// once one may be lost: it is how often, about.
func (b *builder) noteRiscv64(at, r, n isa.Reg, cell isa.Addr) {
	code, _, err := riscv64.Address(at, b.pc(), cell)
	b.emit(code, 0, reach(err))
	code, err = riscv64.StoreAt(at, 0, r)
	b.emit(code, 0, err)
	code, err = riscv64.LoadAt(n, at, 8, 8, false)
	b.emit(code, 0, err)
	code, err = riscv64.ALUImm(riscv64.Add, n, n, 1)
	b.emit(code, 0, err)
	code, err = riscv64.StoreAt(at, 8, n)
	b.emit(code, 0, err)
}

func pushRiscv64(rs ...isa.Reg) ([]byte, error) {
	code, _, err := riscv64.Push(rs...)
	return code, err
}

func popRiscv64(rs ...isa.Reg) ([]byte, error) {
	code, _, err := riscv64.Pop(rs...)
	return code, err
}

// nopRiscv64 is what a static key's site is while it leads nowhere; cnopRiscv64 aligns it, as the kernel writes it
// by one store.
var nopRiscv64, cnopRiscv64 = []byte{0x13, 0, 0, 0}, []byte{1, 0}

func aimRiscv64(i isa.Insn, code []byte, from isa.Addr) ([]byte, error) {
	return riscv64.Aim(code, from, i.Target)
}
