package gen

import (
	"fmt"

	"kerninst/agent/isa"
	"kerninst/agent/isa/amd64"
	"kerninst/agent/isa/arm64"
	"kerninst/agent/isa/riscv64"
	"kerninst/agent/snippet"
)

// Loads are calls of code in the module's own text: patches lie in memory that is
// nobody's, so no exception table is consulted for an instruction of theirs, and a
// fault there is the end of the kernel. The module's table is. What it offers takes
// the address in a register, gives the value there, and a mark if there is none; it
// changes what kerninst.h lists and nothing else. Nobody can sleep in it, and it
// returns to the patch, so that whoever looks for tasks in patches finds them there.
//
// An instruction in the patch and a table of the module's that grows would save the
// call, and would need a table that is exchanged under the feet of faults in NMIs.

// LoadStride is how far what loads 2, 4 and 8 bytes stands behind what loads half as
// many: KI_LOAD_STRIDE.
const LoadStride = 128

// LoadSizes are the bytes that can be loaded at once.
var LoadSizes = []int{1, 2, 4, 8}

// The registers of the module's loads, by kerninst.h. The first of each ISA is that
// of the address and the value.
const (
	loadAmd64   = amd64.RAX // the mark is the carry flag
	loadArm64   = isa.Reg(15)
	markArm64   = isa.Reg(16) // leads there, before
	linkArm64   = isa.Reg(17)
	spareArm64  = isa.Reg(14)
	loadRiscv64 = isa.Reg(7)
	markRiscv64 = isa.Reg(6)
	linkRiscv64 = isa.Reg(5)
	spareRisc64 = isa.Reg(28)
)

// loadAt is where what loads so many bytes stands.
func loadAt(loads isa.Addr, bytes int) isa.Addr { return loads + LoadStride*isa.Addr(log2(bytes)) }

// LoadCall encodes how a patch calls what loads so many bytes, of what stands at
// loads: n instructions, of which the last leaves the patch, which goes on behind it.
func LoadCall(arch *isa.Arch, from, loads isa.Addr, bytes int) (code []byte, n int, err error) {
	code, n, err = machines[arch.Name].call(from, loadAt(loads, bytes))
	return code, n, reach(err)
}

func callAmd64(from, to isa.Addr) ([]byte, int, error) {
	code, err := amd64.Call(from, to)
	return code, 1, err
}

// callArm64 forms the whole address: with KASLR, modules need not be in reach of a
// branch from where patches are.
func callArm64(from, to isa.Addr) ([]byte, int, error) {
	code, n, err := arm64.LoadImm(markArm64, uint64(to))
	if err != nil {
		return nil, 0, err
	}
	at := from + isa.Addr(len(code))
	link, err := arm64.Adr(linkArm64, at, at+8)
	if err != nil {
		return nil, 0, err
	}
	jump, err := arm64.JumpThrough(markArm64)
	return append(append(code, link...), jump...), n + 2, err
}

func callRiscv64(from, to isa.Addr) ([]byte, int, error) {
	code, err := riscv64.FarCall(linkRiscv64, from, to)
	return code, 2, err
}

// callLoad emits the call. The address is in its register.
func (l *lowering) callLoad(i snippet.Insn) {
	if l.in.Loads == 0 {
		l.fail(fmt.Errorf("%w: nothing is known to load with: kernel memory is loaded by the module of a running kernel", ErrSnippet))
		return
	}
	code, n, err := l.m.call(l.pc(), loadAt(l.in.Loads, i.N))
	l.emit(code, n, reach(err))
}

// signed reports whether a load's value is to be extended from fewer bytes.
func signed(i snippet.Insn) bool { return i.Type == snippet.S64 && i.N < 8 }

func (l *lowering) loadAmd64(i snippet.Insn, load func(isa.Reg, uint64)) {
	if r := l.operand(i.A, loadAmd64, load); r != loadAmd64 {
		l.put(amd64.MoveReg(loadAmd64, r))
	}
	if i.Off != 0 {
		l.put(amd64.ALUImm(amd64.Add, loadAmd64, i.Off))
	}
	l.callLoad(i)
	loaded := l.ahead(jumpIfAmd64(snippet.GE, snippet.U64)) // no carry
	code, err := amd64.LockInc(l.pc(), l.cell(i.Cell, 0))
	l.one(code, reach(err))
	loaded()
	if d := l.regs[i.Dst]; signed(i) {
		l.one(amd64.Extend(d, loadAmd64, i.N, true))
	} else {
		l.put(amd64.MoveReg(d, loadAmd64))
	}
}

func (l *lowering) loadArm64(i snippet.Insn, load func(isa.Reg, uint64)) {
	if !l.in.Features.LSE {
		l.fail(ErrNoAtomics)
		return
	}
	a, off := l.operand(i.A, loadArm64, load), uint64(int64(i.Off))
	switch {
	case arm64.FitsImm(off):
		l.one(arm64.AddImm(loadArm64, a, off))
	case arm64.FitsImm(-off):
		l.one(arm64.SubImm(loadArm64, a, -off))
	default:
		load(markArm64, off)
		l.one(arm64.ALUReg(arm64.Add, loadArm64, a, markArm64, 0))
	}
	l.callLoad(i)
	loaded := l.ahead(func(from, to isa.Addr) ([]byte, error) { return arm64.JumpIfZero(markArm64, from, to) })
	code, err := arm64.Adr(linkArm64, l.pc(), l.cell(i.Cell, 0))
	l.one(code, reach(err))
	l.one(arm64.AtomicOp(arm64.AtomicSum, markArm64, linkArm64)) // the mark is 1
	loaded()
	l.one(arm64.Extend(l.regs[i.Dst], loadArm64, i.N, signed(i)))
}

func (l *lowering) loadRiscv64(i snippet.Insn, load func(isa.Reg, uint64)) {
	a, off := l.operand(i.A, loadRiscv64, load), uint64(int64(i.Off))
	if riscv64.FitsImm(off) {
		l.one(riscv64.ALUImm(riscv64.Add, loadRiscv64, a, off))
	} else {
		load(markRiscv64, off)
		l.one(riscv64.ALUReg(riscv64.Add, loadRiscv64, a, markRiscv64))
	}
	l.callLoad(i)
	loaded := l.ahead(func(from, to isa.Addr) ([]byte, error) {
		return riscv64.JumpIf(riscv64.Equal, markRiscv64, 0, from, to)
	})
	l.addressRiscv64(linkRiscv64, l.cell(i.Cell, 0))
	l.one(riscv64.AtomicOp(riscv64.AtomicSum, 0, markRiscv64, linkRiscv64)) // the mark is 1
	loaded()
	d := l.regs[i.Dst]
	if !signed(i) {
		l.one(riscv64.MoveReg(d, loadRiscv64))
		return
	}
	by := uint8(64 - 8*i.N)
	l.one(riscv64.ShiftImm(true, false, d, loadRiscv64, by))
	l.one(riscv64.ShiftImm(false, true, d, d, by))
}
