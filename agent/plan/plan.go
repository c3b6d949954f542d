// Package plan turns an instrumentation point into the pure description of a
// splice, or into a refusal with its reason.
//
// A Plan is data: the same text and the same request give the same Plan, byte
// for byte, on the host and in the guest. Nothing here touches a kernel.
package plan

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"kerninst/agent/gen"
	"kerninst/agent/isa"
	"kerninst/agent/place"
	"kerninst/agent/snippet"
)

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

func (m Mechanism) String() string {
	if int(m) >= len(mechanismNames) {
		return fmt.Sprintf("mechanism(%d)", uint8(m))
	}
	return mechanismNames[m]
}

// MarshalText writes the word that String gives.
func (m Mechanism) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// UnmarshalText is the inverse of MarshalText.
func (m *Mechanism) UnmarshalText(b []byte) error {
	v, ok := ParseMechanism(string(b))
	if !ok {
		return fmt.Errorf("mechanism %q: not one of %s", b, strings.Join(mechanismNames[1:], ", "))
	}
	*m = v
	return nil
}

// MechanismNames are the words for those that some ISA has.
func MechanismNames() (names []string) {
	for m := Jump; int(m) < len(mechanismNames); m++ {
		for arch := range mechanisms {
			if slices.Contains(Mechanisms(arch), m) {
				names = append(names, m.String())
				break
			}
		}
	}
	return names
}

// Ladder is the mechanisms that an ISA has, in the order in which they are first tried.
func Ladder(arch string) (ladder []Mechanism) {
	for _, m := range Rungs(arch) {
		if !slices.Contains(ladder, m) {
			ladder = append(ladder, m)
		}
	}
	return ladder
}

// Mechanisms are all that an ISA has: its ladder, and clones, which are there for who asks for them.
func Mechanisms(arch string) []Mechanism { return append(Ladder(arch), Clone) }

// Rungs is what is tried, one after the other: a mechanism as often as there are ways in
// which it is tried.
func Rungs(arch string) (rungs []Mechanism) {
	for _, m := range mechanisms[arch] {
		rungs = append(rungs, m.m)
	}
	return rungs
}

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
	ReasonInvalid        Reason = iota
	NoSuchFunction              // the symbol is not in this kernel
	OutsideFunction             // the offset is past the function's end
	InsideInstruction           // no instruction starts there
	Undecodable                 // an instruction on the way, or the point itself, did not decode
	ReservedText                // text that the kernel rewrites or that must not be touched
	ControlFlow                 // a jump, call or return: its relocation is not supported
	PCRelative                  // an operand depends on the address
	PrivilegedInsn              // system instruction
	ExclusiveSequence           // inside a load-exclusive/store-exclusive sequence
	MayFault                    // has an exception-table entry, and its fault could not be told in a patch
	TooShort                    // shorter than the jump that would replace it
	TargetInWindow              // something jumps into the middle of the window
	IndirectJump                // the function jumps indirectly: targets unknown
	NoDeadRegister              // the jump needs a register and none is dead
	OutOfReach                  // no patch memory in reach
	AlreadySpliced              // overlaps a live splice
	Foreign                     // a kprobe, ftrace or livepatch user owns the function
	UnsupportedMechanism        // the mechanism that was asked for is not available here
	AmbiguousFunction           // several functions have the name
	Unreadable                  // the kernel's memory or tables could not be read
	NoAtomics                   // the CPU has no single atomic addition
	NeedsSpill                  // a register must be saved, and the request forbids it
	PatchTooLong                // the patch is longer than a slot
	BadSnippet                  // the snippet is wrong, or cannot be made for this ISA
	NoArgument                  // the point is not where arguments still are as they were passed
	NoSpringboard               // no padding for a springboard in reach of a short jump
	MemoryFull                  // patch memory is taken by other splices
	Recursion                   // the snippet would run itself
	StackArguments              // what is jumped to may have arguments on the stack
	SitesFull                   // the kernel's side knows no more places in patches by their addresses
)

var reasonNames = [...]string{
	"invalid", "no such function", "outside the function", "inside an instruction",
	"undecodable", "reserved text", "control flow", "pc-relative", "privileged instruction",
	"exclusive sequence", "may fault", "too short", "target in window", "indirect jump",
	"no dead register", "out of reach", "already spliced", "foreign probe", "unsupported mechanism",
	"ambiguous function", "unreadable", "no atomic instruction", "needs a spill", "patch too long",
	"bad snippet", "no argument here", "no springboard", "patch memory full", "recursion",
	"stack arguments", "sites full",
}

func (r Reason) String() string {
	if int(r) >= len(reasonNames) {
		return fmt.Sprintf("reason(%d)", uint8(r))
	}
	return reasonNames[r]
}

// MarshalText writes the words.
func (r Reason) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText is the inverse of MarshalText.
func (r *Reason) UnmarshalText(b []byte) error {
	for k, n := range reasonNames {
		if n == string(b) {
			*r = Reason(k)
			return nil
		}
	}
	return fmt.Errorf("refusal reason %q: not known", b)
}

// Refusal is an instrumentation point that must not be spliced.
type Refusal struct {
	Reason Reason `json:"reason"`
	Class  string `json:"class,omitempty"` // of ReservedText: what kind of text that is
	Detail string `json:"detail"`
	Takes  int    `json:"-"` // of a clone that may not be as large: its bytes
}

func (r *Refusal) Error() string { return r.Reason.String() + ": " + r.Detail }

// Passed is a mechanism that was tried before the one that a plan has, and why it is not
// that one.
type Passed struct {
	Mechanism Mechanism `json:"mechanism"`
	Refusal   *Refusal  `json:"refusal"`
}

// Plan is one splice, ready to be applied.
type Plan struct {
	Module    string          `json:"module,omitempty"`
	Symbol    string          `json:"symbol"`
	Offset    isa.Off         `json:"offset"`        // of the instrumentation point in the function
	For       isa.Addr        `json:"for,omitempty"` // the point, if the snippet stands at another that runs as often
	Point     isa.Addr        `json:"point"`         // where New is written: at the first of the displaced
	Mechanism Mechanism       `json:"mechanism"`
	Old       []byte          `json:"old"`               // bytes at the point that are expected
	New       []byte          `json:"new"`               // what is written instead, as many
	Tail      []byte          `json:"tail,omitempty"`    // of a punned jump, what is behind New and completes it
	Next      *Eviction       `json:"next,omitempty"`    // of a punned jump, the instruction that is moved away so that Tail is there
	Board     *Board          `json:"board,omitempty"`   // where New leads, if not to the patch
	Patch     isa.Addr        `json:"patch"`             // where New, or the springboard, leads
	Code      []byte          `json:"code"`              // the patch
	Lead      int             `json:"lead"`              // how many of the displaced run before the snippet
	Start     int             `json:"start"`             // offset in Code of the displaced instructions behind it, or of the return
	Original  []byte          `json:"original"`          // bytes of the displaced instructions
	Snippet   snippet.Snippet `json:"snippet,omitzero"`  // what Code does, besides what is displaced
	Loads     isa.Addr        `json:"loads,omitempty"`   // what it loads kernel memory with, if it does
	Task      isa.Addr        `json:"task,omitempty"`    // where it finds the task that runs: gen.Input.Task
	Preempt   bool            `json:"preempt,omitempty"` // who reads his clock may be preempted: gen.Features
	Cell      isa.Addr        `json:"cell"`              // where its cells begin
	Locals    []isa.Addr      `json:"locals,omitempty"`  // of each cell, its place in per-CPU memory, if it is there: gen.Input.Locals
	Slot      int             `json:"slot"`              // bytes of the heap that it holds, from Patch on
	Displaced []isa.Insn      `json:"displaced"`         // what the patch runs instead
	Free      []isa.RegSet    `json:"free"`              // before each of the displaced, and behind the last
	Back      isa.Addr        `json:"back"`              // behind the displaced: where the patch returns to, if they go on
	Added     int             `json:"added"`             // instructions added per hit, without what the kernel does for a trap
	Spilled   int             `json:"spilled"`           // registers and flag words saved
	Liveness  Source          `json:"liveness"`          // who says that the others are free
	Home      bool            `json:"home,omitempty"`    // Code ends in a breakpoint that leads to Back
	Window    bool            `json:"window"`            // several instructions are replaced
	Called    bool            `json:"called,omitempty"`  // the last of the displaced is a call, behind which the snippet runs: gen.Input.Called
	Thunk     isa.Addr        `json:"thunk,omitempty"`   // and what it then returns by: gen.Input.Thunk
	States    []gen.State     `json:"states"`            // the state map of Code
	Passed    []Passed        `json:"passed,omitempty"`  // in the ladder's order
	// Fault is the first of the displaced as it is in Code, if faults of it have a
	// fixup: the patch is then in the module's own text, or this part of it is.
	Fault isa.Addr `json:"fault,omitempty"`
	Annex *Annex   `json:"annex,omitempty"` // with what Code would have from Start on, if that lies elsewhere
	// Clone is what Code is, if it is a clone: clone.go.
	Clone *gen.Clone `json:"clone,omitempty"`
	// In is the clone in which Code is, at Patch: nothing is written at Point.
	In    *Plan      `json:"-"`
	Sites []gen.Site `json:"sites,omitempty"` // of a clone
	// Resumes says where who sleeps in a clone that is undone goes on.
	Resumes []gen.Resume `json:"resumes,omitempty"`
	pieces  []gen.Piece
	offs    []int // gen.Output.Offs
}

// Board is a springboard: bytes of the kernel's text that nothing runs, with a jump
// to the patch or, where there is room, with a copy of all of it. Where no bytes are
// that nothing runs, a function or a stretch of one is evicted to have some.
type Board struct {
	Addr   isa.Addr    `json:"addr"`
	Old    []byte      `json:"old"`              // bytes there that are expected
	New    []byte      `json:"new"`              // what is written instead, as many
	Whole  bool        `json:"whole,omitempty"`  // New does what Code does
	Start  int         `json:"start,omitempty"`  // as in Plan, of New
	States []gen.State `json:"states,omitempty"` // as in Plan, of New
	In     *Eviction   `json:"in,omitempty"`     // what makes the bytes nobody's
}

// Eviction is code of which a copy runs instead: a function, or a stretch of one that
// control goes through in a straight line. Several springboards may be in one; it is made
// with the first, and undone with the last. A stretch that is alone is one instruction,
// whose jump completes that of the point before it, and no springboard is in it.
type Eviction struct {
	Module string   `json:"module,omitempty"`
	Symbol string   `json:"symbol"`
	Offset isa.Off  `json:"offset,omitempty"` // of a stretch in its function
	Body   isa.Addr `json:"body"`             // behind the ftrace site, or where the stretch begins: where New is written
	Code   []byte   `json:"code"`             // from there to its end
	New    []byte   `json:"new"`              // the jump to the copy
	Patch  isa.Addr `json:"patch"`            // the copy
	Copy   []byte   `json:"copy"`             // what is there: Code as it is there and, of a stretch, a jump to behind it
	Slot   int      `json:"slot"`             // bytes of the heap that it holds
	// Stretch is set where it is no whole function: the copy ends in a jump back.
	Stretch bool    `json:"stretch,omitempty"`
	Alone   bool    `json:"alone,omitempty"`
	Out     isa.Reg `json:"out,omitempty"`  // what New goes through, if through a register
	Back    isa.Reg `json:"back,omitempty"` // of a stretch: what the jump back goes through, likewise
	// Free is, of a stretch, what may be overwritten before it and behind it.
	Free []isa.RegSet `json:"free,omitempty"`
	// States are those of a stretch's copy, as in Plan.
	States []gen.State `json:"states,omitempty"`
}

// End is the address behind what is evicted.
func (e *Eviction) End() isa.Addr { return e.Body + isa.Addr(len(e.Code)) }

// Name is for people: that of the function, and where in it a stretch begins.
func (e *Eviction) Name() string {
	if !e.Stretch {
		return e.Symbol
	}
	return fmt.Sprintf("%s+%#x", e.Symbol, uint64(e.Offset))
}

// Place is the eviction as a heap keeps it.
func (e *Eviction) Place() place.Evicted {
	out := place.Evicted{
		Body: place.Window{Lo: e.Body, Hi: e.End()}, Room: place.Window{Lo: e.Body + isa.Addr(len(e.New)), Hi: e.End()},
		Patch: e.Patch, Slot: e.Slot, Stretch: e.Stretch, Out: e.Out, Back: e.Back,
	}
	if e.Alone {
		out.Room = place.Window{}
	}
	return out
}

// Same reports whether two are one.
func (e *Eviction) Same(o *Eviction) bool {
	return e.Place() == o.Place() && bytes.Equal(e.Code, o.Code) && bytes.Equal(e.New, o.New) && bytes.Equal(e.Copy, o.Copy)
}

// End is the address behind the springboard.
func (b *Board) End() isa.Addr { return b.Addr + isa.Addr(len(b.New)) }

// Moves is what is moved away for the plan, if anything is.
func (p *Plan) Moves() *Eviction {
	if p.Board != nil {
		return p.Board.In
	}
	return p.Next
}

// Displaces is behind all that is displaced or overwritten: behind Back, if what is
// displaced ends in a return, by traps that nothing runs.
func (p *Plan) Displaces() isa.Addr { return max(p.Back, p.Point+isa.Addr(len(p.New))) }

// End is behind all that must be nobody else's: what is displaced or overwritten, and what
// completes a punned jump.
func (p *Plan) End() isa.Addr {
	return max(p.Displaces(), p.Point+isa.Addr(len(p.New)+len(p.Tail)))
}

// Asked is the address of the instrumentation point.
func (p *Plan) Asked() isa.Addr {
	if p.For != 0 {
		return p.For
	}
	return p.At()
}

// At is the address before which the snippet runs. Whoever comes there has come by
// Point, and from there to it without a jump.
func (p *Plan) At() isa.Addr { return p.Displaced[p.Lead].Addr }

// Touches reports whether the splice displaces, overwrites or evicts any of [lo, hi).
func (p *Plan) Touches(lo, hi isa.Addr) bool {
	e := p.Moves()
	return p.Writes(lo, hi) || e != nil && e.Body < hi && lo < e.End()
}

// Writes reports whether the splice displaces or overwrites any of [lo, hi).
func (p *Plan) Writes(lo, hi isa.Addr) bool {
	return p.Point < hi && lo < p.End() || p.Board != nil && p.Board.Addr < hi && lo < p.Board.End()
}
