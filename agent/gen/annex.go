package gen

import (
	"bytes"
	"fmt"

	"kerninst/agent/isa"
	"kerninst/agent/isa/arm64"
)

// A patch in two parts: one in reach of the jump at the point, with the snippet, and
// one elsewhere, the annex's, with the displaced instruction alone. Between them, and
// from the second back to the kernel, leads a jump that takes a register (a leap). It
// is one that is free there; where none is, one is pushed before the leap and popped
// where it lands, so that the displaced instruction always runs with the stack pointer
// and all registers that somebody may read as they would be at the point, and faults
// with them. What has no free register behind it goes back by way of the first part,
// where the register is popped before the jump to the kernel.

// Annex is the second part of a patch.
type Annex struct {
	Code   []byte
	Fault  int // offset of the displaced instruction
	States []State
}

// AnnexRoom is the most bytes of the second part.
const AnnexRoom = 32

// leaper is what one ISA has for leaps.
type leaper struct {
	jump      func(r isa.Reg, from, to isa.Addr) (code []byte, n int, err error)
	read      func(b []byte, a isa.Addr) (to isa.Addr, r isa.Reg, n int, ok bool)
	push, pop func(...isa.Reg) ([]byte, error)
	frame     int     // what push takes of the stack
	spare     isa.Reg // that is pushed where none is free
}

// On arm64 x16 leads even to a landing pad for calls, were there any.
var leapers = map[string]leaper{
	"arm64": {arm64.FarJump, arm64.Far, arm64.Push, arm64.Pop, 16, arm64.X16},
}

// leap is a jump from one part of a patch.
type leap struct {
	reg   isa.Reg
	saved bool // where it lands, the register is popped
}

func leapBy(arch *isa.Arch, free isa.RegSet) leap {
	if r, ok := Register(arch, free); ok {
		return leap{r, false}
	}
	return leap{leapers[arch.Name].spare, true}
}

// leave emits the leap from where the kernel would be at orig.
func (b *builder) leave(l leaper, by leap, orig, to isa.Addr) {
	b.state(orig, 0, nil)
	if by.saved {
		b.one(l.push(by.reg))
		b.state(orig, l.frame, []isa.Reg{by.reg})
		b.out.Spilled++
	}
	code, n, err := l.jump(by.reg, b.pc(), to)
	b.emit(code, n, reach(err))
}

// land emits what a leap lands on.
func (b *builder) land(l leaper, by leap, orig isa.Addr) {
	if by.saved {
		b.state(orig, l.frame, []isa.Reg{by.reg})
		b.one(l.pop(by.reg))
	}
}

// apart emits the displaced instruction as a second part, and the ways there and back.
func (b *builder) apart(arch *isa.Arch) {
	l, ok := leapers[arch.Name]
	if !ok || len(b.in.Displaced) != 1 || b.in.Displaced[0].Flow != isa.FlowNone {
		b.one(nil, fmt.Errorf("%w: a patch of two parts is for one instruction that goes on to the next, and %s has none", ErrReach, arch.Name))
		return
	}
	there, home := leapBy(arch, b.in.Free[0]), leapBy(arch, b.in.Free[1])
	b.leave(l, there, b.point, b.in.Annex)
	a := &builder{in: b.in, point: b.point}
	a.in.Patch = b.in.Annex
	a.land(l, there, b.point)
	fault := len(a.out.Code)
	a.displaced(arch.Move)
	to := b.in.Back
	if home.saved {
		to = b.pc()
	}
	a.leave(l, home, b.in.Back, to)
	if home.saved {
		b.land(l, home, b.in.Back)
		b.state(b.in.Back, 0, nil)
		generators[arch.Name].back(b)
	}
	if b.err == nil {
		b.err = a.err
	}
	b.out.Annex = Annex{a.out.Code, fault, a.out.States}
	b.out.Added += a.out.Added
	b.out.Spilled += a.out.Spilled
}

// Leap is a leap as it stands in code.
type Leap struct {
	To    isa.Addr
	Reg   isa.Reg
	Saved bool // the register is pushed before
	Len   int
}

// ReadLeap decodes the leap at the beginning of b, which lies at a.
func ReadLeap(arch *isa.Arch, b []byte, a isa.Addr) (out Leap, ok bool) {
	l, ok := leapers[arch.Name]
	if !ok {
		return Leap{}, false
	}
	push, err := l.push(l.spare)
	if err == nil && bytes.HasPrefix(b, push) {
		out.Saved, out.Len = true, len(push)
	}
	var n int
	out.To, out.Reg, n, ok = l.read(b[out.Len:], a+isa.Addr(out.Len))
	out.Len += n
	return out, ok && (!out.Saved || out.Reg == l.spare)
}

// Landing is what has to stand where a leap leads.
func Landing(arch *isa.Arch, by Leap) ([]byte, error) {
	if !by.Saved {
		return nil, nil
	}
	return leapers[arch.Name].pop(by.Reg)
}
