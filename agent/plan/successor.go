package plan

import (
	"bytes"
	"fmt"

	"kerninst/agent/gen"
	"kerninst/agent/isa"
	"kerninst/agent/place"
)

// Successor eviction (amd64), as E9Patch has it: where no page of memory is to be had where
// a punned jump leads, the instruction behind the point is moved away first, and a jump to
// its copy stands in its place. That jump's bytes complete the pun, and what they are is
// for us to choose: the copy may lie at many places, and each gives the pun others to lead to.
//
// Both are jumps over one instruction, so nobody is waited for. In a batch the successor's
// is written first: until the point's is there, too, who comes by the point runs it and then
// the copy of what is behind it. Undone, the point goes first. Who is in the patch goes on
// at the successor, where either its jump is or, when all is undone, itself; who is in the
// copy goes on behind it. Nobody sleeps in either, and who was preempted there is waited for
// before the memory is somebody else's.
//
// Whoever comes by the successor executes two instructions more, also by itself, so it is
// tried last of all that takes no trap.

// mostTails is how many places for a successor's copy are tried: the pun of two bytes can
// lead to as many.
const mostTails = 1 << 10

// successor puns a jump that is completed by the jump to where the next instruction went.
func (fn *function) successor(req Request, at int) (*Plan, *Refusal) {
	i := fn.insns[at]
	if i.Len < 2 || i.Len > mostPunned {
		return nil, refuse(TooShort, "%s is %d bytes, and jumps of 2 to %d are punned", fn.place(at), i.Len, mostPunned)
	}
	w := window{mechanism: Pun, first: at, count: 1, replaced: i.Len}
	if r := fn.mayPun(req, w); r != nil {
		return nil, r
	}
	if req.Still {
		return nil, refuse(NoSpringboard, "what is behind %s is to stay where it is", fn.place(at))
	}
	e, r := fn.movable(req, at+1)
	if r != nil {
		return nil, r
	}
	seen := map[string]bool{}
	tried := 0
	for e.Patch = range req.Heap.Slots(e.Slot, place.Reach(fn.text.Arch, e.Body.Lo, e.Body.Hi)) {
		if tried++; tried > mostTails {
			break
		}
		to, err := fn.evicted(e)
		if err != nil {
			return nil, unreadable(err)
		}
		to.Alone, to.Free = true, make([]isa.RegSet, 2) // a jump takes no register
		to.New = append(to.New, filling(fn.text.Arch, len(to.New), len(to.Code))...)
		tail := to.New[:gen.PunLen(0)-i.Len]
		if seen[string(tail)] {
			continue
		}
		seen[string(tail)], w.tail, w.next = true, tail, to
		if p, r := fn.led(req, w); r == nil || r.Reason != OutOfReach {
			return p, r
		}
	}
	return nil, refuse(OutOfReach, "%s can be moved to %d places, and none makes a jump at %s lead to where a page of memory is to be had", fn.name(at+1), len(seen), fn.name(at))
}

// movable is the place of instruction k as one that is moved away alone, if it can be. It is
// not asked whether it is spared: the point before it may displace it just as well.
func (fn *function) movable(req Request, k int) (e place.Evicted, _ *Refusal) {
	if !fn.has(k) {
		return e, refuse(TooShort, "no instruction that could be moved away is behind %s", fn.name(k-1))
	}
	i := fn.insns[k]
	e = place.Evicted{Body: place.Window{Lo: i.Addr, Hi: i.End()}, Stretch: true}
	ok, err := fn.evictable(k)
	switch {
	case err != nil:
		return e, unreadable(err)
	case i.Len < amd64JumpLen:
		return e, refuse(TooShort, "%s is %d bytes, a jump to where it would be moved needs %d", fn.place(k), i.Len, amd64JumpLen)
	case !ok:
		return e, refuse(UnsupportedMechanism, "%s cannot be moved away", fn.name(k))
	case !req.Heap.Stays(e.Body) || !req.untouched(e.Body.Lo, e.Body.Hi):
		return e, refuse(AlreadySpliced, "%s, which would be moved away, overlaps a live splice", fn.name(k))
	case req.Wanted != nil && req.Wanted(e.Body.Lo, e.Body.Hi):
		return e, refuse(AlreadySpliced, "%s, which would be moved away, is asked for, too", fn.name(k))
	}
	if e.Slot, ok = fn.copyLen(e); !ok {
		return e, refuse(UnsupportedMechanism, "%s cannot be moved away", fn.name(k))
	}
	return e, nil
}

// checkNext holds what completes a punned jump to be the jump of what was moved away right
// behind it, if something was, and that to be one instruction of which a copy does the same.
func (p *Plan) checkNext(arch *isa.Arch) error {
	e := p.Next
	if e == nil {
		return nil
	}
	switch {
	case e.Body != p.Back || !bytes.HasPrefix(e.New, p.Tail) || len(p.New)+len(p.Tail) != gen.PunLen(0):
		return fmt.Errorf("the bytes %x behind the jump are not those of the jump to the copy of %s", p.Tail, e.Name())
	case !e.Alone || !e.Stretch || len(e.New) > len(e.Code) || arch.Decode(e.Code, e.Body).Len != len(e.Code):
		return fmt.Errorf("%s, %d bytes, is not one instruction with room for a jump", e.Name(), len(e.Code))
	case p.Patch < e.Patch+isa.Addr(e.Slot) && e.Patch < p.Patch+isa.Addr(p.Slot):
		return fmt.Errorf("the patch at %v lies on the copy of %s", p.Patch, e.Name())
	case uint64(e.Patch)%place.Line != 0 || e.Slot < len(e.Copy):
		return fmt.Errorf("the copy of %s at %v, in %d bytes", e.Name(), e.Patch, e.Slot)
	}
	return e.checkStretch(arch)
}
