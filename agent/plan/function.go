package plan

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"sort"
	"strings"

	"kerninst/agent/cfg"
	"kerninst/agent/isa"
	"kerninst/agent/ktext"
	"kerninst/agent/pad"
)

// function is one function, decoded from its start to where somebody has asked: see has.
type function struct {
	ktext.Func
	text  *ktext.Text
	code  []byte
	insns []isa.Insn
	ended bool // these are all
	// opened is for how many more instructions the store is waited for of a load-exclusive.
	opened int
	lost   int // index of the first instruction whose length is a guess
	// rebase is set where any instruction may change what a CPU finds per-CPU memory
	// with: a function that comes back from sleep finds it only behind the last of them.
	rebase bool
	own    *isa.Marks // cached, of ownTargets
	ftrace isa.Off    // bytes at the start that belong to ftrace, but for
	sealed isa.Off    // those before it
	// traceable: they are ftrace's, and not what a function without a site begins with, that looks like one.
	traceable bool
	facts     *Facts  // cached, of Request.Facts
	quiet     bool    // nobody reads why something is refused: it need not be named
	jumpsTo   *string // cached result of indirectJump
	jumpsAt   int
	aimed     map[isa.Addr]bool // where the instructions lead themselves, once somebody has asked
	looked    bool              // whether ownAt is known
	ownAt     int               // cached result of ownIndirectJump
	memo      []memo            // of each instruction
	seenBy    *Functions        // who found its bytes to be what they were
}

// memo is what was found out of one instruction, which others ask about too.
type memo struct {
	exclusive bool     // it is between a load-exclusive and its store
	asked     bool     // whether it may be displaced
	known     bool     // what is free before it
	stays     *Refusal // why it may not
	free      isa.RegSet
	text      string // its disassembly; empty: not asked for yet
}

// analyse finds, reads and decodes a function.
func analyse(text *ktext.Text, module, name string) (*function, *Refusal) {
	f, err := text.Function(module, name)
	if err != nil {
		var nf *ktext.NotFound
		if errors.As(err, &nf) && len(nf.Same) > 0 {
			return nil, refuse(AmbiguousFunction, "%v", err)
		}
		return nil, refuse(NoSuchFunction, "%v", err)
	}
	return decode(text, f)
}

// Functions are functions that were found, decoded and learnt of. Points of one batch
// come in runs of one function each, so that a few are enough, and clones have many in common. The bytes at a point
// are compared once more when it is written, whatever is kept here.
type Functions struct {
	known   map[named]*function
	at      map[isa.Addr]*function // those that were asked for by address
	knownIn isa.Off                // bytes of code of the former
	atIn    isa.Off                // likewise of the latter

	walked  closure // what walks tells
	tracing closure // what tracedBy tells

	linked map[string]*tables // of modules, by their names; "": the kernel

	runs   map[isa.Addr][][]bound // what runs tells of functions of runsIn, by their addresses
	open   map[isa.Addr][][]bound // of those, what no point is asked for in
	runsIn *ktext.Text

	spent pad.Spent // functions that no springboard will be in
}

// named is how a function is asked for by name.
type named struct{ module, name string }

// mostKnown is how many bytes of code the functions have that are kept at a time, of either kind, but for the last. What is
// known of them takes some forty times as much memory.
const mostKnown = 256 << 10

func (f *Functions) function(text *ktext.Text, module, name string) (*function, *Refusal) {
	if f == nil {
		return analyse(text, module, name)
	}
	key := named{module, name}
	if fn := f.known[key]; fn.holds(text, f) {
		return fn, nil
	}
	fn, r := analyse(text, module, name)
	if r != nil {
		return nil, r
	}
	if f.known == nil || f.knownIn >= mostKnown {
		f.known, f.knownIn = map[named]*function{}, 0
	}
	fn.seenBy = f
	f.known[key] = fn
	f.knownIn += fn.Size
	return fn, nil
}

// located is a function that is known by its address, as one whose name is not its alone.
func (f *Functions) located(text *ktext.Text, of ktext.Func) (*function, *Refusal) {
	if f == nil {
		return decode(text, of)
	}
	if fn := f.at[of.Addr]; fn.holds(text, f) {
		return fn, nil
	}
	fn, r := decode(text, of)
	if r != nil {
		return nil, r
	}
	if f.at == nil || f.atIn >= mostKnown {
		f.at, f.atIn = map[isa.Addr]*function{}, 0
	}
	fn.seenBy = f
	f.at[of.Addr] = fn
	f.atIn += fn.Size
	return fn, nil
}

// Again is for another batch: what was learnt of functions holds as long as their bytes are
// what they were, which is looked at when they are asked for. f is not to be used any more.
func (f *Functions) Again() *Functions {
	if f == nil {
		return &Functions{}
	}
	return &Functions{known: f.known, at: f.at, knownIn: f.knownIn, atIn: f.atIn}
}

// holds reports whether what was learnt of a function can be used: it is of this text, and its
// bytes are what they were, once for each batch.
func (fn *function) holds(text *ktext.Text, batch *Functions) bool {
	if fn == nil || fn.text != text {
		return false
	}
	if fn.seenBy == batch {
		return true
	}
	code, err := text.Code(fn.Func)
	if err != nil || !bytes.Equal(code, fn.code) {
		return false
	}
	fn.seenBy = batch
	return true
}

// maxFunction bounds what is read and decoded for one point.
const maxFunction = 1 << 20

func decode(text *ktext.Text, f ktext.Func) (*function, *Refusal) {
	if f.Size == 0 || f.Size > maxFunction {
		return nil, refuse(Undecodable, "%v: its end is not known (%d bytes)", f, f.Size)
	}
	code, err := text.Code(f)
	if err != nil {
		return nil, unreadable(err)
	}
	fn := &function{Func: f, text: text, code: code, ftrace: isa.Off(text.FtraceSite(f.Addr, code)), sealed: isa.Off(text.Sealed(f.Addr, code))}
	if Half(f.Name) { // which nobody calls, so that it has no site, whatever it begins with
		fn.ftrace, fn.sealed = 0, 0
	}
	fn.traceable = fn.ftrace > 0 && text.Compiled(f.Addr, code)
	fn.lost = -1
	fn.insns, fn.memo = make([]isa.Insn, 0, usuallyAsked), make([]memo, 0, usuallyAsked)
	return fn, nil
}

// usualLen is what instructions take, in bytes, or less.
const usualLen = 3

// usuallyAsked is how many instructions are mostly enough to plan one point.
const usuallyAsked = 8

// has reports whether there is an instruction k. What decides about a point is mostly near
// it, and to decode takes longest of all, so that what is behind waits until it is asked for.
func (fn *function) has(k int) bool {
	for k >= len(fn.insns) && !fn.ended {
		fn.next()
	}
	return k < len(fn.insns)
}

// whole is all instructions.
func (fn *function) whole() []isa.Insn {
	if fn.ended {
		return fn.insns
	}
	room := len(fn.code) / max(fn.text.Arch.MinLen, usualLen) // to grow would copy what may be much
	fn.insns, fn.memo = slices.Grow(fn.insns, room), slices.Grow(fn.memo, room)
	known := fn.text.Decoded(fn.Addr, fn.code) // who tells what is live may have needed all, too
	for k := len(fn.insns); k+1 < len(known) && known[k].End() <= fn.Addr+isa.Addr(len(fn.code)); k++ {
		fn.add(known[k])
	}
	for !fn.ended {
		fn.next()
	}
	fn.text.KeepDecoded(fn.Addr, fn.code, fn.insns)
	return fn.insns
}

// next decodes the next instruction, if there is one.
func (fn *function) next() {
	k := 0
	if n := len(fn.insns); n > 0 {
		k = int(fn.insns[n-1].End() - fn.Addr)
	}
	if k+fn.text.Arch.MinLen > len(fn.code) {
		fn.ended = true
		return
	}
	i := fn.text.Arch.Decode(fn.code[k:], fn.Addr+isa.Addr(k))
	if k+i.Len > len(fn.code) { // runs over the end: not this function's
		fn.ended = true
		return
	}
	fn.add(i)
}

func (fn *function) add(i isa.Insn) {
	if i.Addr < fn.Addr+isa.Addr(fn.ftrace) && i.Flow == isa.FlowJump {
		i.Flow = isa.FlowCall // ftrace's: who is jumped to comes back to behind it
	}
	if (i.Traits&isa.Lost != 0 || fn.foreign(i)) && fn.lost < 0 {
		fn.lost = len(fn.insns)
	}
	fn.rebase = fn.rebase || i.MayRebase()
	fn.insns = append(fn.insns, i)
	fn.memo = append(fn.memo, memo{exclusive: fn.opened > 0 || i.Traits&(isa.Exclusive|isa.Apart) == isa.Exclusive})
	fn.opened = waits(i, fn.opened)
}

// foreign reports whether an instruction is somebody's breakpoint over the first byte of another:
// one that control comes to from the one before. Behind it are the insides of what was there: when
// the breakpoint has gone, nothing begins where they seem to. (riscv64's kprobes write a breakpoint
// as long as the instruction: arch/riscv/kernel/probes/kprobes.c, arch_arm_kprobe.)
func (fn *function) foreign(i isa.Insn) bool {
	b := fn.text.Arch.Break
	if fn.text.Arch.Name != "amd64" || !bytes.Equal(fn.code[i.Addr-fn.Addr:][:i.Len], b) {
		return false
	}
	n := len(fn.insns)
	return n == 0 || !mayTrapBehind(fn.insns[n-1], i.End())
}

// mayTrapBehind reports whether a breakpoint that ends at an address may be the kernel's own, behind
// an instruction: one that speculation is not to pass (-mharden-sls), what an alternative's shorter
// jump leaves, or one that a call leads just over, as retpolines do. A kprobe's is not seen at all
// (splice.Splicer.Read); another's, behind a jump, is taken for one of these.
func mayTrapBehind(i isa.Insn, end isa.Addr) bool {
	if i.Flow == isa.FlowCall {
		return i.Target == end
	}
	return i.Flow.Ends() && i.Flow != isa.FlowIndirectCall
}

// lostAny reports whether the length of any instruction is a guess.
func (fn *function) lostAny() bool {
	fn.whole()
	return fn.lost >= 0
}

// rebases reports whether any instruction may change what a CPU finds per-CPU memory with.
func (fn *function) rebases() bool {
	if fn.facts != nil && fn.facts.Rebases != nil {
		return *fn.facts.Rebases
	}
	fn.whole()
	return fn.rebase
}

// maxExclusive is the longest exclusive sequence looked for, in instructions. A
// sequence without a store (a wait for a cache line to change) ends there.
const maxExclusive = 32

// waits is for how many instructions behind one a store is waited for, which was waited for
// in so many from there on.
func waits(i isa.Insn, left int) int {
	switch {
	case i.Traits&isa.Opens != 0:
		return maxExclusive
	case i.Traits&isa.Exclusive != 0 || i.Flow == isa.FlowReturn:
		return 0
	}
	return max(left-1, 0)
}

// off is the offset of instruction k from the function's start.
func (fn *function) off(k int) isa.Off { return isa.Off(fn.insns[k].Addr - fn.Addr) }

// name describes instruction k for people.
func (fn *function) name(k int) string {
	if fn.quiet {
		return ""
	}
	return fmt.Sprintf("%v+%#x (%s)", fn.Func, fn.off(k), fn.disassembly(k))
}

// disassembly is the text of instruction k.
func (fn *function) disassembly(k int) string {
	m := &fn.memo[k]
	if m.text == "" {
		m.text = fn.text.Arch.Text(fn.code[fn.off(k):], fn.insns[k].Addr)
	}
	return m.text
}

// place is where instruction k is: for what is said often, and read seldom.
func (fn *function) place(k int) string {
	if fn.quiet {
		return ""
	}
	return fmt.Sprintf("%v+%#x", fn.Func, uint64(fn.off(k)))
}

// boundary finds the instruction that starts at an offset.
func (fn *function) boundary(off isa.Off) (int, *Refusal) {
	if off >= fn.Size {
		return 0, refuse(OutsideFunction, "%v has %d bytes, offset %#x asked for", fn.Func, fn.Size, off)
	}
	if n := len(fn.insns) - 1; n >= 0 && fn.off(n) == off && fn.lost < 0 { // the one that was asked for last
		return n, nil
	}
	for n := len(fn.insns); (n == 0 || isa.Off(fn.insns[n-1].End()-fn.Addr) <= off) && fn.has(n); n++ {
	}
	k := sort.Search(len(fn.insns), func(k int) bool { return fn.off(k) > off }) - 1
	if k < 0 || off >= isa.Off(fn.insns[k].End()-fn.Addr) {
		return 0, refuse(Undecodable, "%v+%#x: no instruction ends there", fn.Func, off)
	}
	if fn.lost >= 0 && fn.lost <= k {
		what := "are no known instruction"
		if fn.insns[fn.lost].Traits&isa.Lost == 0 {
			what = "are a breakpoint of somebody's, which hides where the next instruction begins"
		}
		return 0, refuse(Undecodable, "%v+%#x: the bytes at +%#x %s", fn.Func, off, fn.off(fn.lost), what)
	}
	if fn.off(k) != off {
		return 0, refuse(InsideInstruction, "%v+%#x is inside an instruction: one starts at +%#x, the next at +%#x",
			fn.Func, off, fn.off(k), isa.Off(fn.insns[k].End()-fn.Addr))
	}
	return k, nil
}

// forbidden lists what an instruction must not be, in the order of checking.
var forbidden = []struct {
	is     func(isa.Insn) bool
	reason Reason
	class  string // of what is reserved
	what   string
}{
	{func(i isa.Insn) bool { return i.Flow == isa.FlowUnknown }, Undecodable, "", "is not understood"},
	{func(i isa.Insn) bool { return i.Flow == isa.FlowTrap }, ReservedText, "trap", "is a trap, which the kernel knows by its address"},
	{func(i isa.Insn) bool { return i.Traits&isa.Landing != 0 }, ReservedText, "landing pad", "is a landing pad"},
	{func(i isa.Insn) bool { return i.Traits&(isa.Privileged|isa.Shadow) != 0 }, PrivilegedInsn, "", "is a system instruction"},
}

// rewritable lists first bytes of instructions that the kernel rewrites outside
// its tables, when a CPU comes (arch/x86/kernel/alternative.c, alternatives_enable_smp).
var rewritable = map[string]struct {
	first byte
	why   string
}{
	"amd64": {0x3e, "a lock prefix that is put back when a second CPU starts"},
}

// trapCall is the class of the call that is led to the module's look-up, for reports.
const trapCall = "call that asks whose a breakpoint is"

// lockPrefix is the class of those, for reports.
const lockPrefix = "lock prefix"

// displaceable reports why instruction k must stay where it is.
func (fn *function) displaceable(k int) *Refusal {
	if m := &fn.memo[k]; !m.asked {
		m.stays = fn.mustStay(k)
		m.asked = m.stays == nil || !fn.quiet // else without its name
	}
	return fn.memo[k].stays
}

func (fn *function) mustStay(k int) *Refusal {
	i := fn.insns[k]
	if off := fn.off(k); off >= fn.sealed && off < fn.ftrace && i.Traits&isa.Landing == 0 {
		return fn.stays(ReservedText, "ftrace site", func() string { return fn.place(k) + " is an ftrace site" })
	}
	if fn.off(k) < fn.sealed {
		return fn.stays(ReservedText, "landing pad", func() string {
			return fn.place(k) + " is what is left of a landing pad, by which the kernel tells where the function goes on"
		})
	}
	res, reserved, err := fn.text.Reserved(fn.Func, i.Addr, i.End())
	switch {
	case err != nil:
		return unreadable(err)
	case reserved && res.Class != ktext.Exception: // see faulting
		return fn.stays(ReservedText, res.Class.String(), func() string { return fmt.Sprintf("%s: %v: %s", fn.name(k), res.Class, res.Why) })
	}
	if fn.unnamed(k) {
		return fn.stays(ReservedText, "ftrace site", func() string { return fn.place(k) + " may be the ftrace site of a function without a symbol" })
	}
	if w, ok := rewritable[fn.text.Arch.Name]; ok && !fn.text.OneCPU && fn.code[fn.off(k)] == w.first {
		return reserve(lockPrefix, "%s may have %s", fn.name(k), w.why)
	}
	if fn.rewrittenForTraps(k) {
		return reserve(trapCall, "%s is led elsewhere while anything is reached by a breakpoint", fn.name(k))
	}
	for _, f := range forbidden {
		if f.is(i) {
			return fn.stays(f.reason, f.class, func() string { return fn.name(k) + " " + f.what })
		}
	}
	if fn.memo[k].exclusive {
		return refuse(ExclusiveSequence, "%s is between an exclusive load and its store", fn.name(k))
	}
	if k > 0 && fn.insns[k-1].Traits&isa.Shadow != 0 {
		return refuse(PrivilegedInsn, "%s runs in the shadow of the instruction before it", fn.name(k))
	}
	if _, err := fn.text.Arch.Move(i, fn.code[fn.off(k):], i.Addr, fn.text.Arch.All); err != nil {
		reason := ControlFlow
		if i.Flow == isa.FlowNone {
			reason = PCRelative
		}
		return refuse(reason, "%s: %v", fn.name(k), err)
	}
	return nil
}

// nameless says what the ftrace site of a function without a symbol looks like, where hardly anything
// else does, as ftrace leaves it: it has so many bytes, in instructions of so many, and begins where
// functions do. arm64 has such nops between functions. Nor is one looked for behind a landing pad: no kernel of amd64 that
// was looked at has any.
var nameless = map[string]struct {
	site  isa.Off
	insn  int
	align isa.Addr
}{
	"riscv64": {8, 4, 1},
	"amd64":   {5, 5, 16}, // likewise nops of static keys, at which nothing is spliced either
}

// unnamed reports whether instruction k is of such a site: behind what control does not go on from.
func (fn *function) unnamed(k int) bool {
	s := nameless[fn.text.Arch.Name]
	for first := k; first > 0 && fn.off(k)-fn.off(first) < s.site; first-- {
		i, code := fn.insns[first], fn.code[fn.off(first):]
		if i.Len == s.insn && i.Addr%s.align == 0 && (i.Flow == isa.FlowNone || fn.text.Compiled(i.Addr, code)) && fn.text.FtraceSite(i.Addr, code) == int(s.site) && fn.cutOff(first) {
			return true
		}
	}
	return false
}

// cutOff reports whether control does not go on to instruction k. On amd64 there may be filler in front.
func (fn *function) cutOff(k int) bool {
	k--
	for fn.text.Arch.Name == "amd64" && k > 0 && cfg.IsPad("amd64", fn.insns[k], fn.code[fn.off(k):]) {
		k--
	}
	return fn.insns[k].Flow.Ends()
}

// stays is the refusal of an instruction that must stay where it is.
func (fn *function) stays(r Reason, class string, why func() string) *Refusal {
	if fn.quiet {
		return &Refusal{Reason: r, Class: class}
	}
	return &Refusal{Reason: r, Class: class, Detail: why()}
}

// faulting refuses a window in which an instruction with an entry in the exception
// table is anything but the first: who faults, and sleeps over it, is then where he
// would be without the patch, with nothing done that would be done again. It reports
// whether the first is one.
func (fn *function) faulting(w window) (bool, *Refusal) {
	first := false
	for k := w.first; k < w.first+w.count; k++ {
		r, ok, err := fn.text.Site(fn.insns[k].Addr, fn.insns[k].End())
		switch {
		case err != nil:
			return false, unreadable(err)
		case !ok || r.Class != ktext.Exception:
		case k == w.first && w.lead == 0 && r.Lo == fn.insns[k].Addr:
			first = true
		default:
			return false, refuse(MayFault, "%s has an exception-table entry and is not the first of its window", fn.name(k))
		}
	}
	return first, nil
}

// maxBlock bounds the search for an overwriting instruction.
const maxBlock = 64

// dead is the set of registers, flags included, whose value before instruction
// k nobody reads: each is overwritten later in the same basic block before
// anything reads it, and before any call, jump or other exit. Whatever may be
// rewritten into a jump, or leave by a fault that has a fixup, ends the block.
func (fn *function) dead(k int) (isa.RegSet, error) {
	var dead, used isa.RegSet
	for end := k + maxBlock; k < end && fn.has(k); k++ {
		i := &fn.insns[k]
		_, site, err := fn.text.Site(i.Addr, i.End())
		if err != nil {
			return 0, err
		}
		if site || i.Flow != isa.FlowNone {
			break
		}
		used |= i.Reads
		dead |= i.Writes &^ used
	}
	return dead &^ fn.text.Arch.NeverUse, nil
}

// Source says whose word it is that registers are free.
type Source uint8

const (
	SourceBlock    Source = iota // the basic block overwrites them
	SourceFunction               // the function does, on every path
	SourceIndex                  // the function, its callees or its callers do
)

var sourceNames = [...]string{"block", "function", "index"}

func (s Source) String() string {
	if int(s) >= len(sourceNames) {
		return fmt.Sprintf("source(%d)", uint8(s))
	}
	return sourceNames[s]
}

// MarshalText writes the word that String gives.
func (s Source) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText is the inverse of MarshalText.
func (s *Source) UnmarshalText(b []byte) error {
	for k, n := range sourceNames {
		if n == string(b) {
			*s = Source(k)
			return nil
		}
	}
	return fmt.Errorf("source of liveness %q: not one of %s", b, strings.Join(sourceNames[:], ", "))
}

// Facts is what somebody knows of a function's registers and flags.
type Facts struct {
	Source Source
	// Free is what a snippet before the instruction at a may overwrite; nothing
	// where none is known to begin.
	Free func(a isa.Addr) isa.RegSet
	// Jumps is what is known of where the function's jumps lead; nil: nothing is of those
	// through registers.
	Jumps Jumps
	// Rebases is whether the function may change what a CPU finds per-CPU memory with;
	// nil: that is not known.
	Rebases *bool
}

// Jumps knows where a function's jumps lead, those through registers included.
type Jumps interface {
	// Begins finds an address in [lo, hi) that one of them may lead to; known is false
	// where some may lead anywhere.
	Begins(lo, hi isa.Addr) (a isa.Addr, ok, known bool)
	// Tables is where those through registers lead, if that is known.
	Tables() []isa.Addr
}

// learn asks for the facts of the function, once.
func (fn *function) learn(req Request) *Refusal {
	if fn.facts != nil || req.Facts == nil {
		return nil
	}
	facts, err := req.Facts(fn.Func)
	if err != nil {
		return unreadable(err)
	}
	fn.facts = &facts
	fn.jumpsTo = nil
	for k := range fn.memo { // less was known
		fn.memo[k].known = false
	}
	return nil
}

// source is where free gets what it says.
func (fn *function) source() Source {
	if fn.facts == nil {
		return SourceBlock
	}
	return fn.facts.Source
}

// free is what may be overwritten before instruction k: what the block itself
// shows, and what is known beside that. k may be one behind the last.
func (fn *function) free(k int) (isa.RegSet, error) {
	if !fn.has(k) {
		return 0, nil
	}
	if m := &fn.memo[k]; m.known {
		return m.free, nil
	}
	var free isa.RegSet
	if fn.facts != nil {
		free = fn.facts.Free(fn.insns[k].Addr) &^ fn.text.Arch.NeverUse
	}
	if free == 0 || fn.facts.Source != SourceIndex { // the index knows what the block shows
		dead, err := fn.dead(k)
		if err != nil {
			return 0, err
		}
		free |= dead
	}
	fn.memo[k].free, fn.memo[k].known = free, true
	return free, nil
}

// indirectJump finds a jump whose targets are not known: through a register
// that no auipc just before it has loaded, and of which the index does not know more, in
// either half of this function. It returns the half's name and the offset, or -1.
func (fn *function) indirectJump() (string, int) {
	if fn.jumpsTo != nil {
		return *fn.jumpsTo, fn.jumpsAt
	}
	name, at := fn.Name, -1
	if !fn.jumpsKnown() {
		at = fn.ownIndirectJump()
	}
	others, half, r := fn.others(nil)
	if at < 0 && r != nil { // not known: as if it did
		name, at = half, 0
	}
	for _, other := range others {
		if at < 0 {
			name, at = other.Name, other.ownIndirectJump()
		}
	}
	fn.jumpsTo, fn.jumpsAt = &name, at
	return name, at
}

// jumpsKnown reports whether it is known where all of the function's own jumps lead.
func (fn *function) jumpsKnown() bool {
	if fn.facts == nil || fn.facts.Jumps == nil {
		return false
	}
	_, _, known := fn.facts.Jumps.Begins(fn.Addr, fn.Addr)
	return known
}

// ledTo finds an address in [lo, hi) that a jump through a register, of which it is known
// where it leads, may lead to.
func (fn *function) ledTo(lo, hi isa.Addr) (isa.Addr, bool) {
	if !fn.jumpsKnown() {
		return 0, false
	}
	a, ok, _ := fn.facts.Jumps.Begins(lo, hi)
	return a, ok && fn.ownIndirectJump() >= 0 // for which all is decoded
}

func (fn *function) ownIndirectJump() int {
	if !fn.looked {
		fn.ownAt, fn.looked = fn.findIndirectJump(), true
	}
	return fn.ownAt
}

// dispatches reports whether instruction k jumps, by a thunk, to where a register says, and that may
// be in the function itself: one that has landing pads behind its entry, for labels whose
// addresses are taken (amd64: BPF's interpreter, compiled with thunks). Others leave it.
func (fn *function) dispatches(k int) bool {
	i := fn.insns[k]
	if i.Flow != isa.FlowJump && i.Flow != isa.FlowCond || i.Target >= fn.Addr && i.Target < fn.End() {
		return false
	}
	f, ok := fn.text.Locate(i.Target)
	return ok && f.Addr == i.Target && cfg.JumpsOn(fn.text.Arch.Name, f.Name) && fn.landsInside()
}

func (fn *function) landsInside() bool {
	return slices.ContainsFunc(fn.whole(), func(i isa.Insn) bool { return i.Traits&isa.Landing != 0 && i.Addr != fn.Addr })
}

func (fn *function) findIndirectJump() int {
	for k, i := range fn.whole() {
		if fn.dispatches(k) {
			return int(fn.off(k))
		}
		if i.Flow != isa.FlowIndirectJump {
			continue
		}
		if far := fn.text.Arch.Far; k > 0 && far != nil {
			if _, _, ok := far(fn.code[fn.off(k-1):], fn.insns[k-1].Addr); ok {
				continue
			}
		}
		return int(fn.off(k))
	}
	return -1
}
