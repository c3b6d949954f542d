package plan

import (
	"slices"

	"kerninst/agent/isa"
	"kerninst/agent/ktext"
)

// The time in a block. A thread is in a basic block from its first instruction to its last,
// and in what it calls there. So one snippet stands at the first, and one at the last; where
// an instruction cannot be spliced, the next, or the one before, of the same straight run
// has to do (see the block rule): nobody calls in between, and what is not seen are as
// many instructions. A block is refused as a whole
//
//   - whose last instruction calls, or is a trap: the snippet would stand before it, and who
//     is back goes on in the next block, to which others come otherwise;
//   - which may be left by a fault with a fixup, in its middle;
//   - into whose middle something may jump;
//   - in which there are not two instructions to stand at, one for each.

// Block is a basic block of a function.
type Block struct {
	Begin isa.Off // of its first instruction
	End   isa.Off // behind its last
}

// Blocks are those of a function that something leads to: where each begins is where
// EachBlock says.
func Blocks(text *ktext.Text, req Request) ([]Block, *Refusal) {
	begins, r := Offsets(text, req, EachBlock)
	if r != nil {
		return nil, r
	}
	fn, r := req.Known.function(text, req.Module, req.Function)
	if r != nil {
		return nil, r
	}
	var out []Block
	for n, begin := range begins {
		k, r := fn.boundary(begin)
		if r != nil {
			return nil, r
		}
		for fn.has(k+1) && !leavesBlock[fn.insns[k].Flow] && (n+1 == len(begins) || fn.off(k+1) < begins[n+1]) {
			k++
		}
		out = append(out, Block{begin, fn.off(k) + isa.Off(fn.insns[k].Len)})
	}
	return out, nil
}

// leavesBlock is what a block ends in wherever it is. Calls and traps come back.
var leavesBlock = map[isa.Flow]bool{
	isa.FlowReturn: true, isa.FlowJump: true, isa.FlowCond: true, isa.FlowIndirectJump: true,
}

// Comes plans what stands where a block begins, at or behind Request.Offset. Unless the
// snippet is to be at that very instruction (loose is not set), another that runs as often
// may do.
func Comes(text *ktext.Text, req Request, b Block, loose bool) (*Plan, *Refusal) {
	fn, first, last, r := block(text, req, b)
	if r != nil {
		return nil, r
	}
	at := []int{first}
	for k := first; loose && k < last; k++ {
		if on, err := fn.goesOn(k); err != nil {
			return nil, unreadable(err)
		} else if !on {
			break
		}
		at = append(at, k+1)
	}
	return fn.nearest(req, at)
}

// Goes plans what stands where a block ends, as near to the end as it can, and not before
// Request.Offset.
func Goes(text *ktext.Text, req Request, b Block) (*Plan, *Refusal) {
	fn, first, last, r := block(text, req, b)
	if r != nil {
		return nil, r
	}
	var at []int
	for k := last; k >= first && fn.off(k) >= req.Offset; k-- {
		if len(at) > 0 {
			if on, err := fn.goesOn(k); err != nil {
				return nil, unreadable(err)
			} else if !on {
				break
			}
		}
		at = append(at, k)
	}
	if len(at) == 0 {
		return nil, refuse(OutsideFunction, "the block from %v+%#x has no instruction behind the one that it is entered at: there is no time in between", fn.Func, b.Begin)
	}
	return fn.nearest(req, at)
}

// block finds the first and the last instruction of a block, and says why nobody could tell
// the time in it.
func block(text *ktext.Text, req Request, b Block) (fn *function, first, last int, r *Refusal) {
	if fn, r = req.Known.function(text, req.Module, req.Function); r != nil {
		return nil, 0, 0, r
	}
	if first, r = fn.boundary(b.Begin); r != nil {
		return nil, 0, 0, r
	}
	for last = first; fn.has(last+1) && fn.off(last+1) < b.End; last++ {
	}
	if r = fn.learn(req); r == nil {
		r = fn.untold(first, last)
	}
	return fn, first, last, r
}

// untold reports why the time in a block cannot be told by who comes by its ends.
func (fn *function) untold(first, last int) *Refusal {
	switch i := fn.insns[last]; i.Flow {
	case isa.FlowCall, isa.FlowIndirectCall:
		return refuse(ControlFlow, "%s ends its block, and calls: who is back is in the next block, to which others come otherwise", fn.name(last))
	case isa.FlowTrap, isa.FlowUnknown:
		return refuse(ControlFlow, "%s ends its block, and is a trap: nobody is seen to leave there", fn.name(last))
	}
	for k := first; k <= last; k++ {
		s, ok, err := fn.text.Site(fn.insns[k].Addr, fn.insns[k].End())
		switch {
		case err != nil:
			return unreadable(err)
		case ok && s.Class == ktext.Exception:
			return refuse(MayFault, "%s may leave its block by a fault", fn.name(k))
		}
	}
	if first == last {
		return nil
	}
	a, ok, err := fn.ledInto(fn.insns[first].End(), fn.insns[last].End())
	switch {
	case err != nil:
		return unreadable(err)
	case ok:
		return refuse(TargetInWindow, "something may jump to %v+%#x, into the block from +%#x", fn.Func, isa.Off(a-fn.Addr), fn.off(first))
	}
	return nil
}

// nearest plans at the first of some instructions that is not refused; by a trap if all are.
// When they are then, too, the refusal is that of the first.
func (fn *function) nearest(req Request, at []int) (*Plan, *Refusal) {
	var first *Refusal
	free := req
	free.Without = append(slices.Clip(req.Without), Trap)
	for _, next := range []Request{free, req} {
		for n, k := range at {
			next.Offset = fn.off(k)
			p, r := fn.plan(next)
			if r == nil {
				return p, nil
			}
			if n == 0 {
				first = r
			}
		}
	}
	return nil, first
}
