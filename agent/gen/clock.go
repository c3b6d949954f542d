package gen

import (
	"kerninst/agent/isa"
	"kerninst/agent/isa/amd64"
	"kerninst/agent/isa/arm64"
	"kerninst/agent/isa/riscv64"
	"kerninst/agent/snippet"
)

// Clocks of tasks: see snippet.Cell. The word of a task is changed by Switch alone, on the
// CPU that takes the task up or puts it down, with interrupts off; the kernel lets no other
// CPU take it up before. So who reads his own clock finds his word as it is until he is
// switched out. Where the kernel preempts itself that may be between his looking at the
// word and at the time, one of which would be old; so he looks at the word again, and takes
// both anew if it is another: each round is a switch more. An interrupt, and what it runs,
// reads the clock of whom it has interrupted, and changes nothing.

// number is what loads the number of the task that runs.
func number(i snippet.Insn) snippet.Insn {
	return snippet.Insn{Op: snippet.Task, Type: snippet.U64, N: 4, Off: i.Off}
}

// numberBits is how many bits of a task's number say which word is his.
func (l *lowering) numberBits(i snippet.Insn) uint8 { return log2(l.s.Cells[i.Cell].Records) }

// numberAmd64 leaves the zero flag as the word's number is.
func (l *lowering) numberAmd64(i snippet.Insn, d isa.Reg) {
	if l.in.Task == 0 {
		l.fail(errTask)
		return
	}
	code, err := amd64.LocalLoad(d, l.in.Task)
	l.one(code, reach(err))
	l.put(amd64.LoadFrom(d, d, i.Off, 4, false))
	l.put(amd64.ALUImm(amd64.And, d, int32(l.s.Cells[i.Cell].Records-1)))
}

// nowAmd64 is the time, in RAX; it takes RDX.
func (l *lowering) nowAmd64() {
	l.put(amd64.ReadTime())
	l.put(amd64.ShiftImm(true, false, amd64.RDX, 32))
	l.put(amd64.ALUReg(amd64.Or, amd64.RAX, amd64.RDX))
}

func (l *lowering) clocksAmd64(i snippet.Insn, d isa.Reg) {
	code, err := amd64.LoadCell(d, l.pc(), l.cell(i.Cell, 0))
	l.one(code, reach(err))
}

func (l *lowering) clockAmd64(i snippet.Insn, d isa.Reg) {
	at, word := l.tmp[0], l.tmp[1]
	l.numberAmd64(i, at)
	l.clocksAmd64(i, word)
	l.put(amd64.AddressAt(at, word, at, 0))
	again := l.pc()
	l.put(amd64.LoadFrom(word, at, 0, 8, false))
	l.nowAmd64()
	if l.in.Features.Preempted {
		l.put(amd64.LoadFrom(amd64.RDX, at, 0, 8, false))
		l.put(amd64.ALUReg(amd64.Cmp, amd64.RDX, word))
		l.one(amd64.JumpIf(amd64.NotEqual, l.pc(), again))
	}
	l.put(amd64.ALUReg(amd64.Sub, amd64.RAX, word))
	l.put(amd64.MoveReg(d, amd64.RAX))
}

func (l *lowering) switchAmd64(i snippet.Insn) {
	at, words := l.tmp[0], l.tmp[1]
	none := jumpIfAmd64(snippet.EQ, snippet.U64)
	l.nowAmd64()
	l.clocksAmd64(i, words)
	l.numberAmd64(i, at)
	idle := l.ahead(none)
	l.put(amd64.LockAddAt(amd64.RAX, words, at, 0))
	idle()
	l.put(amd64.MoveReg(at, l.regs[i.A.Value]))
	l.put(amd64.ALUImm(amd64.And, at, int32(l.s.Cells[i.Cell].Records-1)))
	idle = l.ahead(none)
	l.put(amd64.MoveImm(amd64.RDX, 0))
	l.put(amd64.ALUReg(amd64.Sub, amd64.RDX, amd64.RAX))
	l.put(amd64.LockAddAt(amd64.RDX, words, at, 0))
	idle()
}

func (l *lowering) clocksArm64(i snippet.Insn, d isa.Reg) {
	code, err := arm64.LoadLiteral(d, l.pc(), l.cell(i.Cell, 0))
	l.one(code, reach(err))
}

func (l *lowering) clockArm64(i snippet.Insn, d isa.Reg, load func(isa.Reg, uint64)) {
	word, at, same := l.tmp[0], l.tmp[1], l.tmp[2]
	l.taskArm64(number(i), at, load)
	l.one(arm64.KeepLow(at, at, l.numberBits(i)))
	l.clocksArm64(i, word)
	l.one(arm64.ALUReg(arm64.Add, at, word, at, 3))
	again := l.pc()
	l.one(arm64.LoadAt(word, at, 0, 8, false))
	l.one(arm64.ReadTime(d))
	if l.in.Features.Preempted {
		l.one(arm64.LoadAt(same, at, 0, 8, false))
		l.one(arm64.ALUReg(arm64.Sub, same, same, word, 0))
		l.one(arm64.JumpIfNotZero(same, l.pc(), again))
	}
	l.one(arm64.ALUReg(arm64.Sub, d, d, word, 0))
}

func (l *lowering) switchArm64(i snippet.Insn, load func(isa.Reg, uint64)) {
	if !l.in.Features.LSE {
		l.fail(ErrNoAtomics)
		return
	}
	words, at, now := l.tmp[0], l.tmp[1], l.tmp[2]
	none := func(from, to isa.Addr) ([]byte, error) { return arm64.JumpIfZero(at, from, to) }
	l.taskArm64(number(i), at, load)
	l.one(arm64.KeepLow(at, at, l.numberBits(i)))
	l.clocksArm64(i, words)
	l.one(arm64.ReadTime(now))
	idle := l.ahead(none)
	l.one(arm64.ALUReg(arm64.Add, at, words, at, 3))
	l.one(arm64.AtomicOp(arm64.AtomicSum, now, at))
	idle()
	l.one(arm64.KeepLow(at, l.regs[i.A.Value], l.numberBits(i)))
	idle = l.ahead(none)
	l.one(arm64.ALUReg(arm64.Add, at, words, at, 3))
	load(words, 0)
	l.one(arm64.ALUReg(arm64.Sub, words, words, now, 0))
	l.one(arm64.AtomicOp(arm64.AtomicSum, words, at))
	idle()
}

func (l *lowering) clocksRiscv64(i snippet.Insn, d isa.Reg) {
	l.addressRiscv64(d, l.cell(i.Cell, 0))
	l.one(riscv64.LoadAt(d, d, 0, 8, false))
}

// wordRiscv64 is where a task's word is behind the first, in bytes.
func (l *lowering) wordRiscv64(i snippet.Insn, d, number isa.Reg) {
	above := 64 - l.numberBits(i)
	l.one(riscv64.ShiftImm(true, false, d, number, above))
	l.one(riscv64.ShiftImm(false, false, d, d, above-3))
}

func (l *lowering) clockRiscv64(i snippet.Insn, d isa.Reg, load func(isa.Reg, uint64)) {
	word, at, same := l.tmp[0], l.tmp[1], l.tmp[2]
	l.taskRiscv64(number(i), at, load)
	l.wordRiscv64(i, at, at)
	l.clocksRiscv64(i, word)
	l.one(riscv64.ALUReg(riscv64.Add, at, at, word))
	again := l.pc()
	l.one(riscv64.LoadAt(word, at, 0, 8, false))
	l.one(riscv64.ReadTime(d))
	if l.in.Features.Preempted {
		l.one(riscv64.LoadAt(same, at, 0, 8, false))
		l.one(riscv64.JumpIf(riscv64.NotEqual, same, word, l.pc(), again))
	}
	l.one(riscv64.ALUReg(riscv64.Sub, d, d, word))
}

func (l *lowering) switchRiscv64(i snippet.Insn, load func(isa.Reg, uint64)) {
	words, at, now := l.tmp[0], l.tmp[1], l.tmp[2]
	none := func(from, to isa.Addr) ([]byte, error) { return riscv64.JumpIf(riscv64.Equal, at, 0, from, to) }
	l.taskRiscv64(number(i), at, load)
	l.wordRiscv64(i, at, at)
	l.clocksRiscv64(i, words)
	l.one(riscv64.ReadTime(now))
	idle := l.ahead(none)
	l.one(riscv64.ALUReg(riscv64.Add, at, at, words))
	l.one(riscv64.AtomicOp(riscv64.AtomicSum, 0, now, at))
	idle()
	l.wordRiscv64(i, at, l.regs[i.A.Value])
	idle = l.ahead(none)
	l.one(riscv64.ALUReg(riscv64.Add, at, at, words))
	load(words, 0)
	l.one(riscv64.ALUReg(riscv64.Sub, words, words, now))
	l.one(riscv64.AtomicOp(riscv64.AtomicSum, 0, words, at))
	idle()
}
