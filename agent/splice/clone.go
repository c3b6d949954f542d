package splice

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"kerninst/agent/gen"
	"kerninst/agent/isa"
	"kerninst/agent/place"
	"kerninst/agent/plan"
)

// Clones. Of one, the entry is a splice like any other, whose patch is the clone; of the points
// in it nothing is written but what is in that patch. They are live as long as it is.

// acceptInClone checks a point in a clone, which is of the same batch.
func (s *Splicer) acceptInClone(p *plan.Plan, batch []*plan.Plan) (*Live, error) {
	e := p.In
	off := int(p.Patch - e.Patch)
	switch {
	case !slices.Contains(batch, e):
		return nil, errors.New("the clone that it is in is not made with it")
	case e.Clone == nil || p.Patch < e.Patch || off+len(p.Code) > len(e.Code) || !bytes.Equal(e.Code[off:off+len(p.Code)], p.Code):
		return nil, fmt.Errorf("what is inserted at %v is not in the clone at %v", p.Patch, e.Patch)
	case p.Cell < e.Cell || p.Cell-e.Cell+isa.Addr(8*p.Snippet.Words()) > isa.Addr(e.Slot):
		return nil, fmt.Errorf("the cell at %v is not one of the clone's at %v", p.Cell, e.Cell)
	}
	l, err := s.cellsOf(p, e)
	return l, err
}

// inner are the live points in clones.
func (s *Splicer) inner(clones []*Live) (out []*Live) {
	of := map[*plan.Plan]bool{}
	for _, l := range clones {
		if l.Plan.Clone != nil {
			of[l.Plan] = true
		}
	}
	if len(of) == 0 {
		return nil
	}
	for _, l := range s.live {
		if l.Plan.In != nil && of[l.Plan.In] {
			out = append(out, l)
		}
	}
	return out
}

// withoutInner leaves the points out that go with their clones, which have to go with them.
func withoutInner(which []*Live) ([]*Live, error) {
	var out []*Live
	going := map[*plan.Plan]bool{}
	for _, l := range which {
		if l.Plan.In == nil {
			out, going[l.Plan] = append(out, l), true
		}
	}
	for _, l := range which {
		if e := l.Plan.In; e != nil && !going[e] {
			return nil, describe(l.Plan, fmt.Errorf("is in the clone of %s, which stays", e.Symbol))
		}
	}
	return out, nil
}

// unchanged compares the text that a clone is made of with what is there now, but for sites that the
// kernel rewrites: nobody probes it, and nobody has patched it, or traces it or is about to patch it, of which its ftrace sites tell.
func (s *Splicer) unchanged(p *plan.Plan) error {
	if p.Clone == nil {
		return nil
	}
	insns := p.Clone.ByAddress()
	for len(insns) > 0 {
		n := 1
		for n < len(insns) && insns[n].Insn.Addr == insns[n-1].Insn.End() {
			n++
		}
		lo, hi := insns[0].Insn.Addr, insns[n-1].Insn.End()
		now, bare := make([]byte, hi-lo), make([]byte, hi-lo)
		if err := errors.Join(s.poker.Read(lo, now), s.poker.ReadUnprobed(lo, bare)); err != nil {
			return err
		}
		for _, x := range insns[:n] {
			if err := s.passedBy(x.Gate); err != nil {
				return err
			}
			at := x.Insn.Addr - lo
			end := at + isa.Addr(x.Insn.Len)
			if x.Key == nil && x.Call == 0 && !(bytes.Equal(now[at:end], x.Bytes) && bytes.Equal(bare[at:end], x.Bytes)) {
				return fmt.Errorf("%v, which is to be copied, is not %x any more: somebody probes it, or has changed it", x.Insn.Addr, x.Bytes)
			}
		}
		insns = insns[n:]
	}
	return nil
}

// stillBare looks at the ftrace sites of all that is copied once more, for to write copies of thousands of functions takes
// time in which a live patch may have come, and been forgotten by the module.
func (s *Splicer) stillBare(plans []*plan.Plan) error {
	for _, p := range plans {
		if p.Clone == nil {
			continue
		}
		for _, x := range p.Clone.Insns {
			if err := s.passedBy(x.Gate); err != nil {
				return describe(p, err)
			}
		}
	}
	return nil
}

// passedBy says that somebody has come since a function was found to be passed by, which is copied.
func (s *Splicer) passedBy(g *gen.Gate) error {
	if g == nil || g.Site == 0 {
		return nil
	}
	site := make([]byte, 4)
	if err := s.poker.Read(g.Site, site); err != nil {
		return err
	}
	if isa.ByteOrder.Uint32(site) != g.Bare {
		return fmt.Errorf("the function at %v, which is to be copied, is traced or patched by now: %x at %v", g.Function, site, g.Site)
	}
	return nil
}

// inPieces cuts what is long, at lines, so that each piece has no more states and sites than are taken
// at once. No site of a key is cut.
func (c part) inPieces() (out []part) {
	for len(c.states) > mostStates || len(c.code) > mostFilled || len(c.sites) > mostStates {
		cut := c.cut()
		if cut == 0 {
			break
		}
		head := part{at: c.at, code: c.code[:cut], slot: cut, of: c.of, copy: c.copy}
		rest := part{at: c.at + isa.Addr(cut), code: c.code[cut:], slot: c.slot - cut, of: c.of, copy: c.copy}
		for _, st := range c.states {
			if st.Off < cut {
				head.states = append(head.states, st)
				continue
			}
			if len(rest.states) == 0 && st.Off > cut { // what holds goes on
				first := head.states[len(head.states)-1]
				first.Off = 0
				rest.states = append(rest.states, first)
			}
			st.Off -= cut
			rest.states = append(rest.states, st)
		}
		for _, x := range c.sites {
			if x.Off < cut {
				head.sites = append(head.sites, x)
				continue
			}
			x.Off -= cut
			rest.sites = append(rest.sites, x)
		}
		out, c = append(out, head), rest
	}
	return append(out, c)
}

// cut is where a part is cut first; 0: nowhere.
func (c part) cut() (cut int) {
	for k, st := range c.states {
		if k == mostStates || st.Off >= mostFilled {
			break
		}
		cut = st.Off &^ (place.Line - 1)
	}
	if len(c.sites) > mostStates {
		cut = min(cut, c.sites[mostStates].Off&^(place.Line-1))
	}
	for cut > 0 && slices.ContainsFunc(c.sites, func(x gen.Site) bool { return x.Entry != 0 && x.Off < cut && cut < x.Off+gen.LongestSite }) {
		cut -= place.Line
	}
	return cut
}

// holdsBut compares kernel memory with code, but for the sites of static keys, which the kernel writes.
func (s *Splicer) holdsBut(c part) error {
	if len(c.sites) == 0 {
		return s.holds(c.at, c.code)
	}
	want, got := bytes.Clone(c.code), make([]byte, len(c.code))
	if err := s.poker.Read(c.at, got); err != nil {
		return err
	}
	for _, x := range c.sites {
		if x.Entry != 0 {
			copy(want[x.Off:], got[x.Off:][:gen.SiteLen(s.arch)])
		}
	}
	if !bytes.Equal(got, want) {
		return fmt.Errorf("the clone at %v is not what was written", c.at)
	}
	return nil
}
