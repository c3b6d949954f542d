package plan

import (
	"kerninst/agent/gen"
	"kerninst/agent/isa"
	"kerninst/agent/ktext"
)

// Entry plans a splice that each call of a function comes to exactly once: on the way
// straight in, before anything branches off, calls or comes back. There it takes the
// point and the mechanism by which the patch adds the fewest instructions, the best
// mechanism and the first point of those. When all are refused, the refusal is that of
// most of them.
func Entry(text *ktext.Text, req Request) (*Plan, *Refusal) {
	fn, r := req.Known.function(text, req.Module, req.Function)
	if r != nil {
		return nil, r
	}
	var why refusals
	var best Request
	last, err := fn.straight(req.Known)
	if err != nil {
		return nil, unreadable(err)
	}
	least := -1
	fewest := fn.fewest(req)
	for k, m := range mechanisms[text.Arch.Name] {
		if !req.allows(m.m) || m.m == Trap && least >= 0 {
			continue
		}
		next := req
		next.Mechanism, next.rung = m.m, k+1
		// Who has another way in moves no instruction away for a pun: who comes by that takes two
		// instructions more, and to look for where it may go takes longest of all.
		next.Still = next.Still || m.m == Pun && least >= 0
		off, added, all := fn.leastAdded(next, last, least, fewest)
		switch {
		case added < 0:
			why = append(why, all...)
		default:
			best, least = next, added
			best.Offset = off
		}
	}
	if least >= 0 {
		return fn.plan(best)
	}
	r = why.usual()
	if r == nil {
		return nil, refuse(OutsideFunction, "%v: no instruction by that mechanism", fn.Func)
	}
	return nil, refuse(r.Reason, "of the %d instructions before %v branches or calls none can be had, most because: %s", last, fn.Func, r.Detail)
}

type refusals []*Refusal

// usual is the first with the reason that most have: what is wrong with what is asked for is
// wrong everywhere. That an instruction is too short is the mechanism's trouble, and is the reason
// if there is no other. Nil: there is none.
func (all refusals) usual() (out *Refusal) {
	times, most := map[Reason]int{}, 0
	for _, r := range all {
		times[r.Reason]++
	}
	for _, r := range all {
		n := times[r.Reason]
		if r.Reason == TooShort {
			n = 0
		}
		if out == nil || n > most {
			out, most = r, n
		}
	}
	return out
}

// Straight is the offset up to which each call of a function executes each instruction
// exactly once; 0 if that is not known, or there is no such.
func (k *Functions) Straight(text *ktext.Text, module, name string) isa.Off {
	fn, r := k.function(text, module, name)
	if r != nil {
		return 0
	}
	n, err := fn.straight(k)
	if n == 0 || err != nil {
		return 0
	}
	return isa.Off(fn.insns[n-1].End() - fn.Addr)
}

// Exclusive reports whether an instruction is a load-exclusive, its store or between them, where a trap has the store fail
// each time, and so a loop around them not end.
func (k *Functions) Exclusive(text *ktext.Text, module, name string, off isa.Off) bool {
	fn, r := k.function(text, module, name)
	if r != nil {
		return false
	}
	for n := 0; fn.has(n) && fn.off(n) <= off; n++ {
		if fn.off(n) == off {
			return fn.memo[n].exclusive
		}
	}
	return false
}

// straight is how many instructions each call executes exactly once that whoever traces the function lets in, from the
// first: to the first that does anything but fall through, or may fault and go on elsewhere, itself included; and to before one that
// a jump of either half leads to, or that is behind the site of a static key, which may become a jump.
func (fn *function) straight(known *Functions) (int, error) {
	leads, err := fn.leaders(known)
	if err != nil {
		return 0, err
	}
	faults, err := fn.text.Faults(fn.Module, fn.Addr, fn.End())
	if err != nil {
		return 0, err
	}
	ends := map[isa.Addr]bool{}
	for _, f := range faults {
		ends[f.Site] = true
	}
	for k, i := range fn.whole() {
		switch {
		case leads[i.Addr]:
			return k, nil
		case ends[i.Addr]:
			return k + 1, nil
		case i.Flow != isa.FlowNone && !(fn.traceable && fn.off(k) < fn.ftrace): // who traces comes back
			return k + 1, nil
		}
	}
	return len(fn.insns), nil
}

// leastAdded is the first of those of so many instructions whose patch adds the least, if that is
// less than limit (-1: any), and how much that is; -1, and why those were refused that were tried, if
// there is none. It takes no slot.
func (fn *function) leastAdded(req Request, of, limit int, fewest func(k int) int) (at isa.Off, least int, why refusals) {
	req.Dry = true
	least = -1
	for k := range of {
		if req.Offset = fn.off(k); req.Offset < fn.sealed { // who jumps behind a landing pad calls, too
			continue
		}
		if limit >= 0 && fewest(k) >= limit {
			continue
		}
		p, r := fn.plan(req)
		switch {
		case r != nil:
			why = append(why, r)
		case limit < 0 || p.Added < limit:
			at, least, limit = req.Offset, p.Added, p.Added
		}
	}
	if limit < 0 && len(why) == 0 { // a jump leads to the first instruction
		why = refusals{refuse(TargetInWindow, "a jump leads to where %v starts", fn.Func)}
	}
	return at, least, why
}

// fewest tells how many instructions a patch adds at instruction k at least, whichever the
// mechanism: one jump leads to it, it does what is asked, and one jump leads back, unless it is of
// several instructions and the last of them is not left behind it. To know that takes a small part
// of what it takes to look for room for the jumps. On riscv64 nothing is known: the way back takes
// a register, which may be free behind several instructions and not behind the first.
func (fn *function) fewest(req Request) func(k int) int {
	known := map[int]int{}
	return func(k int) int {
		n, ok := known[k]
		if !ok {
			n = fn.fewestAt(req, k)
			known[k] = n
		}
		return n
	}
}

func (fn *function) fewestAt(req Request, k int) int {
	if fn.text.Arch.Far != nil {
		return 0
	}
	req.counts()
	in, r := fn.input(req, window{mechanism: Jump, first: k, count: 1})
	if r != nil {
		return 0 // elsewhere there may be a slot
	}
	out, err := gen.Patch(fn.text.Arch, in)
	if err != nil {
		return 0
	}
	n := 1 + out.Added
	for next := k + 1; fn.has(next) && fn.off(next)-fn.off(k) < isa.Off(farJumpLen[fn.text.Arch.Name]); next++ {
		if fn.insns[next].Flow.Ends() {
			return n - 1
		}
	}
	return n
}
