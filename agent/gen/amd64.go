package gen

import (
	"fmt"
	"slices"

	"kerninst/agent/isa"
	"kerninst/agent/isa/amd64"
	"kerninst/agent/snippet"
)

// orderAmd64 starts with the registers that calls may destroy anyway.
var orderAmd64 = []isa.Reg{
	amd64.RAX, amd64.RCX, amd64.RDX, amd64.RSI, amd64.RDI, amd64.R8, amd64.R9, amd64.R10, amd64.R11,
	amd64.RBX, amd64.R12, amd64.R13, amd64.R14, amd64.R15, amd64.RBP,
}

// countAmd64 is one instruction when the flags are free; it changes nothing
// else. The kernel has no red zone, so the flags may be pushed.
func countAmd64(b *builder) {
	keep := !b.in.Free[0].Has(amd64.Flags)
	b.state(b.point, 0, nil)
	if keep {
		b.one(amd64.PushFlags(), nil)
		b.state(b.point, 8, []isa.Reg{amd64.Flags})
		b.out.Spilled++
	}
	if at, ok := b.local(0); ok {
		code, err := amd64.LocalInc(at)
		b.one(code, reach(err))
	} else {
		code, err := amd64.LockInc(b.pc(), b.in.Cell)
		b.one(code, reach(err))
	}
	if keep {
		b.one(amd64.PopFlags(), nil)
	}
}

func backAmd64(b *builder) {
	code, err := amd64.Jump(b.pc(), b.in.Back)
	b.one(code, reach(err))
}

func entryAmd64(from, to isa.Addr, _ isa.Reg) ([]byte, int, error) {
	code, err := amd64.Jump(from, to)
	return code, 1, reach(err)
}

var amd64Machine = machine{
	args: []isa.Reg{amd64.RDI, amd64.RSI, amd64.RDX, amd64.RCX, amd64.R8, amd64.R9},
	ret:  amd64.RAX,
	temps: recordsAmd64(temporaries(func(i snippet.Insn) bool {
		switch i.Op {
		case snippet.Count:
			return amd64.FitsImm(i.A.Imm)
		case snippet.Lower, snippet.Raise:
			return false
		}
		return amd64.FitsImm(i.B.Imm)
	}, false, map[snippet.Op]int{snippet.Bits: 1, snippet.Div: 2, snippet.Slot: 4, snippet.Index: 2, snippet.Tally: 2, snippet.Top: 2, snippet.Clock: 2, snippet.Switch: 2})),
	fixed: func(i snippet.Insn) isa.RegSet {
		switch i.Op {
		case snippet.Cycles, snippet.Clock, snippet.Switch:
			return isa.Set(amd64.RAX, amd64.RDX)
		case snippet.Append:
			if len(i.Fields) > 0 { // with a time
				return isa.Set(amd64.RAX, amd64.RDX)
			}
		case snippet.Lower, snippet.Raise, snippet.Top, snippet.Slot:
			return isa.Set(amd64.RAX)
		case snippet.Div:
			return isa.Set(amd64.RAX, amd64.RDX)
		case snippet.Load:
			return isa.Set(loadAmd64)
		case snippet.Stack:
			return walkAmd64.set()
		}
		return 0
	},
	// What the kernel's tables say that a caller's frame can be found by.
	unwound: isa.Set(amd64.RBP, amd64.R10, amd64.R13, amd64.RDI, amd64.RDX),
	// All but moves change flags. It is not worth to tell these apart: a snippet that
	// only moves has no effect.
	flags:   func(snippet.Insn) bool { return true },
	save:    saveAmd64,
	restore: restoreAmd64,
	copy: func(l *lowering, d, s isa.Reg) {
		if s == amd64.RSP {
			l.put(amd64.StackAddress(d, int32(l.frame)))
			return
		}
		l.put(amd64.MoveReg(d, s))
	},
	sp:   amd64.RSP,
	emit: emitAmd64,
	call: callAmd64,
}

// recordsAmd64 is what a record takes as well: where it is, and constants one by one.
func recordsAmd64(others func(snippet.Insn) int) func(snippet.Insn) int {
	return func(i snippet.Insn) int {
		switch {
		case i.Op != snippet.Append || len(i.Fields) == 0:
			return others(i)
		case slices.ContainsFunc(i.Fields, func(o snippet.Operand) bool { return o.IsConst }):
			return 2
		}
		return 1
	}
}

// onStackAmd64 is what is pushed, in that order.
func onStackAmd64(l *lowering) []isa.Reg {
	if l.saveFlags {
		return append([]isa.Reg{amd64.Flags}, l.saved...)
	}
	return l.saved
}

func saveAmd64(l *lowering) {
	all := onStackAmd64(l)
	for k, r := range all {
		if r == amd64.Flags {
			l.put(amd64.PushFlags())
		} else {
			l.put(amd64.Push(r))
		}
		l.frame += 8
		l.held(pushed(all[:k+1]))
	}
}

func restoreAmd64(l *lowering) {
	all := onStackAmd64(l)
	for k := len(all) - 1; k >= 0; k-- {
		if all[k] == amd64.Flags {
			l.put(amd64.PopFlags())
		} else {
			l.put(amd64.Pop(all[k]))
		}
		l.frame -= 8
		if k > 0 {
			l.held(pushed(all[:k]))
		}
	}
}

var aluAmd64 = map[snippet.Op]amd64.ALU{
	snippet.Add: amd64.Add, snippet.Sub: amd64.Sub, snippet.And: amd64.And, snippet.Or: amd64.Or, snippet.Xor: amd64.Xor,
}

var condsAmd64 = map[snippet.Cond]comparison{
	snippet.EQ: {uint32(amd64.Equal), uint32(amd64.Equal)},
	snippet.NE: {uint32(amd64.NotEqual), uint32(amd64.NotEqual)},
	snippet.LT: {uint32(amd64.Below), uint32(amd64.Less)},
	snippet.LE: {uint32(amd64.BelowEqual), uint32(amd64.LessEqual)},
	snippet.GT: {uint32(amd64.Above), uint32(amd64.Greater)},
	snippet.GE: {uint32(amd64.AboveEqual), uint32(amd64.GreaterEqual)},
}

func jumpIfAmd64(cond snippet.Cond, t snippet.Type) encoder {
	cc := byte(condsAmd64[cond].of(t))
	return func(from, to isa.Addr) ([]byte, error) { return amd64.JumpIf(cc, from, to) }
}

func emitAmd64(l *lowering, i snippet.Insn) {
	load := func(r isa.Reg, v uint64) { l.put(amd64.MoveImm(r, v)) }
	move := func(d isa.Reg, o snippet.Operand) {
		if r := l.operand(o, d, load); r != d {
			l.put(amd64.MoveReg(d, r))
		}
	}
	var d isa.Reg
	if i.Op.Sets() {
		d = l.regs[i.Dst]
	}
	switch i.Op {
	case snippet.Arg, snippet.Ret, snippet.Reg: // is there
	case snippet.Const:
		l.constant(d, i, load)
	case snippet.Cycles:
		l.put(amd64.ReadTime())
		l.put(amd64.ShiftImm(true, false, amd64.RDX, 32))
		l.put(amd64.ALUReg(amd64.Or, amd64.RAX, amd64.RDX))
		l.put(amd64.MoveReg(d, amd64.RAX))
	case snippet.Load:
		l.loadAmd64(i, load)
	case snippet.Extend:
		l.one(amd64.Extend(d, l.operand(i.A, d, load), i.N, i.Type == snippet.S64))
	case snippet.Add, snippet.Sub, snippet.And, snippet.Or, snippet.Xor:
		move(d, i.A)
		l.aluAmd64(aluAmd64[i.Op], d, i.B)
	case snippet.Shl, snippet.Shr:
		move(d, i.A)
		l.put(amd64.ShiftImm(i.Op == snippet.Shl, i.Type == snippet.S64, d, uint8(i.B.Imm)))
	case snippet.Goto:
		l.branch(i.To, amd64.Jump)
	case snippet.If:
		l.aluAmd64(amd64.Cmp, l.regs[i.A.Value], i.B)
		l.branch(i.To, jumpIfAmd64(i.Cond, l.typeOf(i.A)))
	case snippet.Count:
		l.countAmd64(i)
	case snippet.Lower, snippet.Raise:
		l.boundAmd64(i, load)
	case snippet.Append:
		l.appendAmd64(i, load)
	case snippet.Stack:
		l.stackAmd64(i, load)
	case snippet.Current, snippet.Task, snippet.Bits, snippet.Div, snippet.Slot, snippet.Index, snippet.Tally, snippet.Top:
		l.recordAmd64(i, d, load)
	case snippet.Clock:
		l.clockAmd64(i, d)
	case snippet.Switch:
		l.switchAmd64(i)
	case snippet.Poison:
		l.poison(amd64.Flags, load)
		l.poisonFlagsAmd64()
	default:
		l.err = fmt.Errorf("%w: %v cannot be generated on amd64", ErrSnippet, i.Op)
	}
}

// aluAmd64 is an operation with a value or a constant.
func (l *lowering) aluAmd64(op amd64.ALU, d isa.Reg, o snippet.Operand) {
	switch {
	case !o.IsConst:
		l.put(amd64.ALUReg(op, d, l.regs[o.Value]))
	case amd64.FitsImm(o.Imm):
		l.put(amd64.ALUImm(op, d, int32(o.Imm)))
	default:
		l.put(amd64.MoveImm(l.tmp[0], o.Imm))
		l.put(amd64.ALUReg(op, d, l.tmp[0]))
	}
}

func (l *lowering) countAmd64(i snippet.Insn) {
	if at, ok := l.local(i.Cell); ok {
		l.countLocalAmd64(i, at)
		return
	}
	cell := l.cell(i.Cell, 0)
	code, err := []byte(nil), error(nil)
	switch {
	case i.A == snippet.C(1):
		code, err = amd64.LockInc(l.pc(), cell)
	case !i.A.IsConst:
		code, err = amd64.LockAdd(l.regs[i.A.Value], l.pc(), cell)
	case amd64.FitsImm(i.A.Imm):
		code, err = amd64.LockAddImm(int32(i.A.Imm), l.pc(), cell)
	default:
		l.put(amd64.MoveImm(l.tmp[0], i.A.Imm))
		code, err = amd64.LockAdd(l.tmp[0], l.pc(), cell)
	}
	l.one(code, reach(err))
}

// countLocalAmd64 adds to what only this CPU adds to. A task that goes to another CPU
// does so before or behind the one instruction.
func (l *lowering) countLocalAmd64(i snippet.Insn, cell isa.Addr) {
	code, err := []byte(nil), error(nil)
	switch {
	case i.A == snippet.C(1):
		code, err = amd64.LocalInc(cell)
	case !i.A.IsConst:
		code, err = amd64.LocalAdd(l.regs[i.A.Value], cell)
	case amd64.FitsImm(i.A.Imm):
		code, err = amd64.LocalAddImm(int32(i.A.Imm), cell)
	default:
		l.put(amd64.MoveImm(l.tmp[0], i.A.Imm))
		code, err = amd64.LocalAdd(l.tmp[0], cell)
	}
	l.one(code, reach(err))
}

// boundAmd64 replaces what the cell holds unless somebody else has changed it since
// it was looked at; then it looks again. Each round that fails is one in which
// another has come further.
func (l *lowering) boundAmd64(i snippet.Insn, load func(isa.Reg, uint64)) {
	var spare isa.Reg
	if i.A.IsConst {
		spare = l.tmp[0]
	}
	v, cell := l.operand(i.A, spare, load), l.cell(i.Cell, 0)
	code, err := amd64.LoadCell(amd64.RAX, l.pc(), cell)
	l.one(code, reach(err))
	again := l.pc()
	l.put(amd64.ALUReg(amd64.Cmp, v, amd64.RAX))
	stays := snippet.GE
	if i.Op == snippet.Raise {
		stays = snippet.LE
	}
	done := l.ahead(jumpIfAmd64(stays, l.s.Cells[i.Cell].Type))
	code, err = amd64.LockCompareExchange(v, l.pc(), cell)
	l.one(code, reach(err))
	l.one(amd64.JumpIf(amd64.NotEqual, l.pc(), again))
	done()
}

// poisonFlagsAmd64 leaves equal, or below and not equal. Flags that are not free are
// taken back behind it.
func (l *lowering) poisonFlagsAmd64() {
	general := l.in.Free[0] &^ isa.Set(amd64.Flags)
	if regs := general.Regs(); l.odd() && len(regs) > 0 {
		l.put(amd64.ALUImm(amd64.Cmp, regs[0], 0x7fffffff))
		return
	}
	l.put(amd64.ALUReg(amd64.Cmp, amd64.RSP, amd64.RSP))
}

// reserveAmd64 takes a record: where it is, its number, and what to call where those go on
// that got none.
func (l *lowering) reserveAmd64(i snippet.Insn, load func(isa.Reg, uint64)) (at, n isa.Reg, full func()) {
	n, at, t := l.tmp[0], l.tmp[1], l.tmp[2]
	c := l.s.Cells[i.Cell]
	load(n, 1)
	code, err := amd64.LockExchangeAdd(n, l.pc(), l.cell(i.Cell, 0))
	l.one(code, reach(err))
	l.put(amd64.ALUImm(amd64.Cmp, n, int32(c.Records)))
	full = l.ahead(jumpIfAmd64(snippet.GE, snippet.U64))
	l.put(amd64.MoveReg(at, n))
	l.put(amd64.ShiftImm(true, false, at, log2(8*c.Stride())))
	code, err = amd64.CellAddress(t, l.pc(), l.cell(i.Cell, 1))
	l.one(code, reach(err))
	l.put(amd64.ALUReg(amd64.Add, at, t))
	return at, n, full
}

// commitAmd64 says of a record that it is whole: stores are seen in order (SDM volume 3,
// 9.2.2).
func (l *lowering) commitAmd64(at, n isa.Reg) {
	l.put(amd64.ALUImm(amd64.Add, n, 1))
	l.put(amd64.StoreAt(at, 0, n))
}

// framesAmd64 are the registers by which ORC entries of compiled code find frames.
var framesAmd64 = isa.Set(amd64.RSP, amd64.RBP, amd64.R10, amd64.R13)

// keyAmd64 jumps if a key is not, or is, 0.
func keyAmd64(b *builder, x *Cloned, to isa.Addr) {
	cc := amd64.NotEqual
	if x.Key.Off {
		cc = amd64.Equal
	}
	b.compareAmd64(x.Key.Enabled, 0, cc, to)
}

// gateAmd64 goes to the original if its ftrace site is not bare.
func gateAmd64(b *builder, g *Gate) {
	b.compareAmd64(g.Site, int32(g.Bare), amd64.NotEqual, g.Function)
}

// compareAmd64 compares a word of memory, which changes the flags, and jumps.
func (b *builder) compareAmd64(at isa.Addr, with int32, cc byte, to isa.Addr) {
	code, err := amd64.CompareWord(b.pc(), at, with)
	b.emit(code, 0, reach(err))
	code, err = amd64.JumpIf(cc, b.pc(), to)
	b.emit(code, 0, reach(err))
}

var linksAmd64 = linker{
	isHeld: func(b *builder, x *Cloned, f isa.Addr) {
		if !amd64.FitsImm(uint64(f)) {
			b.err = reach(fmt.Errorf("%v does not fit into a comparison", f))
			return
		}
		b.emit(amd64.ALUImm(amd64.Cmp, *x.By, int32(uint32(f))), 0, nil)
	},
	// A trampoline is jmp rel32.
	isLed: func(b *builder, trampoline, f isa.Addr) {
		code, err := amd64.CompareWord(b.pc(), trampoline+1, int32(uint32(f-trampoline-amd64.JumpLen)))
		b.emit(code, 0, reach(err))
	},
	onEqual: func(*Cloned) encoder {
		return func(from, to isa.Addr) ([]byte, error) { return amd64.JumpIf(amd64.Equal, from, to) }
	},
	onOther: func(*Cloned) encoder {
		return func(from, to isa.Addr) ([]byte, error) { return amd64.JumpIf(amd64.NotEqual, from, to) }
	},
	note: func(b *builder, x *Cloned, f, cell isa.Addr) {
		code, err := amd64.StoreImm(int32(uint32(f)), b.pc(), cell)
		b.emit(code, 0, reach(err))
		b.tallyAmd64(x, cell)
	},
	noteR: func(b *builder, x *Cloned, cell isa.Addr) {
		code, err := amd64.StoreCell(*x.By, b.pc(), cell)
		b.emit(code, 0, reach(err))
		b.tallyAmd64(x, cell)
	},
}

// tallyAmd64 adds one to the word behind a cell, where the flags are free.
func (b *builder) tallyAmd64(x *Cloned, cell isa.Addr) {
	if x.Free.Has(amd64.Flags) {
		b.jump(amd64.LockInc, cell+8)
	}
}
