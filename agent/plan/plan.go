// Package plan turns an instrumentation point into the pure description of a
// splice, or into a refusal with its reason.
//
// A Plan is data: the same text and the same request give the same Plan, byte
// for byte, on the host and in the guest. Nothing here touches a kernel.
package plan

import "kerninst/agent/isa"

// Mechanism is how control gets from a point to its patch.
type Mechanism uint8

const (
	MechanismInvalid Mechanism = iota
	Jump                       // one instruction replaced by one jump
	Springboard                // a short jump to a springboard, which jumps on
	Pun                        // a jump whose tail is the next instruction's bytes
	Quiesced                   // several instructions replaced, after quiescence
	Clone                      // an instrumented copy of the function
	Trap                       // a breakpoint
)

var mechanismNames = [...]string{"invalid", "jump", "springboard", "pun", "quiesced", "clone", "trap"}

func (m Mechanism) String() string { return mechanismNames[m] }

// ParseMechanism is the inverse of String.
func ParseMechanism(s string) (Mechanism, bool) {
	for i, n := range mechanismNames[1:] {
		if n == s {
			return Mechanism(i + 1), true
		}
	}
	return MechanismInvalid, false
}

// Reason says why a point is refused.
type Reason uint8

const (
	ReasonInvalid       Reason = iota
	NoSuchFunction             // the symbol is not in this kernel
	OutsideFunction            // the offset is past the function's end
	InsideInstruction          // no instruction starts there
	Undecodable                // an instruction on the way, or the point itself, did not decode
	ReservedText               // text that the kernel rewrites or that must not be touched
	ControlFlow                // a jump, call or return: its relocation is not supported
	PCRelative                 // an operand depends on the address
	PrivilegedInsn             // system instruction
	ExclusiveSequence          // inside a load-exclusive/store-exclusive sequence
	MayFault                   // has an exception-table entry
	TooShort                   // shorter than the jump that would replace it
	TargetInWindow             // something jumps into the middle of the window
	IndirectJump               // the function jumps indirectly: targets unknown
	NoDeadRegister             // the jump needs a register and none is dead
	OutOfReach                 // no patch memory in reach
	AlreadySpliced             // overlaps a live splice
	Foreign                    // a kprobe, ftrace or livepatch user owns the function
	UnsupportedMechanism       // the mechanism that was asked for is not available here
)

// Refusal is an instrumentation point that must not be spliced.
type Refusal struct {
	Reason Reason
	Detail string
}

func (r *Refusal) Error() string { return r.Reason.String() + ": " + r.Detail }

var reasonNames = [...]string{
	"invalid", "no such function", "outside the function", "inside an instruction",
	"undecodable", "reserved text", "control flow", "pc-relative", "privileged instruction",
	"exclusive sequence", "may fault", "too short", "target in window", "indirect jump",
	"no dead register", "out of reach", "already spliced", "foreign probe", "unsupported mechanism",
}

func (r Reason) String() string { return reasonNames[r] }

// Plan is one splice, ready to be applied.
type Plan struct {
	Point     isa.Addr
	Mechanism Mechanism
	Old, New  []byte   // bytes at the point: expected, and written instead
	Patch     isa.Addr // where New leads
	Code      []byte   // the patch
	Cell      isa.Addr // of the counter
	Displaced []isa.Insn
	Added     int // instructions added per hit
	Spilled   int // registers and flag words saved around the snippet
	Window    bool
}
