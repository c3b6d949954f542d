package daemon

import (
	"math/rand"
	"slices"
	"testing"

	"kerninst/agent/isa"
	"kerninst/agent/plan"
	"kerninst/agent/splice"
)

// TestCrowd: who asks often is told what who asks once is.
func TestCrowd(t *testing.T) {
	r := rand.New(rand.NewSource(1))
	var plans []*plan.Plan
	for range 200 {
		at := isa.Addr(0x10000 + r.Intn(1<<16)*2)
		p := &plan.Plan{Point: at, Back: at + isa.Addr(2+2*r.Intn(4)), New: make([]byte, 2)}
		if r.Intn(2) == 0 {
			p.Board = &plan.Board{Addr: isa.Addr(0x10000 + r.Intn(1<<16)*2), New: make([]byte, 8)}
			if r.Intn(2) == 0 {
				p.Board.In = &plan.Eviction{Body: p.Board.Addr - 8, Code: make([]byte, 16+2*r.Intn(100))}
			}
		}
		plans = append(plans, p)
	}
	half, live := plans[:100], []*splice.Live{}
	for _, p := range plans[100:] {
		live = append(live, &splice.Live{Plan: p})
	}
	taken := func(lo, hi isa.Addr) bool {
		return slices.ContainsFunc(live, func(l *splice.Live) bool { return l.Plan.Touches(lo, hi) })
	}
	c, hits := &crowd{plans: half, taken: taken, live: func() []*splice.Live { return live }}, 0
	for range 20000 {
		lo := isa.Addr(0xff00 + r.Intn(1<<17+0x200))
		hi := lo + isa.Addr(1+r.Intn(200))
		want := slices.ContainsFunc(plans, func(p *plan.Plan) bool { return p.Touches(lo, hi) })
		if want {
			hits++
		}
		if got := c.touch(lo, hi); got != want {
			t.Fatalf("[%v, %v): %v, and it is %v", lo, hi, got, want)
		}
	}
	if c.lines == nil || hits == 0 {
		t.Error("nobody asked often, or touched any")
	}
}
