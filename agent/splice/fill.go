package splice

import (
	"bytes"
	"cmp"
	"slices"

	"kerninst/agent/isa"
	"kerninst/agent/place"
	"kerninst/agent/plan"
)

// mostFilled bounds what is written at a time, in bytes.
const mostFilled = 64 << 10

// fill writes traps over patches that are nobody's any more: who should come to one all
// the same is found out at once. A patch that a task may be asleep in stays as it is, and
// so does what is written with it: the kernel's side refuses to overwrite that. It stays
// dirty either way, and is written as a whole before anything leads there again.
func (s *Splicer) fill(gone []*Live, moved []evicted) {
	s.reap()
	var all []place.Window
	for _, l := range gone {
		if l.Plan.In != nil {
			continue
		}
		if l.Plan.Clone != nil {
			s.leave(l.Plan)
			continue
		}
		all = append(all, l.Plan.Slots(false)...)
	}
	for _, e := range moved {
		all = append(all, place.Window{Lo: e.Patch, Hi: e.Patch + isa.Addr(e.Slot)})
	}
	for _, w := range s.joined(all) {
		if s.trap(w) == nil || len(all) == 1 {
			continue
		}
		for _, one := range all { // some of it is held
			if one.Intersect(w) == one {
				_ = s.trap(one) // stays as it is
			}
		}
	}
}

// leave is fill of a clone. Tasks sleep in one, some for ever, so its slot is nobody's as long as
// one does.
func (s *Splicer) leave(p *plan.Plan) {
	w := p.Slots(false)[0]
	if s.trap(w) != nil && s.heap.Take(w.Lo, int(w.Size())) {
		s.heap.TakeSites(w.Lo, p.Sited())
		s.asleep = append(s.asleep, w)
	}
}

// reap gives the slots of clones back in which nobody is asleep any more.
func (s *Splicer) reap() {
	s.asleep = slices.DeleteFunc(s.asleep, func(w place.Window) bool {
		return s.trap(w) == nil && s.heap.Free(w.Lo, int(w.Size()))
	})
}

func (s *Splicer) trap(w place.Window) error {
	n := (int(w.Size()) + place.Line - 1) / place.Line * place.Line
	return s.poker.WriteCode(w.Lo, bytes.Repeat(s.arch.Trap, n/len(s.arch.Trap)), nil, nil)
}

// joined puts slots together that have nothing but free ones between them, up to
// mostFilled: each write waits until nobody can be in what was there.
func (s *Splicer) joined(slots []place.Window) (out []place.Window) {
	for _, w := range slices.SortedFunc(slices.Values(slots), func(a, b place.Window) int { return cmp.Compare(a.Lo, b.Lo) }) {
		w.Hi = (w.Hi + place.Line - 1) / place.Line * place.Line
		if k := len(out) - 1; k >= 0 && w.Hi-out[k].Lo <= mostFilled && s.heap.Unused(place.Window{Lo: out[k].Hi, Hi: w.Lo}) {
			out[k].Hi = w.Hi
			continue
		}
		out = append(out, w)
	}
	return out
}
