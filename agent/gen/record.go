package gen

import (
	"fmt"

	"kerninst/agent/isa"
	"kerninst/agent/isa/amd64"
	"kerninst/agent/isa/arm64"
	"kerninst/agent/isa/riscv64"
	"kerninst/agent/snippet"
)

// What snippets know of the task that runs, and how they change one of a cell's many
// words: see snippet.Cell for how a map is looked through. All of it is done in a bounded
// number of steps, whoever interrupts it and whatever other CPUs do.

var errTask = fmt.Errorf("%w: where the task that runs is to be found is not known: this kernel has neither pcpu_hot nor current_task", ErrSnippet)

// mapShift is by how much the product of keys is shifted down to a place, and log2 of a
// record's bytes.
func mapShift(c snippet.Cell) (down, record uint8) {
	return 64 - log2(c.Records), log2(8 * c.Stride())
}

// within reports whether what Index is given is never more than it takes.
func (l *lowering) within(i snippet.Insn) bool {
	for _, by := range l.s.Code {
		if by.Op == snippet.Bits && !i.A.IsConst && by.Dst == i.A.Value {
			return i.N >= 64
		}
	}
	return false
}

func (l *lowering) recordAmd64(i snippet.Insn, d isa.Reg, load func(isa.Reg, uint64)) {
	switch i.Op {
	case snippet.Current, snippet.Task:
		if l.in.Task == 0 {
			l.fail(errTask)
			return
		}
		code, err := amd64.LocalLoad(d, l.in.Task)
		l.one(code, reach(err))
		if i.Op == snippet.Task {
			l.put(amd64.LoadFrom(d, d, i.Off, i.N, i.Type == snippet.S64))
		}
	case snippet.Bits:
		load(l.tmp[0], ^uint64(0))
		l.put(amd64.BitScan(d, l.regs[i.A.Value]))
		l.put(amd64.MoveIf(amd64.Equal, d, l.tmp[0]))
		l.put(amd64.ALUImm(amd64.Add, d, 1))
	case snippet.Div:
		load(l.tmp[0], i.B.Imm)
		l.put(amd64.MoveReg(amd64.RAX, l.operand(i.A, l.tmp[1], load)))
		load(amd64.RDX, 0)
		l.put(amd64.Divide(l.tmp[0]))
		l.put(amd64.MoveReg(d, amd64.RAX))
	case snippet.Index:
		l.put(amd64.MoveReg(d, l.operand(i.A, l.tmp[1], load)))
		if !l.within(i) {
			load(l.tmp[0], uint64(i.N))
			l.put(amd64.ALUReg(amd64.Cmp, d, l.tmp[0]))
			l.put(amd64.MoveIf(amd64.Above, d, l.tmp[0]))
		}
		if i.Off != 0 {
			l.put(amd64.ALUImm(amd64.Add, d, i.Off))
		}
		if !i.B.IsConst {
			l.put(amd64.ALUReg(amd64.Add, d, l.regs[i.B.Value]))
		}
	case snippet.Slot:
		l.slotAmd64(i, d, load)
	default:
		code, err := amd64.CellAddress(l.tmp[0], l.pc(), l.cell(i.Cell, 0))
		l.one(code, reach(err))
		if i.Op == snippet.Tally && i.A.IsConst && amd64.FitsImm(i.A.Imm) {
			l.put(amd64.LockAddImmAt(int32(i.A.Imm), l.tmp[0], l.regs[i.B.Value], i.Off))
			return
		}
		v := l.operand(i.A, l.tmp[1], load)
		if i.Op == snippet.Tally {
			l.put(amd64.LockAddAt(v, l.tmp[0], l.regs[i.B.Value], i.Off))
			return
		}
		l.put(amd64.AddressAt(l.tmp[0], l.tmp[0], l.regs[i.B.Value], i.Off))
		l.put(amd64.LoadFrom(amd64.RAX, l.tmp[0], 0, 8, false))
		again := l.pc()
		l.put(amd64.ALUReg(amd64.Cmp, v, amd64.RAX))
		done := l.ahead(jumpIfAmd64(snippet.LE, snippet.U64))
		l.put(amd64.LockCompareExchangeAt(v, l.tmp[0]))
		l.one(amd64.JumpIf(amd64.NotEqual, l.pc(), again))
		done()
	}
}

// slotAmd64: stores are seen in order, and loads are done in order (SDM volume 3, 9.2.2).
func (l *lowering) slotAmd64(i snippet.Insn, d isa.Reg, load func(isa.Reg, uint64)) {
	c := l.s.Cells[i.Cell]
	place, rec, left, t := l.tmp[0], l.tmp[1], l.tmp[2], l.tmp[3]
	down, record := mapShift(c)
	l.put(amd64.MoveReg(place, l.regs[i.Fields[0].Value]))
	for _, k := range i.Fields[1:] {
		l.put(amd64.ALUReg(amd64.Add, place, l.regs[k.Value]))
	}
	load(t, snippet.MapFactor())
	l.put(amd64.Multiply(place, t))
	l.put(amd64.ShiftImm(false, false, place, down))
	load(left, uint64(c.Probes()))
	again := l.pc()
	l.put(amd64.MoveReg(rec, place))
	l.put(amd64.ShiftImm(true, false, rec, record))
	code, err := amd64.CellAddress(t, l.pc(), l.cell(i.Cell, 0))
	l.one(code, reach(err))
	l.put(amd64.ALUReg(amd64.Add, rec, t))
	l.put(amd64.LoadFrom(amd64.RAX, rec, 0, 8, false))
	l.put(amd64.ALUImm(amd64.Cmp, amd64.RAX, snippet.Known))
	equal, unequal := jumpIfAmd64(snippet.EQ, snippet.U64), jumpIfAmd64(snippet.NE, snippet.U64)
	known := l.ahead(equal)
	l.put(amd64.ALUImm(amd64.Cmp, amd64.RAX, 0))
	others := []func(){l.ahead(unequal)}
	load(t, snippet.Claimed)
	l.put(amd64.LockCompareExchangeAt(t, rec))
	others = append(others, l.ahead(unequal))
	for n, k := range i.Fields {
		l.put(amd64.StoreAt(rec, int8(8+8*n), l.regs[k.Value]))
	}
	load(t, snippet.Known)
	l.put(amd64.StoreAt(rec, 0, t))
	made := l.ahead(amd64.Jump)
	known()
	for n, k := range i.Fields {
		l.put(amd64.LoadFrom(t, rec, int32(8+8*n), 8, false))
		l.put(amd64.ALUReg(amd64.Cmp, t, l.regs[k.Value]))
		others = append(others, l.ahead(unequal))
	}
	found := l.ahead(amd64.Jump)
	for _, here := range others {
		here()
	}
	l.put(amd64.ALUImm(amd64.Add, place, 1))
	l.put(amd64.ALUImm(amd64.And, place, int32(c.Records-1)))
	l.put(amd64.ALUImm(amd64.Sub, left, 1))
	l.one(amd64.JumpIf(amd64.NotEqual, l.pc(), again))
	load(d, 0)
	none := l.ahead(amd64.Jump)
	made()
	found()
	l.put(amd64.MoveReg(d, place))
	l.put(amd64.ShiftImm(true, false, d, record-3))
	l.put(amd64.ALUImm(amd64.Add, d, snippet.MapHead))
	none()
}

func (l *lowering) recordArm64(i snippet.Insn, d isa.Reg, load func(isa.Reg, uint64)) {
	switch i.Op {
	case snippet.Current:
		l.one(arm64.ReadTask(d))
	case snippet.Task:
		l.taskArm64(i, d, load)
	case snippet.Bits:
		load(l.tmp[0], 64)
		l.one(arm64.CountZeros(d, l.regs[i.A.Value]))
		l.one(arm64.ALUReg(arm64.Sub, d, l.tmp[0], d, 0))
	case snippet.Div:
		load(l.tmp[0], i.B.Imm)
		l.one(arm64.Divide(d, l.operand(i.A, l.tmp[1], load), l.tmp[0]))
	case snippet.Index:
		a := l.operand(i.A, l.tmp[1], load)
		if l.within(i) {
			l.one(arm64.MoveReg(d, a))
		} else {
			load(l.tmp[0], uint64(i.N))
			l.one(arm64.Compare(a, l.tmp[0]))
			l.one(arm64.Select(arm64.Below, d, a, l.tmp[0]))
		}
		if i.Off != 0 {
			l.one(arm64.AddImm(d, d, uint64(i.Off)))
		}
		if !i.B.IsConst {
			l.one(arm64.ALUReg(arm64.Add, d, d, l.regs[i.B.Value], 0))
		}
	default:
		if !l.in.Features.LSE {
			l.fail(ErrNoAtomics)
			return
		}
		if i.Op == snippet.Slot {
			l.slotArm64(i, d, load)
			return
		}
		op := arm64.AtomicSum
		if i.Op == snippet.Top {
			op = arm64.AtomicMaxUnsigned
		}
		code, err := arm64.Adr(l.tmp[0], l.pc(), l.cell(i.Cell, int(i.Off)))
		l.one(code, reach(err))
		l.one(arm64.ALUReg(arm64.Add, l.tmp[0], l.tmp[0], l.regs[i.B.Value], 3))
		l.one(arm64.AtomicOp(op, l.operand(i.A, l.tmp[1], load), l.tmp[0]))
	}
}

// taskArm64 loads by the offset in the instruction where that can say it.
func (l *lowering) taskArm64(i snippet.Insn, d isa.Reg, load func(isa.Reg, uint64)) {
	l.one(arm64.ReadTask(d))
	code, err := arm64.LoadAt(d, d, i.Off, i.N, i.Type == snippet.S64)
	if err != nil {
		load(l.tmp[0], uint64(i.Off))
		l.one(arm64.ALUReg(arm64.Add, d, d, l.tmp[0], 0))
		code, err = arm64.LoadAt(d, d, 0, i.N, i.Type == snippet.S64)
	}
	l.one(code, err)
}

// slotArm64 changes no flags. A record is claimed by raising its state, which says what it
// was.
func (l *lowering) slotArm64(i snippet.Insn, d isa.Reg, load func(isa.Reg, uint64)) {
	c := l.s.Cells[i.Cell]
	place, rec, left, t, u := l.tmp[0], l.tmp[1], l.tmp[2], l.tmp[3], l.tmp[4]
	down, record := mapShift(c)
	zero := func(r isa.Reg) func() {
		return l.ahead(func(from, to isa.Addr) ([]byte, error) { return arm64.JumpIfZero(r, from, to) })
	}
	other := func(r isa.Reg) func() {
		return l.ahead(func(from, to isa.Addr) ([]byte, error) { return arm64.JumpIfNotZero(r, from, to) })
	}
	first := l.regs[i.Fields[0].Value]
	for _, k := range i.Fields[1:] {
		l.one(arm64.ALUReg(arm64.Add, place, first, l.regs[k.Value], 0))
		first = place
	}
	load(t, snippet.MapFactor())
	l.one(arm64.Multiply(place, first, t))
	l.one(arm64.ShiftRight(false, place, place, down))
	load(left, uint64(c.Probes()))
	again := l.pc()
	code, err := arm64.Adr(rec, l.pc(), l.cell(i.Cell, 0))
	l.one(code, reach(err))
	l.one(arm64.ALUReg(arm64.Add, rec, rec, place, record))
	l.one(arm64.LoadAcquire(t, rec))
	l.one(arm64.SubImm(u, t, snippet.Known))
	known := zero(u)
	others := []func(){other(t)}
	load(t, snippet.Claimed)
	l.one(arm64.AtomicFetch(arm64.AtomicMaxUnsigned, t, t, rec))
	others = append(others, other(t))
	for n, k := range i.Fields {
		l.one(arm64.StoreAt(rec, 8+8*n, l.regs[k.Value]))
	}
	load(t, snippet.Known)
	l.one(arm64.StoreRelease(rec, t))
	made := l.ahead(arm64.Jump)
	known()
	for n, k := range i.Fields {
		l.one(arm64.LoadAt(t, rec, int32(8+8*n), 8, false))
		l.one(arm64.ALUReg(arm64.Sub, t, t, l.regs[k.Value], 0))
		others = append(others, other(t))
	}
	found := l.ahead(arm64.Jump)
	for _, here := range others {
		here()
	}
	l.one(arm64.AddImm(place, place, 1))
	l.one(arm64.ShiftLeft(place, place, down)) // back to the first behind the last
	l.one(arm64.ShiftRight(false, place, place, down))
	l.one(arm64.SubImm(left, left, 1))
	l.one(arm64.JumpIfNotZero(left, l.pc(), again))
	load(d, 0)
	none := l.ahead(arm64.Jump)
	made()
	found()
	l.one(arm64.ShiftLeft(d, place, record-3))
	l.one(arm64.AddImm(d, d, snippet.MapHead))
	none()
}

func (l *lowering) recordRiscv64(i snippet.Insn, d isa.Reg, load func(isa.Reg, uint64)) {
	jump := func(cond uint32, a, b isa.Reg) func() {
		return l.ahead(func(from, to isa.Addr) ([]byte, error) { return riscv64.JumpIf(cond, a, b, from, to) })
	}
	switch i.Op {
	case snippet.Current:
		l.one(riscv64.MoveReg(d, riscv64.TP))
	case snippet.Task:
		l.taskRiscv64(i, d, load)
	case snippet.Bits:
		l.bitsRiscv64(i, d)
	case snippet.Div:
		load(l.tmp[0], i.B.Imm)
		l.one(riscv64.ALUReg(riscv64.Divided, d, l.operand(i.A, l.tmp[1], load), l.tmp[0]))
	case snippet.Index:
		l.one(riscv64.MoveReg(d, l.operand(i.A, l.tmp[1], load)))
		if !l.within(i) {
			load(l.tmp[0], uint64(i.N))
			fits := jump(riscv64.AboveEqual, l.tmp[0], d)
			l.one(riscv64.MoveReg(d, l.tmp[0]))
			fits()
		}
		if i.Off != 0 {
			l.one(riscv64.ALUImm(riscv64.Add, d, d, uint64(i.Off)))
		}
		if !i.B.IsConst {
			l.one(riscv64.ALUReg(riscv64.Add, d, d, l.regs[i.B.Value]))
		}
	case snippet.Slot:
		l.slotRiscv64(i, d, load)
	default:
		op := riscv64.AtomicSum
		if i.Op == snippet.Top {
			op = riscv64.AtomicMaxUnsigned
		}
		l.addressRiscv64(l.tmp[0], l.cell(i.Cell, int(i.Off)))
		l.one(riscv64.ShiftImm(true, false, l.tmp[1], l.regs[i.B.Value], 3))
		l.one(riscv64.ALUReg(riscv64.Add, l.tmp[0], l.tmp[0], l.tmp[1]))
		l.one(riscv64.AtomicOp(op, 0, l.operand(i.A, l.tmp[2], load), l.tmp[0]))
	}
}

func (l *lowering) taskRiscv64(i snippet.Insn, d isa.Reg, load func(isa.Reg, uint64)) {
	signed := i.Type == snippet.S64
	if riscv64.FitsImm(uint64(i.Off)) {
		l.one(riscv64.LoadAt(d, riscv64.TP, i.Off, i.N, signed))
		return
	}
	load(d, uint64(i.Off))
	l.one(riscv64.ALUReg(riscv64.Add, d, d, riscv64.TP))
	l.one(riscv64.LoadAt(d, d, 0, i.N, signed))
}

// bitsRiscv64 takes the upper half of what is left as long as there is something in it: the
// base ISA counts no zeros.
func (l *lowering) bitsRiscv64(i snippet.Insn, d isa.Reg) {
	left, upper := l.tmp[0], l.tmp[1]
	l.one(riscv64.MoveReg(left, l.regs[i.A.Value]))
	l.one(riscv64.LoadImm(d, 0))
	for half := uint8(32); half > 0; half /= 2 {
		l.one(riscv64.ShiftImm(false, false, upper, left, half))
		empty := l.ahead(func(from, to isa.Addr) ([]byte, error) {
			return riscv64.JumpIf(riscv64.Equal, upper, 0, from, to)
		})
		l.one(riscv64.MoveReg(left, upper))
		l.one(riscv64.ALUImm(riscv64.Add, d, d, uint64(half)))
		empty()
	}
	l.one(riscv64.ALUReg(riscv64.Add, d, d, left)) // the last bit
}

// slotRiscv64 claims as slotArm64 does.
func (l *lowering) slotRiscv64(i snippet.Insn, d isa.Reg, load func(isa.Reg, uint64)) {
	c := l.s.Cells[i.Cell]
	place, rec, left, t, u := l.tmp[0], l.tmp[1], l.tmp[2], l.tmp[3], l.tmp[4]
	down, record := mapShift(c)
	jump := func(cond uint32, a, b isa.Reg) func() {
		return l.ahead(func(from, to isa.Addr) ([]byte, error) { return riscv64.JumpIf(cond, a, b, from, to) })
	}
	first := l.regs[i.Fields[0].Value]
	for _, k := range i.Fields[1:] {
		l.one(riscv64.ALUReg(riscv64.Add, place, first, l.regs[k.Value]))
		first = place
	}
	load(t, snippet.MapFactor())
	l.one(riscv64.ALUReg(riscv64.Multiplied, place, first, t))
	l.one(riscv64.ShiftImm(false, false, place, place, down))
	load(left, uint64(c.Probes()))
	again := l.pc()
	l.addressRiscv64(rec, l.cell(i.Cell, 0))
	l.one(riscv64.ShiftImm(true, false, t, place, record))
	l.one(riscv64.ALUReg(riscv64.Add, rec, rec, t))
	l.one(riscv64.LoadAt(t, rec, 0, 8, false))
	l.put(riscv64.FenceLoads())
	load(u, snippet.Known)
	known := jump(riscv64.Equal, t, u)
	others := []func(){jump(riscv64.NotEqual, t, 0)}
	load(t, snippet.Claimed)
	l.one(riscv64.AtomicOp(riscv64.AtomicMaxUnsigned, t, t, rec))
	others = append(others, jump(riscv64.NotEqual, t, 0))
	for n, k := range i.Fields {
		l.one(riscv64.StoreAt(rec, 8+8*n, l.regs[k.Value]))
	}
	l.put(riscv64.FenceStores())
	l.one(riscv64.StoreAt(rec, 0, u))
	made := l.ahead(riscv64.Jump)
	known()
	for n, k := range i.Fields {
		l.one(riscv64.LoadAt(t, rec, int32(8+8*n), 8, false))
		others = append(others, jump(riscv64.NotEqual, t, l.regs[k.Value]))
	}
	found := l.ahead(riscv64.Jump)
	for _, here := range others {
		here()
	}
	l.one(riscv64.ALUImm(riscv64.Add, place, place, 1))
	l.one(riscv64.ALUImm(riscv64.And, place, place, uint64(c.Records-1)))
	l.one(riscv64.ALUImm(riscv64.Add, left, left, ^uint64(0)))
	l.one(riscv64.JumpIf(riscv64.NotEqual, left, 0, l.pc(), again))
	load(d, 0)
	none := l.ahead(riscv64.Jump)
	made()
	found()
	l.one(riscv64.ShiftImm(true, false, d, place, record-3))
	l.one(riscv64.ALUImm(riscv64.Add, d, d, snippet.MapHead))
	none()
}
