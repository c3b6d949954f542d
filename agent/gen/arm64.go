package gen

import (
	"fmt"

	"kerninst/agent/isa"
	"kerninst/agent/isa/arm64"
	"kerninst/agent/snippet"
)

// orderArm64 starts with the registers that calls may destroy anyway. The link
// register and those that functions must keep come last.
var orderArm64 = []isa.Reg{
	16, 17, 9, 10, 11, 12, 13, 14, 15, 8, 7, 6, 5, 4, 3, 2, 1, 0,
	19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 30,
}

// countArm64 is adr, stadd: the cell's address is what it adds to it. Where that is
// not certain enough (see Unit), the number takes a register and an instruction more.
// A CPU without FEAT_LSE takes two more registers.
func countArm64(b *builder) {
	n := 1
	switch {
	case !b.in.Features.LSE:
		n = 3
	case b.unit == 1:
		n = 2
	}
	regs, save := choose(orderArm64, b.in.Free[0], n)
	b.state(b.point, 0, nil)
	pairs := pairsArm64(save)
	for k, p := range pairs {
		b.one(arm64.Push(p...))
		b.state(b.point, 16*(k+1), flat(pairs[:k+1]))
	}
	b.out.Spilled = len(save)
	code, err := arm64.Adr(regs[0], b.pc(), b.in.Cell)
	b.one(code, reach(err))
	if b.in.Features.LSE {
		add := regs[0]
		if b.unit == 1 {
			add = regs[1]
			b.one(arm64.MovImm(add, 1))
		}
		b.one(arm64.AtomicAdd(add, regs[0]))
	} else {
		b.exclusiveArm64(regs[0], regs[1], regs[2])
	}
	for k := len(pairs) - 1; k >= 0; k-- {
		b.one(arm64.Pop(pairs[k]...))
		if k > 0 {
			b.state(b.point, 16*k, flat(pairs[:k]))
		}
	}
}

// exclusiveArm64 adds the unit to the cell. Whatever comes between the load and the store
// (another CPU's store, an interrupt, an NMI, another task: each exception return
// clears the monitor, Arm ARM B2.12) makes the store fail, and it is tried again: no
// addition is lost, and none done twice. A point is never inside such a sequence of
// the kernel's own, whose monitor this would clear.
func (b *builder) exclusiveArm64(cell, n, failed isa.Reg) {
	again := b.pc()
	b.one(arm64.LoadExclusive(n, cell))
	if b.unit == 1 {
		b.one(arm64.AddImm(n, n, 1))
	} else {
		b.one(arm64.ALUReg(arm64.Add, n, n, cell, 0))
	}
	b.one(arm64.StoreExclusive(failed, n, cell))
	b.one(arm64.JumpIfNotZero(failed, b.pc(), again))
}

func backArm64(b *builder) {
	code, err := arm64.Jump(b.pc(), b.in.Back)
	b.one(code, reach(err))
}

func entryArm64(from, to isa.Addr, _ isa.Reg) ([]byte, int, error) {
	code, err := arm64.Jump(from, to)
	return code, 1, reach(err)
}

var arm64Machine = machine{
	args: []isa.Reg{0, 1, 2, 3, 4, 5},
	ret:  0,
	temps: temporaries(func(i snippet.Insn) bool {
		switch i.Op {
		case snippet.Add, snippet.Sub, snippet.If:
			return arm64.FitsImm(i.B.Imm)
		}
		return false
	}, true, map[snippet.Op]int{snippet.Append: 2, snippet.Task: 1, snippet.Bits: 1, snippet.Div: 2, snippet.Slot: 5, snippet.Index: 2, snippet.Tally: 2, snippet.Top: 2, snippet.Clock: 3, snippet.Switch: 3}),
	fixed: func(i snippet.Insn) isa.RegSet {
		if i.Op == snippet.Load {
			return isa.Set(loadArm64, markArm64, linkArm64, spareArm64)
		}
		if i.Op == snippet.Stack {
			return walkArm64.set() | isa.Set(markArm64, linkArm64)
		}
		return 0
	},
	unwound: isa.Set(29, 30),
	flags:   func(i snippet.Insn) bool { return i.Op == snippet.If || i.Op == snippet.Index },
	save:    saveArm64,
	restore: restoreArm64,
	copy: func(l *lowering, d, s isa.Reg) {
		if s == arm64.SP {
			l.one(arm64.AddImm(d, s, uint64(l.frame)))
			return
		}
		l.one(arm64.MoveReg(d, s))
	},
	sp:   arm64.SP,
	emit: emitArm64,
	call: callArm64,
}

// pairsArm64 is what is pushed at once, in that order. The odd one comes first: the
// stack stays aligned to 16 bytes, and what is unused lies above all others.
func pairsArm64(saved []isa.Reg) (out [][]isa.Reg) {
	if len(saved)%2 == 1 {
		out, saved = append(out, saved[:1]), saved[1:]
	}
	for k := 0; k < len(saved); k += 2 {
		out = append(out, saved[k:k+2])
	}
	return out
}

// flat lists what was pushed in pairs from the stack pointer upwards.
func flat(pairs [][]isa.Reg) (out []isa.Reg) {
	for k := len(pairs) - 1; k >= 0; k-- {
		out = append(out, pairs[k]...)
	}
	return out
}

func saveArm64(l *lowering) {
	all := pairsArm64(l.saved)
	for k, p := range all {
		l.one(arm64.Push(p...))
		l.frame += 16
		l.held(flat(all[:k+1]))
	}
	if l.saveFlags {
		l.one(arm64.ReadFlags(l.flagsIn))
		l.held(flat(all))
		l.out.States[len(l.out.States)-1].Kept = &l.flagsIn
	}
}

func restoreArm64(l *lowering) {
	all := pairsArm64(l.saved)
	if l.saveFlags {
		l.one(arm64.WriteFlags(l.flagsIn))
		if len(all) > 0 {
			l.held(flat(all))
		}
	}
	for k := len(all) - 1; k >= 0; k-- {
		l.one(arm64.Pop(all[k]...))
		l.frame -= 16
		if k > 0 {
			l.held(flat(all[:k]))
		}
	}
}

var aluArm64 = map[snippet.Op]arm64.ALU{
	snippet.Add: arm64.Add, snippet.Sub: arm64.Sub, snippet.And: arm64.And, snippet.Or: arm64.Orr, snippet.Xor: arm64.Eor,
}

var condsArm64 = map[snippet.Cond]comparison{
	snippet.EQ: {arm64.Equal, arm64.Equal},
	snippet.NE: {arm64.NotEqual, arm64.NotEqual},
	snippet.LT: {arm64.Below, arm64.Less},
	snippet.LE: {arm64.BelowEqual, arm64.LessEqual},
	snippet.GT: {arm64.Above, arm64.Greater},
	snippet.GE: {arm64.AboveEqual, arm64.GreaterEqual},
}

var boundsArm64 = map[snippet.Op]comparison{
	snippet.Lower: {uint32(arm64.AtomicMinUnsigned), uint32(arm64.AtomicMinSigned)},
	snippet.Raise: {uint32(arm64.AtomicMaxUnsigned), uint32(arm64.AtomicMaxSigned)},
}

func emitArm64(l *lowering, i snippet.Insn) {
	load := func(r isa.Reg, v uint64) { l.emit(arm64.LoadImm(r, v)) }
	var d isa.Reg
	if i.Op.Sets() {
		d = l.regs[i.Dst]
	}
	switch i.Op {
	case snippet.Arg, snippet.Ret, snippet.Reg: // is there
	case snippet.Const:
		l.constant(d, i, load)
	case snippet.Cycles:
		l.one(arm64.ReadTime(d))
	case snippet.Load:
		l.loadArm64(i, load)
	case snippet.Extend:
		l.one(arm64.Extend(d, l.operand(i.A, d, load), i.N, i.Type == snippet.S64))
	case snippet.Add, snippet.Sub, snippet.And, snippet.Or, snippet.Xor:
		l.aluArm64(i, d, load)
	case snippet.Shl:
		l.one(arm64.ShiftLeft(d, l.operand(i.A, d, load), uint8(i.B.Imm)))
	case snippet.Shr:
		l.one(arm64.ShiftRight(i.Type == snippet.S64, d, l.operand(i.A, d, load), uint8(i.B.Imm)))
	case snippet.Goto:
		l.branch(i.To, arm64.Jump)
	case snippet.If:
		if i.B.IsConst && arm64.FitsImm(i.B.Imm) {
			l.one(arm64.CompareImm(l.regs[i.A.Value], i.B.Imm))
		} else {
			l.one(arm64.Compare(l.regs[i.A.Value], l.constantArm64(i.B, 0, load)))
		}
		cc := condsArm64[i.Cond].of(l.typeOf(i.A))
		l.branch(i.To, func(from, to isa.Addr) ([]byte, error) { return arm64.JumpIf(cc, from, to) })
	case snippet.Count, snippet.Lower, snippet.Raise:
		if !l.in.Features.LSE {
			l.err = ErrNoAtomics
			return
		}
		op := arm64.AtomicSum
		if i.Op != snippet.Count {
			op = arm64.Atomic(boundsArm64[i.Op].of(l.s.Cells[i.Cell].Type))
		}
		code, err := arm64.Adr(l.tmp[0], l.pc(), l.cell(i.Cell, 0))
		l.one(code, reach(err))
		l.one(arm64.AtomicOp(op, l.constantArm64(i.A, 1, load), l.tmp[0]))
	case snippet.Append, snippet.Stack:
		if !l.in.Features.LSE {
			l.err = ErrNoAtomics
			return
		}
		if i.Op == snippet.Stack {
			l.stackArm64(i, load)
		} else {
			l.appendArm64(i, load)
		}
	case snippet.Current, snippet.Task, snippet.Bits, snippet.Div, snippet.Slot, snippet.Index, snippet.Tally, snippet.Top:
		l.recordArm64(i, d, load)
	case snippet.Clock:
		l.clockArm64(i, d, load)
	case snippet.Switch:
		l.switchArm64(i, load)
	case snippet.Poison:
		l.poison(arm64.Flags, load)
		if regs := (l.in.Free[0] &^ isa.Set(arm64.Flags)).Regs(); l.in.Free[0].Has(arm64.Flags) && len(regs) > 0 {
			r := regs[0]
			if l.odd() {
				l.one(arm64.CompareImm(r, 1))
			} else {
				l.one(arm64.Compare(r, r))
			}
		}
	default:
		l.err = fmt.Errorf("%w: %v cannot be generated on arm64", ErrSnippet, i.Op)
	}
}

// constantArm64 is an operand in a register, a constant in a temporary one.
func (l *lowering) constantArm64(o snippet.Operand, tmp int, load func(isa.Reg, uint64)) isa.Reg {
	if !o.IsConst {
		return l.regs[o.Value]
	}
	return l.operand(o, l.tmp[tmp], load)
}

func (l *lowering) aluArm64(i snippet.Insn, d isa.Reg, load func(isa.Reg, uint64)) {
	a := l.operand(i.A, d, load)
	switch {
	case i.Op == snippet.Add && i.B.IsConst && arm64.FitsImm(i.B.Imm):
		l.one(arm64.AddImm(d, a, i.B.Imm))
	case i.Op == snippet.Sub && i.B.IsConst && arm64.FitsImm(i.B.Imm):
		l.one(arm64.SubImm(d, a, i.B.Imm))
	default:
		l.one(arm64.ALUReg(aluArm64[i.Op], d, a, l.constantArm64(i.B, 0, load), 0))
	}
}

// reserveArm64 is what reserveAmd64 is.
func (l *lowering) reserveArm64(i snippet.Insn, load func(isa.Reg, uint64)) (at, n isa.Reg, full func()) {
	at, n, t := l.tmp[0], l.tmp[1], l.tmp[2]
	c := l.s.Cells[i.Cell]
	code, err := arm64.Adr(at, l.pc(), l.cell(i.Cell, 0))
	l.one(code, reach(err))
	load(n, 1)
	l.one(arm64.AtomicFetchAdd(n, n, at))
	l.one(arm64.ShiftRight(false, t, n, log2(c.Records)))
	full = l.ahead(func(from, to isa.Addr) ([]byte, error) { return arm64.JumpIfNotZero(t, from, to) })
	code, err = arm64.Adr(at, l.pc(), l.cell(i.Cell, 1))
	l.one(code, reach(err))
	l.one(arm64.ALUReg(arm64.Add, at, at, n, log2(8*c.Stride())))
	return at, n, full
}

func (l *lowering) commitArm64(at, n isa.Reg) {
	l.one(arm64.AddImm(n, n, 1))
	l.one(arm64.StoreRelease(at, n))
}
