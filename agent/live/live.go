package live

import (
	"fmt"

	"kerninst/agent/cfg"
	"kerninst/agent/isa"
)

// In is what is live where b begins.
func (l *Live) In(b cfg.Block) isa.RegSet {
	if l.g.Kind(b) == cfg.KindPad {
		return l.all
	}
	return l.use[b] | l.want[b]&^l.def[b]
}

// Out is what is live behind b's last instruction, or, if that is a call, what
// is live once control has reached the callee.
func (l *Live) Out(b cfg.Block) isa.RegSet {
	if l.g.Kind(b) == cfg.KindPad {
		return l.all
	}
	use, def := l.after(b)
	return use | l.want[b]&^def
}

// Callee is what a call of the code at b may read before it writes it, and what
// it overwrites on every path to its return.
func (l *Live) Callee(b cfg.Block) (reads, overwrites isa.RegSet) { return l.use[b], l.def[b] }

// Hidden is what is dead where b begins by convention alone: what reads it from
// there on, say to save the flags, reads nothing that matters.
func (l *Live) Hidden(b cfg.Block) isa.RegSet { return l.hidden(b) }

// Watched is what may be read where b begins though its code does not: the arguments
// of a function that can be traced, by who traces it or puts another in its place.
func (l *Live) Watched(b cfg.Block) isa.RegSet {
	if l.g.Marks(b)&cfg.Traced == 0 {
		return 0
	}
	return l.conv.args
}

// What is assumed, for who solves it in another way: an unknown callee may read
// Given and leaves Lost changed; the callee of an Opaque block need not be C;
// callers that are not known want Root of a block; what nothing is seen to lead
// to Follows the entry of its symbol; of what is wanted of a block, callers read Most.
func (l *Live) Given() isa.RegSet               { return l.conv.args | l.conv.saved }
func (l *Live) Lost() isa.RegSet                { return l.conv.scratch }
func (l *Live) Opaque(b cfg.Block) bool         { return l.opaque[b] }
func (l *Live) Root(b cfg.Block) isa.RegSet     { return l.roots[b] }
func (l *Live) Follows(b cfg.Block) []cfg.Block { return l.orphans[b] }
func (l *Live) Most(b cfg.Block) isa.RegSet     { return l.most[b] }

// Scratch is what an unknown callee, which is C, leaves undefined. Code may still
// copy it: a function with a variable number of arguments saves those that it was
// not given.
func (l *Live) Scratch() isa.RegSet { return l.conv.scratch &^ l.conv.results }

// Each decodes b and visits its instructions backwards, with what is live before
// and behind each.
func (l *Live) Each(b cfg.Block, visit func(i isa.Insn, before, behind isa.RegSet)) {
	var list []isa.Insn
	l.g.Insns(b, func(i isa.Insn) { list = append(list, i) })
	live := l.Out(b)
	for k := len(list) - 1; k >= 0; k-- {
		before := list[k].Reads | live&^list[k].Writes
		if l.g.Marks(b)&cfg.Pinned != 0 {
			before = l.all
		}
		if l.g.Marks(b)&cfg.FaultSite != 0 {
			for _, e := range l.g.Extra(b) {
				if e.Fault {
					before |= l.Fault(e)
				}
			}
		}
		visit(list[k], before, live)
		live = before
	}
}

// Fault is what is live where an edge of a fault is taken.
func (l *Live) Fault(e cfg.Edge) isa.RegSet {
	return e.Reads | l.use[e.To] | l.want[e.From]&^l.def[e.To]
}

// Before is what is live before the instruction at a. Padding, and places where
// no instruction begins, are errors.
func (l *Live) Before(a isa.Addr) (isa.RegSet, error) {
	b, ok := l.g.AtAddr(a)
	if !ok {
		return 0, fmt.Errorf("%v is not in the text", a)
	}
	if l.g.Kind(b) == cfg.KindPad || !l.g.Boundary(a) {
		return 0, fmt.Errorf("no instruction that runs begins at %v", a)
	}
	got := l.all
	l.Each(b, func(i isa.Insn, before, _ isa.RegSet) {
		if i.Addr == a {
			got = before
		}
	})
	return got, nil
}

// Free is what a snippet before the instruction at a may overwrite.
func (l *Live) Free(a isa.Addr) (isa.RegSet, error) {
	live, err := l.Before(a)
	return l.all &^ live &^ l.g.Arch.NeverUse, err
}

// AverageFree is the mean number of free registers, flags not counted, over all
// instructions but padding; and the share of instructions where the flags are.
func (l *Live) AverageFree() (registers, flags float64) {
	var n, regs, fl int
	mask := l.all &^ l.g.Arch.NeverUse
	for b := range cfg.Block(l.g.Blocks()) {
		if l.g.Kind(b) == cfg.KindPad {
			continue
		}
		l.Each(b, func(_ isa.Insn, before, _ isa.RegSet) {
			free := mask &^ before
			n++
			regs += free.Len()
			if free.Has(l.g.Arch.Flags) {
				regs--
				fl++
			}
		})
	}
	if n == 0 {
		return 0, 0
	}
	return float64(regs) / float64(n), float64(fl) / float64(n)
}

// Check verifies that the solution solves its equations.
func (l *Live) Check() error {
	n := l.g.Blocks()
	if len(l.use) != n || len(l.def) != n || len(l.want) != n {
		return fmt.Errorf("live: %d blocks, %d, %d and %d sets", n, len(l.use), len(l.def), len(l.want))
	}
	var succ []cfg.Block
	for b := range cfg.Block(n) {
		use, def := l.equation(b)
		switch {
		case l.g.Kind(b) == cfg.KindPad:
			continue
		case use != l.use[b] || def != l.def[b]:
			return fmt.Errorf("live: block at %v: use %#x, def %#x; its equation says %#x, %#x", l.g.Start(b), l.use[b], l.def[b], use, def)
		case l.reads[b]&^l.In(b)&^l.hidden(b) != 0:
			return fmt.Errorf("live: block at %v reads %s, which is dead", l.g.Start(b), l.g.Arch.Names(l.reads[b]&^l.In(b)))
		}
		succ = l.g.Succ(b, succ[:0])
		for _, s := range succ {
			if l.want[b]&^l.want[s]&l.most[s] != 0 {
				return fmt.Errorf("live: block at %v wants less than the block at %v before it", l.g.Start(s), l.g.Start(b))
			}
		}
		if t := l.g.Target(b); l.wants(b) && l.In(b+1)&^l.want[t]&l.most[t] != 0 {
			return fmt.Errorf("live: the callee at %v does not know of what %v wants", l.g.Start(t), l.g.Start(b+1))
		}
	}
	return nil
}
