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
	s := &slicer{g: g, text: t, preds: g.Preds(), busy: map[origin]bool{}}
	var out []table
	var fn isa.Addr
	for b, k := range g.kind {
		if k != KindIndirectJump {
			continue
		}
		if f, ok := t.Locate(g.Start(Block(b))); !ok || f.Addr != fn {
			s.insns = map[Block][]step{}
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
