package live

import (
	"fmt"
	"math/bits"
	"sync"

	"kerninst/agent/cfg"
	"kerninst/agent/isa"
	"kerninst/agent/ktext"
)

// Options of Solve.
type Options struct {
	Workers int // goroutines that decode; 1 if less
}

// Live is the solution for one graph. It is not changed once solved.
type Live struct {
	g    *cfg.Graph
	conv convention
	all  isa.RegSet

	// From the block alone.
	reads  []isa.RegSet // before it writes them, its last instruction included
	writes []isa.RegSet // whole, on every execution

	// By solve.
	use, def, want []isa.RegSet

	byC    map[cfg.Block]bool // entries of what C alone calls
	opaque map[cfg.Block]bool // calls of something unknown that need not be C
	loaded map[cfg.Block]bool // those of them that hand it flags

	// What solveWant starts from, and what it comes to at most.
	roots   map[cfg.Block]isa.RegSet
	orphans map[cfg.Block][]cfg.Block
	most    []isa.RegSet
}

// Solve solves a graph. t is the text that it was built from; it names the
// symbols.
func Solve(g *cfg.Graph, t *ktext.Text, opt Options) (*Live, error) {
	conv, ok := conventionOf(g.Arch)
	if !ok {
		return nil, fmt.Errorf("no calling convention is known for %s", g.Arch.Name)
	}
	l := &Live{g: g, conv: conv, all: g.Arch.All, byC: map[cfg.Block]bool{}, opaque: map[cfg.Block]bool{}, loaded: map[cfg.Block]bool{}}
	l.findByC(t)
	l.effects(opt.Workers)
	l.findOpaque()
	preds := g.Preds()
	l.solveUse(preds)
	l.solveWant(t)
	return l, nil
}

// effects fills reads and writes.
func (l *Live) effects(workers int) {
	n := l.g.Blocks()
	l.reads, l.writes = make([]isa.RegSet, n), make([]isa.RegSet, n)
	workers = max(workers, 1)
	var wg sync.WaitGroup
	var mu sync.Mutex
	for w := range workers {
		lo, hi := n*w/workers, n*(w+1)/workers
		wg.Add(1)
		go func() {
			defer wg.Done()
			for b := cfg.Block(lo); int(b) < hi; b++ {
				if l.effect(b) {
					mu.Lock()
					l.loaded[b] = true
					mu.Unlock()
				}
			}
		}()
	}
	wg.Wait()
}

// effect sums up one block, and reports whether it hands flags to something
// unknown that it calls.
func (l *Live) effect(b cfg.Block) (loaded bool) {
	if l.g.Marks(b)&cfg.Pinned != 0 {
		l.reads[b] = l.g.Reads(b)
		return false
	}
	if l.g.Kind(b) == cfg.KindPad {
		return false
	}
	var r, w isa.RegSet
	l.g.Insns(b, func(i isa.Insn) {
		r |= i.Reads &^ w
		w |= i.Writes
		if (i.Writes | i.Clobbers).Has(l.g.Arch.Flags) {
			loaded = i.Traits&(isa.Privileged|isa.Load) == isa.Privileged|isa.Load // popf
		}
	})
	l.reads[b], l.writes[b] = r, w
	return loaded && l.unknown(b)
}

// unknown reports whether b ends in a call of something that is not known.
func (l *Live) unknown(b cfg.Block) bool {
	t := l.g.Target(b)
	switch l.g.Kind(b) {
	case cfg.KindIndirectCall:
		return true
	case cfg.KindCall:
		return t == cfg.NoBlock || l.g.Marks(t)&cfg.Pinned != 0 && l.g.Kind(t) == cfg.KindTail
	}
	return false
}

// findOpaque finds the calls of something unknown that need not be C: those that
// hand it flags, those behind which a register or flag is read that C leaves
// undefined, and amd64's through memory, which are paravirt's. And the jumps through
// a thunk in functions that need not be C, or that can be entered so: they may lead back
// into the function.
func (l *Live) findOpaque() {
	for b := range cfg.Block(l.g.Blocks() - 1) {
		if l.unknown(b) && (l.loaded[b] || l.throughMemory(b) || l.reads[b+1]&l.Scratch() != 0) ||
			l.jumpsOn(b) && (!l.compiled(b) || l.landsInside(b)) {
			l.opaque[b] = true
		}
	}
}

// jumpsOn reports whether b jumps, whatever else it may do, to a thunk that jumps on.
func (l *Live) jumpsOn(b cfg.Block) bool {
	k, t := l.g.Kind(b), l.g.Target(b)
	jump := (k == cfg.KindJump || k == cfg.KindCond) && t != cfg.NoBlock
	return jump && l.g.Marks(t)&cfg.Pinned != 0 && l.g.Kind(t) == cfg.KindTail
}

// landsInside reports whether the function that b is in has a landing pad behind its entry: one
// of a label whose address is taken, to which its jumps may lead (amd64: BPF's interpreter). So has, on a kernel
// without landing pads, what nothing is seen to lead to.
func (l *Live) landsInside(b cfg.Block) (found bool) {
	lo, _ := l.g.Bounds(b)
	f := l.g.FuncAt(lo)
	if f < 0 {
		return true
	}
	entry := l.g.Addr(l.g.Entries()[f])
	first, end := l.g.FuncBlocks(f)
	for ; first < end && !found; first++ {
		found = l.g.Marks(first)&cfg.Orphan != 0
		l.g.Insns(first, func(i isa.Insn) { found = found || i.Traits&isa.Landing != 0 && i.Addr != entry })
	}
	return found
}

// compiled reports whether b is in a function that begins with an ftrace site.
func (l *Live) compiled(b cfg.Block) bool {
	lo, _ := l.g.Bounds(b)
	f := l.g.FuncAt(lo)
	return f >= 0 && l.g.Marks(l.g.At(l.g.Entries()[f]))&cfg.Traced != 0
}

func (l *Live) throughMemory(b cfg.Block) (yes bool) {
	if l.g.Kind(b) != cfg.KindIndirectCall {
		return false
	}
	l.g.Insns(b, func(i isa.Insn) { yes = i.Traits&isa.Load != 0 })
	return yes
}

// after is use and def of what follows b's last instruction.
func (l *Live) after(b cfg.Block) (use, def isa.RegSet) {
	g, t := l.g, l.g.Target(b)
	next := func() (isa.RegSet, isa.RegSet) {
		if int(b)+1 == g.Blocks() {
			return l.all, 0
		}
		return l.use[b+1], l.def[b+1]
	}
	switch g.Kind(b) {
	case cfg.KindFall:
		return next()
	case cfg.KindJump:
		if l.opaque[b] {
			return l.all, 0
		}
		return l.use[t], l.def[t]
	case cfg.KindCond, cfg.KindCallLocal:
		use, def = next()
		if t == cfg.NoBlock || l.opaque[b] {
			return l.all, 0
		}
		return use | l.use[t], def & l.def[t]
	case cfg.KindCall, cfg.KindIndirectCall, cfg.KindStaticCall:
		u, d := l.callee(b)
		use, def = next()
		return u | use&^d, d | def
	case cfg.KindCallNoReturn:
		return l.use[t], l.all
	case cfg.KindReturn:
		return 0, 0
	case cfg.KindTable:
		def = l.all
		for _, e := range g.Extra(b) {
			use, def = use|l.use[e.To], def&l.def[e.To]
		}
		return use, def
	case cfg.KindTail:
		return l.conv.args | l.conv.saved, l.conv.scratch
	case cfg.KindTrap, cfg.KindPad:
		return 0, l.all
	}
	return l.all, 0 // indirect jumps, gates, exits
}

// callee is what the call at the end of b reads, and what it overwrites on every
// path.
func (l *Live) callee(b cfg.Block) (use, def isa.RegSet) {
	t := l.g.Target(b)
	switch k := l.g.Kind(b); {
	case l.opaque[b] || k == cfg.KindCall && t == cfg.NoBlock:
		return l.all, 0
	case k == cfg.KindCall:
		return l.use[t], l.def[t]
	case k == cfg.KindStaticCall: // some keep every register, whatever is called
		return l.conv.args | l.conv.saved, 0
	}
	return l.conv.args | l.conv.saved, l.conv.scratch
}

// equation is use and def at b's start by what is known of the others. A fault
// happens instead of the instruction.
func (l *Live) equation(b cfg.Block) (use, def isa.RegSet) {
	use, def = l.after(b)
	use = l.reads[b] | use&^l.writes[b]
	def |= l.writes[b]
	if l.g.Marks(b)&cfg.FaultSite != 0 {
		for _, e := range l.g.Extra(b) {
			if e.Fault {
				use |= l.use[e.To] | e.Reads
				def &= l.def[e.To]
			}
		}
	}
	hidden := l.hidden(b)
	return use&^hidden | l.Watched(b), (def | hidden) & l.all
}

// hidden is what holds nothing where b begins, whatever its code seems to read, and nothing behind the call:
// an ftrace site begins there, so it is compiled code, and the kernel's own
// tracer changes these registers there; or C alone calls it, which knows nothing of it but that it may change them.
func (l *Live) hidden(b cfg.Block) isa.RegSet {
	if l.g.Marks(b)&cfg.Traced == 0 && !l.byC[b] {
		return 0
	}
	return l.all &^ (l.conv.args | l.conv.saved)
}

// solveUse finds the least use and the greatest def.
func (l *Live) solveUse(preds *cfg.Lists) {
	n := l.g.Blocks()
	l.use, l.def = make([]isa.RegSet, n), make([]isa.RegSet, n)
	for b := range l.def {
		l.def[b] = l.all
	}
	callers := l.callers()
	work := newWorklist(n)
	for work.any() {
		work.downwards(func(x uint32) {
			b := cfg.Block(x)
			use, def := l.equation(b)
			if use == l.use[b] && def == l.def[b] {
				return
			}
			l.use[b], l.def[b] = use, def
			for _, p := range preds.Of(b) {
				work.add(uint32(p))
			}
			for _, c := range callers.Of(b) {
				work.add(uint32(c))
			}
		})
	}
}

// callers lists, for every block, the blocks that end in a call of it.
func (l *Live) callers() *cfg.Lists {
	return cfg.Group(l.g.Blocks(), func(add func(at, of cfg.Block)) {
		for b := range cfg.Block(l.g.Blocks()) {
			k, t := l.g.Kind(b), l.g.Target(b)
			if (k == cfg.KindCall || k == cfg.KindCallNoReturn) && t != cfg.NoBlock {
				add(t, b)
			}
		}
	})
}

// findRoots says what callers that are not known want of a symbol: what C would,
// or everything. Where a module hands flags to something unknown, that may be any
// of its functions that are not known to be C.
func (l *Live) findRoots(t *ktext.Text) {
	module := func(a isa.Addr) string { f, _ := t.Locate(a); return f.Module }
	own := map[string]bool{}
	for b := range l.loaded {
		own[module(l.g.Start(b))] = true
	}
	l.roots = map[cfg.Block]isa.RegSet{}
	for _, p := range l.g.Entries() {
		b := l.g.At(p)
		f, _ := t.Locate(l.g.Addr(p))
		l.roots[b] = l.conv.saved | l.conv.results
		if l.g.Marks(b)&cfg.Traced == 0 && (own[f.Module] || keepsAll(l.g.Arch.Name, t.Aliases(f))) {
			l.roots[b] = l.all
		}
	}
}

// solveWant finds the least want: symbols are wanted by callers that are not known,
// and everything is wanted of what nothing is seen to reach.
func (l *Live) solveWant(t *ktext.Text) {
	n := l.g.Blocks()
	l.want = make([]isa.RegSet, n)
	l.findRoots(t)
	work := newWorklist(n)
	l.findOrphans()
	l.findReturned(t)
	for b, want := range l.roots {
		l.want[b] = want & l.most[b]
	}
	var succ []cfg.Block
	for work.any() {
		work.upwards(func(x uint32) {
			b := cfg.Block(x)
			for _, o := range l.orphans[b] {
				l.raise(o, l.want[b], work)
			}
			succ = l.g.Succ(b, succ[:0])
			for _, s := range succ {
				l.raise(s, l.want[b], work)
			}
			if l.wants(b) && int(b)+1 < n {
				l.raise(l.g.Target(b), l.In(b+1), work)
			}
		})
	}
}

// findByC finds the entries of what is written in assembly for C, see Returned.
func (l *Live) findByC(t *ktext.Text) {
	for _, p := range l.g.Entries() {
		f, _ := t.Locate(l.g.Addr(p))
		if _, ok := Returned(l.g.Arch, t.Aliases(f)); ok && f.Module == "" {
			l.byC[l.g.At(p)] = true
		}
	}
}

// findReturned finds in which blocks less is wanted than whoever calls would read, see Returned.
func (l *Live) findReturned(t *ktext.Text) {
	l.most = make([]isa.RegSet, l.g.Blocks())
	for b := range l.most {
		l.most[b] = l.all &^ l.hidden(cfg.Block(b))
	}
	for _, p := range l.g.Entries() {
		f, _ := t.Locate(l.g.Addr(p))
		reads, ok := Returned(l.g.Arch, t.Aliases(f))
		if !ok || f.Module != "" {
			continue
		}
		for b := l.g.At(p); int(b) < l.g.Blocks() && l.g.Start(b) >= f.Addr && l.g.Start(b) < f.End(); b++ {
			l.most[b] = reads & l.all
		}
	}
}

// findOrphans lists the blocks that nothing is seen to reach by the entry of their
// symbol, if that is compiled code: then nothing else leads to them than its own
// jumps, by alternatives that are not chosen here or tables that are not read.
// Of other orphans everything is wanted.
func (l *Live) findOrphans() {
	l.orphans = map[cfg.Block][]cfg.Block{}
	for b := range cfg.Block(l.g.Blocks()) {
		if l.g.Marks(b)&cfg.Orphan == 0 {
			continue
		}
		lo, _ := l.g.Bounds(b)
		entry := cfg.NoBlock
		if f := l.g.FuncAt(lo); f >= 0 {
			entry = l.g.At(l.g.Entries()[f])
		}
		if entry != cfg.NoBlock && l.g.Marks(entry)&cfg.Traced != 0 {
			l.orphans[entry] = append(l.orphans[entry], b)
		} else {
			l.roots[b] = l.all
		}
	}
}

// wants reports whether b ends in a call whose callee is known, and returns.
func (l *Live) wants(b cfg.Block) bool {
	k := l.g.Kind(b)
	return (k == cfg.KindCall || k == cfg.KindCallLocal) && l.g.Target(b) != cfg.NoBlock
}

// raise adds to what is wanted of b.
func (l *Live) raise(b cfg.Block, want isa.RegSet, work *worklist) {
	want &= l.most[b]
	if want&^l.want[b] == 0 {
		return
	}
	l.want[b] |= want
	work.add(uint32(b))
	if b > 0 && l.wants(b-1) { // it wants what is live here
		work.add(uint32(b - 1))
	}
}

// worklist is a set of numbers that is worked through in order.
type worklist struct {
	bits []uint64
	n    int
}

// newWorklist returns the set of all numbers below n.
func newWorklist(n int) *worklist {
	w := &worklist{bits: make([]uint64, n/64+1), n: n}
	for x := range n {
		w.bits[x/64] |= 1 << (x % 64)
	}
	return w
}

func (w *worklist) add(x uint32) {
	if bit := uint64(1) << (x % 64); w.bits[x/64]&bit == 0 {
		w.bits[x/64] |= bit
		w.n++
	}
}

func (w *worklist) any() bool { return w.n > 0 }

func (w *worklist) take(k, bit int, visit func(uint32)) {
	w.bits[k] &^= 1 << bit
	w.n--
	visit(uint32(k*64 + bit))
}

// downwards visits the members from the highest, those that are added below the
// current one too.
func (w *worklist) downwards(visit func(uint32)) {
	for k := len(w.bits) - 1; k >= 0; k-- {
		for w.bits[k] != 0 {
			w.take(k, 63-bits.LeadingZeros64(w.bits[k]), visit)
		}
	}
}

func (w *worklist) upwards(visit func(uint32)) {
	for k := range w.bits {
		for w.bits[k] != 0 {
			w.take(k, bits.TrailingZeros64(w.bits[k]), visit)
		}
	}
}
