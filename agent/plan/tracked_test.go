package plan_test

import (
	"bytes"
	"strings"
	"testing"

	"kerninst/agent/isa"
	"kerninst/agent/ktext"
	"kerninst/agent/ktext/ktexttest"
	"kerninst/agent/plan"
)

// TestTracked: a CPU may track indirect branches (amd64, Intel's SDM volume 1, chapter 17: IBT), which no emulated one does.
// These must lead to landing pads then: none is in a patch but what was displaced, whose target nobody changes, none is
// written over, and none comes to be where there was none.
func TestTracked(t *testing.T) {
	x := ktexttest.Load(t, "amd64").Text(t)
	pad := []byte{0xf3, 0x0f, 0x1e, 0xfa}
	planned := map[plan.Mechanism]int{}
	for _, m := range plan.Ladder("amd64") {
		x.Functions("", func(f ktext.Func) bool {
			if strings.HasPrefix(f.Name, "gap") || f.Size == 0 {
				return true
			}
			req := request(x, "", 0)
			req.Mechanism = m
			plan.Survey(x, f, req, func(off isa.Off, p *plan.Plan, r *plan.Refusal) bool {
				if r != nil {
					return true
				}
				planned[m]++
				before, after := p.Old, [][]byte{p.New, p.Code}
				if p.Board != nil {
					before, after = append(before, p.Board.Old...), append(after, p.Board.New)
				}
				for _, e := range evictions(p) {
					before, after = append(before, e.Code[:len(e.New)]...), append(after, e.New)
					if n := indirect(decoded(x.Arch, e.Copy)); n != indirect(decoded(x.Arch, e.Code)) {
						t.Errorf("%v+%#x by %v: %d indirect branches in what was moved away", f, uint64(off), m, n)
					}
				}
				if bytes.Contains(before, pad) {
					t.Errorf("%v+%#x by %v: a landing pad is written over: %x", f, uint64(off), m, before)
				}
				most := indirect(p.Displaced)
				for _, code := range after {
					if n := indirect(decoded(x.Arch, code)); n > most || bytes.Contains(code, pad) {
						t.Errorf("%v+%#x by %v: %d indirect branches of %d, or a landing pad: %x", f, uint64(off), m, n, most, code)
					}
				}
				return true
			})
			return true
		})
		if planned[m] < 20 && m != plan.Pun { // of which there are none in what is recorded: TestPun makes some
			t.Errorf("%d points by %v are too few to mean anything", planned[m], m)
		}
	}
}

// evictions are what has to be moved away for a plan.
func evictions(p *plan.Plan) (out []*plan.Eviction) {
	if p.Next != nil {
		out = append(out, p.Next)
	}
	if p.Board != nil && p.Board.In != nil {
		out = append(out, p.Board.In)
	}
	return out
}

// indirect is how many branches go where a register or memory says, but for returns, which are not tracked.
func indirect(list []isa.Insn) (n int) {
	for _, i := range list {
		if i.Flow == isa.FlowIndirectJump || i.Flow == isa.FlowIndirectCall {
			n++
		}
	}
	return n
}

func decoded(arch *isa.Arch, code []byte) (list []isa.Insn) {
	for at := isa.Addr(0); int(at) < len(code); {
		i := arch.Decode(code[at:], at)
		list, at = append(list, i), i.End()
	}
	return list
}
