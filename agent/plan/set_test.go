package plan_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"kerninst/agent/gen"
	"kerninst/agent/isa"
	"kerninst/agent/place"
	"kerninst/agent/plan"
)

// TestSet: a set answers as one who looks at every plan.
func TestSet(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	var s plan.Set
	var all []*plan.Plan
	for range 4000 {
		if len(all) > 0 && rng.IntN(3) == 0 {
			k := rng.IntN(len(all))
			s.Remove(all[k])
			all = slices.Delete(all, k, k+1)
		} else {
			all = append(all, somePlan(rng))
			s.Add(all[len(all)-1])
		}
		lo := isa.Addr(rng.IntN(1 << 14))
		hi := lo + 1 + isa.Addr(rng.IntN(1<<uint(1+rng.IntN(11))))
		a := isa.Addr(rng.IntN(1 << 10))
		touches, asked, local, copied := false, false, false, false
		for _, p := range all {
			touches = touches || p.Touches(lo, hi)
			asked = asked || p.Asked() == lo
			local = local || slices.Contains(p.Locals, a) && a != 0
			copied = copied || copies(p, lo)
		}
		if s.Len() != len(all) || s.Touches(lo, hi) != touches || s.Asked(lo) != asked || (s.Local(a) != nil) != local {
			t.Fatalf("%d plans: length %d; [%v, %v) touched %v, want %v; asked %v, want %v; local %v", len(all), s.Len(), lo, hi, !touches, touches, !asked, asked, !local)
		}
		if c := s.Copied(lo); (c != nil) != copied || copied && (!copies(c, lo) || !slices.Contains(all, c)) {
			t.Fatalf("%v is copied %v, by %+v, want %v", lo, !copied, c, copied)
		}
		near := s.Near(place.Window{Lo: lo, Hi: hi})
		for _, p := range all {
			has := slices.ContainsFunc(p.Windows(), func(w place.Window) bool { return !w.Intersect(place.Window{Lo: lo, Hi: hi}).Empty() })
			if has && !slices.Contains(near, p) {
				t.Fatalf("[%v, %v) has some of %+v, which is not near", lo, hi, p)
			}
		}
	}
	for _, p := range all {
		s.Remove(p)
	}
	if s.Len() != 0 || s.Touches(0, 1<<20) || len(s.Near(place.Window{Lo: 0, Hi: 1 << 20})) > 0 {
		t.Error("an empty set has some")
	}
}

// copies reports whether a plan is the entry of a clone with a copy of what is at a.
func copies(p *plan.Plan, a isa.Addr) bool {
	return p.Clone != nil && slices.ContainsFunc(p.Clone.Insns, func(x gen.Cloned) bool { return x.Insn.Addr <= a && a < x.Insn.End() })
}

// somePlan occupies addresses below 1<<14, and cells below 1<<10 that are another's too.
func somePlan(rng *rand.Rand) *plan.Plan {
	at := func() isa.Addr { return isa.Addr(rng.IntN(1 << 14)) }
	p := &plan.Plan{Point: at(), New: make([]byte, 1+rng.IntN(16)), Patch: at() &^ 63, Slot: 64 * (1 + rng.IntN(8)), Locals: []isa.Addr{0}}
	p.Back = p.Point + isa.Addr(rng.IntN(20))
	p.Displaced = []isa.Insn{{Addr: p.Point}}
	if rng.IntN(4) == 0 {
		p.Annex = &plan.Annex{Addr: at(), Code: make([]byte, 1+rng.IntN(64))}
	}
	if rng.IntN(3) == 0 {
		p.Board = &plan.Board{Addr: at(), New: make([]byte, 8)}
		if rng.IntN(2) == 0 {
			p.Board.In = &plan.Eviction{Body: at(), Code: make([]byte, 16+rng.IntN(240)), Patch: at() &^ 63, Slot: 256}
		}
	}
	if rng.IntN(4) == 0 { // functions in any order
		p.Clone = &gen.Clone{}
		for _, f := range rng.Perm(1 << 6)[:rng.IntN(5)] {
			for a, end := isa.Addr(f)<<8, isa.Addr(f)<<8+isa.Addr(rng.IntN(200)); a < end; {
				i := isa.Insn{Addr: a, Len: 1 + rng.IntN(8)}
				p.Clone.Insns, a = append(p.Clone.Insns, gen.Cloned{Insn: i}), i.End()
			}
		}
	}
	return p
}
