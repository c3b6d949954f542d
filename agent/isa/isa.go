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
	"errors"
	"fmt"
	"math/bits"
	"strconv"
	"strings"
)

// Addr is a virtual address in the guest's kernel.
type Addr uint64

// MarshalText writes the address as String does, so that results hold strings.
func (a Addr) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

// UnmarshalText reads what MarshalText wrote.
func (a *Addr) UnmarshalText(b []byte) error {
	v, err := strconv.ParseUint(string(b), 0, 64)
	if err != nil {
		return fmt.Errorf("address %q: not a number", b)
	}
	*a = Addr(v)
	return nil
}

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

func (f Flow) String() string {
	if int(f) >= len(flowNames) {
		return fmt.Sprintf("flow(%d)", uint8(f))
	}
	return flowNames[f]
}

// Ends reports whether control never goes on to the next instruction by itself.
func (f Flow) Ends() bool {
	return f != FlowNone && f != FlowCond
}

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

// Range is the set of the registers from lo to hi.
func Range(lo, hi Reg) RegSet { return RegSet(1)<<(hi+1) - RegSet(1)<<lo }

// Has reports whether r is in s.
func (s RegSet) Has(r Reg) bool { return s>>r&1 != 0 }

// Len is the number of members.
func (s RegSet) Len() int { return bits.OnesCount64(uint64(s)) }

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

// Traits are further properties of an instruction: what it does beside
// registers and the program counter, and what decides whether it may be
// displaced.
type Traits uint32

const (
	// PCRel: an operand or target depends on the instruction's address.
	PCRel Traits = 1 << iota
	// Load: may read memory through an operand or the stack.
	Load
	// Store: may write memory through an operand or the stack.
	Store
	// Privileged: system registers, interrupt state, cache or TLB operations.
	Privileged
	// Exclusive: load-exclusive, store-exclusive and their kind.
	Exclusive
	// Opens: the Exclusive instruction begins a sequence, rather than ends it.
	Opens
	// Landing: a landing pad (ENDBR64, BTI) or pointer-authentication prologue.
	Landing
	// Shadow: the next instruction runs in its shadow (STI, MOV SS).
	Shadow
	// Serialising: orders instructions or memory accesses around it: fences,
	// barriers, and what synchronises the instruction stream.
	Serialising
	// MayFault: may raise a synchronous exception although it is decoded and
	// allowed: accesses to memory, amd64's divisions, model-specific registers,
	// a failing authentication of a pointer. A trap (FlowTrap) always does.
	MayFault
	// Vector: uses vector, floating-point or matrix registers, which are in no
	// RegSet.
	Vector
	// Repeats: one execution is any number of iterations, between which it may
	// be interrupted (rep movs and kin).
	Repeats
	// Lost: not even the length is known, so what follows may be misread.
	Lost
	// Rebases: may change what the CPU finds the kernel's own memory with: segment,
	// descriptor-table, control and model-specific registers.
	Rebases
	// Apart: what Opens a sequence does so behind a direct jump, too.
	Apart
)

// Mem is an access to memory of either kind; a mask to test with, and what an
// instruction has that both reads and writes.
const Mem = Load | Store

var traitNames = [...]string{"pcrel", "load", "store", "privileged", "exclusive", "opens", "landing", "shadow",
	"serialising", "may-fault", "vector", "repeats", "lost", "rebases", "apart"}

// String lists the traits, joined by commas.
func (t Traits) String() string {
	var names []string
	for k, n := range traitNames {
		if t>>k&1 != 0 {
			names = append(names, n)
		}
	}
	return strings.Join(names, ",")
}

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
	// Rel32 is where in the instruction a signed 32-bit distance from its end
	// to the memory at Operand stands; 0: it has none.
	Rel32   int
	Operand Addr
	Text    string // disassembly, for people; Decode leaves it empty
}

// End is the address of the byte after the instruction.
func (i Insn) End() Addr { return i.Addr + Addr(i.Len) }

// MayRebase reports whether an instruction may change what the CPU finds the kernel's own
// memory with.
func (i Insn) MayRebase() bool { return i.Traits&Rebases != 0 || i.Flow == FlowUnknown }

// Moved is what an instruction becomes at another address: code that does there
// what the instruction does where it stands. Calls leave the original return
// address, so that nothing ever returns into Code.
type Moved struct {
	Code  []byte
	Insns int  // executed at most
	Ends  bool // control never goes on behind Code
	// Waypoints are where the kernel would be from offsets in Code on, if that is
	// not at the instruction itself.
	Waypoints []Waypoint
}

// Waypoint says where the kernel would be.
type Waypoint struct {
	Off  int  // in the code that was moved
	Orig Addr // the address the kernel would be at
	SP   int  // bytes that the stack is lower than there
}

// ErrStays is why no other address will do for an instruction.
var ErrStays = errors.New("cannot be moved")

// ErrNoRegister is why an instruction cannot be moved that far.
var ErrNoRegister = errors.New("a jump that far takes a register, and none is free")

// Stays makes an ErrStays of what an instruction is.
func Stays(what string) error { return fmt.Errorf("%s %w", what, ErrStays) }

// Stays is the ErrStays of what no ISA moves, or nil.
func (i Insn) Stays() error {
	switch {
	case i.Flow == FlowUnknown:
		return Stays("what is not understood")
	case i.Flow == FlowTrap:
		return Stays("a trap, which is known by its address,")
	case i.Traits&Landing != 0:
		return Stays("a landing pad")
	case i.Traits&(Exclusive|Apart) == Exclusive:
		return Stays("a part of an exclusive sequence")
	case i.Traits&(Privileged|Shadow) != 0:
		return Stays("a system instruction")
	}
	return nil
}

// Names lists the members of a set, joined by commas.
func (r *Arch) Names(s RegSet) string {
	var names []string
	for _, x := range s.Regs() {
		names = append(names, r.RegName(x))
	}
	return strings.Join(names, ",")
}

// Arch describes one ISA.
type Arch struct {
	Name     string // as Debian and Go name it: amd64, arm64, riscv64
	MinLen   int    // bytes of the shortest instruction, and the alignment of all
	MaxLen   int    // bytes of the longest
	Flags    Reg    // condition flags as a register; on an ISA without, outside All
	All      RegSet // every register that liveness tracks, flags included
	NeverUse RegSet // registers that no snippet may touch, dead or not
	Saved    RegSet // what a callee keeps, in C
	SP       Reg    // the stack pointer
	FP       Reg    // the frame pointer, in a function that keeps one
	Trap     []byte // fills memory for code in which there is none: an oops with an address
	Break    []byte // a breakpoint that the kernel asks us for; no longer than any instruction
	RegName  func(Reg) string
	// Decode reads the instruction at the start of b, which lies at a. It
	// never fails and always makes progress: what it does not know comes back
	// with FlowUnknown and a Len of at least MinLen, with everything read.
	// Calls, returns and jumps report only what the instruction itself uses:
	// what lies behind them is for the caller to judge.
	Decode func(b []byte, a Addr) Insn
	// Move encodes at another address what code, the bytes of i, does at i.Addr.
	// What is neither privileged nor part of a sequence can be moved, or the error
	// is ErrStays; it is ErrNoRegister if none is in free, the registers whose value
	// before i nobody reads, and any other if an address is out of reach from there.
	Move func(i Insn, code []byte, to Addr, free RegSet) (Moved, error)
	// Call encodes at another address, for a jump that is not conditional, the call that
	// leads to the same place: it comes back behind Code. Errors are Move's.
	Call func(i Insn, code []byte, to Addr) (Moved, error)
	// Text disassembles for people what Decode decoded.
	Text func(b []byte, a Addr) string
	// Far decodes a jump without link that takes several instructions: where
	// it leads and its length. Nil where there is none.
	Far func(b []byte, a Addr) (to Addr, n int, ok bool)
	// Op tells what the instruction at the start of b, which lies at a,
	// computes. Nil where no address takes several instructions to form.
	Op func(b []byte, a Addr) Op
	// Scan marks every address that b, which lies at a, could reach by direct
	// control flow or form by an address computation, whatever the alignment
	// at which its bytes are read: a superset of all jump targets. Sequences
	// that begin in the last ScanTail bytes are left to the next piece. Jumps of
	// less than 128 bytes may be left out where they would mark most of the text
	// (amd64). Nil where splices replace one instruction and nothing needs it.
	Scan     func(b []byte, a Addr, m *Marks)
	ScanTail int
	// ScanShort marks where the jumps that Scan leaves out could lead to, read at
	// every byte as well. Nil where it leaves out none.
	ScanShort func(b []byte, a Addr, m *Marks)
	// Absolute lists the parts of the instruction at the start of b that may
	// hold an address as it is, or its lower half sign-extended: a kernel that
	// moves itself rewrites them. Nil where code holds no such addresses.
	Absolute func(b []byte) []Field
}

// Field is a part of an instruction, in bytes from its start.
type Field struct{ Off, Size int }

// Unknown is the decode of n bytes at a that are not understood, on an ISA
// whose registers are all.
func Unknown(a Addr, n int, all RegSet) Insn {
	return Insn{Addr: a, Len: n, Flow: FlowUnknown, Reads: all}
}

// Marks is a set of addresses in one range, one bit per unit.
type Marks struct {
	lo, hi Addr
	shift  uint
	bits   []uint64
}

// NewMarks returns an empty set over [lo, hi) for addresses that are multiples
// of unit bytes; unit is a power of two.
func NewMarks(lo, hi Addr, unit int) *Marks {
	m := &Marks{lo: lo, hi: hi, shift: uint(bits.TrailingZeros(uint(unit)))}
	m.bits = make([]uint64, (uint64(hi-lo)>>m.shift)/64+1)
	return m
}

// Add puts a into the set; addresses outside the range are ignored.
func (m *Marks) Add(a Addr) {
	if a >= m.lo && a < m.hi {
		n := uint64(a-m.lo) >> m.shift
		m.bits[n/64] |= 1 << (n % 64)
	}
}

// First returns the lowest member in [lo, hi).
func (m *Marks) First(lo, hi Addr) (Addr, bool) {
	unit := Addr(1)<<m.shift - 1
	lo, hi = (max(lo, m.lo)+unit)&^unit, min(hi, m.hi)
	for a := lo; a < hi; a += 1 << m.shift {
		n := uint64(a-m.lo) >> m.shift
		if m.bits[n/64]>>(n%64)&1 != 0 {
			return a, true
		}
	}
	return 0, false
}

// Count is the number of members.
func (m *Marks) Count() int {
	n := 0
	for _, w := range m.bits {
		n += bits.OnesCount64(w)
	}
	return n
}

// ByteOrder of all three ISAs.
var ByteOrder = binary.LittleEndian

// Registers are the names of the registers that code can name, but for the flags.
func (a *Arch) Registers() (names []string) {
	for _, r := range a.All.Regs() {
		if r != a.Flags {
			names = append(names, a.RegName(r))
		}
	}
	return names
}
