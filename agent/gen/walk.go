package gen

import (
	"fmt"

	"kerninst/agent/isa"
	"kerninst/agent/isa/amd64"
	"kerninst/agent/isa/arm64"
	"kerninst/agent/isa/riscv64"
	"kerninst/agent/snippet"
)

// The kernel's stack is looked at by the module, which stands behind its loads and is
// called as they are: it is the only code that a snippet calls which in its turn calls
// the kernel's. All that this may change, the module saves, and it gives the stack the
// alignment that compiled code wants; so the patch has nothing to save but the
// registers below. It is told what the address and the stack pointer would be without
// the patch, and begins there: what it finds is what the kernel finds at the point,
// with nothing of the patch, which nobody knows how to unwind.

// The registers of the module's walk, by kerninst.h: where the addresses go, which is
// then how many there are; how many there may be and, shifted by WalkShift, how much
// lower the stack is than at the point; the point.
type walkRegs struct{ fields, how, point isa.Reg }

var (
	walkAmd64   = walkRegs{amd64.RAX, amd64.RCX, amd64.RSI}
	walkArm64   = walkRegs{15, 14, 13}
	walkRiscv64 = walkRegs{7, 6, 28}
)

// WalkShift is KI_WALK_SHIFT.
const WalkShift = 8

func (w walkRegs) set() isa.RegSet { return isa.Set(w.fields, w.how, w.point) }

// WalkCall encodes how a patch calls what walks the stack, of what stands at loads, as
// LoadCall does.
func WalkCall(arch *isa.Arch, from, loads isa.Addr) (code []byte, n int, err error) {
	code, n, err = machines[arch.Name].call(from, walkAt(loads))
	return code, n, reach(err)
}

func walkAt(loads isa.Addr) isa.Addr { return loads + LoadStride*isa.Addr(len(LoadSizes)) }

// callWalk emits the call. What it is told is in its registers but for what is always
// the same.
func (l *lowering) callWalk(w walkRegs, i snippet.Insn, load func(isa.Reg, uint64)) {
	if l.in.Loads == 0 {
		l.fail(fmt.Errorf("%w: nothing is known to walk the stack with: the module of a running kernel does", ErrSnippet))
		return
	}
	load(w.how, uint64(l.s.Cells[i.Cell].Fields|l.frame<<WalkShift))
	load(w.point, uint64(l.point))
	code, n, err := l.m.call(l.pc(), walkAt(l.in.Loads))
	l.emit(code, n, reach(err))
}

func (l *lowering) stackAmd64(i snippet.Insn, load func(isa.Reg, uint64)) {
	at, n, full := l.reserveAmd64(i, load)
	l.put(amd64.MoveReg(walkAmd64.fields, at))
	l.put(amd64.ALUImm(amd64.Add, walkAmd64.fields, 8))
	l.callWalk(walkAmd64, i, load)
	l.put(amd64.ALUImm(amd64.Cmp, walkAmd64.fields, 0))
	nothing := l.ahead(jumpIfAmd64(snippet.EQ, snippet.U64))
	l.commitAmd64(at, n)
	full()
	nothing()
}

func (l *lowering) stackArm64(i snippet.Insn, load func(isa.Reg, uint64)) {
	at, n, full := l.reserveArm64(i, load)
	l.one(arm64.AddImm(walkArm64.fields, at, 8))
	l.callWalk(walkArm64, i, load)
	nothing := l.ahead(func(from, to isa.Addr) ([]byte, error) { return arm64.JumpIfZero(walkArm64.fields, from, to) })
	l.commitArm64(at, n)
	full()
	nothing()
}

func (l *lowering) stackRiscv64(i snippet.Insn, load func(isa.Reg, uint64)) {
	at, n, full := l.reserveRiscv64(i, load)
	l.one(riscv64.ALUImm(riscv64.Add, walkRiscv64.fields, at, 16))
	l.callWalk(walkRiscv64, i, load)
	nothing := l.ahead(func(from, to isa.Addr) ([]byte, error) {
		return riscv64.JumpIf(riscv64.Equal, walkRiscv64.fields, 0, from, to)
	})
	l.commitRiscv64(at, n)
	full()
	nothing()
}
