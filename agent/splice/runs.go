package splice

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"

	"kerninst/agent/gen"
	"kerninst/agent/isa"
	"kerninst/agent/place"
	"kerninst/agent/plan"
)

// Patches of a batch mostly lie in slots that are neighbours. To map a page of code for
// writing, and to have every CPU's caches forget it, costs the same for one patch and for
// hundreds; so does asking whether a task is asleep there, and reading what was written.
// So neighbours are one run: what is written and read back at once.

// part is code at its place, in a slot that nobody else has anything of.
type part struct {
	at     isa.Addr
	code   []byte
	states []gen.State
	sites  []gen.Site
	slot   int // bytes, no less than the code has
	// of is whose it is; nil: it is a copy of what was moved away.
	of   *plan.Plan
	copy *plan.Eviction
}

// end is behind the lines that the slot has.
func (c *part) end() isa.Addr { return lineEnd(c.at + isa.Addr(max(c.slot, len(c.code)))) }

func lineEnd(a isa.Addr) isa.Addr { return (a + place.Line - 1) / place.Line * place.Line }

// mostStates bounds what is said of one run: KI_MAX_FRAMES, less what ends the last of its parts.
const mostStates = 1000

// runs puts parts in order of their places and those together that are neighbours in one
// area, up to mostFilled. The parts of one keep their order.
func runs(h *place.Heap, parts []part) (out [][]part) {
	var cut []part
	for _, c := range parts {
		cut = append(cut, c.inPieces()...)
	}
	parts = cut
	parts = slices.SortedFunc(slices.Values(parts), func(a, b part) int { return cmp.Compare(a.at, b.at) })
	for k, states := 0, 0; k < len(parts); k++ {
		states += len(parts[k].states) + 1
		last := len(out) - 1
		if k > 0 && neighbours(h, &parts[k-1], &parts[k]) && parts[k].end()-out[last][0].at <= mostFilled && states <= mostStates {
			out[last] = append(out[last], parts[k])
			continue
		}
		out, states = append(out, []part{parts[k]}), len(parts[k].states)+1
	}
	return out
}

// neighbours reports whether b begins where a ends. Areas may have no room between them.
func neighbours(h *place.Heap, a, b *part) bool {
	if a.end() != b.at {
		return false
	}
	area, ok := h.Find(a.at)
	return ok && area.Code().Holds(b.at, 1)
}

// merged is a run as one part: between codes are traps, of which no stack has anything to
// tell.
func merged(run []part, trap []byte) part {
	if len(run) == 1 {
		return run[0]
	}
	first, last := &run[0], &run[len(run)-1]
	all := part{at: first.at, code: bytes.Repeat(trap, int(last.at-first.at)/len(trap))}
	all.code = append(all.code, last.code...)
	told := slices.ContainsFunc(run, func(c part) bool { return c.states != nil })
	for _, c := range run {
		off := int(c.at - all.at)
		copy(all.code[off:], c.code)
		for _, x := range c.sites {
			x.Off += off
			all.sites = append(all.sites, x)
		}
		if !told {
			continue
		}
		if len(c.states) == 0 {
			all.states = append(all.states, gen.State{Off: off})
		}
		for _, s := range c.states {
			s.Off += off
			all.states = append(all.states, s)
		}
		if behind := off + len(c.code); c.at+isa.Addr(len(c.code)) < c.end() && behind < len(all.code) {
			all.states = append(all.states, gen.State{Off: behind})
		}
	}
	return all
}

// putAll writes code that nothing leads to yet, and sees that it is there.
func (s *Splicer) putAll(parts []part) error {
	for _, run := range runs(&s.heap, parts) {
		if err := s.put(merged(run, s.arch.Trap)); err != nil {
			return s.blamed(run, err)
		}
	}
	return nil
}

// blamed tells which part of a run, which was refused for err, is to blame: the first that
// is refused by itself too, or else nobody knows, and it is the first.
func (s *Splicer) blamed(run []part, err error) error {
	for _, c := range run {
		if own := s.put(c); own != nil {
			return c.blame(own)
		}
	}
	return run[0].blame(err)
}

// put writes one part.
func (s *Splicer) put(c part) error {
	if err := s.poker.WriteCode(c.at, c.code, c.states, c.sites); err != nil {
		return err
	}
	return s.holdsBut(c)
}

// blame says whose part an error is about.
func (c *part) blame(err error) error {
	if c.of == nil {
		return fmt.Errorf("copy of %s: %w", c.copy.Name(), err)
	}
	return describe(c.of, fmt.Errorf("patch: %w", err))
}
