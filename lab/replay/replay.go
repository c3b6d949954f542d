// Package replay holds a kernel's graph and live registers against what an
// emulated CPU executed, instruction by instruction.
//
// A plugin (lab/oracle/plugin/trace.c) records the kernel's instructions. Replaying them,
// each direct jump, call and fall-through must be an edge of the graph, each
// return must lead behind a call that may return, of the function that returns or
// of one that jumps on to functions that are not known, each jump through a known
// table to one of its targets. And no register or flag that was called dead may
// be read before it has been overwritten: what is dead before an instruction is
// poisoned there, writes clear it, a read of it is a contradiction.
//
// An interrupt or exception saves and restores registers that mean nothing to
// it, so the poison is dropped where control enters a vector and where it leaves
// by a return from exception; what is dead there is poisoned again at the next
// instruction. Where a function begins with an ftrace site, what the calling
// convention alone calls dead is let off, and so is what an unknown callee leaves
// undefined: it may be saved and restored. Thunks are stepped over.
package replay

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"sort"
	"strings"

	"kerninst/agent/cfg"
	"kerninst/agent/isa"
	"kerninst/agent/ktext"
	"kerninst/agent/live"
)

// Plugin is the source of the plugin, below the repository's root.
const Plugin = "lab/oracle/plugin/trace.c"

// Report is what a replay saw.
type Report struct {
	Instructions int // of the text that was analysed
	Outside      int // runs outside the text that was analysed
	Exceptions   int
	Direct       int // edges taken
	Returns      int
	Indirect     int
	Executed     int // different instructions
	// Odd lists indirect transfers that are not to a symbol or behind a call, by
	// where they left from, with counts: traps and switches to new tasks.
	Odd map[string]int
	// Wrong lists contradictions by place and kind, with counts.
	Wrong map[string]int
}

// maxWrong bounds how many different contradictions are kept.
const maxWrong = 1000

// vectors begin the names of the symbols where exceptions and interrupts enter.
var vectors = map[string][]string{
	"amd64":   {"asm_", "irq_entries_start", "spurious_entries_start", "entry_SYSCALL", "entry_INT80", "error_entry"},
	"arm64":   {"vectors", "__bp_harden_el1_vectors", "tramp_vectors"},
	"riscv64": {"handle_exception"},
}

// step is what is needed of one instruction.
type step struct {
	b              cfg.Block
	reads, writes  isa.RegSet
	parts          isa.RegSet // written in part
	copies         isa.RegSet // read, whatever is in them: pushf
	dead           isa.RegSet // before it
	len            uint8
	last           bool       // of its block
	hidden         isa.RegSet // before it, by convention alone
	vector, pinned bool       // of its symbol
	seen           bool
}

// Replayer checks one trace.
type Replayer struct {
	g    *cfg.Graph
	l    *live.Live
	t    *ktext.Text
	at   []int32 // by Pos / MinLen: index in steps plus one
	list []step

	report  *Report
	endings map[cfg.Block]*ending
	poison  isa.RegSet
	// left is what holds nothing behind the call of a function that may be traced, or leads to one. Code may still copy it,
	// or write a part and then read the whole.
	left   isa.RegSet
	prev   int // index in list; -1: nothing is known of it
	prevAt isa.Addr
}

// Check replays a trace of a kernel that was analysed from the same memory.
func Check(trace io.Reader, g *cfg.Graph, l *live.Live, t *ktext.Text) (*Report, error) {
	_, end := g.Bounds(cfg.Block(g.Blocks() - 1))
	r := &Replayer{g: g, l: l, t: t, at: make([]int32, int(end)/g.Arch.MinLen+1), prev: -1, endings: map[cfg.Block]*ending{},
		report: &Report{Odd: map[string]int{}, Wrong: map[string]int{}}}
	in := bufio.NewReaderSize(trace, 1<<20)
	var b [8]byte
	for {
		if _, err := io.ReadFull(in, b[:]); err != nil {
			return nil, fmt.Errorf("the trace has no end: the machine did not end by itself: %w", err)
		}
		w := binary.LittleEndian.Uint64(b[:])
		switch w {
		case 0:
			r.forget()
		case ^uint64(0):
			for k := range r.list {
				if r.list[k].seen {
					r.report.Executed++
				}
			}
			return r.report, nil
		default:
			r.run(isa.Addr(w|0xffff<<48), int(w>>48))
		}
	}
}

// forget is for places where it is not known what the registers hold.
func (r *Replayer) forget() { r.poison, r.prev = 0, -1 }

// run replays n instructions from a on.
func (r *Replayer) run(a isa.Addr, n int) {
	k := r.find(a)
	if k < 0 {
		r.report.Outside++
		r.forget()
		return
	}
	r.enter(a, k)
	for ; n > 0; n-- {
		if k = r.find(a); k < 0 {
			r.report.Outside++
			r.forget()
			return
		}
		if r.prev >= 0 && r.prevAt+isa.Addr(r.list[r.prev].len) == a {
			r.through(a, k)
		}
		s := &r.list[k]
		s.seen = true
		r.report.Instructions++
		if !s.pinned {
			r.poison = (r.poison | s.dead) &^ s.hidden
			if bad := r.poison & s.reads &^ (r.left & s.copies); bad != 0 {
				r.wrong(a, "reads %s, which was dead", r.g.Arch.Names(bad))
				r.poison &^= bad
			}
			r.poison &^= s.writes | r.left&s.parts
			r.left &^= s.writes
		}
		r.prev, r.prevAt = k, a
		a += isa.Addr(s.len)
	}
}

// through: control fell through from the instruction before.
func (r *Replayer) through(a isa.Addr, k int) {
	p, s := &r.list[r.prev], &r.list[k]
	if !p.last || p.pinned || p.b == s.b {
		return
	}
	kind := r.g.Kind(p.b)
	if !kind.Falls() { // perhaps it leads to what follows it
		r.edge(p, a, s)
		return
	}
	r.report.Direct++
	if kind == cfg.KindCall || kind == cfg.KindIndirectCall {
		r.wrong(r.prevAt, "a block that ends in %v was fallen through", kind)
	}
}

// enter: control came to a from elsewhere.
func (r *Replayer) enter(a isa.Addr, k int) {
	s := &r.list[k]
	if r.prev < 0 {
		return
	}
	p := &r.list[r.prev]
	defer func() { r.prev = -1 }()
	if r.prevAt+isa.Addr(p.len) == a { // a long run, cut in two
		r.through(a, k)
		return
	}
	if s.vector && !(p.last && r.leads(p.b, s.b)) {
		r.report.Exceptions++
		r.poison = 0
		return
	}
	if p.pinned {
		r.report.Indirect++
		return
	}
	if !p.last {
		r.wrong(r.prevAt, "control left the middle of a block, to %s", r.place(a))
		r.poison = 0
		return
	}
	r.edge(p, a, s)
}

// leads reports whether the graph has a direct edge or call.
func (r *Replayer) leads(from, to cfg.Block) bool { return r.g.Target(from) == to }

// edge checks a transfer from the end of a block.
func (r *Replayer) edge(p *step, a isa.Addr, s *step) {
	lo, _ := r.g.Bounds(s.b)
	begins := r.g.Addr(lo) == a
	switch kind := r.g.Kind(p.b); kind {
	case cfg.KindJump, cfg.KindCond, cfg.KindCall, cfg.KindCallLocal, cfg.KindCallNoReturn:
		r.report.Direct++
		if !begins || !r.leads(p.b, s.b) {
			r.wrong(r.prevAt, "%v went to %s", kind, r.place(a))
		}
	case cfg.KindTable:
		r.report.Indirect++
		for _, e := range r.g.Extra(p.b) {
			if begins && e.To == s.b {
				return
			}
		}
		r.wrong(r.prevAt, "a jump by a table went to %s, which is not in it", r.place(a))
	case cfg.KindReturn:
		r.report.Returns++
		r.poison &= r.l.Most(p.b) // of the rest callers save what they were not given, see Scratch
		switch {
		case begins && s.b > 0 && r.g.Kind(s.b-1) == cfg.KindCallNoReturn:
			r.wrong(a, "returned from a function that never returns")
		case !begins || s.b == 0 || !isCall(r.g.Kind(s.b-1)):
			r.odd("return", a)
		case r.unknownCallee(s.b - 1):
			r.poison &^= r.l.Scratch()
		default:
			r.returned(p.b, s.b-1)
		}
	case cfg.KindExit:
		r.poison = 0
	case cfg.KindTail, cfg.KindIndirectCall, cfg.KindStaticCall, cfg.KindIndirectJump:
		r.report.Indirect++
		if r.g.Marks(s.b)&cfg.Entry == 0 || !begins {
			r.odd(kind.String(), a)
		}
	default:
		r.wrong(r.prevAt, "a block that ends in %v went to %s", kind, r.place(a))
	}
}

// unknownCallee reports whether b ends in a call of what is only known to be C.
func (r *Replayer) unknownCallee(b cfg.Block) bool {
	t := r.g.Target(b)
	return r.g.Kind(b) != cfg.KindCall || t != cfg.NoBlock && r.g.Marks(t)&cfg.Pinned != 0
}

// ending is how the activations of one callee may end.
type ending struct {
	blocks  map[cfg.Block]bool // all that they run
	unknown bool               // some jump leads to a function that is not known
	hidden  isa.RegSet         // where some of them begin
}

// returned: block from returned behind the call that ends block call, of a callee
// that is known. Either from is part of that callee's activation, or that jumped
// to something unknown, which is C and leaves undefined what C may.
func (r *Replayer) returned(from, call cfg.Block) {
	t := r.g.Target(call)
	if r.g.Kind(call) != cfg.KindCall || t == cfg.NoBlock {
		return
	}
	e := r.ending(t)
	r.left |= e.hidden
	switch {
	case e.blocks[from]:
	case e.unknown:
		r.poison &^= r.l.Scratch()
	default:
		r.wrong(r.prevAt, "returned behind the call of %s, which does not lead here", r.place(r.g.Start(t)))
	}
}

func (r *Replayer) ending(t cfg.Block) *ending {
	if e := r.endings[t]; e != nil {
		return e
	}
	e := &ending{blocks: map[cfg.Block]bool{t: true}}
	work := []cfg.Block{t}
	for len(work) > 0 {
		b := work[len(work)-1]
		work = work[:len(work)-1]
		e.hidden |= r.l.Hidden(b)
		switch r.g.Kind(b) {
		case cfg.KindTail, cfg.KindIndirectJump:
			e.unknown = true
		}
		for _, s := range r.g.Succ(b, nil) {
			if !e.blocks[s] {
				e.blocks[s] = true
				work = append(work, s)
			}
		}
	}
	r.endings[t] = e
	return e
}

func isCall(k cfg.Kind) bool {
	return k == cfg.KindCall || k == cfg.KindCallLocal || k == cfg.KindIndirectCall || k == cfg.KindStaticCall
}

func (r *Replayer) odd(kind string, to isa.Addr) {
	r.report.Odd[fmt.Sprintf("%s from %s to %s", kind, r.place(r.prevAt), r.place(to))]++
}

func (r *Replayer) wrong(a isa.Addr, format string, args ...any) {
	s := r.place(a) + ": " + fmt.Sprintf(format, args...)
	if _, ok := r.report.Wrong[s]; ok || len(r.report.Wrong) < maxWrong {
		r.report.Wrong[s]++
	}
}

func (r *Replayer) place(a isa.Addr) string {
	f, ok := r.t.Locate(a)
	if !ok {
		return a.String()
	}
	return fmt.Sprintf("%v+%#x", f, uint64(a-f.Addr))
}

// find is the index of the instruction at a, or -1 outside the text.
func (r *Replayer) find(a isa.Addr) int {
	p, ok := r.g.Pos(a)
	if !ok {
		return -1
	}
	u := int(p) / r.g.Arch.MinLen
	if r.at[u] == 0 {
		r.fill(r.g.At(p))
	}
	if r.at[u] == 0 {
		r.wrong(a, "an instruction begins here that the graph does not have")
		return -1
	}
	return int(r.at[u]) - 1
}

// fill decodes one block.
func (r *Replayer) fill(b cfg.Block) {
	f, _ := r.t.Locate(r.g.Start(b))
	vector, pinned := false, false
	for _, v := range vectors[r.g.Arch.Name] {
		vector = vector || strings.HasPrefix(f.Name, v)
	}
	if e, ok := r.g.AtAddr(f.Addr); ok {
		pinned = r.g.Marks(e)&cfg.Pinned != 0
	}
	last := true
	r.l.Each(b, func(i isa.Insn, before, _ isa.RegSet) {
		p, _ := r.g.Pos(i.Addr)
		copies := isa.RegSet(0)
		if flags := isa.Set(r.g.Arch.Flags); i.Traits&isa.Store != 0 && i.Reads == flags|isa.Set(r.g.Arch.SP) { // pushf
			copies = flags
		}
		r.list = append(r.list, step{b: b, reads: i.Reads, writes: i.Writes, parts: i.Clobbers, copies: copies, dead: r.g.Arch.All &^ before,
			len: uint8(i.Len), last: last, vector: vector, pinned: pinned})
		r.at[int(p)/r.g.Arch.MinLen] = int32(len(r.list))
		last = false
	})
	r.list[len(r.list)-1].hidden = r.l.Hidden(b)
}

// Err is nil if nothing contradicts, else it lists what does, the most frequent
// first.
func (r *Report) Err() error {
	if len(r.Wrong) == 0 {
		return nil
	}
	return fmt.Errorf("%d contradictions in %d instructions:\n%s", len(r.Wrong), r.Instructions, Most(r.Wrong, 30))
}

// Most prints the n most frequent of a count, one a line.
func Most(m map[string]int, n int) string {
	var keys []string
	for k := range m {
		keys = append(keys, k)
	}
	sort.Slice(keys, func(i, j int) bool {
		if m[keys[i]] != m[keys[j]] {
			return m[keys[i]] > m[keys[j]]
		}
		return keys[i] < keys[j]
	})
	var s strings.Builder
	for _, k := range keys[:min(n, len(keys))] {
		fmt.Fprintf(&s, "%8d  %s\n", m[k], k)
	}
	return s.String()
}
