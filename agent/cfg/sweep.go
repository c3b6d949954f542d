package cfg

import (
	"slices"
	"sort"
	"sync"
	"sync/atomic"

	"kerninst/agent/isa"
	"kerninst/agent/ktext"
)

// record is an instruction that ends a block, or a run of padding.
type record struct {
	pos, end Pos
	kind     Kind
	bad      bool // the target lies outside the text
	data     bool // of KindPad: no instructions at all
	target   Pos
}

// span is the code of one symbol, [lo, hi).
type span struct {
	lo, hi  Pos
	region  int
	padding bool // of a symbol that stands for padding
	data    bool // holds no code
	called  bool // a static call's trampoline
	words   Pos  // bytes at its end that are data: the next symbol's, or a trampoline's signature
}

// piece is what one worker finds in a run of spans.
type piece struct {
	records   []record
	taken     []Pos // addresses that code forms
	undecoded []Pos
	overruns  int
	insns     int
	bytes     int
}

// sites are the kernel's tables as places, each in order.
type sites struct {
	keys  []keyAt
	calls []Pos
	bugs  []bugAt
}

type keyAt struct{ pos, target Pos }

type bugAt struct {
	pos     Pos
	warning bool
}

func (g *Graph) sites(x *ktext.Links) *sites {
	s := &sites{}
	for _, k := range x.Keys {
		p, ok1 := g.Pos(k.Site)
		t, ok2 := g.Pos(k.Target)
		if ok1 && ok2 {
			s.keys = append(s.keys, keyAt{p, t})
		}
	}
	for _, a := range x.Calls {
		if p, ok := g.Pos(a); ok {
			s.calls = append(s.calls, p)
		}
	}
	for _, b := range x.Bugs {
		if p, ok := g.Pos(b.Site); ok {
			s.bugs = append(s.bugs, bugAt{p, b.Warning})
		}
	}
	slices.SortFunc(s.keys, func(a, b keyAt) int { return int(int64(a.pos) - int64(b.pos)) })
	slices.SortFunc(s.bugs, func(a, b bugAt) int { return int(int64(a.pos) - int64(b.pos)) })
	slices.Sort(s.calls)
	return s
}

func (s *sites) key(p Pos) (Pos, bool) {
	k := sort.Search(len(s.keys), func(k int) bool { return s.keys[k].pos >= p })
	if k < len(s.keys) && s.keys[k].pos == p {
		return s.keys[k].target, true
	}
	return 0, false
}

// any reports whether the kernel knows p: then it is no padding, whatever it is
// now.
func (s *sites) any(p Pos) bool {
	_, key := s.key(p)
	return key || s.call(p)
}

func (s *sites) call(p Pos) bool {
	_, ok := slices.BinarySearch(s.calls, p)
	return ok
}

// bug reports whether the kernel's table lists p, and as a warning.
func (s *sites) bug(p Pos) (listed, warning bool) {
	k := sort.Search(len(s.bugs), func(k int) bool { return s.bugs[k].pos >= p })
	listed = k < len(s.bugs) && s.bugs[k].pos == p
	return listed, listed && s.bugs[k].warning
}

// spansPerPiece is the unit of work: some hundred functions.
const spansPerPiece = 256

// sweep decodes all spans; the pieces come back in order.
func (g *Graph) sweep(spans []span, s *sites, workers int) []piece {
	pieces := make([]piece, (len(spans)+spansPerPiece-1)/spansPerPiece)
	var next atomic.Int64
	var wg sync.WaitGroup
	for range max(workers, 1) {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for {
				n := int(next.Add(1)) - 1
				if n >= len(pieces) {
					return
				}
				w := sweeper{g: g, sites: s, out: &pieces[n]}
				for _, f := range spans[n*spansPerPiece : min((n+1)*spansPerPiece, len(spans))] {
					w.span(f)
				}
				w.flush()
			}
		}()
	}
	wg.Wait()
	return pieces
}

// sweeper decodes a run of spans. Bits of the map of instructions are collected
// in word and added when it is full: neighbours share words.
type sweeper struct {
	g     *Graph
	sites *sites
	out   *piece
	at    Pos
	word  uint64

	region *Region
	last   isa.Op // of the instruction before
	lastAt Pos    // its end
	half   isa.Op // that one, if it has put what may be an address into a register
}

func (w *sweeper) insn(p Pos) {
	u := w.g.unit(p)
	if u/64 != w.at {
		w.flush()
		w.at = u / 64
	}
	w.word |= 1 << (u % 64)
}

func (w *sweeper) flush() {
	if w.word != 0 {
		atomic.OrUint64(&w.g.insns[w.at], w.word)
		w.word = 0
	}
}

// span decodes one symbol's code. Behind an instruction that ends the path,
// what fills gaps is padding.
func (w *sweeper) span(f span) {
	r := &w.g.Regions[f.region]
	w.region = r
	defer w.formed()
	if f.data {
		f.words = f.hi - f.lo
	}
	if f.words > 0 {
		defer w.data(f.hi-f.words, f.hi)
		f.hi -= f.words
	}
	after, padFrom := f.padding, NoPos
	for p := f.lo; p < f.hi; {
		code := r.Code[p-r.base : f.hi-r.base]
		i := w.g.Arch.Decode(r.Code[p-r.base:], r.Addr+isa.Addr(p-r.base))
		end := p + Pos(i.Len)
		if end > f.hi {
			w.out.overruns++
			end = f.hi
		}
		if code[0] == 0 && allZero(code) { // behind a module's text
			after, end = true, f.hi
		}
		if n := w.g.pools.at(p); after && n > 0 {
			if padFrom != NoPos {
				w.emit(record{pos: padFrom, end: p, kind: KindPad})
				padFrom = NoPos
			}
			end = min(p+n, f.hi)
			w.data(p, end)
			p = end
			continue
		}
		w.insn(p)
		if after && (end == f.hi && allZero(code) || IsPad(w.g.Arch.Name, i, code) && !w.sites.any(p)) {
			if padFrom == NoPos {
				padFrom = p
			}
			p = end
			continue
		}
		if padFrom != NoPos {
			w.emit(record{pos: padFrom, end: p, kind: KindPad})
			padFrom = NoPos
		}
		after = w.ends(p, end, i, code)
		w.out.insns++
		w.out.bytes += int(end - p)
		p = end
	}
	if padFrom != NoPos {
		w.emit(record{pos: padFrom, end: f.hi, kind: KindPad})
	}
}

// data records what is no code.
func (w *sweeper) data(lo, hi Pos) {
	if lo < hi {
		w.insn(lo) // something may lead there all the same
		w.emit(record{pos: lo, end: hi, kind: KindPad, target: NoPos, data: true})
	}
}

func allZero(b []byte) bool {
	for _, c := range b {
		if c != 0 {
			return false
		}
	}
	return true
}

func (w *sweeper) emit(r record) { w.out.records = append(w.out.records, r) }

// ends records an instruction that ends a block, and reports whether it ends
// the path too.
func (w *sweeper) ends(p, end Pos, i isa.Insn, code []byte) bool {
	rec := record{pos: p, end: end, target: NoPos, kind: KindFall}
	last, joined := w.last, w.lastAt == p
	w.last, w.lastAt = isa.Op{}, end
	if w.g.Arch.Op != nil {
		w.last = w.g.Arch.Op(code, i.Addr)
		w.forms(w.last, last, joined)
	} else if i.Rel32 > 0 && i.Flow == isa.FlowNone {
		w.take(i.Operand)
	}
	if t, ok := w.sites.key(p); ok {
		rec.kind, rec.target = KindCond, t
		w.emit(rec)
		return false
	}
	if i.Flow == isa.FlowNone && w.sites.call(p) {
		rec.kind = KindStaticCall
		w.emit(rec)
		return false
	}
	switch i.Flow {
	case isa.FlowNone:
		return false
	case isa.FlowUnknown:
		w.out.undecoded = append(w.out.undecoded, p)
		return false
	case isa.FlowJump, isa.FlowCond, isa.FlowCall:
		rec.kind = directKinds[i.Flow]
		w.aim(&rec, i.Target)
	case isa.FlowReturn:
		rec.kind = KindReturn
	case isa.FlowIndirectJump, isa.FlowIndirectCall:
		rec.kind = KindIndirectJump
		if i.Flow == isa.FlowIndirectCall {
			rec.kind = KindIndirectCall
		}
		if to, ok := JoinedTarget(w.last, last); ok && joined {
			rec.kind = map[Kind]Kind{KindIndirectJump: KindJump, KindIndirectCall: KindCall}[rec.kind]
			w.aim(&rec, to)
		}
	case isa.FlowTrap:
		bug, warning := w.sites.bug(p)
		if warning {
			return false
		}
		if rec.kind = KindTrap; !bug {
			rec.kind = trapKind(w.g.Arch.Name, code)
		}
	}
	if w.sites.call(p) { // what it does now says nothing about later
		rec.target = NoPos
		switch rec.kind {
		case KindCall, KindTrap: // where a call is meant, 7.x has a trap for some functions (WARN_trap), which comes back
			rec.kind = KindStaticCall
		case KindJump, KindReturn:
			rec.kind = KindTail
		}
	}
	w.emit(rec)
	return !rec.kind.Falls()
}

var directKinds = map[isa.Flow]Kind{isa.FlowJump: KindJump, isa.FlowCond: KindCond, isa.FlowCall: KindCall}

// JoinedTarget is where a jump through a register leads that the instruction
// before it loaded with an address.
func JoinedTarget(jump, before isa.Op) (isa.Addr, bool) {
	if jump.Kind != isa.OpJump || before.Kind != isa.OpConst || before.Dst != jump.A {
		return 0, false
	}
	return isa.Addr(before.Imm+jump.Imm) &^ 1, true
}

// aim sets the target of a direct jump or call. A jump that leads outside is
// as good as unknown.
func (w *sweeper) aim(rec *record, a isa.Addr) {
	r := w.region
	if a >= r.Addr && a < r.End() {
		rec.target = r.base + Pos(a-r.Addr)
		return
	}
	var ok bool
	if rec.target, ok = w.g.Pos(a); !ok {
		rec.bad = true
	}
}

// forms notes an address that an instruction, or it and the one before, puts into a register.
// One that the next instruction adds to in place, or calls or loads from at a distance, has half an
// address in it, which may be anywhere within two KiB of what is meant: riscv64's auipc has one for
// each call of a function that is far away.
func (w *sweeper) forms(op, before isa.Op, joined bool) {
	half := joined && before.Kind == isa.OpConst && before.Dst == op.A
	switch {
	case half && op.Kind == isa.OpAdd:
		w.take(isa.Addr(before.Imm + op.Imm))
		half = op.Dst == before.Dst
	case half && (op.Kind == isa.OpJump || op.Kind == isa.OpLoad):
	default:
		half = false
	}
	if !half {
		w.formed()
	}
	w.half = isa.Op{}
	if op.Kind == isa.OpConst {
		w.half = op
	}
}

// formed notes the address that the last instruction has put into a register, if it has.
func (w *sweeper) formed() {
	if w.half.Kind == isa.OpConst {
		w.take(isa.Addr(w.half.Imm))
	}
	w.half = isa.Op{}
}

func (w *sweeper) take(a isa.Addr) {
	if r := w.region; a >= r.Addr && a < r.End() {
		w.out.taken = append(w.out.taken, r.base+Pos(a-r.Addr))
	}
}
