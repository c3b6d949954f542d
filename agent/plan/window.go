package plan

import (
	"fmt"

	"kerninst/agent/isa"
	"kerninst/agent/place"
)

// Windows (amd64, riscv64). What a far jump takes is more than one instruction: all that
// it overlaps run in the patch instead, and nobody may be between two of them when it is
// written, nor come there while it stands. The conditions are djprobe's (its paper's
// section on safety), over all code there is and not the function alone:
//
//   - No jump leads inside: not from any code of the kernel (ktext.Targets), nor by a
//     short jump from what lies near, nor by one through a register in the function. A
//     kernel's text has no others: Linux's own optimised probes look at the function
//     that has the symbol only, and not at its cold half.
//   - No fault resumes inside: ktext.Targets has those places.
//   - Nobody sleeps inside: a call is the last of the window, so that it returns behind
//     it, and what may wait for a page is the first.
//   - Nothing of it is rewritten by the kernel: each is displaceable by itself.
//   - Nobody is inside by chance: the module sees to that (guest/module/stopped.c,
//     guest/module/arch/amd64/divert.c).

// farJumpLen is what a jump to anywhere takes, in bytes: of amd64 jmp rel32, of riscv64
// auipc and jalr.
var farJumpLen = map[string]int{"amd64": amd64JumpLen, "riscv64": riscv64JumpLen}

const (
	amd64JumpLen   = 5
	riscv64JumpLen = 8
)

// quiesced replaces all instructions that overlap the bytes of a far jump. Nothing may
// enter the window anywhere but at its start. Where none that begins at the point is
// possible, one that begins before it may be: whoever comes to the point has then come
// through the window's start.
func (fn *function) quiesced(req Request, at int) (*Plan, *Refusal) {
	if req.Features.NoWindows {
		return nil, refuse(UnsupportedMechanism, "the kernel can be preempted inside a window")
	}
	if r := fn.waited(); r != nil {
		return nil, r
	}
	p, first := fn.quiescedFrom(req, at, 0)
	for lead := 1; p == nil && fn.leadsTo(at, lead); lead++ {
		p, _ = fn.quiescedFrom(req, at, lead)
	}
	if p != nil {
		return p, nil
	}
	return nil, first
}

// leadsTo reports whether a window may begin as many instructions before one: each is
// followed by the next whenever it runs, and some of the far jump's bytes are left for
// the point itself.
func (fn *function) leadsTo(at, lead int) bool {
	k := at - lead
	return k >= 0 && fn.insns[k].Flow == isa.FlowNone && int(fn.off(at)-fn.off(k)) < farJumpLen[fn.text.Arch.Name] && fn.displaceable(k) == nil
}

// quiescedFrom plans a window that begins as many instructions before the point.
func (fn *function) quiescedFrom(req Request, at, lead int) (*Plan, *Refusal) {
	start, far := at-lead, farJumpLen[fn.text.Arch.Name]
	w := window{mechanism: Quiesced, first: start, lead: lead, replaced: far}
	for n := 0; n < far; w.count++ {
		k := start + w.count
		if !fn.has(k) {
			return nil, refuse(TooShort, "only %d bytes are left in %v, a window needs %d", n, fn.Func, far)
		}
		if r := fn.displaceable(k); r != nil {
			return nil, &Refusal{Reason: r.Reason, Class: r.Class, Detail: fmt.Sprintf("window from +%#x: %s", fn.off(start), r.Detail)}
		}
		n += fn.insns[k].Len
		if n < far && n+fn.filler(k) >= far {
			n = far
		}
		if fn.insns[k].Flow.Ends() && n < far {
			return nil, refuse(TooShort, "%s ends the window from +%#x after %d bytes of %d", fn.name(k), fn.off(start), n, far)
		}
	}
	if w.count == 1 {
		return nil, refuse(UnsupportedMechanism, "%s has room for a jump: nothing has to be waited for", fn.name(start))
	}
	if r := fn.closed(w); r != nil {
		return nil, r
	}
	if r := fn.spares(req, w); r != nil {
		return nil, r
	}
	if fn.text.Arch.Far != nil {
		var r *Refusal
		if w.entry, r = fn.entryRegister(req, start); r != nil {
			return nil, r
		}
	}
	return fn.build(req, w)
}

// filler is how many bytes behind instruction k are traps that nothing runs, whatever leads
// there: a return owns them, as they stop a CPU that guesses past it (amd64, and the
// kernel writes as many as a jump to its return thunk would take).
func (fn *function) filler(k int) int {
	if fn.insns[k].Flow != isa.FlowReturn {
		return 0
	}
	return traps(fn.text.Arch, fn.code[int(fn.off(k))+fn.insns[k].Len:])
}

// traps is how many bytes at the begin of code are traps of one byte.
func traps(arch *isa.Arch, code []byte) int {
	trap := arch.Trap
	if len(trap) != 1 {
		return 0
	}
	n := 0
	for n < len(code) && code[n] == trap[0] {
		n++
	}
	return n
}

// closed reports why control may enter a window anywhere but at its start.
func (fn *function) closed(w window) *Refusal {
	lo, hi := fn.insns[w.first].Addr, fn.insns[w.first+w.count-1].End()
	if name, k := fn.indirectJump(); k >= 0 {
		return refuse(IndirectJump, "%s jumps indirectly at +%#x: where to is not known", name, k)
	}
	a, ok, err := fn.ledInto(lo+1, hi)
	if err != nil {
		return unreadable(err)
	}
	if ok {
		return refuse(TargetInWindow, "something may jump to %v+%#x, inside the window from +%#x",
			fn.Func, isa.Off(a-fn.Addr), fn.off(w.first))
	}
	return nil
}

// spares refuses a window in which another point lies that is asked for and has no plan yet:
// that one may have nothing else than its own instruction, and a window may lie elsewhere.
func (fn *function) spares(req Request, w window) *Refusal {
	if req.Wanted == nil {
		return nil
	}
	own := fn.Addr + isa.Addr(req.Offset)
	for k := w.first; k < w.first+w.count; k++ {
		if i := fn.insns[k]; i.Addr != own && req.Wanted(i.Addr, i.End()) {
			return refuse(AlreadySpliced, "the window from %s would displace a point that is asked for, too", fn.place(w.first))
		}
	}
	return nil
}

// ledInto finds an address in [lo, hi) that control may come to but from the instruction
// before.
func (fn *function) ledInto(lo, hi isa.Addr) (isa.Addr, bool, error) {
	m, err := fn.text.Targets(fn.Module)
	if err != nil {
		return 0, false, err
	}
	if a, ok := m.First(lo, hi); ok {
		return a, true, nil
	}
	if a, ok := fn.ledTo(lo, hi); ok {
		return a, true, nil
	}
	return fn.shortJump(lo, hi)
}

// shortReach is how far the begin of a short jump and its target may be apart, in bytes.
const shortReach = 130

// shortJump finds an address in [lo, hi) of the function that a short jump may lead to,
// where ktext.Targets leaves those out: one of the function itself, or of what lies near.
func (fn *function) shortJump(lo, hi isa.Addr) (isa.Addr, bool, error) {
	scan := fn.text.Arch.ScanShort
	if scan == nil {
		return 0, false, nil
	}
	if a, ok := fn.ownTargets().First(lo, hi); ok {
		return a, true, nil
	}
	run, ok := fn.text.RunOf(fn.Addr)
	if !ok {
		return lo, true, nil
	}
	for _, w := range []place.Window{{Lo: max(lo-shortReach, run.Lo), Hi: fn.Addr}, {Lo: fn.End(), Hi: min(hi+shortReach, run.Hi)}} {
		if w.Empty() {
			continue
		}
		b := make([]byte, w.Size())
		if err := fn.text.Read(w.Lo, b); err != nil {
			return 0, false, err
		}
		m := isa.NewMarks(lo, hi, 1)
		if scan(b, w.Lo, m); m.Count() == 0 {
			continue
		}
		if a, ok := fn.jumpedFrom(w, lo, hi); ok {
			return a, true, nil
		}
	}
	return 0, false, nil
}

// ownTargets are those of the function's own jumps, and, behind what did not decode, of
// whatever may be one.
func (fn *function) ownTargets() *isa.Marks {
	if fn.own != nil {
		return fn.own
	}
	fn.own = isa.NewMarks(fn.Addr, fn.End(), 1)
	for k, i := range fn.whole() {
		if k == fn.lost {
			fn.text.Arch.ScanShort(fn.code[fn.off(k):], i.Addr, fn.own)
		}
		if i.Flow == isa.FlowJump || i.Flow == isa.FlowCond || i.Flow == isa.FlowCall {
			fn.own.Add(i.Target)
		}
	}
	return fn.own
}

// jumpedFrom decodes what lies near, in w, for an instruction that leads to [lo, hi).
func (fn *function) jumpedFrom(w place.Window, lo, hi isa.Addr) (isa.Addr, bool) {
	for a := w.Lo; a < w.Hi; {
		f, ok := fn.text.Locate(a)
		if !ok {
			return lo, true
		}
		near, r := decode(fn.text, f)
		if r != nil || near.lostAny() {
			return lo, true
		}
		for _, i := range near.insns {
			if i.Target >= lo && i.Target < hi && i.Flow != isa.FlowNone {
				return i.Target, true
			}
		}
		a = f.End()
	}
	return 0, false
}
