package gen

import (
	"slices"

	"kerninst/agent/isa"
	"kerninst/agent/snippet"
)

// What need not be in a copy, so that it takes no longer than its original, or less: a nop that the kernel
// rewrites no more (alternatives are applied when it starts, and when a module is loaded), and the upper part of an
// address by itself, where it and what adds to it are encoded anew together (riscv64). Nobody comes between these two,
// and nobody reads the upper part behind them, so that it is a register that is free which differs from the original's.
// Nor need a jump to what follows.

// straightener is what one ISA has that need not be in a copy.
type straightener struct {
	nop func(code []byte) bool
	// pair reads two instructions that form an address by a register; nil: there is no such pair. pairAt encodes
	// both from what the second was.
	pair   func(upper, lower []byte, a isa.Addr) (r isa.Reg, to isa.Addr, ok bool)
	pairAt func(lower []byte, r isa.Reg, a, to isa.Addr) ([]byte, error)
}

// whole is an address that an instruction and the one before it form together, by way of a register.
type whole struct {
	by isa.Reg
	at isa.Addr
}

// straight says of each instruction whether nothing is emitted for it, and of which one an address is
// emitted whole.
type straight struct {
	none  []bool
	whole map[int]whole
}

// straighten looks for what need not be there. Who is led to one by any other than the one before it is in led.
func (c *Clone) straighten(arch *isa.Arch, led map[isa.Addr]bool) straight {
	s := straight{make([]bool, len(c.Insns)), map[int]whole{}}
	asked := c.asksRegisters()
	for k := range c.Insns {
		if s.none[k] = c.Insns[k].isNop(arch) && !c.shadowed(k) || c.jumpsOn(arch, k); s.none[k] {
			continue
		}
		if w, ok := c.paired(arch, k, led, asked); ok {
			s.none[k], s.whole[k+1] = true, w
		}
	}
	return s
}

// isNop reports whether it is nothing to the kernel, either.
func (x *Cloned) isNop(arch *isa.Arch) bool { return x.plain() && cloners[arch.Name].nop(x.Bytes) }

// plain reports whether control comes by, and the kernel does not find it by its address.
func (x *Cloned) plain() bool {
	return x.Insn.Flow == isa.FlowNone && x.Key == nil && x.Call == 0 && x.Fixup == 0
}

// shadowed reports whether interrupts come behind an instruction, not before it.
func (c *Clone) shadowed(k int) bool {
	return k > 0 && c.Insns[k-1].Insn.Traits&isa.Shadow != 0 && c.Insns[k-1].Insn.End() == c.Insns[k].Insn.Addr
}

// Idle reports whether nothing is emitted for an instruction, nor inserted there.
func Idle(arch *isa.Arch, x *Cloned) bool {
	return x.isNop(arch) && !x.begins() && !x.Last && len(x.Before)+len(x.Behind) == 0
}

// begins reports whether something stands before an instruction that what jumps there does not come by.
func (x *Cloned) begins() bool { return x.Gate != nil || len(x.Entered) > 0 }

// jumpsOn reports whether an instruction does nothing but jump to what follows in the copy.
func (c *Clone) jumpsOn(arch *isa.Arch, k int) bool {
	to := c.Insns[k].JumpsTo()
	if to == 0 {
		return false
	}
	for k++; k < len(c.Insns) && !c.Insns[k].begins(); k++ {
		if c.Insns[k].Insn.Addr == to {
			return true
		}
		if !Idle(arch, &c.Insns[k]) {
			return false
		}
	}
	return false
}

// JumpsTo is where a jump leads that does nothing else; 0: it is none.
func (x *Cloned) JumpsTo() isa.Addr {
	if x.Insn.Flow != isa.FlowJump || x.Key != nil || x.Call != 0 || x.By != nil || x.To != 0 || x.Note != 0 {
		return 0
	}
	return x.Insn.Target
}

// paired reports whether an instruction and the next one form an address that can be encoded anew: nobody comes in
// between, nobody reads the register behind them, nor is any asked for by its name.
func (c *Clone) paired(arch *isa.Arch, k int, led map[isa.Addr]bool, asked bool) (whole, bool) {
	own := cloners[arch.Name]
	if own.pair == nil || k+1 == len(c.Insns) {
		return whole{}, false
	}
	x, y := &c.Insns[k], &c.Insns[k+1]
	if !x.plain() || x.Last || len(x.Behind) > 0 || y.Insn.Addr != x.Insn.End() || led[y.Insn.Addr] || len(y.Before) > 0 {
		return whole{}, false
	}
	if y.To != 0 { // who called has where that came back to in ra, and a function's begin may use what is left to it
		op := arch.Op(y.Bytes, y.Insn.Addr)
		return whole{op.A, y.To}, op.Dst == op.A || !asked && own.begins.Has(op.A)
	}
	r, to, ok := own.pair(x.Bytes, y.Bytes, x.Insn.Addr)
	if !ok || !y.plain() {
		return whole{}, false
	}
	dead := y.Insn.Writes.Has(r)
	if !dead && !asked && k+2 < len(c.Insns) && !y.Last && len(y.Behind) == 0 {
		z := &c.Insns[k+2]
		dead = z.Insn.Addr == y.Insn.End() && z.Free.Has(r)
	}
	return whole{r, to}, dead
}

// asksRegisters reports whether a snippet reads a register by its name, whoever else does.
func (c *Clone) asksRegisters() bool {
	asks := func(s Inserted) bool { return s.Snippet.Has(snippet.Reg) }
	return slices.ContainsFunc(c.Insns, func(x Cloned) bool {
		return slices.ContainsFunc(x.Entered, asks) || slices.ContainsFunc(x.Before, asks) || slices.ContainsFunc(x.Behind, asks) || slices.ContainsFunc(x.Taken, asks)
	})
}

// formed emits an instruction and the address that the one before it and it form, by a register if it needs one.
func (b *builder) formed(arch *isa.Arch, x *Cloned, w whole, aim func(isa.Addr) isa.Addr) {
	if x.To == 0 {
		code, err := cloners[arch.Name].pairAt(x.Bytes, w.by, b.pc(), w.at)
		b.emit(code, 0, reach(err))
		return
	}
	b.noteTo(arch, x)
	i, by := x.Insn, *x
	i.Target, by.Free = aim(x.To), by.Free|isa.Set(w.by)
	if i.Flow = isa.FlowJump; x.Insn.Flow == isa.FlowIndirectCall {
		i.Flow = isa.FlowCall
	}
	b.native(arch, i, &by)
}
