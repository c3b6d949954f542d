package daemon

import (
	"slices"

	"kerninst/agent/isa"
	"kerninst/agent/plan"
	"kerninst/agent/splice"
)

// crowd is plans that are, or will be, live together, for who asks what they touch: mostly
// twice or so, and a thousand times where room for a springboard is looked for.
type crowd struct {
	plans []*plan.Plan
	taken func(lo, hi isa.Addr) bool // whether what is live does
	live  func() []*splice.Live
	asked int
	lines map[isa.Addr][]*plan.Plan // by lines that they touch; made for who asks often
}

const (
	crowdLine = 64 // bytes
	// seldom is how often it takes less to look at all plans than to sort them once.
	seldom = 8
)

// touch reports whether a plan touches [lo, hi).
func (c *crowd) touch(lo, hi isa.Addr) bool {
	touches := func(p *plan.Plan) bool { return p.Touches(lo, hi) }
	if c.asked++; c.asked <= seldom {
		return slices.ContainsFunc(c.plans, touches) || c.taken(lo, hi)
	}
	if c.lines == nil {
		c.sort()
	}
	for a := lo / crowdLine; a*crowdLine < hi; a++ {
		if slices.ContainsFunc(c.lines[a], touches) {
			return true
		}
	}
	return false
}

func (c *crowd) sort() {
	c.lines = map[isa.Addr][]*plan.Plan{}
	plans := slices.Clone(c.plans)
	for _, l := range c.live() {
		plans = append(plans, l.Plan)
	}
	for _, p := range plans {
		for _, w := range p.Windows() {
			for a := w.Lo / crowdLine; a*crowdLine < w.Hi; a++ {
				c.lines[a] = append(c.lines[a], p)
			}
		}
	}
}
