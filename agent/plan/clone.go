package plan

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"

	"kerninst/agent/cfg"
	"kerninst/agent/gen"
	"kerninst/agent/isa"
	"kerninst/agent/isa/amd64"
	"kerninst/agent/isa/riscv64"
	"kerninst/agent/ktext"
	"kerninst/agent/snippet"
)

// Clones. The first function's begin, behind its ftrace site, is spliced by one of the ladder's
// mechanisms, and the patch is a copy of it and of others (gen/clone.go). Points are places in the copy:
// nothing is written where they stand in the kernel's own code, and who comes there in another
// way is neither counted nor slowed down.
//
// Who meets what:
//
//   - Another CPU, an interrupt or an NMI while the entry is written: as at any splice. The copy is
//     whole before. Who has entered the original goes on there, and is not counted.
//   - A task that sleeps, or is preempted, in the copy, or returns into it from what it calls: when the clone is
//     undone it goes on in the original, where that is known (gen.Resume); else the copy stays as long as any stack
//     has an address in it (guest/module/quiesce.c).
//   - A fault: as in the original. Of an instruction that has a fixup, the copy has one, too: the copy of that.
//   - A trap (BUG, WARN): control goes back to the original before it, so that the kernel finds it
//     by its address; what follows it is run there, up to the function's return, uncounted.
//   - A static key or call that changes: the copy's site is rewritten with the key's others, or it reads the
//     key (guest/module/keys.c); and it calls the call's trampoline.
//   - A backtrace from the copy, or from what it calls: what the kernel's tables say of each
//     original instruction, and the copy's addresses (guest/module/arch/amd64/frames.c).
//   - ftrace that comes later: who calls a copy looks at the original's site first, and goes
//     there if that is not bare (gen.Gate). No live patch comes (guest/module/livepatch.c). A kprobe in the
//     middle of a function that comes later does not see who is in the copy. Functions that are traced or probed already are not copied.

// Cloning is what a clone is asked to be.
type Cloning struct {
	// Functions are those that are in it, if they can be; the first is entered.
	Functions []ktext.Func
	Inserts   []Insert
	// Links are, of the address of what calls or jumps by a register, or is a static call, the functions
	// that it was seen to lead to.
	Links map[isa.Addr][]isa.Addr
	// Notes has each site that leads out of the clone, to what might be part of it, note where to:
	// in Cloned.Notes.
	Notes bool
	// Uses has it count where each of its functions begins: in Cloned.Uses.
	Uses bool
	// Never are functions that were left out before, for what will not change.
	Never map[isa.Addr]*Refusal
	Most  int // bytes of it; 0: as many as there is room for
	// Blind, Called and Stay have the generator do without what it knows: see gen.Clone.
	Blind, Called, Stay bool
}

// Insert is a snippet that is asked for at a point of a function that is cloned.
type Insert struct {
	Func    ktext.Func
	Offset  isa.Off
	Entry   bool // at the function's begin instead
	Where   Where
	Snippet snippet.Snippet
}

// Where is where at an instruction a snippet is inserted.
type Where uint8

const (
	Before Where = iota
	Behind       // on the way to the next instruction alone
	Taken        // on the other way of a conditional jump
)

// Cloned is what came of planning a clone.
type Cloned struct {
	Entry  *Plan      // nil: there is none
	Points []*Plan    // of each Insert; nil: it is refused
	Why    []*Refusal // likewise
	// Left are those functions that are no part of it: their originals are called.
	Left map[isa.Addr]*Refusal
	// Notes are, by the addresses of what leads out of the clone, the words of its cells that have
	// where to; the words behind those have how often, where that could be counted.
	Notes map[isa.Addr]int
	// Uses are, by the addresses of functions, the words that have how often their copies were entered.
	Uses map[isa.Addr]int
}

// AsClone plans a clone that is entered where functions[0] is. Of the others that cannot be
// copied the originals are called. Request.Module, Function and Offset are not used. It is refused as
// a whole if the first function is.
func AsClone(text *ktext.Text, req Request, of Cloning) (*Cloned, *Refusal) {
	inserts := slices.Clone(of.Inserts)
	for k := range inserts {
		if inserts[k].Snippet.Empty() {
			inserts[k].Snippet = snippet.Counter()
		}
	}
	c := cloning{Cloning: of, text: text, req: req, inserts: inserts, at: map[isa.Addr]*function{}, heads: map[*function]head{}, out: Cloned{
		Points: make([]*Plan, len(inserts)), Why: make([]*Refusal, len(inserts)), Left: map[isa.Addr]*Refusal{}, Notes: map[isa.Addr]int{}, Uses: map[isa.Addr]int{}}}
	for k, f := range of.Functions {
		if r := c.add(f); r != nil && k == 0 {
			return nil, r
		} else if r != nil {
			c.out.Left[f.Addr] = r
		}
	}
	if r := c.make(); r != nil {
		return nil, r
	}
	return &c.out, nil
}

// cloning is a clone in the making.
type cloning struct {
	Cloning
	text    *ktext.Text
	req     Request
	inserts []Insert
	copied  []*function
	at      map[isa.Addr]*function // by where they begin
	gen     gen.Clone
	placed  []placedInsert // in the order of their snippets in the code
	words   int            // of cells
	heads   map[*function]head
	out     Cloned
}

// placedInsert is an insert that has a place: before instruction k of fn.
type placedInsert struct {
	insert int
	fn     *function
	k      int
}

// add takes a function, with its other half, into the clone.
func (c *cloning) add(f ktext.Func) *Refusal {
	if c.at[f.Addr] != nil {
		return nil
	}
	if f.Module != "" && f.Module != c.Functions[0].Module {
		return refuse(UnsupportedMechanism, "%v is of a module that may go before the clone does", f)
	}
	fn, r := c.req.Known.located(c.text, f)
	if r != nil {
		return r
	}
	others, _, r := fn.others(c.req.Known)
	if r != nil {
		return r
	}
	if own := fn.joined(others); len(own) > 0 || len(others) == 1 && c.text.Known(f).Nth > 0 { // one may be another's
		others = own
	}
	if len(others) > 1 {
		return refuse(AmbiguousFunction, "%v: which cold half is its own is not known", fn.Func)
	}
	halves := append([]*function{fn}, others...)
	for _, half := range halves {
		if r := half.clonable(c.req); r != nil {
			return r
		}
	}
	for _, half := range halves {
		c.copied, c.at[half.Addr] = append(c.copied, half), half
	}
	return nil
}

// joined are those of several functions' cold halves that are this one's: the two halves of a function jump to each other, and to no
// other's.
func (fn *function) joined(others []*function) []*function {
	jumps := func(from, to *function) bool {
		return slices.ContainsFunc(from.jumpTargets(), func(a isa.Addr) bool { return a >= to.Addr && a < to.End() })
	}
	return slices.DeleteFunc(slices.Clone(others), func(o *function) bool { return !jumps(fn, o) && !jumps(o, fn) })
}

// jumpTargets are where its jumps lead, those of two instructions among them.
func (fn *function) jumpTargets() (out []isa.Addr) {
	all, far := fn.whole(), fn.text.Arch.Far
	for k, i := range all {
		switch {
		case i.Flow == isa.FlowJump || i.Flow == isa.FlowCond:
			out = append(out, i.Target)
		case i.Flow == isa.FlowIndirectJump && far != nil && k > 0:
			if to, _, ok := far(fn.code[all[k-1].Addr-fn.Addr:], all[k-1].Addr); ok {
				out = append(out, to)
			}
		}
	}
	return out
}

// clonable says why a function cannot be run as a copy.
func (fn *function) clonable(req Request) *Refusal {
	if r := fn.learn(req); r != nil {
		return r
	}
	if len(fn.whole()) == 0 {
		return refuse(OutsideFunction, "%v has no code", fn.Func)
	}
	if fn.lostAny() {
		return refuse(Undecodable, "%v+%#x: the bytes are no known instruction", fn.Func, fn.off(fn.lost))
	}
	if name, k := fn.indirectJump(); k >= 0 {
		return refuse(IndirectJump, "%s jumps indirectly at +%#x: where to is not known", name, k)
	}
	if fn.dispatched() {
		return refuse(IndirectJump, "%v jumps by a table at +%#x, to the original's code", fn.Func, fn.ownIndirectJump())
	}
	if !Half(fn.Name) && fn.text.Traced(fn.Addr, fn.code) {
		return fn.calledFirst()
	}
	if req.Taken != nil && req.Taken(fn.Addr, fn.End()) {
		return refuse(AlreadySpliced, "%v has splices: its copy would be without them", fn.Func)
	}
	if req.Probed != nil && req.Probed(fn.Addr, fn.End()) {
		return refuse(Foreign, "%v has kprobes: its copy would be without them", fn.Func)
	}
	for k, i := range fn.kept() {
		if r := fn.carried(req, k, i); r != nil {
			return r
		}
	}
	if r := fn.callable(req); r != nil {
		return r
	}
	return fn.readable(req)
}

// calledFirst refuses a copy, which would be without what the function begins with.
func (fn *function) calledFirst() *Refusal {
	if fn.traceable {
		return refuse(Foreign, "%v is being traced", fn.Func)
	}
	return refuse(Foreign, "%v begins with a call, which may be that of whoever traces it", fn.Func)
}

// dispatched reports whether the function jumps by a table to code of its own.
func (fn *function) dispatched() bool {
	if fn.facts == nil || fn.facts.Jumps == nil || fn.ownIndirectJump() < 0 {
		return false
	}
	for _, a := range fn.facts.Jumps.Tables() {
		if fn.within(a) {
			return true
		}
	}
	return false
}

// callable says why a static call cannot be made from a copy.
func (fn *function) callable(req Request) *Refusal {
	tables, err := req.Known.tables(fn.text, fn.Module)
	if err != nil {
		return unreadable(err)
	}
	for _, a := range span(tables.Calls, fn.Addr, fn.End(), func(a isa.Addr) isa.Addr { return a }) {
		k, r := fn.boundary(isa.Off(a - fn.Addr))
		if r != nil {
			return r
		}
		if _, ok := tables.calls[a]; !ok || fn.insns[k].Flow == isa.FlowCond {
			return reserve(ktext.StaticCall.String(), "%s is a static call whose trampoline is not known, or that is made on a condition", fn.name(k))
		}
	}
	return nil
}

// gate is passed by who calls a copy; nil: he comes by nothing, as nobody can trace the function by its site.
func (c *cloning) gate(fn *function) *gen.Gate {
	g := &gen.Gate{Function: fn.Addr}
	bare := bareSites[fn.text.Arch.Name]
	if at := int(fn.ftrace) - len(bare); at >= 0 && len(bare) > 0 && bytes.Equal(fn.code[at:fn.ftrace], bare) {
		g.Site, g.Bare = fn.Addr+isa.Addr(at), isa.ByteOrder.Uint32(bare)
	}
	if at, r := fn.boundary(fn.ftrace); r == nil && fn.insns[at].Writes != 0 && c.begin(fn) > fn.ftrace {
		g.Lead = clone(fn.code[fn.ftrace:][:fn.insns[at].Len])
	}
	if g.Site == 0 && g.Lead == nil {
		return nil
	}
	return g
}

// bareSites are, by ISA, what an ftrace site that nobody uses ends in: on arm64 mov x9, x30; nop
// (arch/arm64/kernel/ftrace.c, ftrace_init_nop).
var bareSites = map[string][]byte{
	"amd64":   amd64.Nop5,
	"arm64":   {0xe9, 0x03, 0x1e, 0xaa, 0x1f, 0x20, 0x03, 0xd5},
	"riscv64": {0x13, 0, 0, 0}, // the second word: the first is auipc for good since 6.16, and nop before
}

// begin is where the copy of a function begins: behind its ftrace site, and a landing pad that is nothing else. That of
// the one that is entered begins where the jump to it can be, behind a landing pad that signs the return address,
// too: who calls the copy comes by that first (gen.Gate.Lead).
func (c *cloning) begin(fn *function) isa.Off {
	at, r := fn.boundary(fn.ftrace)
	if r != nil || fn.insns[at].Traits&isa.Landing == 0 || fn != c.copied[0] && fn.insns[at].Writes != 0 {
		return fn.ftrace
	}
	return fn.off(at) + isa.Off(fn.insns[at].Len)
}

// sited reports whether the sites of static keys in a copy are the kernel's to rewrite. A module's
// are not: they may go before the copy does.
func (fn *function) sited(req Request) bool {
	return req.Features.Keys && !req.Own.Empty() && fn.Module == ""
}

// readable says why a static key cannot be read in a copy.
func (fn *function) readable(req Request) *Refusal {
	if fn.sited(req) {
		return nil
	}
	tables, err := req.Known.tables(fn.text, fn.Module)
	if err != nil {
		return unreadable(err)
	}
	for _, x := range span(tables.Keys, fn.Addr, fn.End(), func(k ktext.Key) isa.Addr { return k.Site }) {
		k, r := fn.boundary(isa.Off(x.Site - fn.Addr))
		if r != nil {
			return r
		}
		free, err := fn.free(k)
		if err != nil {
			return unreadable(err)
		}
		if !gen.ReadsKey(fn.text.Arch, free) {
			return refuse(NoDeadRegister, "%s reads a static key, and the flags may be used behind it, or all registers", fn.name(k))
		}
	}
	return nil
}

// carried says why one instruction cannot be in a copy.
func (fn *function) carried(req Request, k int, i isa.Insn) *Refusal {
	res, reserved, err := fn.text.Reserved(fn.Func, i.Addr, i.End())
	switch {
	case err != nil:
		return unreadable(err)
	case reserved && res.Class == ktext.Exception && req.Own.Empty():
		return refuse(MayFault, "%s has an exception-table entry, and no patch memory is in the module's text, where faults have fixups", fn.name(k))
	case reserved && ownReserved[res.Class.String()]:
		return reserve(res.Class.String(), "%v: %v: %s", fn.Func, res.Class, res.Why)
	case reserved && (res.Class == ktext.StaticKey || res.Class == ktext.StaticCall) && fn.off(k) < fn.ftrace: // no copy has it
		return reserve(res.Class.String(), "%v begins with what may be an ftrace site, and is a %v", fn.Func, res.Class)
	case i.Flow == isa.FlowUnknown:
		return refuse(Undecodable, "%s is not understood", fn.name(k))
	case i.Flow == isa.FlowCall && i.Target == i.End():
		return refuse(ControlFlow, "%s calls what is behind it, for its address", fn.name(k))
	case i.Flow == isa.FlowCall && i.Target > fn.Addr && i.Target < fn.End():
		return refuse(ControlFlow, "%s calls into its own function", fn.name(k))
	}
	if w, ok := rewritable[fn.text.Arch.Name]; ok && !fn.text.OneCPU && fn.code[fn.off(k)] == w.first {
		return reserve(lockPrefix, "%s may have %s", fn.name(k), w.why)
	}
	if fn.rewrittenForTraps(k) { // in the original alone: by way of the copy, no breakpoint would be known for ours
		return reserve(trapCall, "%s is led elsewhere while anything is reached by a breakpoint", fn.name(k))
	}
	if r := fn.leavable(k, i); r != nil {
		return r
	}
	if i.Flow != isa.FlowTrap {
		if err := gen.Carries(fn.text.Arch, i, fn.code[fn.off(k):][:i.Len]); err != nil {
			return refuse(ControlFlow, "%s: %v", fn.name(k), err)
		}
	}
	return nil
}

// kept are the instructions that are copied: all but what fills up behind the last that control goes on from.
func (fn *function) kept() []isa.Insn {
	all := fn.whole()
	n := len(all)
	for n > 1 && all[n-1].Flow == isa.FlowNone && cfg.IsPad(fn.text.Arch.Name, all[n-1], fn.code[fn.off(n-1):]) && !fn.aimedAt(all[n-1].Addr) {
		n--
	}
	if !all[n-1].Flow.Ends() {
		return all
	}
	return all[:n]
}

// leavable says why control cannot go on in the original from an instruction of a copy, or from its end:
// where that takes a register, one has to be free.
func (fn *function) leavable(k int, i isa.Insn) *Refusal {
	out := i.Flow == isa.FlowTrap || (i.Flow == isa.FlowJump || i.Flow == isa.FlowCond) && !fn.within(i.Target) || k == len(fn.kept())-1 && !i.Flow.Ends()
	if fn.text.Arch.Far == nil || !out {
		return nil
	}
	free, err := fn.free(k)
	if err != nil {
		return unreadable(err)
	}
	if _, ok := gen.Register(fn.text.Arch, free); !ok {
		return refuse(NoDeadRegister, "%s leads out of the copy, and no register is known to be free", fn.name(k))
	}
	return nil
}

// make lays the clone out and plans its entry.
func (c *cloning) make() *Refusal {
	if r := c.lay(); r != nil {
		return r
	}
	first := c.copied[0]
	c.req.clone, c.req.Block, c.req.Mechanism = &c.gen, false, MechanismInvalid
	c.req.Snippet = snippet.Snippet{}
	c.req.Without = append(slices.Clip(c.req.Without), Pun, Trap)
	at, r := first.boundary(c.begin(first))
	if r != nil {
		return r
	}
	n, err := gen.CloneLen(c.text.Arch, gen.Input{Clone: &c.gen, Displaced: first.insns[at : at+1], Loads: c.req.Loads, Task: c.text.CurrentTask(), Features: c.req.Features})
	if err != nil {
		return fromGen(err)
	}
	c.req.most = max(n, 8*c.gen.Words())
	if c.Most > 0 && c.req.most > c.Most {
		r := refuse(PatchTooLong, "the clone from %v takes %d bytes, and is to have %d at the most", first.Func, c.req.most, c.Most)
		r.Takes = c.req.most
		return r
	}
	if r := c.tooManySites(first); r != nil {
		return r
	}
	entry, _, r := first.planAt(c.req, at)
	if r != nil {
		return r
	}
	c.out.Entry = entry
	for _, x := range c.gen.Insns {
		if x.Note > 0 {
			c.out.Notes[x.Insn.Addr] = x.Note - 1
		}
	}
	if len(entry.pieces) != len(c.placed) {
		return refuse(ReasonInvalid, "%d snippets in a clone that was to have %d", len(entry.pieces), len(c.placed))
	}
	for _, piece := range entry.pieces {
		p := c.placed[piece.Number]
		if p.insert == use {
			c.out.Uses[p.fn.Addr] = piece.Word
			continue
		}
		c.out.Points[p.insert] = c.point(entry, p, piece)
	}
	return nil
}

// tooManySites says why the kernel's side could not know all of the clone's sites beside those of other patches.
func (c *cloning) tooManySites(first *function) *Refusal {
	faults, keys := c.gen.Sites()
	left, limited := c.req.Heap.SitesLeft()
	if !limited || faults <= left.Faults && keys <= left.Keys {
		return nil
	}
	return refuse(SitesFull, "the clone from %v has %d instructions that may fault and %d sites of static keys, and %d and %d are left: have fewer functions in it, or undo others",
		first.Func, faults, keys, left.Faults, left.Keys)
}

// lay makes the list of instructions, with what is inserted before each.
func (c *cloning) lay() *Refusal {
	c.gen.Begins, c.gen.LSE, c.gen.Blind, c.gen.Called, c.gen.Stay = map[isa.Addr]isa.Addr{}, c.req.Features.LSE, c.Cloning.Blind, c.Cloning.Called, c.Cloning.Stay
	before, r := c.places()
	if r != nil {
		return r
	}
	all := 0
	for _, fn := range c.copied {
		all += len(fn.kept())
	}
	c.gen.Insns = make([]gen.Cloned, 0, all)
	var own []gen.Cloned
	for _, fn := range c.copied {
		sites, r := c.sites(fn)
		if r != nil {
			return r
		}
		begin := fn.Addr + isa.Addr(c.begin(fn))
		c.gen.Begins[fn.Addr] = begin
		kept := fn.kept()
		own = own[:0]
		for k, i := range kept {
			if i.Addr < begin {
				continue
			}
			free, err := fn.free(k)
			if err != nil {
				return unreadable(err)
			}
			x := sites(i)
			x.Insn, x.Bytes, x.Free = i, fn.code[fn.off(k):][:i.Len:i.Len], free
			x.Last = k == len(kept)-1
			if i.Addr == begin {
				x.Gate = c.gate(fn)
				c.count(fn, k, &x)
			}
			if r := c.insert(fn, k, &x, before[i.Addr]); r != nil {
				return r
			}
			c.link(fn, &x)
			own = append(own, x)
		}
		c.gen.Insns = straight(c.text.Arch, own, c.gen.Insns)
	}
	return nil
}

// longestWay is how many bytes are overwritten at the most where a clone is entered: riscv64's auipc and jalr.
const longestWay = riscv64.FarJumpLen

// straight appends a function's instructions, and puts behind a jump what it leads to, where nobody comes by going on: there is
// no jump then. What the way into the clone may displace, with which its instructions begin, stays in front.
func straight(arch *isa.Arch, insns, out []gen.Cloned) []gen.Cloned {
	var runs [][]gen.Cloned // control leaves at the end of each, and nowhere else for good
	at := map[isa.Addr]int{}
	for first, k := 0, 0; k < len(insns); k++ {
		if insns[k].Leaves() || k == len(insns)-1 {
			for n := first; n <= k; n++ { // what is aligned has nops in front
				at[insns[n].Insn.Addr] = len(runs)
				if !gen.Idle(arch, &insns[n]) {
					break
				}
			}
			runs, first = append(runs, insns[first:k+1]), k+1
		}
	}
	if len(runs) > 0 && runs[0][len(runs[0])-1].Insn.End() < insns[0].Insn.Addr+longestWay {
		return append(out, insns...)
	}
	for k := range runs {
		for next, ok := k, true; ok && runs[next] != nil; {
			run := runs[next]
			out, runs[next] = append(out, run...), nil
			next, ok = at[run[len(run)-1].JumpsTo()]
		}
	}
	return out
}

// use is the number of what is inserted for Cloned.Uses.
const use = -1

// count has the copy of a function count how often it is entered, if that is asked for.
func (c *cloning) count(fn *function, k int, x *gen.Cloned) {
	if !c.Uses || !slices.ContainsFunc(c.Functions, func(f ktext.Func) bool { return f.Addr == fn.Addr }) {
		return
	}
	s := gen.Inserted{Number: len(c.placed), Snippet: snippet.Counter(), Word: c.words}
	if head, _ := c.head(fn); head == ledBehind {
		x.Entered = append(x.Entered, s)
	} else {
		x.Before = append(x.Before, s)
	}
	c.placed = append(c.placed, placedInsert{use, fn, k})
	c.words++
}

// link says how control leaves the clone at an instruction, if it may: to which of its functions it
// is led instead, and whether it notes where else to.
func (c *cloning) link(fn *function, x *gen.Cloned) {
	i := x.Insn
	switch i.Flow {
	case isa.FlowCall, isa.FlowJump, isa.FlowIndirectCall, isa.FlowIndirectJump:
	default:
		return
	}
	if x.Key != nil || i.Flow == isa.FlowJump && x.Call == 0 && fn.within(i.Target) {
		return
	}
	if x.Call == 0 {
		if x.To = fn.pairedTo(i); x.To != 0 {
		} else if r, ok := fn.heldBy(i); ok {
			x.By = &r
		}
	}
	if x.Call != 0 || x.By != nil {
		for _, f := range c.Links[i.Addr] {
			if c.at[f] != nil {
				x.Links = append(x.Links, f)
			}
		}
	}
	if c.Notes && c.notes(x) {
		x.Note = c.words + 1
		c.words += 2
	}
}

// notes reports whether a site may lead to what might be in the clone, and is not.
func (c *cloning) notes(x *gen.Cloned) bool {
	if x.Call != 0 || x.By != nil {
		return len(x.Links) < mostLinks
	}
	a := cmp.Or(x.To, x.Insn.Target)
	if x.To == 0 && (x.Insn.Flow == isa.FlowIndirectCall || x.Insn.Flow == isa.FlowIndirectJump) {
		return false
	}
	f, ok := c.text.Locate(a)
	return ok && f.Addr == a && c.at[a] == nil && c.out.Left[a] == nil && c.Never[a] == nil && !cfg.Returns(c.text.Arch.Name, f.Name)
}

// mostLinks is how many functions a site compares with.
const mostLinks = 4

// pairedTo is where an instruction leads by a register that the one before it has set to an address, and nobody
// else comes to; 0: it does not. Calls link ra.
func (fn *function) pairedTo(i isa.Insn) isa.Addr {
	if i.Flow != isa.FlowIndirectCall && i.Flow != isa.FlowIndirectJump || fn.text.Arch.Far == nil {
		return 0
	}
	k, r := fn.boundary(isa.Off(i.Addr - fn.Addr))
	if r != nil || k == 0 || fn.aimedAt(i.Addr) {
		return 0
	}
	before, op := fn.text.Arch.Op(fn.code[fn.off(k-1):], fn.insns[k-1].Addr), fn.text.Arch.Op(fn.code[fn.off(k):], i.Addr)
	if before.Kind != isa.OpConst || op.Kind != isa.OpJump || op.A != before.Dst || op.Dst != 0 && op.Dst != riscv64.RA {
		return 0
	}
	return isa.Addr(before.Imm + op.Imm)
}

// aimedAt reports whether one of the function's own instructions names an address as where it leads.
func (fn *function) aimedAt(a isa.Addr) bool {
	if fn.aimed == nil {
		fn.aimed = map[isa.Addr]bool{}
		for _, i := range fn.whole() {
			fn.aimed[i.Target] = true
		}
	}
	return fn.aimed[a]
}

// heldBy is the register by which an instruction leads anywhere, or a thunk that it leads to does.
func (fn *function) heldBy(i isa.Insn) (isa.Reg, bool) {
	switch i.Flow {
	case isa.FlowIndirectCall, isa.FlowIndirectJump:
		op := fn.text.Arch.Op(fn.code[i.Addr-fn.Addr:], i.Addr)
		if regs := (i.Reads &^ fn.text.Arch.NeverUse).Regs(); i.Traits&isa.Load == 0 && len(regs) == 1 && (op.Kind != isa.OpJump || op.Imm == 0) {
			return regs[0], true
		}
	case isa.FlowCall, isa.FlowJump:
		at, ok := fn.text.Locate(i.Target)
		if !ok || at.Addr != i.Target {
			return 0, false
		}
		for _, name := range append([]string{at.Name}, fn.text.Aliases(at)...) {
			if r, ok := cfg.JumpsBy(fn.text.Arch, name); ok {
				return r, true
			}
		}
	}
	return 0, false
}

// insert adds what is asked for at an instruction.
func (c *cloning) insert(fn *function, k int, x *gen.Cloned, inserts []int) *Refusal {
	for _, n := range inserts {
		in := c.inserts[n]
		s := gen.Inserted{Number: len(c.placed), Snippet: in.Snippet, Word: c.words}
		var err error
		switch in.Where {
		case Before:
			if c.enters(fn, in) && c.heads[fn] == ledBehind { // places has looked
				x.Entered = append(x.Entered, s)
			} else {
				x.Before = append(x.Before, s)
			}
		case Behind:
			if s.Free, err = fn.free(k + 1); err == nil {
				x.Behind = append(x.Behind, s)
			}
		case Taken:
			if to, r := fn.boundary(isa.Off(x.Insn.Target - fn.Addr)); r == nil && x.Insn.Target >= fn.Addr {
				s.Free, err = fn.free(to)
			}
			x.Taken = append(x.Taken, s)
		}
		if err != nil {
			return unreadable(err)
		}
		c.placed = append(c.placed, placedInsert{n, fn, k})
		c.words += in.Snippet.Words()
	}
	return nil
}

// sites tells of each instruction of a function what it is to the kernel, if that is a site that the
// kernel rewrites.
func (c *cloning) sites(fn *function) (func(i isa.Insn) gen.Cloned, *Refusal) {
	tables, err := c.req.Known.tables(fn.text, fn.Module)
	if err != nil {
		return nil, unreadable(err)
	}
	keys := map[isa.Addr]*gen.Key{}
	for _, k := range span(tables.Keys, fn.Addr, fn.End(), func(k ktext.Key) isa.Addr { return k.Site }) {
		key := &gen.Key{Enabled: k.Enabled, Target: k.Target, Off: k.Off}
		if fn.sited(c.req) {
			key.Entry = k.Entry
		}
		keys[k.Site] = key
	}
	fixups := map[isa.Addr]isa.Addr{}
	for _, x := range span(tables.Faults, fn.Addr, fn.End(), func(f ktext.Fault) isa.Addr { return f.Site }) {
		fixups[x.Site] = x.Fixup
	}
	return func(i isa.Insn) gen.Cloned {
		call := tables.calls[i.Addr] // callable has looked that all are there
		return gen.Cloned{Key: keys[i.Addr], Fixup: fixups[i.Addr], Call: call.Trampoline, Tail: call.Tail}
	}, nil
}

// places are which inserts come before which instruction, by address.
func (c *cloning) places() (map[isa.Addr][]int, *Refusal) {
	out := map[isa.Addr][]int{}
	for n, in := range c.inserts {
		fn := c.at[in.Func.Addr]
		if fn == nil {
			r := cmp.Or(c.out.Left[in.Func.Addr], c.Never[in.Func.Addr])
			if r == nil {
				r = refuse(NoSuchFunction, "%v is not in the clone", in.Func)
			}
			c.out.Why[n] = r
			continue
		}
		k, r := c.insertable(fn, in)
		if r != nil {
			c.out.Why[n] = r
			continue
		}
		a := fn.insns[k].Addr
		out[a] = append(out[a], n)
	}
	return out, nil
}

// head is what leads to a function's begin but those who call it.
type head uint8

const (
	ledNowhere head = iota + 1
	ledBehind       // to where the copy begins: a loop does, which is part of a call that has been entered
	ledInto         // to where no copy tells that from a call
)

// head says what leads to a function's begin. A cold half is not called: whoever comes there enters it.
func (c *cloning) head(fn *function) (head, error) {
	if h := c.heads[fn]; h != 0 {
		return h, nil
	}
	leads, err := fn.leaders(c.req.Known)
	if err != nil {
		return 0, err
	}
	h, begin := ledNowhere, fn.Addr+isa.Addr(c.begin(fn))
	if leads[begin] {
		h = ledBehind
		if fn == c.copied[0] || begin == fn.Addr { // who is in the original's loop would come in there
			h = ledInto
		}
	}
	for a := fn.Addr; a < begin; a++ {
		if leads[a] {
			h = ledInto
		}
	}
	if Half(fn.Name) {
		h = ledNowhere
	}
	c.heads[fn] = h
	return h, nil
}

// enters reports whether what is asked for is a function's begin, not an instruction.
func (c *cloning) enters(fn *function, in Insert) bool {
	return in.Entry || in.Offset == fn.ftrace && c.begin(fn) != fn.ftrace
}

// insertable is the instruction before which a snippet stands in the copy. Where a function is entered there is
// one place alone, if a loop leads there, too.
func (c *cloning) insertable(fn *function, in Insert) (int, *Refusal) {
	begin := c.begin(fn)
	if !c.enters(fn, in) {
		return fn.insertable(c.req, in, begin, false)
	}
	h, err := c.head(fn)
	if err != nil {
		return 0, unreadable(err)
	}
	if h == ledInto || h == ledBehind && in.Where != Before {
		return 0, refuse(TargetInWindow, "a jump leads to where %v starts: whether who comes there has called it is not known", fn.Func)
	}
	return fn.insertable(c.req, in, begin, h == ledBehind)
}

// insertable is the instruction before which a snippet stands in the copy: the one that it is asked
// for, or, where flags would have to be saved to count there and it need not stay, another of the same straight run.
func (fn *function) insertable(req Request, in Insert, begin isa.Off, stays bool) (int, *Refusal) {
	req.Snippet, req.Offset = in.Snippet, in.Offset
	if in.Entry {
		req.Offset = begin
	}
	if req.Offset == fn.ftrace { // a landing pad is not copied: who comes by it comes by what follows
		req.Offset = begin
	}
	at, r := fn.boundary(req.Offset)
	if r == nil && fn.off(at) < begin {
		r = reserve(ktext.Ftrace.String(), "%s is an ftrace site or before it, which clones have none of", fn.place(at))
	}
	if r == nil && at >= len(fn.kept()) {
		r = refuse(OutsideFunction, "%s fills up behind the function's end, which is not copied", fn.name(at))
	}
	if r == nil {
		_, r = fn.task(req)
	}
	if r == nil {
		r = fn.recurs(req)
	}
	if r == nil {
		r = fn.arguments(req, at)
	}
	if r == nil && in.Where == Behind {
		r = fn.keepsArguments(req, at, at)
	}
	if r == nil && fn.called(req, at) {
		r = refuse(NoArgument, "%s jumps to another function: what that returns is not known in a clone", fn.name(at))
	}
	if r == nil && at > 0 && fn.insns[at-1].Traits&isa.Shadow != 0 {
		r = refuse(PrivilegedInsn, "%s runs in the shadow of the instruction before it", fn.name(at))
	}
	if r == nil && in.Where == Behind && fn.insns[at].Traits&isa.Shadow != 0 {
		r = refuse(PrivilegedInsn, "what follows %s runs in its shadow", fn.name(at))
	}
	if r == nil && in.Where != Before {
		r = fn.splits(at, in.Where)
	}
	if r == nil && fn.excludes(at, in.Where) {
		r = refuse(ExclusiveSequence, "%s is in an exclusive sequence", fn.name(at))
	}
	if r != nil || stays || in.Where != Before || !req.Snippet.OnlyCounts() {
		return at, r
	}
	return fn.cheapest(req, at)
}

// excludes reports whether what is inserted at an instruction would be in an exclusive sequence, or on the way
// to its next turn: it has memory accesses.
func (fn *function) excludes(at int, w Where) bool {
	switch w {
	case Behind:
		return at+1 < len(fn.insns) && fn.memo[at+1].exclusive
	case Taken:
		k, r := fn.boundary(isa.Off(fn.insns[at].Target - fn.Addr))
		return r == nil && fn.within(fn.insns[at].Target) && fn.memo[k].exclusive
	}
	return fn.memo[at].exclusive
}

// splits says why an instruction has no such way.
func (fn *function) splits(at int, w Where) *Refusal {
	i := fn.insns[at]
	_, site, err := fn.text.Site(i.Addr, i.End())
	switch {
	case err != nil:
		return unreadable(err)
	case w == Taken && i.Flow != isa.FlowCond || site:
		return refuse(ControlFlow, "%s is no conditional jump", fn.name(at))
	case i.Flow.Ends() && i.Flow != isa.FlowCall && i.Flow != isa.FlowIndirectCall:
		return refuse(ControlFlow, "%s: control does not go on behind it", fn.name(at))
	}
	return nil
}

// cheapest is, of the instructions that run as often as one, the nearest of those before which the snippet saves the fewest
// registers and flags.
func (fn *function) cheapest(req Request, at int) (int, *Refusal) {
	others, err := fn.equivalents(at)
	if err != nil {
		return 0, unreadable(err)
	}
	best, least := at, -1
	for _, k := range append([]int{at}, others...) {
		if k != at && (fn.memo[k].exclusive || k > 0 && fn.insns[k-1].Traits&isa.Shadow != 0) {
			continue
		}
		free, err := fn.free(k)
		if err != nil {
			return 0, unreadable(err)
		}
		n, err := gen.Spills(fn.text.Arch, req.Snippet, req.Features, fn.insns[k], free)
		if err == nil && (least < 0 || n < least) {
			best, least = k, n
		}
		if least == 0 {
			break
		}
	}
	return best, nil
}

// point describes a snippet in a clone as if it were a splice of its own.
func (c *cloning) point(entry *Plan, p placedInsert, piece gen.Piece) *Plan {
	in, i := c.inserts[p.insert], p.fn.insns[p.k]
	off := in.Offset
	if in.Entry {
		off = c.begin(p.fn)
	}
	i.Text = p.fn.text.Arch.Text(p.fn.code[p.fn.off(p.k):], i.Addr)
	out := &Plan{
		Module: p.fn.Module, Symbol: p.fn.Known(), Offset: off, Point: i.Addr, Mechanism: Clone, In: entry,
		Patch: entry.Patch + isa.Addr(piece.Off), Code: clone(entry.Code[piece.Off:][:piece.Len]),
		Original: clone(p.fn.code[p.fn.off(p.k):][:i.Len]), Displaced: []isa.Insn{i}, Back: i.End(),
		Snippet: in.Snippet, Cell: entry.Cell + isa.Addr(8*piece.Word), Added: piece.Added, Spilled: piece.Spilled, Liveness: p.fn.source(),
	}
	if a := p.fn.Addr + isa.Addr(off); a != i.Addr {
		out.For = a
	}
	return out
}

// checkClone holds a clone to be what it is made of, instruction by instruction.
func (p *Plan) checkClone(arch *isa.Arch) error {
	k := 0
	if p.Slot < 8*p.Clone.Words() {
		return fmt.Errorf("a slot of %d bytes for %d words of cells", p.Slot, p.Clone.Words())
	}
	for _, x := range p.Clone.Insns {
		if i := arch.Decode(x.Bytes, x.Insn.Addr); i.Len != len(x.Bytes) || i.Flow != x.Insn.Flow || i.Target != x.Insn.Target || i.Operand != x.Insn.Operand || i.Rel32 != x.Insn.Rel32 || i.Reads != x.Insn.Reads || i.Writes != x.Insn.Writes {
			return fmt.Errorf("the bytes %x at %v of the clone are not what they are said to be", x.Bytes, x.Insn.Addr)
		}
		if k < len(p.Displaced) && x.Insn.Addr != p.Displaced[k].Addr {
			return fmt.Errorf("the clone begins with %v, not with what is displaced", x.Insn.Addr)
		}
		k++
	}
	if k < len(p.Displaced) {
		return fmt.Errorf("%d instructions are displaced, and the clone has %d", len(p.Displaced), k)
	}
	out, err := gen.Patch(arch, gen.Input{Patch: p.Patch, Cell: p.Cell, Displaced: p.Displaced, Loads: p.Loads, Task: p.Task, Features: gen.Features{Preempted: p.Preempt}, Clone: p.Clone})
	if err != nil {
		return err
	}
	if !bytes.Equal(out.Code, p.Code) || !slices.Equal(out.Sites, p.Sites) || !slices.Equal(out.Resumes, p.Resumes) {
		return fmt.Errorf("the code at %v is not the clone that it is said to be", p.Patch)
	}
	return nil
}
