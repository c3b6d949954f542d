package cfg

import "fmt"

// Check verifies the graph's invariants; see the package's comment.
func (g *Graph) Check() error {
	n := len(g.kind)
	if len(g.start) != n+1 || len(g.mark) != n || len(g.target) != n || n == 0 || g.start[0] != 0 || g.start[n] != g.size {
		return fmt.Errorf("cfg: %d blocks do not tile %d bytes", n, g.size)
	}
	for b := Block(0); int(b) < n; b++ {
		if err := g.checkBlock(b); err != nil {
			return fmt.Errorf("cfg: block %d at %v (%v): %w", b, g.Start(b), g.kind[b], err)
		}
	}
	for k, e := range g.extra {
		if int(e.From) >= n || int(e.To) >= n || k > 0 && e.From < g.extra[k-1].From {
			return fmt.Errorf("cfg: edge %d from block %d to %d: out of order or to no block", k, e.From, e.To)
		}
		if e.Fault != (g.mark[e.From]&FaultSite != 0) {
			return fmt.Errorf("cfg: edge %d from block %d: a fault that its block does not know of, or the reverse", k, e.From)
		}
	}
	return nil
}

func (g *Graph) checkBlock(b Block) error {
	k, t := g.kind[b], g.target[b]
	switch {
	case k >= kinds:
		return fmt.Errorf("no such kind")
	case g.start[b] >= g.start[b+1]:
		return fmt.Errorf("is empty")
	case k != KindPad && !g.insns.has(g.unit(g.start[b])):
		return fmt.Errorf("does not begin at an instruction")
	case t != NoBlock && int(t) >= len(g.kind):
		return fmt.Errorf("leads to block %d of %d", t, len(g.kind))
	case k == KindJump && t == NoBlock:
		return fmt.Errorf("leads nowhere")
	case k != KindPad && g.mark[b]&Reached == 0:
		return fmt.Errorf("neither reached nor marked as an orphan")
	case k == KindPad && g.mark[b]&Reached != 0:
		return fmt.Errorf("padding, and reached")
	}
	if last := int(b)+1 == len(g.kind); !last && k.Falls() && g.kind[b+1] == KindPad {
		return fmt.Errorf("falls into padding")
	}
	return nil
}
