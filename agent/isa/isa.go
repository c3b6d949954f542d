// Package isa describes instruction sets to code that knows none of them.
//
// An Arch is an immutable descriptor: data and pure functions, filled by one
// constructor per ISA and bound in agent/isa/all. It holds nothing about a
// running kernel, so three ISAs can be analysed at once in one process, on any
// host. Integers never stand for units: Addr is a guest address, Off a number
// of bytes.
package isa

import (
	"encoding/binary"
	"fmt"
)

// Addr is a virtual address in the guest's kernel.
type Addr uint64

// String prints the address as results do.
func (a Addr) String() string { return fmt.Sprintf("%#x", uint64(a)) }

// Off is a distance in bytes from the start of a function.
type Off uint64

// Flow is what an instruction does to the program counter. The classes are
// total and mean the same on every ISA.
type Flow uint8

const (
	FlowUnknown      Flow = iota // not decoded: nothing may be assumed
	FlowNone                     // falls through
	FlowJump                     // direct, unconditional
	FlowCond                     // direct, conditional
	FlowCall                     // direct call
	FlowReturn                   // return to caller
	FlowIndirectJump             // jump through a register or memory
	FlowIndirectCall             // call through a register or memory
	FlowTrap                     // breakpoint, undefined, system call: control leaves
)

var flowNames = [...]string{"unknown", "none", "jump", "cond", "call", "return", "indirect-jump", "indirect-call", "trap"}

func (f Flow) String() string { return flowNames[f] }

// Reg numbers a register of one ISA: general registers as the ISA numbers
// them, then the condition flags as one unit (Arch.Flags).
type Reg uint8

// RegSet is a set of registers.
type RegSet uint64

// Set returns the set of the given registers.
func Set(rs ...Reg) RegSet {
	var s RegSet
	for _, r := range rs {
		s |= 1 << r
	}
	return s
}

// Has reports whether r is in s.
func (s RegSet) Has(r Reg) bool { return s>>r&1 != 0 }

// Regs lists the members in increasing order.
func (s RegSet) Regs() []Reg {
	var out []Reg
	for r := Reg(0); r < 64; r++ {
		if s.Has(r) {
			out = append(out, r)
		}
	}
	return out
}

// Traits are further properties of an instruction that decide whether it may
// be displaced.
type Traits uint16

const (
	// PCRel: an operand or target depends on the instruction's address.
	PCRel Traits = 1 << iota
	// Mem: reads or writes memory.
	Mem
	// Privileged: system registers, interrupt state, cache or TLB operations.
	Privileged
	// Exclusive: load-exclusive, store-exclusive and their kind.
	Exclusive
	// Landing: a landing pad (ENDBR64, BTI) or pointer-authentication prologue.
	Landing
	// Shadow: the next instruction runs in its shadow (STI, MOV SS).
	Shadow
)

// Insn is one decoded instruction. Writes lists what is overwritten whole, on
// every execution; Clobbers what may be changed only in part or only
// sometimes. An instruction with FlowUnknown reads everything.
type Insn struct {
	Addr     Addr
	Len      int // bytes, always >= 1
	Flow     Flow
	Target   Addr // of direct flow
	Reads    RegSet
	Writes   RegSet
	Clobbers RegSet
	Traits   Traits
	Text     string // disassembly, for people
}

// Arch describes one ISA.
type Arch struct {
	Name     string // as Debian and Go name it: amd64, arm64, riscv64
	MinLen   int    // bytes of the shortest instruction, and the alignment of all
	MaxLen   int    // bytes of the longest
	Flags    Reg    // condition flags as a register; on an ISA without, outside All
	All      RegSet // every register that liveness tracks, flags included
	NeverUse RegSet // registers that no snippet may touch, dead or not
	RegName  func(Reg) string
	// Decode reads the instruction at the start of b, which lies at a. It
	// never fails and always makes progress: what it does not know comes back
	// with FlowUnknown and a Len of at least MinLen, with everything read.
	Decode func(b []byte, a Addr) Insn
}

// ByteOrder of all three ISAs.
var ByteOrder = binary.LittleEndian
