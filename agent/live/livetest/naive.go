// Package livetest solves liveness the slow way, for tests: one register at a
// time, by questions about paths that are each asked again and again until
// nothing changes.
//
//	passes(b)  some path from b to the return leaves the register alone
//	reads(b)   some path from b reads it before it is overwritten
//	asked(b)   some caller of an activation that reaches b reads it afterwards
//
// It is live where b begins if reads(b), or asked(b) and passes(b).
package livetest

import (
	"kerninst/agent/cfg"
	"kerninst/agent/isa"
	"kerninst/agent/live"
)

// Naive answers for one register of one graph.
type Naive struct {
	g *cfg.Graph
	l *live.Live
	r isa.Reg

	first                []access
	passes, reads, asked []bool
}

// access is what the instructions of a block first do to the register.
type access uint8

const (
	leaves access = iota
	readsIt
	writesIt
)

// Solve answers for register r. Of l it takes what is assumed, not what is
// solved. roots are what callers that are not known ask of a block.
func Solve(g *cfg.Graph, l *live.Live, r isa.Reg, roots func(cfg.Block) isa.RegSet) *Naive {
	n := &Naive{g: g, l: l, r: r, first: make([]access, g.Blocks()),
		passes: make([]bool, g.Blocks()), reads: make([]bool, g.Blocks()), asked: make([]bool, g.Blocks())}
	for b := range cfg.Block(g.Blocks()) {
		n.first[b] = n.access(b)
		n.asked[b] = (roots(b) & l.Most(b)).Has(r)
	}
	n.again(n.passes, n.doesPass)
	n.again(n.reads, n.doesRead)
	n.ask()
	return n
}

// Live is whether the register is live where b begins.
func (n *Naive) Live(b cfg.Block) bool { return n.reads[b] || n.asked[b] && n.passes[b] }

// again asks a question of every block until no answer turns to yes any more.
func (n *Naive) again(answers []bool, question func(cfg.Block) bool) {
	for changed := true; changed; {
		changed = false
		for b := len(answers) - 1; b >= 0; b-- {
			if !answers[b] && question(cfg.Block(b)) {
				answers[b], changed = true, true
			}
		}
	}
}

func (n *Naive) access(b cfg.Block) access {
	if n.g.Marks(b)&cfg.Pinned != 0 {
		if n.g.Reads(b).Has(n.r) {
			return readsIt
		}
		return leaves
	}
	got := leaves
	if n.g.Kind(b) == cfg.KindPad {
		return got
	}
	n.g.Insns(b, func(i isa.Insn) {
		switch {
		case got != leaves:
		case i.Reads.Has(n.r):
			got = readsIt
		case i.Writes.Has(n.r):
			got = writesIt
		}
	})
	return got
}

// faults lists where b goes instead of executing.
func (n *Naive) faults(b cfg.Block, yes func(cfg.Edge) bool) bool {
	for _, e := range n.g.Extra(b) {
		if e.Fault && yes(e) {
			return true
		}
	}
	return false
}

// unknown is whether b's last instruction may lead anywhere.
func unknown(k cfg.Kind) bool {
	return k == cfg.KindIndirectJump || k == cfg.KindGate || k == cfg.KindExit
}

// writes is whether b overwrites the register on every execution, after reading
// it perhaps.
func (n *Naive) writes(b cfg.Block) bool {
	if n.first[b] != readsIt {
		return n.first[b] == writesIt
	}
	found := false
	if n.g.Marks(b)&cfg.Pinned == 0 {
		n.g.Insns(b, func(i isa.Insn) { found = found || i.Writes.Has(n.r) })
	}
	return found
}

func (n *Naive) doesPass(b cfg.Block) bool {
	if n.l.Hidden(b).Has(n.r) {
		return false
	}
	if n.faults(b, func(e cfg.Edge) bool { return n.passes[e.To] }) {
		return true
	}
	if n.writes(b) {
		return false
	}
	k, t := n.g.Kind(b), n.g.Target(b)
	next := func() bool { return int(b)+1 == n.g.Blocks() || n.passes[b+1] }
	switch {
	case k == cfg.KindReturn || unknown(k):
		return true
	case k == cfg.KindTail:
		return !n.l.Lost().Has(n.r)
	case k == cfg.KindCall && t != cfg.NoBlock && !n.l.Opaque(b):
		return n.passes[t] && next()
	case k == cfg.KindIndirectCall && !n.l.Opaque(b):
		return !n.l.Lost().Has(n.r) && next()
	case k == cfg.KindCall || k == cfg.KindIndirectCall || k == cfg.KindStaticCall:
		return next()
	}
	return n.some(b, n.passes)
}

// some is whether a successor of b has the answer yes.
func (n *Naive) some(b cfg.Block, answers []bool) bool {
	if k := n.g.Kind(b); (k == cfg.KindCond || k == cfg.KindCallLocal) && n.g.Target(b) == cfg.NoBlock {
		return true
	} else if (k == cfg.KindCond || k == cfg.KindJump) && n.l.Opaque(b) {
		return true
	}
	for _, s := range n.g.Succ(b, nil) {
		fault := false
		for _, e := range n.g.Extra(b) {
			fault = fault || e.Fault && e.To == s && s != b+1 && s != n.g.Target(b)
		}
		if !fault && answers[s] {
			return true
		}
	}
	return false
}

func (n *Naive) doesRead(b cfg.Block) bool {
	if n.l.Hidden(b).Has(n.r) {
		return false
	}
	if n.l.Watched(b).Has(n.r) {
		return true
	}
	if n.faults(b, func(e cfg.Edge) bool { return n.reads[e.To] || e.Reads.Has(n.r) }) || n.first[b] == readsIt {
		return true
	}
	if n.first[b] == writesIt {
		return false
	}
	k, t := n.g.Kind(b), n.g.Target(b)
	next := func() bool { return int(b)+1 == n.g.Blocks() || n.reads[b+1] }
	switch {
	case unknown(k):
		return true
	case k == cfg.KindTail:
		return n.l.Given().Has(n.r)
	case k == cfg.KindReturn || k == cfg.KindTrap || k == cfg.KindPad:
		return false
	case k == cfg.KindCall && t != cfg.NoBlock && !n.l.Opaque(b):
		return n.reads[t] || n.passes[t] && next()
	case k == cfg.KindCallNoReturn:
		return n.reads[t]
	case k == cfg.KindCall || n.l.Opaque(b):
		return true
	case k == cfg.KindIndirectCall:
		return n.l.Given().Has(n.r) || !n.l.Lost().Has(n.r) && next()
	case k == cfg.KindStaticCall:
		return n.l.Given().Has(n.r) || next()
	}
	return n.some(b, n.reads)
}

// ask hands what callers read down to the ends of activations.
func (n *Naive) ask() {
	for changed := true; changed; {
		changed = false
		tell := func(b cfg.Block) {
			if !n.asked[b] && n.l.Most(b).Has(n.r) {
				n.asked[b], changed = true, true
			}
		}
		for b := range cfg.Block(n.g.Blocks()) {
			if n.asked[b] {
				for _, s := range n.g.Succ(b, nil) {
					tell(s)
				}
			}
			k, t := n.g.Kind(b), n.g.Target(b)
			if (k == cfg.KindCall || k == cfg.KindCallLocal) && t != cfg.NoBlock && int(b)+1 < n.g.Blocks() && n.Live(b+1) {
				tell(t)
			}
			for _, o := range n.l.Follows(b) {
				if n.asked[b] {
					tell(o)
				}
			}
		}
	}
}
