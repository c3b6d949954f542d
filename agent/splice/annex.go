package splice

import (
	"fmt"

	"kerninst/agent/place"
	"kerninst/agent/plan"
)

// patchOf is a plan's patch: one part, or the one in reach and the annex's.
func patchOf(p *plan.Plan) []part {
	out := []part{{at: p.Patch, code: p.Code, states: p.States, sites: p.Sites, slot: p.Slot, of: p}}
	if p.Annex != nil {
		out = append(out, part{at: p.Annex.Addr, code: p.Annex.Code, states: p.Annex.States, of: p})
	}
	return out
}

// checkAnnex holds what may fault, and nothing else, to lie in the annex. r is where the
// patch lies.
func (s *Splicer) checkAnnex(p *plan.Plan, r *place.Area) error {
	if r.Annex() != (p.Fault != 0 && p.Annex == nil) {
		return fmt.Errorf("patch at %v: what may fault belongs into the annex, and nothing else does", p.Patch)
	}
	if p.Annex == nil {
		return nil
	}
	a, ok := s.heap.Find(p.Annex.Addr)
	if !ok || !a.Annex() || !a.Code().Holds(p.Annex.Addr, len(p.Annex.Code)) {
		return fmt.Errorf("the part of a patch at %v is not in the annex of this kernel", p.Annex.Addr)
	}
	return nil
}
