package gen

import (
	"fmt"

	"kerninst/agent/isa"
	"kerninst/agent/isa/riscv64"
	"kerninst/agent/snippet"
)

// orderRiscv64 starts with temporaries and arguments. t0 and ra come last: a
// jump through them looks like a return to the CPU's predictor.
var orderRiscv64 = []isa.Reg{
	6, 7, 28, 29, 30, 31, 17, 16, 15, 14, 13, 12, 11, 10,
	9, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 5, 1,
}

// countRiscv64 is auipc, amoadd: the cell's address is what it adds to it, or where that
// is not certain enough (see Unit), what a li puts into another register. The cell lies
// a multiple of 4096 bytes behind the patch, so an auipc that is the patch's first
// instruction needs no addi; after a save it does.
func countRiscv64(b *builder) {
	n := 1
	if b.unit == 1 {
		n = 2
	}
	regs, save := choose(orderRiscv64, b.in.Free[0], n)
	b.state(b.point, 0, nil)
	if len(save) > 0 {
		b.emit(riscv64.Push(save...))
		b.state(b.point, 16, save)
		b.out.Spilled = len(save)
	}
	code, n, err := riscv64.Address(regs[0], b.pc(), b.in.Cell)
	b.emit(code, n, reach(err))
	if b.unit == 1 {
		b.one(riscv64.LoadImm(regs[1], 1))
	}
	b.one(riscv64.AtomicAdd(regs[len(regs)-1], regs[0]))
	if len(save) > 0 {
		b.emit(riscv64.Pop(save...))
	}
}

// backRiscv64 is one jal where that reaches, else auipc and jalr through a
// register that is free behind the window, or else, if that is allowed, a breakpoint.
func backRiscv64(b *builder) {
	if code, err := riscv64.Jump(b.pc(), b.in.Back); err == nil {
		b.one(code, nil)
		return
	}
	regs, save := choose(orderRiscv64, b.in.Free[len(b.in.Free)-1], 1)
	if len(save) > 0 && b.in.Home {
		b.one(riscv64.Arch.Break, nil)
		b.out.Home = true
		return
	}
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

var riscv64Machine = machine{
	args: []isa.Reg{10, 11, 12, 13, 14, 15},
	ret:  10,
	temps: temporaries(func(i snippet.Insn) bool {
		switch i.Op {
		case snippet.Add, snippet.And, snippet.Or, snippet.Xor:
			return riscv64.FitsImm(i.B.Imm)
		case snippet.Sub:
			return riscv64.FitsImm(-i.B.Imm)
		case snippet.If:
			return i.B.Imm == 0
		}
		return false
	}, true, map[snippet.Op]int{snippet.Append: 3, snippet.Bits: 2, snippet.Div: 2, snippet.Slot: 5, snippet.Index: 2, snippet.Tally: 3, snippet.Top: 3, snippet.Clock: 3, snippet.Switch: 3}),
	fixed: func(i snippet.Insn) isa.RegSet {
		if i.Op == snippet.Load {
			return isa.Set(loadRiscv64, markRiscv64, linkRiscv64, spareRisc64)
		}
		if i.Op == snippet.Stack {
			return walkRiscv64.set() | isa.Set(linkRiscv64)
		}
		return 0
	},
	unwound: isa.Set(1, 8), // ra, s0
	flags:   func(snippet.Insn) bool { return false },
	save:    saveRiscv64,
	restore: restoreRiscv64,
	copy: func(l *lowering, d, s isa.Reg) {
		if s == riscv64.SP {
			l.one(riscv64.ALUImm(riscv64.Add, d, s, uint64(l.frame)))
			return
		}
		l.one(riscv64.MoveReg(d, s))
	},
	sp:   riscv64.SP,
	emit: emitRiscv64,
	call: callRiscv64,
}

// saveRiscv64 moves the stack pointer first; until all are stored, none is changed.
func saveRiscv64(l *lowering) {
	if len(l.saved) == 0 {
		return
	}
	moved := len(l.out.Code) + riscv64.PushLen
	l.emit(riscv64.Push(l.saved...))
	l.frame = riscv64.Frame(len(l.saved))
	l.out.States = append(l.out.States, State{Off: moved, Orig: l.point, SP: l.frame})
	l.held(l.saved)
}

func restoreRiscv64(l *lowering) {
	if len(l.saved) > 0 {
		l.emit(riscv64.Pop(l.saved...))
	}
}

var aluRiscv64 = map[snippet.Op]riscv64.ALU{
	snippet.Add: riscv64.Add, snippet.Sub: riscv64.Sub, snippet.And: riscv64.And, snippet.Or: riscv64.Or, snippet.Xor: riscv64.Xor,
}

// condsRiscv64 has no greater and no less or equal: there, the operands change
// places.
var condsRiscv64 = map[snippet.Cond]comparison{
	snippet.EQ: {riscv64.Equal, riscv64.Equal},
	snippet.NE: {riscv64.NotEqual, riscv64.NotEqual},
	snippet.LT: {riscv64.Below, riscv64.Less},
	snippet.GT: {riscv64.Below, riscv64.Less},
	snippet.GE: {riscv64.AboveEqual, riscv64.GreaterEqual},
	snippet.LE: {riscv64.AboveEqual, riscv64.GreaterEqual},
}

var boundsRiscv64 = map[snippet.Op]comparison{
	snippet.Lower: {uint32(riscv64.AtomicMinUnsigned), uint32(riscv64.AtomicMinSigned)},
	snippet.Raise: {uint32(riscv64.AtomicMaxUnsigned), uint32(riscv64.AtomicMaxSigned)},
}

func emitRiscv64(l *lowering, i snippet.Insn) {
	load := func(r isa.Reg, v uint64) { l.emit(riscv64.Constant(r, v)) }
	var d isa.Reg
	if i.Op.Sets() {
		d = l.regs[i.Dst]
	}
	switch i.Op {
	case snippet.Arg, snippet.Ret, snippet.Reg: // is there
	case snippet.Const:
		l.constant(d, i, load)
	case snippet.Cycles:
		l.one(riscv64.ReadTime(d))
	case snippet.Load:
		l.loadRiscv64(i, load)
	case snippet.Extend:
		l.extendRiscv64(i, d, load)
	case snippet.Add, snippet.Sub, snippet.And, snippet.Or, snippet.Xor:
		l.aluRiscv64(i, d, load)
	case snippet.Shl, snippet.Shr:
		l.one(riscv64.ShiftImm(i.Op == snippet.Shl, i.Type == snippet.S64, d, l.operand(i.A, d, load), uint8(i.B.Imm)))
	case snippet.Goto:
		l.branch(i.To, riscv64.Jump)
	case snippet.If:
		a, b := l.regs[i.A.Value], isa.Reg(0)
		if !i.B.IsConst || i.B.Imm != 0 {
			b = l.constantRiscv64(i.B, 0, load)
		}
		if i.Cond == snippet.GT || i.Cond == snippet.LE {
			a, b = b, a
		}
		cc := condsRiscv64[i.Cond].of(l.typeOf(i.A))
		l.branch(i.To, func(from, to isa.Addr) ([]byte, error) { return riscv64.JumpIf(cc, a, b, from, to) })
	case snippet.Count, snippet.Lower, snippet.Raise:
		op := riscv64.AtomicSum
		if i.Op != snippet.Count {
			op = riscv64.Atomic(boundsRiscv64[i.Op].of(l.s.Cells[i.Cell].Type))
		}
		v := l.constantRiscv64(i.A, 1, load)
		l.addressRiscv64(l.tmp[0], l.cell(i.Cell, 0))
		l.one(riscv64.AtomicOp(op, 0, v, l.tmp[0]))
	case snippet.Append:
		l.appendRiscv64(i, load)
	case snippet.Stack:
		l.stackRiscv64(i, load)
	case snippet.Current, snippet.Task, snippet.Bits, snippet.Div, snippet.Slot, snippet.Index, snippet.Tally, snippet.Top:
		l.recordRiscv64(i, d, load)
	case snippet.Clock:
		l.clockRiscv64(i, d, load)
	case snippet.Switch:
		l.switchRiscv64(i, load)
	case snippet.Poison:
		l.poison(noReg, load)
	default:
		l.err = fmt.Errorf("%w: %v cannot be generated on riscv64", ErrSnippet, i.Op)
	}
}

func (l *lowering) addressRiscv64(r isa.Reg, to isa.Addr) {
	code, n, err := riscv64.Address(r, l.pc(), to)
	l.emit(code, n, reach(err))
}

// constantRiscv64 is an operand in a register, a constant in a temporary one.
func (l *lowering) constantRiscv64(o snippet.Operand, tmp int, load func(isa.Reg, uint64)) isa.Reg {
	if !o.IsConst {
		return l.regs[o.Value]
	}
	return l.operand(o, l.tmp[tmp], load)
}

// extendRiscv64 shifts up and down: the base ISA extends nothing but a word.
func (l *lowering) extendRiscv64(i snippet.Insn, d isa.Reg, load func(isa.Reg, uint64)) {
	a, by := l.operand(i.A, d, load), uint8(64-8*i.N)
	if by == 0 {
		l.one(riscv64.MoveReg(d, a))
		return
	}
	l.one(riscv64.ShiftImm(true, false, d, a, by))
	l.one(riscv64.ShiftImm(false, i.Type == snippet.S64, d, d, by))
}

func (l *lowering) aluRiscv64(i snippet.Insn, d isa.Reg, load func(isa.Reg, uint64)) {
	a, op, imm := l.operand(i.A, d, load), aluRiscv64[i.Op], i.B.Imm
	if i.Op == snippet.Sub && i.B.IsConst {
		op, imm = riscv64.Add, -imm
	}
	if i.B.IsConst && riscv64.FitsImm(imm) {
		l.one(riscv64.ALUImm(op, d, a, imm))
		return
	}
	l.one(riscv64.ALUReg(aluRiscv64[i.Op], d, a, l.constantRiscv64(i.B, 0, load)))
}

// reserveRiscv64 is what reserveAmd64 is, but that the record is 8 bytes behind at: as far
// as the first is behind the cell's number, so that the address of one does for both.
func (l *lowering) reserveRiscv64(i snippet.Insn, load func(isa.Reg, uint64)) (at, n isa.Reg, full func()) {
	at, n, t := l.tmp[0], l.tmp[1], l.tmp[2]
	c := l.s.Cells[i.Cell]
	l.addressRiscv64(at, l.cell(i.Cell, 0))
	load(n, 1)
	l.one(riscv64.AtomicOp(riscv64.AtomicSum, n, n, at))
	l.one(riscv64.ShiftImm(false, false, t, n, log2(c.Records)))
	full = l.ahead(func(from, to isa.Addr) ([]byte, error) {
		return riscv64.JumpIf(riscv64.NotEqual, t, 0, from, to)
	})
	l.one(riscv64.ShiftImm(true, false, t, n, log2(8*c.Stride())))
	l.one(riscv64.ALUReg(riscv64.Add, at, at, t))
	return at, n, full
}

func (l *lowering) commitRiscv64(at, n isa.Reg) {
	l.put(riscv64.FenceStores())
	l.one(riscv64.ALUImm(riscv64.Add, n, n, 1))
	l.one(riscv64.StoreAt(at, 8, n))
}
