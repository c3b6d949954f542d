package cfg

import (
	"slices"
	"sort"
	"strings"

	"kerninst/agent/isa"
	"kerninst/agent/ktext"
)

// table is a jump whose targets are known.
type table struct {
	jump    Pos // the end of its block
	targets []Pos
}

// maxRounds bounds how often resolving some jumps lets others be resolved.
const maxRounds = 6

func isCold(name string) bool { return strings.Contains(name, ".cold") }

// resolve finds the targets of indirect jumps that are still unknown.
func (g *Graph) resolve(t *ktext.Text) []table {
	if g.Arch.Op == nil {
		return nil
	}
	return g.slice(&slicer{g: g, text: t, preds: g.Preds(), busy: map[origin]bool{}}, KindIndirectJump)
}

// confirm is those of the tables, all of which are linked, that are found once
// more, and the same. In functions where some jump is still unknown, what nothing
// is seen to reach counts: that jump may lead there.
func (g *Graph) confirm(t *ktext.Text, tables []table) (out []table) {
	if len(tables) == 0 {
		return nil
	}
	unknown := map[string]bool{}
	for b, k := range g.kind {
		if f, ok := t.Locate(g.Start(Block(b))); ok && k == KindIndirectJump {
			unknown[wholeName(f)] = true
		}
	}
	again := map[Pos][]Pos{}
	s := &slicer{g: g, text: t, preds: g.Preds(), busy: map[origin]bool{}, unknown: unknown}
	for _, x := range g.slice(s, KindTable) {
		again[x.jump] = x.targets
	}
	for _, x := range tables {
		if slices.Equal(again[x.jump], x.targets) {
			out = append(out, x)
		}
	}
	return out
}

// wholeName is the name of a function of which f may be a half.
func wholeName(f ktext.Func) string {
	name, _, _ := strings.Cut(f.Name, ".cold")
	return f.Module + ":" + name
}

// slice finds the targets of jumps that end blocks of one kind.
func (g *Graph) slice(s *slicer, kind Kind) []table {
	var out []table
	var fn isa.Addr
	for b, k := range g.kind {
		if k != kind {
			continue
		}
		if f, ok := s.text.Locate(g.Start(Block(b))); !ok || f.Addr != fn {
			s.insns, s.consts, s.all = map[Block][]step{}, map[origin]value{}, s.unknown[wholeName(f)]
			fn = f.Addr
		}
		if list := s.targets(Block(b)); list != nil {
			slices.Sort(list)
			out = append(out, table{g.start[b+1], slices.Compact(list)})
		}
	}
	return out
}

// linkTables gives the blocks of resolved jumps their edges.
func (g *Graph) linkTables(tables []table) {
	for _, t := range tables {
		b := g.At(t.jump - 1)
		if g.kind[b] != KindIndirectJump {
			continue
		}
		g.kind[b] = KindTable
		for _, p := range t.targets {
			g.extra = append(g.extra, Edge{From: b, To: g.At(p)})
		}
	}
	sort.SliceStable(g.extra, func(i, j int) bool { return g.extra[i].From < g.extra[j].From })
}
