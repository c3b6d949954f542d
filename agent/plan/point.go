package plan

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"kerninst/agent/gen"
	"kerninst/agent/isa"
	"kerninst/agent/ktext"
	"kerninst/agent/pad"
	"kerninst/agent/place"
	"kerninst/agent/snippet"
)

// Request asks for one splice.
type Request struct {
	Module    string
	Function  string
	Offset    isa.Off
	Snippet   snippet.Snippet // zero: count
	Mechanism Mechanism       // MechanismInvalid: the first that fits
	Without   []Mechanism     // are not used
	NoSpill   bool            // refuse what would have to save a register
	Jumps     bool            // Search looks only at what jumps, calls or returns
	Features  gen.Features
	Loads     isa.Addr // what patches load kernel memory and walk its stack with; 0: nothing
	// Facts tells what is known of a function's registers, from the text as it is
	// now; nil: only a point's own block is looked at.
	Facts func(f ktext.Func) (Facts, error)
	// Known keeps what was found out of functions for other requests of the same kernel,
	// whose text is taken not to change meanwhile; nil: each is looked at anew.
	Known *Functions
	// Apart gives what may fault a patch of two parts even where one would do, so that
	// what KASLR decides can be tried on any kernel.
	Apart bool
	// Heap is where patches go. A plan takes its slot from it; a refusal takes
	// nothing.
	Heap *place.Heap
	// Own is the part of it where code may have sites: gen.Site.
	Own place.Window
	// Padding finds room for springboards in the same text; nil: all of it is
	// looked at anew.
	Padding *pad.Finder
	// Block lets a snippet that only counts stand at another instruction that runs as often.
	Block bool
	// Asked reports whether a live splice is that of the point at a: Block does not make a
	// second of it. Nil: none is.
	Asked func(a isa.Addr) bool
	// Terse leaves the disassembly of what is displaced out of the plan.
	Terse bool
	// Dry leaves the heap as it is: who plans so splices nothing.
	Dry bool
	// Only chooses instructions of a Survey, by their offsets; nil: all of them.
	Only func(off isa.Off) bool
	// Spare reports whether [lo, hi) of a function should not be evicted; nil: all may be.
	Spare func(f ktext.Func, lo, hi isa.Addr) bool
	// Still: no code beside the point may be moved away for it.
	Still bool
	// Wanted reports whether points that are asked for and have no plan yet lie in [lo, hi), of
	// which none is locked for a punned jump, or displaced by the window of another; nil: none do.
	Wanted func(lo, hi isa.Addr) bool
	// OnStack reports whether arguments of a function may be passed on the stack; an error
	// says why that is not known. Nil: it is known of no function.
	OnStack func(f ktext.Func) (bool, error)
	// Taken reports whether live splices touch [lo, hi); nil: there are none.
	Taken func(lo, hi isa.Addr) bool
	// Probed reports whether there are kprobes in [lo, hi), which a copy would be without; nil: there are none.
	Probed func(lo, hi isa.Addr) bool
	// Copied is the entry of a live clone that has a copy of what is at an address; nil: there is none.
	Copied func(a isa.Addr) *Plan
	rung   int        // the only one of the ladder that is tried, counted from 1; 0: all are
	clone  *gen.Clone // that the patch is to be,
	most   int        // and how many bytes it has
}

// loads is what a request's patch loads or walks with, if it does: no plan depends on what it
// does not use.
func loads(req Request) isa.Addr {
	if req.Snippet.Loads() || req.Snippet.Walks() {
		return req.Loads
	}
	return 0
}

// task is where a request's patch finds the task that runs, if it asks for that.
func (fn *function) task(req Request) (isa.Addr, *Refusal) {
	if req.clone != nil { // who inserts has looked
		return fn.text.CurrentTask(), nil
	}
	if !req.Snippet.Runs() {
		return 0, nil
	}
	// Where a register has the task, it is one or the other wherever the kernel runs.
	if gen.Locals(fn.text.Arch) && fn.rebases() {
		return 0, refuse(BadSnippet, "%v changes what a CPU finds its own memory with: which task runs cannot be told in it", fn.Func)
	}
	return fn.text.CurrentTask(), nil
}

func refuse(r Reason, format string, args ...any) *Refusal {
	return &Refusal{Reason: r, Detail: fmt.Sprintf(format, args...)}
}

// reserve refuses what must not be touched, of some class.
func reserve(class, format string, args ...any) *Refusal {
	return &Refusal{Reason: ReservedText, Class: class, Detail: fmt.Sprintf(format, args...)}
}

// Point plans one splice.
func Point(text *ktext.Text, req Request) (*Plan, *Refusal) {
	fn, r := req.Known.function(text, req.Module, req.Function)
	if r != nil {
		return nil, r
	}
	return fn.plan(req)
}

// At plans one splice in a function that is already known by its address;
// Request.Module and Function are not used.
func At(text *ktext.Text, f ktext.Func, req Request) (*Plan, *Refusal) {
	fn, r := req.Known.located(text, f)
	if r != nil {
		return nil, r
	}
	return fn.plan(req)
}

// Survey plans every instruction of a function by itself. It takes no slots and
// stops when visit returns false.
func Survey(text *ktext.Text, f ktext.Func, req Request, visit func(off isa.Off, p *Plan, r *Refusal) bool) *Refusal {
	fn, r := decode(text, f)
	if r != nil {
		return r
	}
	req.Dry = true
	if req.Padding == nil {
		req.Padding = pad.New(text)
	}
	for _, i := range fn.whole() {
		req.Offset = isa.Off(i.Addr - f.Addr)
		if req.Only != nil && !req.Only(req.Offset) {
			continue
		}
		p, r := fn.plan(req)
		if !visit(req.Offset, p, r) {
			break
		}
	}
	return nil
}

// Search plans the first point at or after the requested offset that the best
// mechanism does not refuse, or else the next best. When all refuse all, the refusal
// is that of the first point; where patch memory is full, or all of the function is
// reserved, it is not searched on.
func Search(text *ktext.Text, req Request) (*Plan, *Refusal) {
	fn, r := req.Known.function(text, req.Module, req.Function)
	if r != nil {
		return nil, r
	}
	var first *Refusal
	tried := 0
	for k, m := range mechanisms[text.Arch.Name] {
		if !req.allows(m.m) {
			continue
		}
		next := req
		next.Mechanism, next.rung = m.m, k+1
		p, r, n := fn.search(next)
		if p != nil {
			return p, nil
		}
		if r != nil && r.Reason == MemoryFull {
			return nil, r
		}
		if first == nil {
			first = r
		}
		if first != nil && allReserved(first) {
			return nil, first
		}
		tried = n
	}
	switch {
	case first != nil:
		return nil, refuse(first.Reason, "all %d instructions of %v from +%#x are refused, the first because: %s",
			tried, fn.Func, req.Offset, first.Detail)
	case req.Offset >= fn.Size:
		return nil, refuse(OutsideFunction, "%v has %d bytes, %#x asked for", fn.Func, fn.Size, req.Offset)
	case req.Jumps:
		return nil, refuse(OutsideFunction, "%v has no jump from +%#x", fn.Func, req.Offset)
	}
	return nil, req.none(text.Arch)
}

// search plans the first point at or after the requested offset that is not refused.
// Otherwise it returns the first refusal, and how many there were: not all where all of the
// function is reserved.
func (fn *function) search(req Request) (p *Plan, first *Refusal, tried int) {
	req.counts()
	for k := 0; fn.has(k); k++ {
		i, off := &fn.insns[k], fn.off(k)
		if off < req.Offset || off < fn.sealed || req.Jumps && i.Flow == isa.FlowNone {
			continue
		}
		if first != nil && req.Mechanism == Jump && fn.tooShort(k) { // which most are
			tried++
			continue
		}
		p, r := fn.searched(req, off, first != nil)
		if r == nil {
			return p, nil, tried
		}
		if r.Reason == MemoryFull {
			return nil, r, tried
		}
		if first == nil {
			first = r
		}
		if tried++; allReserved(r) {
			break
		}
	}
	return nil, first, tried
}

// searched plans one of many points. Of most nobody reads why they are refused.
func (fn *function) searched(req Request, off isa.Off, quiet bool) (*Plan, *Refusal) {
	req.Offset = off
	fn.quiet = quiet
	p, r := fn.plan(req)
	if fn.quiet = false; quiet && r != nil && r.Reason == MemoryFull {
		return fn.plan(req)
	}
	return p, r
}

// mechanisms is the ladder: the first that does not refuse wins. One mechanism may be on
// it several times.
var mechanisms = map[string][]struct {
	m    Mechanism
	plan func(*function, Request, int) (*Plan, *Refusal)
}{
	"amd64":   {{Jump, (*function).jump}, {Springboard, (*function).springboard}, {Pun, (*function).paged}, {Quiesced, (*function).quiesced}, {Springboard, (*function).beside}, {Pun, (*function).alone}, {Pun, (*function).successor}, {Trap, (*function).trap}},
	"arm64":   {{Jump, (*function).jump}, {Trap, (*function).trap}},
	"riscv64": {{Quiesced, (*function).quiesced}, {Springboard, (*function).far}, {Trap, (*function).trap}},
}

// counts lets who asks for nothing else count.
func (req *Request) counts() {
	if req.Snippet.Empty() {
		req.Snippet = snippet.Counter()
	}
}

func (fn *function) plan(req Request) (*Plan, *Refusal) {
	req.counts()
	at, r := fn.boundary(req.Offset)
	if r != nil {
		return nil, r
	}
	if r := fn.recurs(req); r != nil {
		return nil, r
	}
	if r := fn.copiedIn(req, at); r != nil {
		return nil, r
	}
	if req.Mechanism != MechanismInvalid {
		p, _, r := fn.planAt(req, at)
		return p, r
	}
	free := req
	free.Without = append(slices.Clip(req.Without), Trap)
	p, passed, r := fn.planAt(free, at)
	if r == nil {
		return p, nil
	}
	if p, r := fn.byBlock(free, at, r); r == nil {
		return p, nil
	}
	return fn.lastResort(req, at, passed, r)
}

// copiedIn refuses what a clone has a copy of: who runs the copy does not come by.
func (fn *function) copiedIn(req Request, at int) *Refusal {
	if req.Copied == nil {
		return nil
	}
	if e := req.Copied(fn.insns[at].Addr); e != nil {
		return refuse(AlreadySpliced, "%s is in the clone from %s: whoever runs that copy does not come by; undo the clone first, or ask for the point in it", fn.name(at), e.Symbol)
	}
	return nil
}

// lastResort is a trap, where all else is refused for r.
func (fn *function) lastResort(req Request, at int, passed []Passed, r *Refusal) (*Plan, *Refusal) {
	alone := len(passed) == 0 && r.Reason == UnsupportedMechanism // nothing else may be used
	if !req.allows(Trap) {
		if alone {
			r = req.none(fn.text.Arch)
		}
		return nil, r
	}
	req.Mechanism = Trap
	p, _, last := fn.planAt(req, at)
	if last != nil {
		p, last = fn.byBlock(req, at, last)
	}
	switch {
	case last == nil:
		p.Passed = passed
		return p, nil
	case alone:
		return nil, last
	}
	return nil, r
}

// allows reports whether a mechanism may be used.
func (req *Request) allows(m Mechanism) bool {
	return (req.Mechanism == MechanismInvalid || req.Mechanism == m) && !slices.Contains(req.Without, m) &&
		(m != Trap || !req.Features.NoTraps)
}

// none is the refusal of a point for which an ISA has no mechanism that may be used.
func (req *Request) none(arch *isa.Arch) *Refusal {
	switch {
	case req.Mechanism == MechanismInvalid:
		return refuse(UnsupportedMechanism, "%s has no mechanisms but those that are forbidden: %v", arch.Name, req.Without)
	case slices.Contains(req.Without, req.Mechanism):
		return refuse(UnsupportedMechanism, "%v is asked for, and forbidden", req.Mechanism)
	case req.Mechanism == Trap:
		return refuse(UnsupportedMechanism, "what this kernel does at a breakpoint leads to no trap of ours")
	}
	return refuse(UnsupportedMechanism, "%s has no mechanism %v yet", arch.Name, req.Mechanism)
}

// planAt plans the snippet at instruction at, and says what it has tried before.
func (fn *function) planAt(req Request, at int) (_ *Plan, passed []Passed, _ *Refusal) {
	if r := fn.displaceable(at); r != nil {
		return nil, nil, r
	}
	if r := fn.arguments(req, at); r != nil {
		return nil, nil, r
	}
	if r := fn.learn(req); r != nil {
		return nil, nil, r
	}
	var last *Refusal
	for k, m := range mechanisms[fn.text.Arch.Name] {
		if !req.allows(m.m) || req.rung != 0 && req.rung != k+1 {
			continue
		}
		p, r := m.plan(fn, req, at)
		if r == nil {
			p.Passed = passed
			return p, passed, nil
		}
		passed = append(passed, Passed{m.m, r})
		if last == nil || last.Reason == UnsupportedMechanism || (m.m != Pun || req.Mechanism == Pun) && (last.Reason == TooShort || last.Reason == NoSpringboard && r.Reason == NoSpringboard) { // the first that says more
			last = r
		}
	}
	if last == nil {
		last = req.none(fn.text.Arch)
	}
	return nil, passed, last
}

// jump replaces one instruction by one jump.
func (fn *function) jump(req Request, at int) (*Plan, *Refusal) {
	n := fn.insns[at].Len
	if fn.tooShort(at) {
		return nil, refuse(TooShort, "%s is %d bytes, a jump needs %d", fn.place(at), n, amd64JumpLen)
	}
	if fn.text.Arch.Name == "amd64" {
		n = amd64JumpLen
	}
	return fn.build(req, window{mechanism: Jump, first: at, count: 1, replaced: n})
}

// tooShort reports whether a jump does not fit over an instruction.
func (fn *function) tooShort(k int) bool {
	return fn.text.Arch.Name == "amd64" && fn.insns[k].Len+fn.filler(k) < amd64JumpLen
}

// window is the run of instructions that a splice displaces.
type window struct {
	mechanism    Mechanism
	first, count int // index of the first, and how many
	lead         int // how many of them are before the point
	replaced     int // bytes that are overwritten
	entry        isa.Reg
	board        isa.Addr    // 0: none
	in           *Eviction   // what the board lies in, if that is evicted
	whole        bool        // the board is a copy of the patch
	slot         isa.Addr    // where the patch lies; 0: in the lowest free slot in reach
	page         *place.Area // that the slot is in, if that is none of the heap's areas yet
	prefixes     int         // of a punned jump
	tail         []byte      // what completes that
	next         *Eviction   // what is moved away for the tail
	into         isa.Addr    // how far behind the beginning of its cells the first one is
	shared       bool        // no cell is in per-CPU memory
	home         bool        // a breakpoint may be the way back
}

// input is what the patch of a window depends on, but for its own place: where it
// lies is the lowest free slot in reach.
func (fn *function) input(req Request, w window) (gen.Input, *Refusal) {
	arch := fn.text.Arch
	insns := fn.insns[w.first : w.first+w.count]
	lo, hi := insns[0].Addr, insns[w.count-1].End()
	if req.Taken != nil && req.Taken(lo, max(hi, lo+isa.Addr(w.replaced))) {
		return gen.Input{}, refuse(AlreadySpliced, "%s overlaps a live splice", fn.name(w.first))
	}
	if req.Heap == nil {
		return gen.Input{}, refuse(OutOfReach, "there is no patch memory")
	}
	faults, r := fn.faulting(w)
	if r != nil {
		return gen.Input{}, r
	}
	n, reach := req.room(arch), place.Reach(arch, lo, hi)
	if req.clone.Sited() {
		reach = reach.Intersect(req.Own)
	}
	patch, area, ok := req.Heap.Peek(n, reach, faults)
	if w.slot != 0 {
		patch = w.slot
		area, ok = req.Heap.Find(patch)
	}
	if w.page != nil {
		area, ok = w.page, true
	}
	var annex isa.Addr
	if faults && (!ok || req.Apart) {
		annex, r = fn.annexed(req, w)
		if r != nil {
			return gen.Input{}, r
		}
		patch, area, ok = req.Heap.Peek(n, reach, false)
	}
	if !ok {
		return gen.Input{}, fn.noSlot(req.Heap, n, reach, w)
	}
	var free []isa.RegSet
	for k := w.first; k <= w.first+w.count; k++ {
		set, err := fn.free(k)
		if err != nil {
			return gen.Input{}, unreadable(err)
		}
		free = append(free, set)
	}
	task, r := fn.task(req)
	if r != nil {
		return gen.Input{}, r
	}
	called, thunk := fn.called(req, w.first+w.lead), isa.Addr(0)
	if called {
		if free[w.count], thunk, r = fn.back(w.first + w.lead); r != nil {
			return gen.Input{}, r
		}
	}
	from := fn.off(w.first)
	return gen.Input{
		Called: called, Thunk: thunk,
		Snippet: req.Snippet, Patch: patch, Cell: area.Cell(patch) + w.into, Locals: fn.locals(req, w),
		Displaced: insns, Lead: w.lead, Bytes: fn.code[from : from+isa.Off(hi-lo)],
		Back: hi, Free: free, Features: req.Features, Loads: req.Loads, Task: task, Annex: annex,
		Home: w.home && !faults, Clone: req.clone,
	}, nil
}

// room is how much of the heap a request's patch may take.
func (req *Request) room(arch *isa.Arch) int {
	if req.clone != nil {
		return req.most
	}
	return gen.Room(arch, req.Snippet)
}

// locals finds places in per-CPU memory for the sums of a snippet; nil: they stay with
// the other cells, since the ISA has none, since not enough are left, or since the
// function changes what a CPU finds such memory with, at a moment at which a patch may
// run.
func (fn *function) locals(req Request, w window) []isa.Addr {
	sums := 0
	for _, c := range req.Snippet.Cells {
		if c.Kind == snippet.Sum {
			sums++
		}
	}
	if w.shared || sums == 0 || !gen.Locals(fn.text.Arch) || fn.rebases() {
		return nil
	}
	free, ok := req.Heap.PeekLocals(sums)
	if !ok {
		return nil
	}
	out := make([]isa.Addr, len(req.Snippet.Cells))
	for k, c := range req.Snippet.Cells {
		if c.Kind == snippet.Sum {
			out[k], free = free[0], free[1:]
		}
	}
	return out
}

// build chooses the slot and generates patch and jump.
func (fn *function) build(req Request, w window) (*Plan, *Refusal) {
	arch := fn.text.Arch
	in, r := fn.input(req, w)
	if r != nil {
		return nil, r
	}
	out, err := gen.Patch(arch, in)
	if err != nil {
		return nil, fromGen(err)
	}
	entry, board, added, err := fn.entry(w, in, out)
	if err != nil {
		return nil, fromGen(err)
	}
	fault, r := fn.fault(req, in, out)
	if r != nil {
		return nil, r
	}
	if req.NoSpill && out.Spilled > 0 {
		return nil, refuse(NeedsSpill, "%d registers or flag words would be saved around the snippet at %s",
			out.Spilled, fn.name(w.first))
	}
	if w.mechanism != Pun {
		entry = append(entry, filling(arch, len(entry), len(in.Bytes))...)
	}
	p := &Plan{
		Module: fn.Module, Symbol: fn.Known(), Offset: fn.off(w.first + w.lead), Point: in.Displaced[0].Addr, Mechanism: w.mechanism, Board: board,
		Old: clone(fn.code[fn.off(w.first):][:len(entry)]), New: entry, Tail: w.tail, Next: w.next,
		Patch: in.Patch, Code: out.Code, Lead: w.lead, Start: out.Start, Cell: in.Cell,
		Snippet: req.Snippet, Locals: in.Locals, Loads: loads(req), Task: in.Task, Preempt: in.Features.Preempted && req.Snippet.Has(snippet.Clock), Slot: gen.Slot(arch, req.Snippet, len(out.Code)),
		Displaced: fn.described(w, req.Terse), Original: clone(in.Bytes),
		Free: in.Free, Back: in.Back, Added: added, Spilled: out.Spilled, Liveness: fn.source(), Window: w.count > 1, Home: out.Home, States: out.States,
		Fault: fault, Annex: annexOf(in, out), Called: in.Called, Thunk: in.Thunk, Clone: in.Clone, pieces: out.Pieces, Sites: out.Sites, Resumes: out.Resumes, offs: out.Offs,
	}
	if in.Clone != nil { // for all that is inserted
		p.Loads, p.Task, p.Preempt = in.Loads, in.Task, in.Features.Preempted
		p.Slot = max(len(out.Code), 8*in.Clone.Words())
	}
	if err := p.Check(arch); err != nil {
		return nil, refuse(ReasonInvalid, "the plan for %s is wrong: %v", fn.name(w.first), err)
	}
	if !req.Dry {
		if !req.Heap.Take(in.Patch, p.Slot) { // it is no longer than what Peek was asked for
			return nil, refuse(ReasonInvalid, "the plan for %s takes %d bytes at %v, which are not free", fn.name(w.first), p.Slot, in.Patch)
		}
		req.Heap.TakeSites(in.Patch, p.Sited())
		if board != nil {
			req.Heap.TakeBoard(board.Addr, len(board.New))
		}
		if e := p.Moves(); e != nil && !req.Heap.Evict(e.Place()) {
			return nil, refuse(ReasonInvalid, "the plan for %s moves %s to %v, which is not free", fn.name(w.first), e.Name(), e.Patch)
		}
		if p.Annex != nil {
			req.Heap.Take(p.Annex.Addr, len(p.Annex.Code))
		}
		for _, a := range in.Locals {
			req.Heap.TakeLocal(a) // 0 is none of its words
		}
	}
	return p, nil
}

// Sited are the places in a plan's patch that the kernel's side knows by their addresses.
func (p *Plan) Sited() (s place.Sites) {
	if s.Faults, s.Keys = p.Clone.Sites(); p.Fault != 0 {
		s.Faults++
	}
	return s
}

// noSlot says why there is no room for a patch: other splices have it, or none is in
// reach.
func (fn *function) noSlot(h *place.Heap, n int, reach place.Window, w window) *Refusal {
	for _, a := range h.Areas() {
		if c := a.Code(); !a.Annex() && !a.Page() && c.Intersect(reach) != c {
			return refuse(OutOfReach, "no free slot within %v of %v", reach, fn.insns[w.first].Addr)
		}
	}
	clean, used, dirty := h.Usage()
	return refuse(MemoryFull, "the patch for %s needs %d bytes in one piece, and %d of the patch memory's %d are taken by other splices: undo some of them, or ask for fewer points at once or for smaller actions",
		fn.name(w.first), n, used*place.Line, (clean+used+dirty)*place.Line)
}

// fault is where the patch has an instruction that has an entry in the exception table:
// there it must be what it was; 0: there is none.
func (fn *function) fault(req Request, in gen.Input, out gen.Output) (isa.Addr, *Refusal) {
	at, code, start := in.Patch, out.Code, out.Start
	if area, ok := req.Heap.Find(in.Patch); in.Annex != 0 {
		at, code, start = in.Annex, out.Annex.Code, out.Annex.Fault
	} else if !ok || !area.Annex() {
		return 0, nil
	}
	first := in.Displaced[0]
	if !bytes.HasPrefix(code[start:], in.Bytes[:first.Len]) {
		return 0, refuse(MayFault, "%v+%#x has an exception-table entry and is another instruction in a patch", fn.Func, isa.Off(first.Addr-fn.Addr))
	}
	if left, limited := req.Heap.SitesLeft(); limited && left.Faults <= 0 {
		return 0, refuse(SitesFull, "%v+%#x may fault, and the kernel's side knows no more instructions in patches that do: undo some", fn.Func, isa.Off(first.Addr-fn.Addr))
	}
	return at + isa.Addr(start), nil
}

// entry encodes the way from a point to its patch; a hit adds so many instructions,
// the snippet's included.
func (fn *function) entry(w window, in gen.Input, out gen.Output) (code []byte, b *Board, added int, err error) {
	arch, point, n := fn.text.Arch, in.Displaced[0].Addr, 0
	if w.mechanism == Trap {
		return bytes.Clone(arch.Break), nil, 1 + out.Added, nil
	}
	if w.mechanism == Pun {
		code, err = gen.Pun(point, in.Patch, w.prefixes, w.tail)
		return code, nil, 1 + out.Added, err
	}
	if w.board == 0 {
		code, n, err = gen.Entry(arch, point, in.Patch, w.entry)
		return code, nil, n + out.Added, err
	}
	if code, err = gen.Hop(arch, w.replaced, point, w.board); err != nil {
		return nil, nil, 0, err
	}
	if w.whole {
		in.Near = true
		if b, added, err = wholeAt(arch, in, w.board); err == nil {
			b.In = w.in
		}
	} else {
		b = &Board{Addr: w.board, In: w.in}
		b.New, n, err = gen.Entry(arch, w.board, in.Patch, w.entry)
		added = n + out.Added
	}
	if err != nil {
		return nil, nil, 0, err
	}
	b.Old = make([]byte, len(b.New))
	if lo, hi := fn.text.Gap(); b.Addr >= lo && b.End() <= hi {
		return code, b, 1 + added, nil // zeros, of which dumps have none
	}
	return code, b, 1 + added, fn.text.Read(b.Addr, b.Old)
}

// described copies the displaced instructions, with their disassembly unless it is to be
// terse.
func (fn *function) described(w window, terse bool) []isa.Insn {
	out := make([]isa.Insn, w.count)
	if terse {
		copy(out, fn.insns[w.first:])
		return out
	}
	for k := range out {
		i := fn.insns[w.first+k]
		i.Text = fn.disassembly(w.first + k)
		out[k] = i
	}
	return out
}

func fromGen(err error) *Refusal {
	switch {
	case errors.Is(err, gen.ErrNoRegister):
		return refuse(NoDeadRegister, "%v", err)
	case errors.Is(err, gen.ErrNoAtomics):
		return refuse(NoAtomics, "%v", err)
	case errors.Is(err, gen.ErrReach):
		return refuse(OutOfReach, "%s", strings.TrimPrefix(err.Error(), gen.ErrReach.Error()+": "))
	}
	if errors.Is(err, gen.ErrSnippet) {
		return refuse(BadSnippet, "%v", err)
	}
	return refuse(PatchTooLong, "%v", err)
}

func unreadable(err error) *Refusal { return refuse(Unreadable, "%v", err) }

func clone(b []byte) []byte { return append([]byte(nil), b...) }
