package plan

import (
	"bytes"
	"fmt"

	"kerninst/agent/cfg"
	"kerninst/agent/gen"
	"kerninst/agent/isa"
	"kerninst/agent/ktext"
	"kerninst/agent/place"
)

// A pun (amd64), as E9Patch has them: one instruction of two to four bytes is replaced by
// the first bytes of a jmp rel32, of which the bytes behind the instruction are the rest.
// Nothing but the instruction changes. Where the jump leads is given in its upper bytes by
// what is behind; the patch lies in what the lower ones reach of that: 16 MiB for four
// bytes, 64 KiB for three, 256 bytes for two. Prefixes that a jump ignores move the rest by
// as many bytes, and so give other places, with less reach.
//
// It costs what a jump does and waits for nobody. But it takes a page of memory that is
// shared with those only whose jumps lead near, no stack walk knows the patch, and while it
// lives the bytes behind the point are locked. So only patches in reach of 16 MiB go before
// windows (paged), and the others behind all but traps (alone).
//
// What whoever is there meets while it is written is as for a jump (springboard.go): the
// kernel's writer emulates a jump to the patch for whoever hits its breakpoint. The bytes
// behind are compared, under the lock, with what leads to the patch, and nobody else may
// write them from then on: kprobes are barred, sites that the kernel rewrites are refused
// here and in the module, and no splice touches them. Who jumps to the next instruction
// finds it as it was.

// mostPunned is the longest instruction of which a jump is punned, in bytes.
const mostPunned = amd64JumpLen - 1

// paged puns a jump that leads to 16 MiB of which many points share pages.
func (fn *function) paged(req Request, at int) (*Plan, *Refusal) {
	if n := fn.insns[at].Len; n != mostPunned {
		return nil, refuse(TooShort, "%s is %d bytes, and a punned jump of which many share pages takes %d", fn.place(at), n, mostPunned)
	}
	return fn.punned(req, at, 0)
}

// alone puns a jump wherever it leads, with the fewest prefixes.
func (fn *function) alone(req Request, at int) (*Plan, *Refusal) {
	n := fn.insns[at].Len
	if n < 2 || n > mostPunned {
		return nil, refuse(TooShort, "%s is %d bytes, and jumps of 2 to %d are punned", fn.place(at), n, mostPunned)
	}
	var first *Refusal
	for prefixes := range n - 1 {
		p, r := fn.punned(req, at, prefixes)
		if r == nil {
			return p, nil
		}
		if first == nil {
			first = r
		}
	}
	return nil, first
}

// punned puns a jump with so many prefixes.
func (fn *function) punned(req Request, at, prefixes int) (*Plan, *Refusal) {
	i := fn.insns[at]
	w := window{mechanism: Pun, first: at, count: 1, replaced: i.Len, prefixes: prefixes}
	r := fn.mayPun(req, w)
	if r != nil {
		return nil, r
	}
	if w.tail, r = fn.behind(req, at, i.Addr+isa.Addr(gen.PunLen(prefixes))); r != nil {
		return nil, r
	}
	return fn.led(req, w)
}

// mayPun says why an instruction is not replaced by a jump to a page.
func (fn *function) mayPun(req Request, w window) *Refusal {
	faults, r := fn.faulting(w)
	switch {
	case r != nil:
		return r
	case faults:
		return refuse(MayFault, "%s has an exception-table entry, and what a punned jump leads to has none", fn.name(w.first))
	case fn.called(req, w.first):
		return refuse(NoSpringboard, "%s is made a call, and who walks up a stack to a page of patches does not know the way on from there", fn.name(w.first))
	case req.Heap == nil:
		return refuse(OutOfReach, "there is no patch memory")
	}
	return nil
}

// led plans the patch where a window's jump leads, which its tail says.
func (fn *function) led(req Request, w window) (*Plan, *Refusal) {
	lo, hi := gen.PunReach(fn.insns[w.first].Addr, w.prefixes, w.tail)
	for range mostPages {
		var ok bool
		if w.slot, w.page, ok = req.Heap.PeekPage(gen.Room(fn.text.Arch, req.Snippet), place.Window{Lo: lo, Hi: hi}); !ok {
			break
		}
		if fn.makePage(req, w) == nil {
			return fn.build(req, w)
		}
	}
	return nil, refuse(OutOfReach, "the bytes %x behind %s make a jump lead to %v up to %v, where no page of memory is to be had", w.tail, fn.name(w.first), lo, hi-1)
}

// mostPages is how many pages are asked for until the kernel has one.
const mostPages = 8

// makePage makes a window's page, if the patch is to be there. Who only asks, and who is
// refused, makes none.
func (fn *function) makePage(req Request, w window) error {
	if req.Dry {
		return nil
	}
	req.Dry = true
	if _, r := fn.build(req, w); r != nil {
		return nil
	}
	return req.Heap.MakePage(w.page)
}

// behind is the bytes from behind an instruction up to end, which must stay what they are.
func (fn *function) behind(req Request, at int, end isa.Addr) ([]byte, *Refusal) {
	lo := fn.insns[at].End()
	switch why := fn.rewritten(at+1, end); {
	case req.Taken != nil && req.Taken(lo, end):
		return nil, refuse(AlreadySpliced, "the jump at %s would end in bytes of a live splice", fn.name(at))
	case req.Wanted != nil && req.Wanted(lo, end):
		return nil, refuse(AlreadySpliced, "the jump at %s would end in bytes of a point that is asked for, too", fn.name(at))
	case why != "":
		return nil, refuse(OutOfReach, "the jump at %s would end in bytes that may change: %s", fn.name(at), why)
	}
	tail := make([]byte, end-lo)
	if err := fn.text.Read(lo, tail); err != nil {
		return nil, unreadable(err)
	}
	return tail, nil
}

// atRunTime are the classes of reserved text that the kernel rewrites while it runs.
var atRunTime = map[string]bool{
	ktext.StaticKey.String(): true, ktext.StaticCall.String(): true, ktext.Ftrace.String(): true, lockPrefix: true,
}

// rewritten says which of the bytes from instruction k on, up to end, the kernel may
// rewrite. Behind the function's end only padding is taken for what it never does.
func (fn *function) rewritten(k int, end isa.Addr) string {
	for ; fn.has(k) && fn.insns[k].Addr < end; k++ {
		if r := fn.displaceable(k); r != nil && atRunTime[r.Class] {
			return r.Detail
		}
	}
	if last := fn.insns[len(fn.insns)-1].End(); last < min(end, fn.End()) {
		return fmt.Sprintf("what is at %v is not understood", last)
	}
	if f, ok := fn.text.Locate(end - 1); end > fn.End() && ok && f.Addr >= fn.End() && f.Size > 0 && !cfg.IsPaddingName(f.Name) {
		return fmt.Sprintf("%v begins there", f)
	}
	return ""
}

// checkPun holds what is written, with what is behind it, to be a jump to the patch, and
// what is behind to be all that is not written of it.
func (p *Plan) checkPun(arch *isa.Arch) error {
	if (len(p.Tail) > 0) != (p.Mechanism == Pun) || p.Next != nil && p.Mechanism != Pun {
		return fmt.Errorf("%d bytes complete the jump, but the mechanism is %v", len(p.Tail), p.Mechanism)
	}
	if p.Mechanism != Pun {
		return nil
	}
	if len(p.Displaced) != 1 || len(p.New) != p.Displaced[0].Len || p.Fault != 0 {
		return fmt.Errorf("a punned jump over %d bytes of %d instructions", len(p.New), len(p.Displaced))
	}
	if err := p.checkNext(arch); err != nil {
		return err
	}
	want, err := gen.Pun(p.Point, p.Patch, len(p.New)+len(p.Tail)-gen.PunLen(0), p.Tail)
	if err != nil || !bytes.Equal(want, p.New) {
		return fmt.Errorf("the bytes %x at %v, with %x behind them, are no jump to %v: %v", p.New, p.Point, p.Tail, p.Patch, err)
	}
	return nil
}
