package gen

import (
	"fmt"

	"kerninst/agent/isa"
	"kerninst/agent/isa/amd64"
	"kerninst/agent/isa/arm64"
	"kerninst/agent/isa/riscv64"
)

// What a function returns is not known where it leaves by a jump to another function, a
// tail call: that one will say. KernInst's answer is to undo the optimisation (OSDI '99,
// §4.1): the patch calls what the jump leads to, runs the snippet when that is back, and
// returns to whom the function would have been returned from.
//
// What is called finds its arguments where they were, but for those on the stack, which are
// now farther away: where it may have such, the planner refuses. The address that it
// returns to is in the patch, which is kept while any stack has it (KI_SPLICE_AWAKE is not
// set), and is what it finds for its caller, as in traces of who allocates. What replaces
// return addresses for a while (function graphs, kretprobes) finds one that is like others,
// and gives it back.
//
// Who walks up the stack from what is called comes by the patch:
//
//   - amd64: the return address is the only thing that has been pushed, so behind it the
//     stack is as at the jump, which the state map says (guest/module/arch/amd64/frames.c).
//     The kernel keeps it aligned to 8 bytes (-mpreferred-stack-boundary=3), and whoever
//     wants more aligns it himself.
//   - arm64, riscv64: they go by frame records. So the patch pushes one, of the frame
//     pointer and the return address, as any function that calls does. At the jump the
//     return address is as the callee wants it: where functions sign theirs (arm64's
//     pointer authentication), it has been authenticated just before. It is not signed
//     anew in the patch: a kernel that signs none shares the keys with its processes,
//     which may change them in the call.
//
// An interrupt between the push and the setting of the frame pointer meets what it meets
// in the prologue of any function.

// caller is how one ISA calls and returns in a patch.
type caller struct {
	saved   []isa.Reg  // pushed around the call, lowest first: the frame pointer, and where to return
	frame   int        // bytes that they take
	moved   int        // bytes of the push behind which the stack pointer has moved, but they are not there yet
	results isa.RegSet // in which values are returned
	ret     []byte     // the instruction that returns
	push    func() (code []byte, n int, err error)
	point   func() ([]byte, error) // lets the frame pointer point to the record
	pop     func() (code []byte, n int, err error)
}

var callers = map[string]caller{
	"amd64": {results: isa.Set(amd64.RAX, amd64.RDX), ret: []byte{0xc3}},
	"arm64": {
		saved: []isa.Reg{arm64.FP, arm64.LR}, frame: 16,
		results: isa.Set(0, 1), ret: []byte{0xc0, 0x03, 0x5f, 0xd6},
		push: func() ([]byte, int, error) {
			code, err := arm64.Push(arm64.FP, arm64.LR)
			return code, 1, err
		},
		point: func() ([]byte, error) { return arm64.AddImm(arm64.FP, arm64.SP, 0) },
		pop: func() ([]byte, int, error) {
			code, err := arm64.Pop(arm64.FP, arm64.LR)
			return code, 1, err
		},
	},
	// A record lies below what the frame pointer points to.
	"riscv64": {
		saved: []isa.Reg{riscv64.S0, riscv64.RA}, frame: 16, moved: riscv64.PushLen,
		results: isa.Set(10, 11), ret: []byte{0x82, 0x80},
		push:  func() ([]byte, int, error) { return riscv64.Push(riscv64.S0, riscv64.RA) },
		point: func() ([]byte, error) { return riscv64.ALUImm(riscv64.Add, riscv64.S0, riscv64.SP, 16) },
		pop:   func() ([]byte, int, error) { return riscv64.Pop(riscv64.S0, riscv64.RA) },
	},
}

// perCall is the most that a call and a return take, in bytes.
const perCall = 48

// Wanted are the registers that somebody reads when a function has come back, besides
// those that it keeps: in which values are returned, and what the patch has restored.
func Wanted(arch *isa.Arch) isa.RegSet {
	c := callers[arch.Name]
	return c.results | isa.Set(c.saved...)
}

// called emits the call that stands for the last of the displaced instructions, a jump
// that leaves for good.
func (b *builder) called(arch *isa.Arch) {
	c, i := callers[arch.Name], b.in.Displaced[len(b.in.Displaced)-1]
	if len(b.in.Displaced) != 1 || b.in.Annex != 0 || b.in.Near { // a copy, of which no state map is filed
		b.one(nil, fmt.Errorf("%v: a call takes the place of the last instruction, in a patch of one part", i.Addr))
		return
	}
	b.state(b.point, 0, nil)
	c.enter(b)
	m, err := arch.Call(i, b.in.Bytes, b.pc())
	b.emit(m.Code, m.Insns-1, moved(err)) // the jump itself is not added
	if c.frame > 0 {
		b.emit(c.pop())
	}
	b.in.Free = b.in.Free[1:]
}

// enter pushes the frame record, where there is one.
func (c *caller) enter(b *builder) {
	if c.frame == 0 {
		return
	}
	at := len(b.out.Code)
	b.emit(c.push())
	if c.moved > 0 {
		b.out.States = append(b.out.States, State{Off: at + c.moved, Orig: b.point, SP: c.frame})
	}
	b.state(b.point, c.frame, c.saved)
	b.one(c.point())
}

// comeBack emits the return.
func (b *builder) comeBack(arch *isa.Arch) {
	b.state(b.point, 0, nil)
	if b.in.Thunk != 0 {
		b.one(amd64.Jump(b.pc(), b.in.Thunk))
		return
	}
	b.one(callers[arch.Name].ret, nil)
}

// Called is the code of the call in the patch of an input, which begins at an offset, and
// of the return, at another.
func Called(arch *isa.Arch, in Input, call, back int) (calls, returns []byte, err error) {
	n := len(in.Displaced) - 1
	if n < 0 || n != in.Lead {
		return nil, nil, fmt.Errorf("%d of %d instructions lead up to a call", in.Lead, n+1)
	}
	last := in.Displaced[n]
	in.Displaced, in.Bytes, in.Free = in.Displaced[n:], in.Bytes[len(in.Bytes)-last.Len:], in.Free[n:]
	at := func(off int) *builder {
		in := in
		in.Patch += isa.Addr(off)
		return &builder{in: in, point: last.Addr}
	}
	there, home := at(call), at(back)
	there.called(arch)
	home.comeBack(arch)
	if there.err != nil {
		return nil, nil, there.err
	}
	return there.out.Code, home.out.Code, home.err
}
