package plan

import (
	"sort"

	"kerninst/agent/isa"
)

// Returns is where in the kernel's own code a call would have come back to that comes back to an address in the patch:
// behind the instruction for which the code in front of that address stands. It reports false of an address that is
// not behind code of the patch. A plan that was read from somewhere knows this of a clone to its state map's precision.
func (p *Plan) Returns(a isa.Addr) (isa.Addr, bool) {
	if a <= p.Patch || a > p.Patch+isa.Addr(len(p.Code)) {
		return 0, false
	}
	call := int(a - p.Patch - 1)
	at, ok := p.original(call)
	if !ok {
		return 0, false
	}
	if p.Clone == nil {
		for _, i := range p.Displaced {
			if i.Addr == at {
				return i.End(), true
			}
		}
		return at, true
	}
	for _, x := range p.Clone.Insns {
		if x.Insn.Addr == at {
			return x.Insn.End(), true
		}
	}
	return at, true
}

// original is the instruction for which the code at an offset of the patch stands. In a clone, the state map
// has one state for many that are alike; what lies behind all of them has a state of its own each.
func (p *Plan) original(off int) (isa.Addr, bool) {
	if n := len(p.offs); n > 1 && off < p.offs[n-1] {
		k := sort.SearchInts(p.offs, off+1) - 1
		return p.Clone.Insns[max(k, 0)].Insn.Addr, k >= 0
	}
	k := sort.Search(len(p.States), func(k int) bool { return p.States[k].Off > off }) - 1
	if k < 0 {
		return 0, false
	}
	return p.States[k].Orig, true
}
