package cfg

import (
	"fmt"
	"math/bits"
	"slices"
	"sort"
	"strings"

	"kerninst/agent/isa"
	"kerninst/agent/ktext"
)

// Options of Build.
type Options struct {
	Workers int // goroutines that decode; 1 if less
}

// regionAlign is what regions are padded to in Pos, in bytes: the largest
// MinLen or more.
const regionAlign = 16

// maxText bounds the text of one kernel and its modules, in bytes.
const maxText = 1 << 30

// Build makes the graph of a kernel and of those of its modules whose sections
// are known.
func Build(t *ktext.Text, opt Options) (*Graph, error) {
	g := &Graph{Arch: t.Arch}
	if err := g.load(t); err != nil {
		return nil, err
	}
	links, err := g.links(t)
	if err != nil {
		return nil, err
	}
	spans := g.spans(t)
	if len(spans) == 0 {
		return nil, fmt.Errorf("no symbol of the kernel lies in its text")
	}
	g.insns = newBitmap(g.size / Pos(g.Arch.MinLen))
	g.pools = g.findPools()
	g.frontWords(t, spans)
	g.signatures(spans)
	pieces := g.sweep(spans, g.sites(links), opt.Workers)
	records := g.join(pieces)
	lead := g.leaders(spans, pieces, records, links)
	g.findTables(t, lead, func(tables []table) {
		g.cut(lead)
		g.link(records, links)
		g.linkTables(tables)
		g.pin(t)
	})
	g.returns()
	g.reach()
	g.count(pieces)
	return g, nil
}

// findTables links the graph with the jump tables that are found in it, in rounds:
// each may show others. lead gets their targets.
func (g *Graph) findTables(t *ktext.Text, lead bitmap, link func([]table)) {
	var tables []table
	link(nil)
	for range maxRounds {
		more := g.resolve(t)
		if len(more) == 0 {
			break
		}
		tables = append(tables, more...)
		for _, m := range more {
			for _, p := range m.targets {
				lead.add(g.unit(p))
			}
		}
		link(tables)
	}
	for {
		sure := g.confirm(t, tables)
		if len(sure) == len(tables) {
			return
		}
		tables = sure
		link(tables)
	}
}

// load reads the kernel's text and the modules' into regions.
func (g *Graph) load(t *ktext.Text) error {
	add := func(module string, lo, hi isa.Addr) error {
		n := (int(hi-lo) + regionAlign - 1) &^ (regionAlign - 1)
		if hi-lo > maxText || uint64(g.size)+uint64(n) > maxText {
			return fmt.Errorf("text of %d bytes at %v: more than %d in all", hi-lo, lo, maxText)
		}
		code := make([]byte, n)
		if err := t.Read(lo, code[:hi-lo]); err != nil {
			return err
		}
		g.Regions = append(g.Regions, Region{Module: module, Addr: lo, Code: code[:hi-lo], base: g.size})
		g.size += Pos(n)
		return nil
	}
	lo, hi := t.Bounds()
	if err := add("", lo, hi); err != nil {
		return err
	}
	for _, m := range t.Modules() {
		for _, s := range t.Sections(m) {
			if s.Text() && s.Size > 0 {
				if err := add(m, s.Addr, s.End()); err != nil {
					return err
				}
			}
		}
		g.Stats.Modules++
	}
	return nil
}

// spans lists the symbols in the regions; what lies before the first symbol of
// a region belongs to none, and is padding.
func (g *Graph) spans(t *ktext.Text) []span {
	var out []span
	names := map[string]bool{}
	for _, r := range g.Regions {
		names[r.Module] = true
	}
	modules := []string{}
	for m := range names {
		modules = append(modules, m)
	}
	sort.Strings(modules)
	for _, m := range modules {
		t.Functions(m, func(f ktext.Func) bool {
			switch p, ok := g.Pos(f.Addr); {
			case !ok:
			case uint64(f.Addr)%uint64(g.Arch.MinLen) != 0:
				g.Stats.OddSymbols++
			default:
				out = append(out, span{lo: p, region: g.regionAt(p), padding: IsPaddingName(f.Name), data: isDataName(f.Name), called: isTrampoline(g.Arch.Name, f.Name)})
			}
			return true
		})
	}
	sort.Slice(out, func(i, j int) bool { return out[i].lo < out[j].lo })
	return g.close(out)
}

// close gives every span its end, and covers what lies before the first of a
// region and behind the last.
func (g *Graph) close(in []span) []span {
	var out []span
	for k := range g.Regions {
		r := &g.Regions[k]
		lo, end := r.base, r.base+Pos(len(r.Code))
		var mine []span
		for len(in) > 0 && in[0].region == k {
			mine = append(mine, in[0])
			in = in[1:]
		}
		if len(mine) == 0 || mine[0].lo > lo {
			mine = append([]span{{lo: lo, region: k, padding: true}}, mine...)
		}
		for n := range mine {
			mine[n].hi = end
			if n+1 < len(mine) {
				mine[n].hi = mine[n+1].lo
			}
		}
		out = append(out, mine...)
	}
	return out
}

// join lays the records of all pieces end to end, with one for the alignment
// behind each region.
func (g *Graph) join(pieces []piece) []record {
	var out []record
	for k := range pieces {
		out = append(out, pieces[k].records...)
	}
	for k := range g.Regions {
		end := g.Regions[k].base + Pos(len(g.Regions[k].Code))
		if next := g.regionEnd(k); next > end {
			out = append(out, record{pos: end, end: next, kind: KindPad, target: NoPos})
		}
	}
	if len(g.Regions) > 1 {
		sort.Slice(out, func(i, j int) bool { return out[i].pos < out[j].pos })
	}
	return out
}

// regionEnd is where the next region begins.
func (g *Graph) regionEnd(k int) Pos {
	if k+1 < len(g.Regions) {
		return g.Regions[k+1].base
	}
	return g.size
}

// leaders marks where blocks begin.
func (g *Graph) leaders(spans []span, pieces []piece, records []record, x *ktext.Links) bitmap {
	m := newBitmap(g.size / Pos(g.Arch.MinLen))
	boundary := func(p Pos) bool { return p%Pos(g.Arch.MinLen) == 0 && g.insns.has(g.unit(p)) }
	for _, s := range spans {
		m.add(g.unit(s.lo))
		if !s.padding && !s.data {
			g.funcs = append(g.funcs, s.lo)
		}
	}
	for _, r := range records {
		if r.kind == KindPad {
			m.add(g.unit(r.pos))
		}
		if r.end < g.size {
			m.add(g.unit(r.end))
		}
		switch {
		case r.bad:
			g.Stats.Outside++
		case r.target == NoPos:
		case boundary(r.target):
			m.add(g.unit(r.target))
		case g.inZeros(records, r.target):
			g.insns.add(g.unit(r.target))
			m.add(g.unit(r.target))
		default:
			g.Stats.Misaligned++
		}
	}
	for k := range pieces {
		for _, p := range pieces[k].taken {
			if boundary(p) {
				m.add(g.unit(p))
			}
		}
	}
	for _, f := range x.Faults {
		g.leadFault(m, f)
	}
	return m
}

// inZeros reports whether p lies in zeros that fill a gap, of which only the first
// was taken for an instruction.
func (g *Graph) inZeros(records []record, p Pos) bool {
	k := sort.Search(len(records), func(k int) bool { return records[k].end > p })
	if k == len(records) || records[k].pos > p || records[k].kind != KindPad || p%Pos(g.Arch.MinLen) != 0 {
		return false
	}
	code := g.Code(p)
	return allZero(code[:min(int(records[k].end-p), len(code))])
}

// leadFault makes the instruction that may fault a block of its own, and its
// fixup the beginning of one.
func (g *Graph) leadFault(m bitmap, f ktext.Fault) {
	p, ok1 := g.Pos(f.Site)
	q, ok2 := g.Pos(f.Fixup)
	if !ok1 || !ok2 {
		return
	}
	if !g.Boundary(f.Site) || !g.Boundary(f.Fixup) {
		g.Stats.Misaligned++
		return
	}
	m.add(g.unit(p))
	m.add(g.unit(q))
	if next := g.insns.next(g.unit(p)+1, g.size/Pos(g.Arch.MinLen)); next < g.size/Pos(g.Arch.MinLen) {
		m.add(next)
	}
}

// cut makes the blocks.
func (g *Graph) cut(lead bitmap) {
	n := 0
	for _, w := range lead {
		n += bits.OnesCount64(w)
	}
	units := g.size / Pos(g.Arch.MinLen)
	g.start = make([]Pos, 0, n+1)
	for u := lead.next(0, units); u < units; u = lead.next(u+1, units) {
		g.start = append(g.start, u*Pos(g.Arch.MinLen))
	}
	g.start = append(g.start, g.size)
	n = len(g.start) - 1
	g.extra, g.pins = nil, nil
	g.kind, g.mark, g.target = make([]Kind, n), make([]Mark, n), make([]Block, n)
	for b := range g.target {
		g.target[b] = NoBlock
	}
}

// link gives blocks their kinds, targets and marks. A record ends its block: its
// end is a leader.
func (g *Graph) link(records []record, x *ktext.Links) {
	b := Block(0)
	for _, r := range records {
		for g.start[b+1] < r.end {
			b++
		}
		g.kind[b] = r.kind
		if r.kind == KindPad {
			for p := b; g.start[p] > r.pos; p-- { // padding that something leads into
				g.kind[p-1] = KindPad
			}
			if r.data {
				g.mark[b] |= Data
			}
			continue
		}
		if r.target != NoPos && r.target%Pos(g.Arch.MinLen) == 0 && g.insns.has(g.unit(r.target)) {
			g.target[b] = g.At(r.target)
		}
		if r.kind == KindJump && g.target[b] == NoBlock {
			g.kind[b] = KindIndirectJump
		}
		if k := r.kind; (k == KindCall || k == KindIndirectCall || k == KindStaticCall) && int(b)+1 < len(g.mark) {
			g.mark[b+1] |= Split
		}
	}
	for k := range g.Regions { // what runs off the end of a region goes nobody knows where
		if last := g.At(g.Regions[k].base + Pos(len(g.Regions[k].Code)) - 1); g.kind[last].Falls() {
			g.kind[last], g.target[last] = KindIndirectJump, NoBlock
		}
	}
	for _, p := range g.funcs {
		g.mark[g.At(p)] |= Entry
	}
	for b, k := range g.kind {
		if t := g.target[b]; k == KindCall && t != NoBlock && g.mark[t]&Entry == 0 {
			g.kind[b] = KindCallLocal
		}
	}
	for _, f := range x.Faults {
		g.linkFault(f)
	}
	sort.SliceStable(g.extra, func(i, j int) bool { return g.extra[i].From < g.extra[j].From })
}

func (g *Graph) linkFault(f ktext.Fault) {
	if !g.Boundary(f.Site) || !g.Boundary(f.Fixup) {
		return
	}
	from, _ := g.AtAddr(f.Site)
	to, _ := g.AtAddr(f.Fixup)
	g.mark[from] |= FaultSite
	g.extra = append(g.extra, Edge{From: from, To: to, Fault: true, Reads: f.Reads})
}

// pin overrides what thunks do, and tells compiled code by its ftrace site.
func (g *Graph) pin(t *ktext.Text) {
	for _, p := range g.funcs {
		b := g.At(p)
		if t.Compiled(g.Addr(p), g.Code(p)) {
			g.mark[b] |= Traced
		}
		f, ok := t.Locate(g.Addr(p))
		if !ok || !strings.HasPrefix(f.Name, "_") && !strings.Contains(f.Name, "thunk") {
			continue
		}
		for _, name := range t.Aliases(f) {
			if pin := findPin(g.Arch.Name, name); pin != nil {
				g.pinBlock(b, pin, name)
				break
			}
		}
	}
}

func (g *Graph) pinBlock(b Block, p *pin, name string) {
	g.kind[b], g.target[b] = p.kind, NoBlock
	g.mark[b] |= Pinned
	if strings.Contains(p.name, "_indirect_") {
		g.pins = append(g.pins, pinned{b, thunkReads(g.Arch, name)})
	}
}

// count sums up.
func (g *Graph) count(pieces []piece) {
	s := &g.Stats
	for k := range pieces {
		s.Overruns += pieces[k].overruns
		for _, p := range pieces[k].undecoded {
			s.Undecoded++
			g.mark[g.At(p)] |= Unknown
		}
	}
	s.Functions = len(g.funcs)
	units := g.size / Pos(g.Arch.MinLen)
	for b := range g.kind {
		n := int(g.start[b+1] - g.start[b])
		if g.mark[b]&Data != 0 {
			s.Data += n
			continue
		}
		if g.kind[b] == KindPad {
			s.Padding += n
			continue
		}
		s.Bytes += n
		for u := g.insns.next(g.unit(g.start[b]), units); u < g.unit(g.start[b+1]); u = g.insns.next(u+1, units) {
			s.Instructions++
		}
		g.countBlock(Block(b))
	}
	s.Edges += len(g.extra)
	slices.Sort(g.jumps)
}

func (g *Graph) countBlock(b Block) {
	s := &g.Stats
	if g.mark[b]&Split == 0 || g.mark[b]&(Entry|Taken|Orphan) != 0 {
		s.Blocks++
	}
	if g.mark[b]&Orphan != 0 {
		s.Orphans++
	}
	switch k := g.kind[b]; k {
	case KindIndirectJump:
		s.Unanalysable++
		g.jumps = append(g.jumps, g.lastInsn(b))
	case KindTable:
		s.JumpTables++
	case KindCall, KindCallNoReturn:
		s.Calls++
	}
	if g.kind[b].Falls() {
		s.Edges++
	}
	if k := g.kind[b]; (k == KindJump || k == KindCond) && g.target[b] != NoBlock {
		s.Edges++
	}
}

// lastInsn is the address of the last instruction of b.
func (g *Graph) lastInsn(b Block) isa.Addr {
	u := g.unit(g.start[b+1])
	for u--; u > g.unit(g.start[b]) && !g.insns.has(u); u-- {
	}
	return g.Addr(u * Pos(g.Arch.MinLen))
}
