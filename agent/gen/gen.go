// Package gen turns a snippet into the machine code of a patch.
//
// A patch is: save what is not free, snippet, restore, the displaced instructions
// with their meaning unchanged, and a jump back where they go on. It is told which registers are free; it
// does not ask whether they really are. Together with the code it returns the
// state map: for each part of the patch, where the kernel would be without it
// and what lies on the stack, so that nothing has to be inferred from bytes
// when a patch is interrupted or faults.
package gen

import (
	"errors"
	"fmt"
	"slices"

	"kerninst/agent/isa"
	"kerninst/agent/isa/amd64"
	"kerninst/agent/snippet"
)

// Errors that a planner tells apart.
var (
	ErrNoRegister = errors.New("no free register")
	ErrNoAtomics  = errors.New("the CPU has no single atomic addition (FEAT_LSE)")
	ErrReach      = errors.New("out of reach")
	ErrSnippet    = errors.New("snippet")
)

// Features are what the CPU and the kernel offer beyond the base ISA.
type Features struct {
	LSE       bool `json:"lse"`       // arm64: atomics of ARMv8.1
	NoWindows bool `json:"noWindows"` // nothing proves that nobody is inside a window
	// Preempted: a thread may lose its CPU anywhere in the kernel, in a patch too.
	Preempted bool `json:"preempted,omitempty"`
	NoTraps   bool `json:"noTraps"`        // breakpoints lead to no patch
	Keys      bool `json:"keys,omitempty"` // a clone may have sites of static keys
}

// Input is everything that a patch depends on.
type Input struct {
	Snippet snippet.Snippet
	Patch   isa.Addr // where the code will lie
	Cell    isa.Addr // its counter
	// Locals says of each cell where it is in per-CPU memory instead; 0: it is not,
	// and nil: none is. Only sums are, and only on amd64.
	Locals    []isa.Addr
	Displaced []isa.Insn // with the addresses they come from
	Lead      int        // how many of them run before the snippet: none of these jumps
	Bytes     []byte     // of the displaced instructions
	Back      isa.Addr   // behind them, where the kernel goes on if they do
	Near      bool       // Back is in reach of a Hop from the patch's end
	Home      bool       // where no register is free for the way back, a breakpoint at the patch's end may lead there
	Annex     isa.Addr   // where the displaced instruction will lie instead; 0: in the patch. See annex.go
	// Called: the last of the displaced, a jump to another function, is made a call, and
	// the snippet runs when that has come back. See called.go.
	Called bool
	Thunk  isa.Addr // amd64: what the kernel returns by; 0: by an instruction
	// Free is what may be overwritten before each of the displaced instructions,
	// and at Back, or when what is called has come back.
	Free     []isa.RegSet
	Features Features
	Loads    isa.Addr // what to load kernel memory with, or 0: kdev.Info.Loads
	// Task is where in per-CPU memory the address of the task that runs is, or 0; amd64
	// alone: elsewhere a register has it.
	Task isa.Addr
	// Clone is what the patch is made of instead: Snippet, Lead, Back and what is about these are not
	// used. See clone.go.
	Clone *Clone
}

// State says what holds from one offset of a patch to the next.
type State struct {
	Off   int       `json:"off"`
	Orig  isa.Addr  `json:"orig"`            // the address that the kernel would be at
	SP    int       `json:"sp"`              // bytes that the stack is lower than there
	Saved []isa.Reg `json:"saved,omitempty"` // on the stack from SP upwards, 8 bytes each
	// Kept says which register holds the flags, where they are not on the stack.
	Kept *isa.Reg `json:"kept,omitempty"`
}

// framePointers are those that somebody may walk up a stack by though a patch has pushed
// them; elsewhere patches leave the frame pointer alone.
var framePointers = map[string]isa.Reg{"amd64": amd64.RBP}

// FramePointer is where on the stack the frame pointer is, in bytes from its lower end,
// if it has been pushed.
func (s State) FramePointer(arch string) (at int, saved bool) {
	r, ok := framePointers[arch]
	k := slices.Index(s.Saved, r)
	if !ok || k < 0 {
		return 0, false
	}
	return 8 * k, true
}

// Output is a patch.
type Output struct {
	Code    []byte
	Added   int // instructions per hit besides the displaced: snippet and way back, without the module's own that load
	Spilled int // registers and flag words saved
	Begin   int // offset of the snippet: behind the instructions that lead up to it
	Start   int // offset of the displaced instructions behind it, of the way to them, or of the return
	States  []State
	Home    bool     // the last instruction is a breakpoint, which has to lead to Back
	Annex   Annex    // if Input.Annex asks for one
	Pieces  []Piece  // what is inserted in a clone, in the order in which it lies there
	Sites   []Site   // of a clone, likewise
	Resumes []Resume // likewise
	Offs    []int    // of a clone, where each of Insns begins, and where what is behind all of them does
}

// builder appends instructions and keeps count; the first error stops it.
type builder struct {
	in     Input
	out    Output
	point  isa.Addr
	unit   uint64   // what a counter adds
	later  []func() // what is emitted behind a clone's instructions
	behind int      // where that begins
	starts []int    // where what is emitted for each of a clone's instructions begins
	err    error
}

// pc is the address of the next instruction.
func (b *builder) pc() isa.Addr { return b.in.Patch + isa.Addr(len(b.out.Code)) }

// emit appends n instructions.
func (b *builder) emit(code []byte, n int, err error) {
	if err != nil {
		if b.err == nil {
			b.err = err
		}
		return
	}
	b.out.Code = append(b.out.Code, code...)
	b.out.Added += n
}

func (b *builder) one(code []byte, err error) { b.emit(code, 1, err) }

// state records what holds from here on; what was said to hold from here before is
// about no code.
func (b *builder) state(orig isa.Addr, sp int, saved []isa.Reg) {
	if n := len(b.out.States); n > 0 && b.out.States[n-1].Off == len(b.out.Code) {
		b.out.States = b.out.States[:n-1]
	}
	b.out.States = append(b.out.States, State{Off: len(b.out.Code), Orig: orig, SP: sp, Saved: saved})
}

// displaced moves the original instructions. It is false where control does not go
// on behind them.
func (b *builder) displaced(move func(isa.Insn, []byte, isa.Addr, isa.RegSet) (isa.Moved, error)) (falls bool) {
	k := 0
	for n, i := range b.in.Displaced {
		b.state(i.Addr, 0, nil)
		m, err := move(i, b.in.Bytes[k:], b.pc(), b.in.Free[n])
		if m.Ends && n < len(b.in.Displaced)-1 {
			err = fmt.Errorf("%v: control does not go on to the %d instructions behind it", i.Addr, len(b.in.Displaced)-1-n)
		}
		at := len(b.out.Code)
		b.emit(m.Code, m.Insns-1, moved(err))
		for _, w := range m.Waypoints {
			b.out.States = append(b.out.States, State{Off: at + w.Off, Orig: w.Orig, SP: w.SP})
		}
		k += i.Len
		falls = !m.Ends
	}
	return falls
}

// lead moves the instructions before the snippet, and leaves those behind it.
func (b *builder) lead(move func(isa.Insn, []byte, isa.Addr, isa.RegSet) (isa.Moved, error)) {
	all, n := b.in, b.in.Lead
	at := int(all.Displaced[n].Addr - all.Displaced[0].Addr)
	b.in.Displaced, b.in.Bytes = all.Displaced[:n], all.Bytes[:at]
	b.displaced(move)
	b.in.Displaced, b.in.Bytes, b.in.Free = all.Displaced[n:], all.Bytes[at:], all.Free[n:]
}

// moved tells errors of isa.Arch.Move apart.
func moved(err error) error {
	switch {
	case errors.Is(err, isa.ErrStays):
		return err
	case errors.Is(err, isa.ErrNoRegister):
		return fmt.Errorf("%w: %v", ErrNoRegister, err)
	}
	return reach(err)
}

// generator is what one ISA adds.
type generator struct {
	// count emits the snippet Counter with its saves; back the way back.
	count func(*builder)
	back  func(*builder)
	// entry encodes the jump at the point; reg is free there.
	entry func(from, to isa.Addr, reg isa.Reg) (code []byte, n int, err error)
	// order lists the registers to use, best first.
	order []isa.Reg
	// counter bounds the code of a counter's patch for any input with up to
	// KI_MAX_PATCH displaced bytes.
	counter   int
	locals    bool // has cells in per-CPU memory
	addresses bool // counts in units of a cell's address: see Unit
	over      bool // puts tags over the upper bits of stamps: see snippet.Stamp
	// low and after are how the states of its rings count records: see Form.
	low   func(records, record uint8) uint8
	after bool
}

var generators = map[string]*generator{
	"amd64":   {countAmd64, backAmd64, entryAmd64, orderAmd64, 64, true, false, false, lowAmd64, true},
	"arm64":   {countArm64, backArm64, entryArm64, orderArm64, 64, false, true, true, lowArm64, false},
	"riscv64": {countRiscv64, backRiscv64, entryRiscv64, orderRiscv64, 64, false, true, false, lowRiscv64, false},
}

// StampsOver reports how an ISA's stamps are to be taken apart: snippet.Stamp.
func StampsOver(arch string) bool {
	g := generators[arch]
	return g != nil && g.over
}

// What an instruction of a snippet becomes, in bytes at the most: the longest is a
// record on riscv64, with constants of eight instructions for fields; and saves of
// all registers.
const (
	perInsn  = 80
	perField = 36
	perWalk  = 64  // besides
	perRing  = 16  // likewise
	perBits  = 40  // likewise: riscv64 looks at one half after the other
	perSlot  = 160 // likewise: it goes from place to place
	perClock = 48  // likewise
	perSaves = 160
	// perPoison is a constant for each register.
	perPoison = 32 * 10
)

// Room is the most bytes of a heap that a snippet's patch may take: see Slot.
func Room(arch *isa.Arch, s snippet.Snippet) int {
	n := generators[arch.Name].counter
	if s.IsCounter() {
		return n
	}
	n += perSaves
	if s.Returned() {
		n += perCall
	}
	for _, i := range s.Code {
		n += perInsn + perField*len(i.Fields)
		switch i.Op {
		case snippet.Poison:
			n += perPoison
		case snippet.Stack:
			n += perWalk
		case snippet.Append:
			n += perRing
		case snippet.Bits:
			n += perBits
		case snippet.Slot:
			n += perSlot
		case snippet.Clock, snippet.Switch:
			n += perClock
		}
	}
	return max(n, 8*s.Words())
}

// Slot is how much of a heap a patch takes that has so many bytes of code: cells
// take as much space as code does.
func Slot(arch *isa.Arch, s snippet.Snippet, code int) int {
	if s.IsCounter() {
		return generators[arch.Name].counter
	}
	return max(code, 8*s.Words())
}

// Spills is how many registers and flag words a snippet saves before an instruction of a clone, where some are free.
func Spills(arch *isa.Arch, s snippet.Snippet, f Features, i isa.Insn, free isa.RegSet) (int, error) {
	in := Input{Patch: i.Addr + farOff, Cell: i.Addr + 2*farOff, Features: f, Clone: &Clone{}}
	b := &builder{in: in}
	b.inline(arch, &Cloned{Insn: i}, Inserted{Snippet: s, Free: free}, State{}, 0)
	spilled := 0
	for _, p := range b.out.Pieces {
		spilled += p.Spilled
	}
	return spilled, b.err
}

// Patch generates the code of a patch.
func Patch(arch *isa.Arch, in Input) (Output, error) {
	g, ok := generators[arch.Name]
	if !ok {
		return Output{}, fmt.Errorf("no code generator for %s", arch.Name)
	}
	if in.Clone != nil {
		in.Features.LSE = in.Clone.LSE
		b := &builder{in: in, point: in.Displaced[0].Addr}
		b.clone(arch)
		return b.out, b.err
	}
	if err := in.Snippet.Check(); err != nil {
		return Output{}, fmt.Errorf("%w: %v", ErrSnippet, err)
	}
	if err := checkDisplaced(in); err != nil {
		return Output{}, err
	}
	if err := CheckLocals(arch, in.Snippet, in.Locals); err != nil {
		return Output{}, err
	}
	in.Free = without(in.Free, arch.NeverUse)
	b := &builder{in: in, point: in.Displaced[in.Lead].Addr, unit: Unit(arch, in.Snippet, in.Cell)}
	b.lead(arch.Move)
	if in.Called {
		b.called(arch)
	}
	b.out.Begin = len(b.out.Code)
	if in.Snippet.IsCounter() {
		g.count(b)
	} else {
		lower(b, arch, in.Snippet)
	}
	b.out.Start = len(b.out.Code)
	if in.Called {
		b.comeBack(arch)
	} else if in.Annex != 0 {
		b.apart(arch)
	} else if b.displaced(arch.Move) {
		b.state(b.in.Back, 0, nil)
		if in.Near {
			b.one(Hop(arch, farthest(arch), b.pc(), in.Back))
		} else {
			g.back(b)
		}
	}
	if b.err != nil {
		return Output{}, b.err
	}
	if most := Room(arch, in.Snippet); len(b.out.Code) > most {
		return Output{}, fmt.Errorf("patch of %d bytes, the most is %d", len(b.out.Code), most)
	}
	return b.out, nil
}

func without(sets []isa.RegSet, never isa.RegSet) []isa.RegSet {
	out := make([]isa.RegSet, len(sets))
	for k := range sets {
		out[k] = sets[k] &^ never
	}
	return out
}

// Entry encodes the jump at a point. r is a register that is free there; only
// riscv64 needs one. n is the number of instructions.
func Entry(arch *isa.Arch, from, to isa.Addr, r isa.Reg) (code []byte, n int, err error) {
	return generators[arch.Name].entry(from, to, r)
}

// Register picks the best free register for a jump.
func Register(arch *isa.Arch, free isa.RegSet) (isa.Reg, bool) {
	free &^= arch.NeverUse
	for _, r := range generators[arch.Name].order {
		if free.Has(r) {
			return r, true
		}
	}
	return 0, false
}

// checkDisplaced holds the caller to what displacement without change needs.
func checkDisplaced(in Input) error {
	if len(in.Displaced) == 0 {
		return errors.New("patch without a displaced instruction")
	}
	n := 0
	for _, i := range in.Displaced {
		n += i.Len
	}
	if len(in.Free) != len(in.Displaced)+1 {
		return fmt.Errorf("%d sets of free registers for %d instructions", len(in.Free), len(in.Displaced))
	}
	if in.Lead < 0 || in.Lead >= len(in.Displaced) {
		return fmt.Errorf("the snippet is behind %d of %d instructions", in.Lead, len(in.Displaced))
	}
	for _, i := range in.Displaced[:in.Lead] {
		if i.Flow != isa.FlowNone {
			return fmt.Errorf("%v before the snippet: %v", i.Addr, i.Flow)
		}
	}
	if n != len(in.Bytes) {
		return fmt.Errorf("%d displaced bytes for instructions of %d", len(in.Bytes), n)
	}
	return nil
}

// CheckLocals says why cells cannot be where Input.Locals has them: in per-CPU memory is
// only what an instruction of the ISA adds to, in words.
func CheckLocals(arch *isa.Arch, s snippet.Snippet, locals []isa.Addr) error {
	if len(locals) != 0 && len(locals) != len(s.Cells) {
		return fmt.Errorf("%d places in per-CPU memory for %d cells", len(locals), len(s.Cells))
	}
	for k, a := range locals {
		if a != 0 && (!Locals(arch) || s.Cells[k].Kind != snippet.Sum || a%8 != 0) {
			return fmt.Errorf("cell %d is a %v: it cannot be at %v of per-CPU memory on %s", k, s.Cells[k].Kind, a, arch.Name)
		}
	}
	return nil
}

// Locals reports whether the ISA has an instruction that adds to per-CPU memory: then
// a sum needs no atomic one.
func Locals(arch *isa.Arch) bool { return generators[arch.Name].locals }

// local is where a cell is in per-CPU memory, if it is there.
func (b *builder) local(cell int) (isa.Addr, bool) {
	if len(b.in.Locals) == 0 || b.in.Locals[cell] == 0 {
		return 0, false
	}
	return b.in.Locals[cell], true
}

// choose takes n registers, free ones first in the generator's order, and says
// which of them must be saved.
func choose(order []isa.Reg, free isa.RegSet, n int) (regs, save []isa.Reg) {
	for _, r := range order {
		if len(regs) < n && free.Has(r) {
			regs = append(regs, r)
		}
	}
	for _, r := range order {
		if len(regs) < n && !free.Has(r) {
			regs = append(regs, r)
			save = append(save, r)
		}
	}
	return regs, save
}

func reach(err error) error {
	if err != nil {
		return fmt.Errorf("%w: %v", ErrReach, err)
	}
	return nil
}
