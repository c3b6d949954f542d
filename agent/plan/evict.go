package plan

import (
	"bytes"
	"errors"
	"fmt"

	"kerninst/agent/gen"
	"kerninst/agent/isa"
	"kerninst/agent/ktext"
	"kerninst/agent/pad"
	"kerninst/agent/place"
)

// Springboards in evicted functions (riscv64). One instruction is replaced by one jal,
// or one of two bytes by one c.j, to a springboard: auipc and jalr, through a register
// that is free at the point, or for a counter a copy of its patch, which ends in a jal back
// and takes three instructions less. Functions have no padding there, so the springboard lies
// where code was that can run as a copy: a function (pad.Leaf), behind whose ftrace site a
// jump to the copy is written, or, where none is in reach, a stretch of some function that
// control goes through in a straight line (stretch.go), whose copy ends in a jump back. What
// is behind the jump to the copy is nobody's.
//
// Written are the copy and the patch, then, each inside a stop_machine, the jump to the
// copy, the springboard, the point, in this order; undone in reverse. Without kernel
// preemption (others are refused) a task gives its CPU up only where it calls
// schedule(), and who meets what is
//
//   - Another CPU, while any of it is written: stopped, with its interrupts off, in the
//     module. It has left the function, or the stretch: those call nothing.
//   - An interrupt: none is half handled on a CPU that has stopped. One that comes on
//     the springboard, or in the copy, goes on there, and both are there as long as any
//     CPU has not stopped since the last way to them was taken away.
//   - A sleeping task: in none of the three. The function has no call, and no access
//     whose fault is waited for; nor has a stretch; nor has a copy of a patch, which sets ra
//     and jumps where the point has a call. One that sleeps in the stretch's own function
//     comes back behind a call or to what may fault, and neither is in a stretch but at its
//     begin; one that sleeps in a patch that was undone comes back a window's length behind
//     what may fault at most, and no stretch begins as near behind such.
//   - A fault in the copy: as in the function, whose faults nobody expects: an oops,
//     which names an address in the copy.
//   - A backtrace from an interrupt in the copy: as from one in a patch. The function
//     has no frame of its own, so its caller is where ra says. From one in a springboard
//     likewise, under the name of the function that was there: a copy of a patch saves
//     nothing, so frames are as at the point. In the copy of a stretch the stack, ra and
//     the frame pointer are what they are in the stretch: only addresses differ.
//   - ftrace: its site stays where it is and leads to the jump; none is in a stretch. A
//     kprobe, now or later: not in the function, or stretch, while it lives; the module bars
//     it, and refuses to evict any of a function in which there is one.
//   - A live patch of the stretch's function: who is in it goes on there; who enters it
//     goes elsewhere, as always.
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
	return fn.makeRoom(req, in, w, want{reach, riscv64JumpLen, fn.text.Arch.MinLen}, (*function).room, (*function).pieces)
}

// makeRoom plans a springboard in code that is moved away for it: what the first that finds
// any has found.
func (fn *function) makeRoom(req Request, in gen.Input, w window, of want, finders ...func(*function, Request, gen.Input, want) (isa.Addr, *Eviction, *Refusal)) (*Plan, *Refusal) {
	if req.Features.NoWindows {
		return nil, refuse(UnsupportedMechanism, "the kernel can be preempted inside what makes room for a springboard")
	}
	for _, find := range finders {
		var r *Refusal
		if w.board, w.in, r = find(fn, req, in, of); r != nil {
			return nil, r
		}
		if w.board != 0 {
			return fn.build(req, w)
		}
	}
	i := fn.insns[w.first]
	return nil, refuse(NoSpringboard, "%s is %d bytes, and no function or stretch of one within %d bytes can be moved away to make room for another springboard",
		fn.name(w.first), i.Len, of.reach.Hi-1-i.Addr)
}

// copied replaces one instruction by a jump to a copy of the patch: one jump there and one
// back, through no register. A copy is that of a counter and of an instruction that is
// the same elsewhere. Its address and that of its cell end in the same twelve bits, so
// that one auipc is the way to the cell.
func (fn *function) copied(req Request, in gen.Input, w window) (*Plan, *Refusal) {
	arch, i := fn.text.Arch, in.Displaced[0]
	none := refuse(NoSpringboard, "there is no room for a copy of the patch for %s", fn.name(w.first))
	area, _ := req.Heap.Find(in.Patch)
	if !req.Snippet.IsCounter() || req.Features.NoWindows || area.Annex() {
		return nil, none
	}
	near := in
	near.Patch, near.Near = i.Addr&^(page-1)|in.Cell&(page-1), true
	out, err := gen.Patch(arch, near)
	if err != nil || len(out.Code) > longestCopy {
		return nil, none
	}
	_, lo, hi := gen.HopReach(arch, i.Len)
	n, backLo, backHi := gen.HopReach(arch, longestCopy)
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
		if w.board, w.in, r = fn.room(req, in, want{reach, len(out.Code), cellLen}); r != nil || w.board == 0 {
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
	body := place.Window{Lo: f.Addr + isa.Addr(fn.text.FtraceSite(f.Addr, code)), Hi: f.End()}
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

// want is what is wanted of a springboard: where it may begin, how many bytes it has, and
// of what its address is a multiple.
type want struct {
	reach   place.Window
	n, step int
}

// in finds the lowest board in a gap that is as wanted.
func (w want) in(h *place.Heap, gap place.Window) (isa.Addr, bool) {
	return h.PeekBoard(w.n, w.step, []place.Window{gap}, w.reach, everywhere)
}

// room finds where a springboard may begin: in a function that is evicted already, or in
// the nearest that can be. 0: nowhere.
func (fn *function) room(req Request, in gen.Input, w want) (isa.Addr, *Eviction, *Refusal) {
	for e := range req.Heap.RoomIn(w.reach, w.n) {
		if e.Stretch {
			continue
		}
		if a, ok := w.in(req.Heap, e.Room); ok {
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
	err := fn.finder(req).Leaves(in.Back-1, w.reach.Lo, w.reach.Hi, req.spent(), func(l pad.Leaf) (found, spent bool) {
		e := place.Evicted{Body: place.Window{Lo: l.Body, Hi: l.End()}, Room: place.Window{Lo: l.Body + riscv64JumpLen, Hi: l.End()}, Slot: int(l.End() - l.Body), Out: behindFtrace[fn.text.Arch.Name]}
		if !req.Heap.Stays(e.Body) || req.spared(l.Func, l.Addr, l.End()) || !req.untouched(l.Addr, l.End()) {
			return false, true
		}
		a, ok := w.in(req.Heap, e.Room)
		if !ok || l.Addr == fn.Addr {
			return false, false
		}
		if e.Patch, full = fn.copyOf(req, in, e, l.String()); full != nil {
			return false, false
		}
		if moved, failed = fn.evicted(e); failed != nil {
			return true, false
		}
		if _, ok := pad.Movable(fn.text.Arch, moved.Code, moved.Body); !ok { // somebody has put a probe there
			return false, false
		}
		board = a
		return true, false
	})
	if err = errors.Join(err, failed); err != nil {
		return 0, nil, unreadable(err)
	}
	if board == 0 {
		return 0, nil, full
	}
	return board, moved, nil
}

// copyOf finds patch memory for the copy of what is evicted, beside the point's own.
func (fn *function) copyOf(req Request, in gen.Input, e place.Evicted, name string) (isa.Addr, *Refusal) {
	patch := place.Window{Lo: in.Patch, Hi: in.Patch + isa.Addr(req.room(fn.text.Arch))} // it takes no more
	a, _, ok := req.Heap.PeekBeside(e.Slot, place.Reach(fn.text.Arch, e.Body.Lo, e.Body.Hi), false, patch)
	if !ok {
		return 0, refuse(MemoryFull, "to make room for a springboard for %v, %s would be moved away, and patch memory has no %d bytes in one piece for it", in.Displaced[0].Addr, name, e.Slot)
	}
	return a, nil
}

// spent are the functions that are no room for the points of a batch any more, nil: nobody keeps
// them. In a dense batch most are not.
func (req Request) spent() pad.Spent {
	if req.Known == nil || req.Still {
		return nil
	}
	if req.Known.spent == nil {
		req.Known.spent = pad.Spent{}
	}
	return req.Known.spent
}

// spared reports whether [lo, hi) of a function should not be evicted.
func (req Request) spared(f ktext.Func, lo, hi isa.Addr) bool {
	return req.Still || req.Spare != nil && req.Spare(f, lo, hi)
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

// evicted describes what is, or will be, evicted.
func (fn *function) evicted(e place.Evicted) (*Eviction, error) {
	f, ok := fn.text.Locate(e.Body.Lo)
	if !ok {
		return nil, fmt.Errorf("no function is at %v", e.Body.Lo)
	}
	out := &Eviction{Module: f.Module, Symbol: f.Name, Body: e.Body.Lo, Code: make([]byte, e.Body.Size()), Patch: e.Patch, Slot: e.Slot, Stretch: e.Stretch, Out: e.Out, Back: e.Back}
	if err := fn.text.Read(e.Body.Lo, out.Code); err != nil {
		return nil, err
	}
	var err error
	if out.New, _, err = gen.Entry(fn.text.Arch, out.Body, out.Patch, e.Out); err != nil {
		return nil, err
	}
	if !e.Stretch {
		out.Copy = clone(out.Code)
		return out, nil
	}
	out.Offset = isa.Off(e.Body.Lo - f.Addr)
	out.Copy, out.States, err = moveStretch(fn.text.Arch, out.Code, out.Body, out.Patch, out.Back)
	return out, err
}

// check holds what is evicted to be what can be, by its bytes, and the board to be in
// what that leaves.
func (e *Eviction) check(arch *isa.Arch, p *Plan) error {
	b, room := p.Board, e.Place().Room
	switch {
	case e.Alone || len(e.New) >= len(e.Code) || len(e.Code) > pad.MaxLeaf || e.End() < e.Body:
		return fmt.Errorf("%d bytes of %s replaced, of %d", len(e.New), e.Name(), len(e.Code))
	case !room.Holds(b.Addr, len(b.New)):
		return fmt.Errorf("the springboard at %v is not in what %s leaves", b.Addr, e.Name())
	case p.Patch < e.Patch+isa.Addr(e.Slot) && e.Patch < p.Patch+isa.Addr(p.Slot):
		return fmt.Errorf("the patch at %v lies on the copy of %s", p.Patch, e.Name())
	case uint64(e.Patch)%place.Line != 0 || e.Slot < len(e.Copy) || len(e.Copy) < len(e.Code): // the module wants no shorter one
		return fmt.Errorf("the copy of %s at %v, in %d bytes", e.Name(), e.Patch, e.Slot)
	case string(b.Old) != string(e.Code[b.Addr-e.Body:][:len(b.Old)]):
		return fmt.Errorf("the springboard at %v is not on the bytes of %s", b.Addr, e.Name())
	}
	if e.Stretch {
		return e.checkStretch(arch)
	}
	return e.checkLeaf(arch)
}

// checkLeaf holds a function to be one that does the same elsewhere.
func (e *Eviction) checkLeaf(arch *isa.Arch) error {
	if _, ok := pad.Movable(arch, e.Code, e.Body); !ok || !bytes.Equal(e.Copy, e.Code) || len(e.Free) != 0 || e.Offset != 0 || e.Back != 0 || len(e.States) != 0 {
		return fmt.Errorf("%s is not the same elsewhere", e.Symbol)
	}
	if want, _, err := gen.Entry(arch, e.Body, e.Patch, behindFtrace[arch.Name]); err != nil || string(want) != string(e.New) || e.Out != behindFtrace[arch.Name] {
		return fmt.Errorf("the bytes %x at %v do not jump to the copy at %v", e.New, e.Body, e.Patch)
	}
	return nil
}
