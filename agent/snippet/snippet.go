// Package snippet is the program that is inserted at a point, free of any ISA.
//
// A snippet is straight code with branches that only go forward, so it ends
// after as many steps as it has instructions, at the most. It computes values,
// each set by one instruction and of one type, and changes cells, which outlive
// a hit and are read by whoever inserted it. It runs in process, softirq, irq and
// NMI context and on several CPUs at once: it takes no locks, and
// each of its changes to a cell is one atomic step that loses no other.
package snippet

import (
	"fmt"
	"slices"
)

// Type is how a value of 64 bits is understood.
type Type uint8

const (
	NoType Type = iota
	U64
	S64
)

var typeNames = [...]string{"none", "u64", "s64"}

func (t Type) String() string { return word(typeNames[:], int(t), "type") }

// Op is what one instruction does.
type Op uint8

const (
	Invalid Op = iota
	Const      // Dst = A, which is a constant
	Arg        // Dst = argument N of the function that the point is at the start of
	Reg        // Dst = machine register Name, as it is at the point
	Cycles     // Dst = the CPU's counter of time, in its own ticks
	Load       // Dst = the N bytes of kernel memory at A+Off; 0 if they cannot be read, and Cell += 1
	Extend     // Dst = the low N bytes of A, extended as Dst's type says
	Add        // Dst = A + B, and so on; all of one type
	Sub
	And
	Or
	Xor
	Shl     // Dst = A << B, which is a constant below 64
	Shr     // Dst = A >> B, likewise; copies of the sign come in if the type has one
	Div     // Dst = A / B, which is a constant; u64
	Bits    // Dst = how many bits A takes without a sign: 64 less the zeros above its first one
	Current // Dst = the address of the task that runs
	Task    // Dst = the N bytes at Off of the task that runs, which are always there
	Slot    // Dst = the word where the values begin of the cell's record with the keys Fields; 0: it has no room for one more
	Index   // Dst = the word B+Off+min(A, N) of the cell; B is 0, or what Slot gave
	Clock   // Dst = what the clock shows of the task that runs, of which the 4 bytes at Off are its number: see Cell
	Ret     // Dst = what the function returns, which the point returns from
	Goto    // go on at To
	If      // go on at To if A Cond B, else behind this
	Count   // cell += A, which is a u64
	Lower   // cell = min(cell, A), which has the cell's type
	Raise   // cell = max(cell, A), likewise
	Tally   // the cell's word B+Off += A; B is what Slot or Index gave
	Top     // the cell's word B+Off = max(it, A), likewise; without a sign
	Switch  // the task with the number A runs no more, and the one that runs, whose number is at Off, does from now on: their clocks; number 0 has none
	Append  // a record of Fields at the end of the cell, or one more that was dropped
	Stack   // likewise, of the addresses that lead to the point: it, who called its function, and so on; 0 behind the last
	Poison  // every register and flag that is called free is overwritten: a test of who calls them so
)

var opNames = [...]string{
	"invalid", "const", "arg", "reg", "cycles", "load", "extend", "add", "sub", "and", "or", "xor", "shl", "shr",
	"div", "bits", "current", "task", "slot", "index", "clock", "ret",
	"goto", "if", "count", "lower", "raise", "tally", "top", "switch", "append", "stack", "poison",
}

func (o Op) String() string { return word(opNames[:], int(o), "op") }

// Sets reports whether the op sets a value.
func (o Op) Sets() bool { return o >= Const && o <= Ret }

// Cond is a comparison; what is smaller is for the type of the compared to say.
type Cond uint8

const (
	NoCond Cond = iota
	EQ
	NE
	LT
	LE
	GT
	GE
)

var condNames = [...]string{"none", "eq", "ne", "lt", "le", "gt", "ge"}

func (c Cond) String() string { return word(condNames[:], int(c), "cond") }

// Not is the comparison that holds when c does not.
func (c Cond) Not() Cond { return [...]Cond{NoCond, NE, EQ, GE, GT, LE, LT}[c] }

// Operand is a value or a constant.
type Operand struct {
	Value   int // number of a value, if it is one
	Imm     uint64
	IsConst bool
}

// V is the operand that is a value.
func V(n int) Operand { return Operand{Value: n} }

// C is the operand that is a constant, of whichever type is wanted.
func C(x uint64) Operand { return Operand{Imm: x, IsConst: true} }

// Insn is one instruction. Which fields count is for Op to say.
type Insn struct {
	Op     Op
	Dst    int  // number of the value that is set
	Type   Type // of it
	A, B   Operand
	N      int    // of Arg: which, from 0; of Load, Task and Extend: bytes, 1, 2, 4 or 8; of Index: the most that A counts for
	Off    int32  // of Load, Task, Clock and Switch: bytes; of Index, Tally and Top: words
	Name   string // of Reg, as the ISA writes it; of Const, a symbol whose address A is to be: see Resolve
	Cond   Cond
	To     int // index of an instruction further down, or of the end
	Cell   int
	Fields []Operand
}

// uses lists the operands that an instruction reads.
func (i Insn) uses() []Operand {
	switch i.Op {
	case Load, Extend, Const, Bits, Count, Lower, Raise, Switch:
		return []Operand{i.A}
	case Add, Sub, And, Or, Xor, Shl, Shr, Div, If, Index, Tally, Top:
		return []Operand{i.A, i.B}
	case Append, Slot:
		return i.Fields
	}
	return nil
}

// Uses lists the values that an instruction reads.
func (i Insn) Uses() (out []int) {
	for _, o := range i.uses() {
		if !o.IsConst {
			out = append(out, o.Value)
		}
	}
	return out
}

// Snippet is one program. The zero Snippet is none.
type Snippet struct {
	Cells []Cell
	Code  []Insn
}

// Empty reports whether there is no program.
func (s Snippet) Empty() bool { return len(s.Code) == 0 }

// Counter is the snippet that counts how often its point is reached.
func Counter() Snippet {
	return Snippet{Cells: []Cell{{Kind: Sum}}, Code: []Insn{{Op: Count, A: C(1)}}}
}

// Poisoned counts, and overwrites what is free.
func Poisoned() Snippet {
	s := Counter()
	s.Code = append(s.Code, Insn{Op: Poison})
	return s
}

// IsCounter reports whether s is what Counter returns.
func (s Snippet) IsCounter() bool {
	return len(s.Cells) == 1 && s.Cells[0].Kind == Sum && len(s.Code) == 1 &&
		s.Code[0].Op == Count && s.Code[0].A == C(1)
}

// OnlyCounts reports whether all that s does is to add constants to cells: what it finds
// at the point does not matter, only how often it comes by.
func (s Snippet) OnlyCounts() bool {
	return len(s.Code) > 0 && !slices.ContainsFunc(s.Code, func(i Insn) bool { return i.Op != Count || !i.A.IsConst })
}

// Loads reports whether kernel memory is loaded.
func (s Snippet) Loads() bool {
	return slices.ContainsFunc(s.Code, func(i Insn) bool { return i.Op == Load })
}

// Tops lists the numbers of a map's records that are raised, by their places in a record.
func (s Snippet) Tops(cell int) (out []int) {
	for _, i := range s.Code {
		if i.Op == Top && i.Cell == cell {
			out = append(out, int(i.Off))
		}
	}
	return out
}

// Runs reports whether anything is asked of the task that runs.
func (s Snippet) Runs() bool {
	return s.Has(Current, Task, Clock, Switch)
}

// Has reports whether any of some ops is there.
func (s Snippet) Has(ops ...Op) bool {
	return slices.ContainsFunc(s.Code, func(i Insn) bool { return slices.Contains(ops, i.Op) })
}

// Returned reports whether anything is asked of what the function returns.
func (s Snippet) Returned() bool {
	return slices.ContainsFunc(s.Code, func(i Insn) bool { return i.Op == Ret })
}

// Walks reports whether the kernel's stack is looked at.
func (s Snippet) Walks() bool {
	return slices.ContainsFunc(s.Code, func(i Insn) bool { return i.Op == Stack })
}

// Join is the program that does what all of them do, one after the other. first
// is the number in it of each one's first cell.
func Join(all ...Snippet) (out Snippet, first []int) {
	values := 0
	for _, s := range all {
		code, cell := len(out.Code), len(out.Cells)
		first = append(first, cell)
		out.Cells = append(out.Cells, s.Cells...)
		moved := func(o Operand) Operand {
			if !o.IsConst {
				o.Value += values
			}
			return o
		}
		for _, i := range s.Code {
			if i.Op.Sets() {
				i.Dst += values
			}
			i.A, i.B, i.To, i.Cell = moved(i.A), moved(i.B), i.To+code, i.Cell+cell
			fields := make([]Operand, len(i.Fields))
			for k, o := range i.Fields {
				fields[k] = moved(o)
			}
			i.Fields = fields
			out.Code = append(out.Code, i)
		}
		values += s.Values()
	}
	return out, first
}

// Values is how many values there are: their numbers are smaller.
func (s Snippet) Values() int {
	n := 0
	for _, i := range s.Code {
		if i.Op.Sets() {
			n = max(n, i.Dst+1)
		}
	}
	return n
}

func word(names []string, n int, what string) string {
	if n < len(names) {
		return names[n]
	}
	return fmt.Sprintf("%s(%d)", what, n)
}
