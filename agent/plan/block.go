package plan

import (
	"kerninst/agent/isa"
	"kerninst/agent/ktext"
)

// The block rule. A snippet that only counts may stand at any instruction that runs
// exactly as often as the one that was asked for: one of the same straight run, into
// which nothing leads but its begin, and out of which nothing leads but its end. It is
// used where the instruction itself cannot be spliced, and the plan says so (Plan.For):
// first by what costs less than a trap, and at last by one.
//
// What ends a run, besides jumps, calls and returns: what the kernel may rewrite into one
// (static keys and calls), what may leave by a fault that has a fixup, ftrace's site,
// from which a live patch may never come back, and a landing pad, which is there for who
// jumps to it through a register: in amd64's assembly by a thunk, which looks like a jump to
// another function (crc_pcl).

// equivalents are the other instructions of the run of instruction at, the nearest first.
// None are known where a jump through a register may lead anywhere.
func (fn *function) equivalents(at int) ([]int, error) {
	if _, k := fn.indirectJump(); k >= 0 || fn.off(at) < fn.ftrace {
		return nil, nil
	}
	first, last := at, at
	for first > 0 && fn.off(first-1) >= fn.ftrace {
		if on, err := fn.goesOn(first - 1); err != nil || !on {
			if err != nil {
				return nil, err
			}
			break
		}
		first--
	}
	for fn.has(last + 1) {
		if on, err := fn.goesOn(last); err != nil || !on {
			if err != nil {
				return nil, err
			}
			break
		}
		last++
	}
	var out []int
	for d := 1; at-d >= first || at+d <= last; d++ {
		if at-d >= first {
			out = append(out, at-d)
		}
		if at+d <= last {
			out = append(out, at+d)
		}
	}
	return out, nil
}

// goesOn reports whether whoever runs instruction k runs the next one, and whoever runs
// the next one has run it.
func (fn *function) goesOn(k int) (bool, error) {
	i := fn.insns[k]
	if i.Flow != isa.FlowNone || i.Traits&isa.Lost != 0 || fn.lost >= 0 && k >= fn.lost {
		return false, nil
	}
	if _, site, err := fn.text.Site(i.Addr, i.End()); err != nil || site {
		return false, err
	}
	if fn.has(k+1) && fn.insns[k+1].Traits&isa.Landing != 0 {
		return false, nil
	}
	return fn.follows(k)
}

// placed are the reasons that are about where a snippet stands: elsewhere it may do.
var placed = map[Reason]bool{
	ReservedText: true, ControlFlow: true, PCRelative: true, PrivilegedInsn: true, ExclusiveSequence: true,
	MayFault: true, TooShort: true, TargetInWindow: true, NoDeadRegister: true, OutOfReach: true,
	AlreadySpliced: true, NeedsSpill: true, NoSpringboard: true, SitesFull: true,
}

// byBlock plans a snippet that only counts at the nearest instruction that runs as often
// as one that is refused for r.
func (fn *function) byBlock(req Request, at int, r *Refusal) (*Plan, *Refusal) {
	if !req.Block || !req.Snippet.OnlyCounts() || !placed[r.Reason] || ownReserved[r.Class] {
		return nil, r
	}
	if req.Asked != nil && req.Asked(fn.insns[at].Addr) {
		return nil, r
	}
	if r := fn.learn(req); r != nil {
		return nil, r
	}
	others, err := fn.equivalents(at)
	if err != nil {
		return nil, unreadable(err)
	}
	for _, k := range others {
		p, _, _ := fn.planAt(req, k)
		if p != nil {
			p.Offset, p.For = fn.off(at), fn.insns[at].Addr
			return p, nil
		}
	}
	return nil, r
}

// allReserved reports whether what is refused for r is in a function that is reserved as a
// whole: the kernel's list of what may have no probe may have a part of one.
func allReserved(r *Refusal) bool {
	return ownReserved[r.Class] && r.Class != ktext.Blacklist.String()
}

// ownReserved are classes of text of which no instruction is spliced, whichever it is.
var ownReserved = map[string]bool{
	ktext.NoInstr.String(): true, ktext.Entry.String(): true, ktext.Init.String(): true, ktext.Hypervisor.String(): true,
	ktext.Blacklist.String(): true, ktext.Patching.String(): true, ktext.Thunk.String(): true, ktext.Outside.String(): true,
}
