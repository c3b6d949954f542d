package plan

import (
	"errors"
	"fmt"

	"kerninst/agent/gen"
	"kerninst/agent/isa"
	"kerninst/agent/pad"
	"kerninst/agent/place"
)

// Springboards in evicted functions (riscv64). One instruction is replaced by one jal,
// or one of two bytes by one c.j, to a springboard: auipc and jalr, through a register
// that is free at the point, or for a counter a copy of its patch, which ends in a jal back
// and takes three instructions less. Functions have no padding there, so the springboard lies
// where a function was that can run as a copy (pad.Leaf): a jump to the copy is written
// behind its ftrace site, and what is behind that jump is nobody's.
//
// Written are the copy and the patch, then, each inside a stop_machine, the jump to the
// copy, the springboard, the point, in this order; undone in reverse. Without kernel
// preemption (others are refused) a task gives its CPU up only where it calls
// schedule(), and who meets what is
//
//   - Another CPU, while any of it is written: stopped, with its interrupts off, in the
//     module. It has left the function: that calls nothing.
//   - An interrupt: none is half handled on a CPU that has stopped. One that comes on
//     the springboard, or in the copy, goes on there, and both are there as long as any
//     CPU has not stopped since the last way to them was taken away.
//   - A sleeping task: in none of the three. The function has no call, and no access
//     whose fault is waited for; nor has a copy of a patch, which sets ra and jumps where
//     the point has a call.
//   - A fault in the copy: as in the function, whose faults nobody expects: an oops,
//     which names an address in the copy.
//   - A backtrace from an interrupt in the copy: as from one in a patch. The function
//     has no frame of its own, so its caller is where ra says. From one in a springboard
//     likewise, under the name of the function that was there: a copy of a patch saves
//     nothing, so frames are as at the point.
//   - ftrace: its site stays where it is and leads to the jump. A kprobe, now or later:
//     not in the function while it lives; the module bars it, and refuses to evict a
//     function in which there is one.
//   - Who reads the function, as for a core dump or BPF's verifier: bytes that differ.

// Before a function is evicted, springboards go where nothing is or runs anyway: behind
// the kernel's text (ktext.Text.Gap), and for a module's points into the function that it
// is left by. That runs when nobody uses the module any more, and who has a splice in it
// does. The rest of its exit text may run: drivers have their remove functions there.

// far replaces one instruction by a jump to a springboard far from any padding.
func (fn *function) far(req Request, at int) (*Plan, *Refusal) {
	i := fn.insns[at]
	n, lo, hi := gen.HopReach(fn.text.Arch, i.Len)
	w := window{mechanism: Springboard, first: at, count: 1, replaced: n}
	in, r := fn.input(req, w)
	if r != nil {
		return nil, r
	}
	if p, r := fn.copied(req, in, w); r == nil {
		return p, nil
	}
	if w.entry, r = fn.entryRegister(req, at); r != nil {
		return nil, r
	}
	reach := place.Window{Lo: i.Addr + isa.Addr(lo), Hi: i.Addr + isa.Addr(hi) + 1}
	idle, err := fn.idle()
	if err != nil {
		return nil, unreadable(err)
	}
	if a, ok := req.Heap.PeekBoard(riscv64JumpLen, fn.text.Arch.MinLen, idle, reach, req.untouched); ok {
		w.board = a
		return fn.build(req, w)
	}
	if req.Features.Preempt {
		return nil, refuse(UnsupportedMechanism, "the kernel can be preempted inside a function that makes room for a springboard")
	}
	if w.board, w.in, r = fn.room(req, in, reach, riscv64JumpLen, fn.text.Arch.MinLen); r != nil {
		return nil, r
	}
	if w.board == 0 {
		return nil, refuse(NoSpringboard, "%s is %d bytes, and no function within %d bytes can be moved away to make room for another springboard",
			fn.name(at), i.Len, hi)
	}
	return fn.build(req, w)
}

// copied replaces one instruction by a jump to a copy of the patch: one jump there and one
// back, through no register. A copy is that of a counter and of an instruction that is
// the same elsewhere. Its address and that of its cell end in the same twelve bits, so
// that one auipc is the way to the cell.
func (fn *function) copied(req Request, in gen.Input, w window) (*Plan, *Refusal) {
	arch, i := fn.text.Arch, in.Displaced[0]
	none := refuse(NoSpringboard, "there is no room for a copy of the patch for %s", fn.name(w.first))
	area, _ := req.Heap.Find(in.Patch)
	if !req.Snippet.IsCounter() || req.Features.Preempt || area.Annex() {
		return nil, none
	}
	near := in
	near.Patch, near.Near = i.Addr&^(page-1)|in.Cell&(page-1), true
	out, err := gen.Patch(arch, near)
	if err != nil || len(out.Code) > maxReplaced {
		return nil, none
	}
	_, lo, hi := gen.HopReach(arch, i.Len)
	n, backLo, backHi := gen.HopReach(arch, maxReplaced)
	back := in.Back - isa.Addr(len(out.Code)-n) // a jump from the copy's begin would lead as far
	reach := place.Window{Lo: i.Addr + isa.Addr(lo), Hi: i.Addr + isa.Addr(hi) + 1}.
		Intersect(place.Window{Lo: back - isa.Addr(backHi), Hi: back - isa.Addr(backLo) + 1})
	idle, err := fn.idle()
	if err != nil {
		return nil, unreadable(err)
	}
	var ok bool
	if w.board, ok = req.Heap.PeekBoard(len(out.Code), cellLen, idle, reach, req.untouched); !ok {
		var r *Refusal
		if w.board, w.in, r = fn.room(req, in, reach, len(out.Code), cellLen); r != nil || w.board == 0 {
			return nil, none
		}
	}
	var moved place.Window
	if w.in != nil {
		moved = place.Window{Lo: w.in.Patch, Hi: w.in.Patch + isa.Addr(w.in.Slot)}
	}
	w.into = w.board % place.Line
	if w.slot, ok = req.Heap.PeekOn(gen.Room(arch, req.Snippet), place.Reach(arch, i.Addr, i.End()), moved, w.board-w.into); !ok {
		return nil, none
	}
	w.whole = true
	return fn.build(req, w)
}

const (
	page    = 4096
	cellLen = 8
)

// entryRegister is a register to jump to a patch through, from instruction at.
func (fn *function) entryRegister(req Request, at int) (isa.Reg, *Refusal) {
	free, err := fn.free(at)
	if err != nil {
		return 0, unreadable(err)
	}
	reads, err := gen.Reads(fn.text.Arch, req.Snippet)
	if err != nil {
		return 0, fromGen(err)
	}
	reg, ok := gen.Register(fn.text.Arch, free&^reads)
	if !ok {
		return 0, refuse(NoDeadRegister, "no register is known to be free before %s, by its %v", fn.name(at), fn.source())
	}
	return reg, nil
}

// exit is what every module calls the function that it is left by.
const exit = "cleanup_module"

// idle is what nothing runs, near the kernel's code or that of a module.
func (fn *function) idle() ([]place.Window, error) {
	if fn.Module == "" {
		lo, hi := fn.text.Gap()
		return []place.Window{{Lo: (lo + 15) &^ 15, Hi: hi}}, nil
	}
	f, err := fn.text.Function(fn.Module, exit)
	if err != nil || f.Addr == fn.Addr || f.Size > maxFunction {
		return nil, nil // it has none, or is not to be left
	}
	code, err := fn.text.Code(f)
	if err != nil {
		return nil, err
	}
	body := place.Window{Lo: f.Addr + isa.Addr(fn.text.FtraceSite(code)), Hi: f.End()}
	if run, ok := fn.text.RunOf(f.Addr); ok { // its end is not known if it is the last
		body.Hi = min(body.Hi, run.Hi)
	}
	m, err := fn.text.Targets(fn.Module)
	if err != nil {
		return nil, err
	}
	if _, called := m.First(f.Addr, body.Lo+1); called { // by the module itself
		return nil, nil
	}
	if _, site, err := fn.text.Site(body.Lo, body.Hi); site || err != nil {
		return nil, err // what the kernel rewrites, or looks up
	}
	return []place.Window{body}, nil
}

// everywhere is no restriction: the heap itself knows what is in dead bytes.
func everywhere(lo, hi isa.Addr) bool { return true }

// room finds where a springboard of n bytes may begin in reach, at a multiple of step: in
// a function that is evicted already, or in the nearest that can be. 0: nowhere.
func (fn *function) room(req Request, in gen.Input, reach place.Window, n, step int) (isa.Addr, *Eviction, *Refusal) {
	for _, e := range req.Heap.Evicted() {
		if a, ok := req.Heap.PeekBoard(n, step, []place.Window{e.Room}, reach, everywhere); ok {
			moved, err := fn.evicted(e)
			if err != nil {
				return 0, nil, unreadable(err)
			}
			return a, moved, nil
		}
	}
	var board isa.Addr
	var moved *Eviction
	var failed error
	var full *Refusal
	patch := place.Window{Lo: in.Patch, Hi: in.Patch + isa.Addr(gen.Room(fn.text.Arch, req.Snippet))} // it takes no more
	err := fn.finder(req).Leaves(in.Back-1, reach.Lo, reach.Hi, func(l pad.Leaf) bool {
		if l.Addr == fn.Addr || !req.untouched(l.Addr, l.End()) || req.Spare != nil && req.Spare(l.Func) {
			return false
		}
		e := place.Evicted{Body: place.Window{Lo: l.Body, Hi: l.End()}, Room: place.Window{Lo: l.Body + riscv64JumpLen, Hi: l.End()}, Slot: int(l.End() - l.Body)}
		a, ok := req.Heap.PeekBoard(n, step, []place.Window{e.Room}, reach, everywhere)
		if !ok {
			return false
		}
		w := place.Reach(fn.text.Arch, l.Body, l.End())
		if e.Patch, _, ok = req.Heap.PeekBeside(e.Slot, w, false, patch); !ok {
			full = refuse(MemoryFull, "to make room for a springboard for %v, %v would be moved away, and patch memory has no %d bytes in one piece for it", in.Displaced[0].Addr, l.Func, e.Slot)
			return false
		}
		if moved, failed = fn.evicted(e); failed != nil {
			return true
		}
		if _, ok := pad.Movable(fn.text.Arch, moved.Code, moved.Body); !ok { // somebody has put a probe there
			return false
		}
		board = a
		return true
	})
	if err = errors.Join(err, failed); err != nil {
		return 0, nil, unreadable(err)
	}
	if board == 0 {
		return 0, nil, full
	}
	return board, moved, nil
}

// finder looks for room in this text.
func (fn *function) finder(req Request) *pad.Finder {
	if req.Padding != nil {
		return req.Padding
	}
	return pad.New(fn.text)
}

// behindFtrace is a register that is free behind a function's ftrace site, by ISA: the
// site links it when the function is traced, and what traces it returns through it.
var behindFtrace = map[string]isa.Reg{"riscv64": 5} // t0: arch/riscv/kernel/mcount-dyn.S

// evicted describes a function that is, or will be, evicted.
func (fn *function) evicted(e place.Evicted) (*Eviction, error) {
	f, ok := fn.text.Locate(e.Body.Lo)
	if !ok {
		return nil, fmt.Errorf("no function is at %v", e.Body.Lo)
	}
	out := &Eviction{Module: f.Module, Symbol: f.Name, Body: e.Body.Lo, Code: make([]byte, e.Body.Size()), Patch: e.Patch, Slot: e.Slot}
	if err := fn.text.Read(e.Body.Lo, out.Code); err != nil {
		return nil, err
	}
	var err error
	out.New, _, err = gen.Entry(fn.text.Arch, out.Body, out.Patch, behindFtrace[fn.text.Arch.Name])
	return out, err
}

// check holds a function to be one that can be evicted, by its bytes, and the board to
// be in what that leaves.
func (e *Eviction) check(arch *isa.Arch, p *Plan) error {
	b, room := p.Board, e.Place().Room
	switch {
	case len(e.New) >= len(e.Code) || len(e.Code) > pad.MaxLeaf || e.End() < e.Body:
		return fmt.Errorf("%d bytes of %s replaced, of %d", len(e.New), e.Symbol, len(e.Code))
	case !room.Holds(b.Addr, len(b.New)):
		return fmt.Errorf("the springboard at %v is not in what %s leaves", b.Addr, e.Symbol)
	case p.Patch < e.Patch+isa.Addr(e.Slot) && e.Patch < p.Patch+isa.Addr(p.Slot):
		return fmt.Errorf("the patch at %v lies on the copy of %s", p.Patch, e.Symbol)
	case uint64(e.Patch)%place.Line != 0 || e.Slot < len(e.Code):
		return fmt.Errorf("the copy of %s at %v, in %d bytes", e.Symbol, e.Patch, e.Slot)
	case string(b.Old) != string(e.Code[b.Addr-e.Body:][:len(b.Old)]):
		return fmt.Errorf("the springboard at %v is not on the bytes of %s", b.Addr, e.Symbol)
	}
	if _, ok := pad.Movable(arch, e.Code, e.Body); !ok {
		return fmt.Errorf("%s is not the same elsewhere", e.Symbol)
	}
	if want, _, err := gen.Entry(arch, e.Body, e.Patch, behindFtrace[arch.Name]); err != nil || string(want) != string(e.New) {
		return fmt.Errorf("the bytes %x at %v do not jump to the copy at %v", e.New, e.Body, e.Patch)
	}
	return nil
}
