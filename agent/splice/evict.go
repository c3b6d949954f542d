package splice

import (
	"fmt"

	"kerninst/agent/isa"
	"kerninst/agent/plan"
)

// evicted is code of which a copy runs: springboards of live splices are in it.
type evicted struct {
	*plan.Eviction
	id uint32
}

// clash says what two plans that are live together have in common and must not.
func clash(p, q *plan.Plan) error {
	if q.Touches(p.Point, p.End()) {
		return fmt.Errorf("overlaps the splice of %v", q.Point)
	}
	e, o := p.Moves(), q.Moves()
	shared := e != nil && o != nil && e.Same(o)
	if b := p.Board; b != nil && (q.Writes(b.Addr, b.End()) || !shared && q.Touches(b.Addr, b.End())) {
		return fmt.Errorf("its springboard overlaps the splice of %v", q.Point)
	}
	if e != nil && (q.Point < e.End() && e.Body < q.End() || !shared && q.Touches(e.Body, e.End())) {
		return fmt.Errorf("%s, which it moves away, overlaps the splice of %v", e.Name(), q.Point)
	}
	for _, v := range p.Slots(true) {
		for _, w := range q.Slots(!shared) {
			if !v.Intersect(w).Empty() {
				return fmt.Errorf("shares its patch at %v with the splice of %v", v.Lo, q.Point)
			}
		}
	}
	return nil
}

// acceptEviction takes what a plan's function needs to run elsewhere, unless it does so
// already. Its copy is not in the annex: its faults have no fixup.
func (s *Splicer) acceptEviction(e *plan.Eviction) error {
	if r, ok := s.heap.Find(e.Patch); !ok || r.Annex() || r.Page() || !r.Code().Holds(e.Patch, e.Slot) {
		return fmt.Errorf("the copy of %s at %v is not in an area of this kernel", e.Name(), e.Patch)
	}
	if m, ok := s.moved[e.Body]; ok && !m.Same(e) || !s.heap.Evict(e.Place()) {
		return fmt.Errorf("%s cannot be moved to %v: it is elsewhere, or other code is there", e.Name(), e.Patch)
	}
	return nil
}

// fresh lists the functions that plans move away and that nobody has moved yet.
func (s *Splicer) fresh(plans []*plan.Plan) (out []*plan.Eviction) {
	seen := map[isa.Addr]bool{}
	for _, p := range plans {
		e := p.Moves()
		if e == nil || seen[e.Body] {
			continue
		}
		seen[e.Body] = true
		if _, ok := s.moved[e.Body]; !ok {
			out = append(out, e)
		}
	}
	return out
}

// stale lists the functions that nobody needs elsewhere any more, when some splices go.
// needed says for how many splices anything is moved away; those are counted off.
func (s *Splicer) stale(going []*Live, needed map[isa.Addr]int) (out []evicted) {
	for _, l := range going {
		if e := l.Plan.Moves(); e != nil {
			if needed[e.Body]--; needed[e.Body] == 0 {
				out = append(out, s.moved[e.Body])
			}
		}
	}
	return out
}

// moveAway is what is written for it: nobody falls asleep in what has no call and no
// fault that is waited for. One instruction is replaced as that of any jump is: nobody has
// to be waited for, and no byte behind the jump is anybody's.
func moveAway(e *plan.Eviction) Splice {
	if e.Alone {
		return Splice{Point: e.Body, Old: e.Code[:len(e.New)], New: e.New, Patch: e.Patch, PatchLen: len(e.Copy), Awake: true}
	}
	return Splice{Point: e.Body, Old: e.Code[:len(e.New)], New: e.New, Patch: e.Patch, PatchLen: len(e.Copy), Window: true, Awake: true, Span: len(e.Code)}
}
