package gen

import (
	"fmt"
	"math/bits"

	"kerninst/agent/isa"
	"kerninst/agent/snippet"
)

// temporaries is how many registers a snippet's instruction needs besides those of its values, on a
// machine whose instructions take constants that fit. A cell's address takes one
// where cells is set. What looks into tasks and changes records takes what records says.
func temporaries(fits func(snippet.Insn) bool, cells bool, records map[snippet.Op]int) func(snippet.Insn) int {
	return func(i snippet.Insn) int {
		constant := 0
		switch i.Op {
		case snippet.Stack:
			return 3
		case snippet.Append:
			if len(i.Fields) == 0 { // where the ring is, and what the addition gives
				return 2
			}
			return records[i.Op]
		case snippet.Task, snippet.Bits, snippet.Div, snippet.Slot, snippet.Index, snippet.Tally, snippet.Top, snippet.Clock, snippet.Switch:
			return records[i.Op]
		case snippet.Add, snippet.Sub, snippet.And, snippet.Or, snippet.Xor, snippet.If:
			if i.B.IsConst && !fits(i) {
				constant = 1
			}
		case snippet.Count, snippet.Lower, snippet.Raise:
			if i.A.IsConst && !fits(i) {
				constant = 1
			}
			if cells {
				constant++
			}
		}
		return constant
	}
}

// comparison is a condition code for each type.
type comparison struct{ u64, s64 uint32 }

func (c comparison) of(t snippet.Type) uint32 {
	if t == snippet.S64 {
		return c.s64
	}
	return c.u64
}

// typeOf is the type of a value.
func (l *lowering) typeOf(o snippet.Operand) snippet.Type {
	for _, i := range l.s.Code {
		if i.Op.Sets() && i.Dst == o.Value {
			return i.Type
		}
	}
	return snippet.NoType
}

// log2 of a power of two.
func log2(n int) uint8 { return uint8(bits.Len(uint(n)) - 1) }

// constant loads what Const says.
func (l *lowering) constant(d isa.Reg, i snippet.Insn, load func(isa.Reg, uint64)) {
	if i.Name != "" {
		l.fail(fmt.Errorf("%w: where %s is is not known", ErrSnippet, i.Name))
	}
	load(d, i.A.Imm)
}

// operand is the register of a value, or the given one after a constant was put there.
func (l *lowering) operand(o snippet.Operand, r isa.Reg, load func(isa.Reg, uint64)) isa.Reg {
	if !o.IsConst {
		return l.regs[o.Value]
	}
	load(r, o.Imm)
	return r
}

// pushed lists what is on the stack from the stack pointer upwards, when it was
// pushed one by one.
func pushed(order []isa.Reg) (out []isa.Reg) {
	for _, r := range order {
		out = append([]isa.Reg{r}, out...)
	}
	return out
}
