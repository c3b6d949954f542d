package gen

import (
	"fmt"
	"slices"

	"kerninst/agent/isa"
)

// Links of clones. A call to a function that is in the clone is direct. One through a register,
// and a static call, compares where it would lead with what it was seen to lead to, and calls that
// one's copy directly; what is nowhere in its list is led to as the original does, out of line. There,
// and where the original of a function is called that could be copied, too, the site can note where it
// led: so who made the clone learns what is executed, and nobody waits for that.

// linker is what one ISA adds to link.
type linker struct {
	// isHeld compares what By holds, isLed where a trampoline leads, with an address: equal or not.
	isHeld func(b *builder, x *Cloned, f isa.Addr)
	// scratch is how many registers that takes.
	scratch int
	isLed   func(b *builder, trampoline, f isa.Addr)
	// onEqual and onOther jump then, by code that has the same length wherever it leads.
	onEqual, onOther func(x *Cloned) encoder
	// note stores an address, or what By holds, in a cell, and adds one to the word behind, unless that would
	// change flags that are used. Registers it saves.
	note  func(b *builder, x *Cloned, f, cell isa.Addr)
	noteR func(b *builder, x *Cloned, cell isa.Addr)
}

// links reports whether a site compares: what it compares with changes flags.
func (x *Cloned) links(arch *isa.Arch) bool {
	n := cloners[arch.Name].scratch
	return len(x.Links) > 0 && (!arch.All.Has(arch.Flags) || x.Free.Has(arch.Flags)) && len(spare(generators[arch.Name].order, x, n)) == n
}

// spare are the first registers that are free at an instruction, and that it does not go by.
func spare(order []isa.Reg, x *Cloned, n int) (out []isa.Reg) {
	for _, r := range order {
		if len(out) < n && x.Free.Has(r) && (x.By == nil || r != *x.By) {
			out = append(out, r)
		}
	}
	return out
}

// goes reports whether control does not come back behind the site.
func (x *Cloned) goes() bool {
	return x.Tail || x.Call == 0 && (x.Insn.Flow == isa.FlowJump || x.Insn.Flow == isa.FlowIndirectJump)
}

// spare is like the function; if there are not as many, the first stands for them, and an error for the clone.
func (b *builder) spare(order []isa.Reg, x *Cloned, n int) []isa.Reg {
	out := spare(order, x, n)
	if len(out) < n && b.err == nil {
		b.err = fmt.Errorf("%w at %v", ErrNoRegister, x.Insn.Addr)
	}
	for len(out) < n {
		out = append(out, order[0])
	}
	return out
}

// frame is what two registers take of the stack, or one: it stays aligned to as much.
const frame = 16

// saving emits what takes two registers at an instruction, which are saved where they are not free.
func (b *builder) saving(order []isa.Reg, x *Cloned, push, pop func(...isa.Reg) ([]byte, error), emit func(r, s isa.Reg)) {
	if x.By != nil {
		order = slices.DeleteFunc(slices.Clone(order), func(r isa.Reg) bool { return r == *x.By })
	}
	regs, save := choose(order, x.Free, 2)
	if len(save) > 0 {
		code, err := push(save...)
		b.emit(code, 0, err)
		b.state(x.Insn.Addr, frame, save)
	}
	emit(regs[0], regs[1])
	if len(save) > 0 {
		code, err := pop(save...)
		b.emit(code, 0, err)
		b.state(x.Insn.Addr, 0, nil)
	}
}

// known emits what calls or leaves to where the instruction before has said.
func (b *builder) known(arch *isa.Arch, x *Cloned, aim func(isa.Addr) isa.Addr) {
	if aim(x.To) != x.To {
		b.formed(arch, x, whole{at: x.To}, aim)
		return
	}
	b.noteTo(arch, x)
	b.native(arch, x.Insn, x)
}

// noteTo notes where an instruction leads, if it is to.
func (b *builder) noteTo(arch *isa.Arch, x *Cloned) {
	if x.Note != 0 {
		cloners[arch.Name].note(b, x, x.To, b.in.Cell+isa.Addr(8*(x.Note-1)))
	}
}

// route emits what calls or leaves by way of a register, of a trampoline, or to an original.
func (b *builder) route(arch *isa.Arch, x *Cloned, aim func(isa.Addr) isa.Addr) {
	if !x.links(arch) {
		b.original(arch, x)
		return
	}
	l := cloners[arch.Name].linker
	if x.goes() {
		for _, f := range x.Links {
			b.compare(l, x, f)
			b.jump(l.onEqual(x), aim(f))
		}
		b.original(arch, x)
		return
	}
	b.compare(l, x, x.Links[0])
	other := len(b.out.Code)
	b.jump(l.onOther(x), b.pc())
	b.callCopy(arch, x, aim(x.Links[0]))
	done := b.pc()
	b.later = append(b.later, func() {
		b.state(x.Insn.Addr, 0, nil)
		for _, f := range x.Links[1:] {
			b.aimAgain(l.onOther(x), other, b.pc())
			b.compare(l, x, f)
			other = len(b.out.Code)
			b.jump(l.onOther(x), b.pc())
			b.callCopy(arch, x, aim(f))
			b.native(arch, isa.Insn{Addr: x.Insn.Addr, Len: x.Insn.Len, Flow: isa.FlowJump, Target: done}, x)
		}
		b.aimAgain(l.onOther(x), other, b.pc())
		b.original(arch, x)
		b.native(arch, isa.Insn{Addr: x.Insn.Addr, Len: x.Insn.Len, Flow: isa.FlowJump, Target: done}, x)
	})
}

// original does as the original, and notes where that leads, if it is to.
func (b *builder) original(arch *isa.Arch, x *Cloned) {
	i, l := x.Insn, cloners[arch.Name].linker
	if x.Call != 0 {
		i.Flow, i.Target = isa.FlowCall, x.Call
		if x.Tail {
			i.Flow = isa.FlowJump
		}
	}
	cell := b.in.Cell + isa.Addr(8*(x.Note-1))
	switch {
	case x.Note == 0:
	case x.By != nil:
		l.noteR(b, x, cell)
	default:
		l.note(b, x, i.Target, cell)
	}
	b.native(arch, i, x)
}

func (b *builder) compare(l linker, x *Cloned, f isa.Addr) {
	if x.Call != 0 {
		l.isLed(b, x.Call, f)
		return
	}
	l.isHeld(b, x, f)
}

func (b *builder) callCopy(arch *isa.Arch, x *Cloned, to isa.Addr) {
	b.native(arch, isa.Insn{Addr: x.Insn.Addr, Len: x.Insn.Len, Flow: isa.FlowCall, Target: to}, x)
}

func (b *builder) jump(encode encoder, to isa.Addr) {
	code, err := encode(b.pc(), to)
	b.emit(code, 0, reach(err))
}

// aimAgain encodes the jump at an offset anew, to where its target turned out to be.
func (b *builder) aimAgain(encode encoder, off int, to isa.Addr) {
	if b.err != nil {
		return
	}
	code, err := encode(b.in.Patch+isa.Addr(off), to)
	if b.err = reach(err); err == nil {
		copy(b.out.Code[off:], code)
	}
}
