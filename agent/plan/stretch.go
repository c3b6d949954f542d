package plan

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"slices"

	"kerninst/agent/gen"
	"kerninst/agent/isa"
	"kerninst/agent/ktext"
	"kerninst/agent/place"
)

// Stretches: pieces of functions that are evicted for the springboards in them (amd64,
// riscv64), as E9Patch evicts a neighbour. A stretch is instructions of which each is
// followed by the next, and that nobody enters but at the first: what a window may displace,
// by the same conditions (window.go), without what calls or may sleep.
//
// On riscv64 it forms no address either and does not leave, and before the first and behind
// the last a register is free: to jump to the copy through, and back. On amd64 a jump takes
// none; operands and conditions are aimed anew in the copy, and a jump or a return may be
// the last.
//
// Who meets what on riscv64 while it is written, see evict.go. On amd64 the jump to the copy
// is a window like any other (guest/module/arch/amd64/divert.c): from when nobody can be in
// the stretch, a breakpoint and then the jump keep everybody out. Springboards are whole
// before the point's jump leads to one; undone, they are the stretch's bytes again, after a
// quiescence behind the point, before its begin is. Nobody sleeps in the copy, and who was
// preempted there is waited for before it is freed. A backtrace from it is that of the
// instructions that it is of (Eviction.States).
//
// Whoever comes by executes four instructions more (amd64: two), so stretches are taken only
// where no function can be moved (amd64: where no window is possible either), and of a
// function's the last first: compilers put there what is seldom run. amd64 moves no whole
// functions: each has padding in front of it, and no jmp rel8 reaches behind that of the next.

// sizes of stretches, in bytes.
type sizes struct {
	far isa.Addr // a jump to the copy, and a springboard
	// least has room for one springboard behind the jump to the copy, most for three. No
	// instruction of a stretch can be spliced itself.
	least, most isa.Addr
	// widest is how much a window of the shortest that has room for a far jump may have: a
	// task that sleeps in its patch, undone or not, comes back as far behind what it
	// sleeps over.
	widest isa.Addr
}

func sizesOf(arch *isa.Arch) sizes {
	far := isa.Addr(farJumpLen[arch.Name])
	return sizes{far: far, least: 2 * far, most: 4 * far, widest: far - isa.Addr(arch.MinLen) + isa.Addr(arch.MaxLen)}
}

const (
	// nearPieces is how far from a point its springboard's stretch is looked for, in
	// bytes: behind that there are hundreds that will do.
	nearPieces = 1 << 15
	// mostRuns is how many functions' runs are kept at a time.
	mostRuns = 4096
)

// bound is a place between two instructions of a run, or where it begins or ends.
type bound struct {
	at     isa.Addr
	begins bool       // a stretch may begin there; it may end at any
	free   isa.RegSet // what may be overwritten there
}

// pieces finds where a springboard may begin: in a stretch that is evicted already, or in
// one of the point's own function or, the nearest first, of others. 0: nowhere.
func (fn *function) pieces(req Request, in gen.Input, w want) (isa.Addr, *Eviction, *Refusal) {
	s := search{fn: fn, req: req, in: in, want: w, sizes: sizesOf(fn.text.Arch)}
	s.reach = w.reach.Intersect(place.Window{Lo: in.Back - nearPieces, Hi: in.Back + nearPieces})
	err := s.again()
	if s.moved == nil && err == nil {
		err = s.nearest()
	}
	switch {
	case err != nil:
		return 0, nil, unreadable(err)
	case s.moved == nil:
		return 0, nil, s.full
	}
	return s.board, s.moved, nil
}

// search looks for a stretch for one springboard.
type search struct {
	want
	sizes
	fn  *function
	req Request
	in  gen.Input

	board isa.Addr
	moved *Eviction // what was found
	full  *Refusal  // why what would do has no room for its copy
}

// again looks for room in the stretches that are evicted already.
func (s *search) again() error {
	for e := range s.req.Heap.RoomIn(s.want.reach, s.n) {
		if !e.Stretch || s.displaces(e.Body) {
			continue
		}
		a, ok := s.want.in(s.req.Heap, e.Room)
		if !ok {
			continue
		}
		f, ok := s.fn.text.Locate(e.Body.Lo)
		if !ok {
			continue
		}
		runs, err := s.fn.runsOf(s.req, f)
		if err != nil {
			return err
		}
		out, back, ok := between(runs, e.Body)
		if !ok || !freeFor(s.fn.text.Arch, out, e.Out) || !freeFor(s.fn.text.Arch, back, e.Back) { // less is known now
			continue
		}
		return s.take(e, a, out, back)
	}
	return nil
}

// between is what is free before and behind a stretch of one of some runs.
func between(runs [][]bound, w place.Window) (out, back isa.RegSet, ok bool) {
	for _, run := range runs {
		lo := slices.IndexFunc(run, func(b bound) bool { return b.at == w.Lo && b.begins })
		hi := slices.IndexFunc(run, func(b bound) bool { return b.at == w.Hi })
		if lo >= 0 && hi > lo {
			return run[lo].free, run[hi].free, true
		}
	}
	return 0, 0, false
}

// through picks what a jump to anywhere goes through, where that takes a register.
func through(arch *isa.Arch, free isa.RegSet) (isa.Reg, bool) {
	if arch.Far == nil {
		return 0, true
	}
	return gen.Register(arch, free)
}

// freeFor reports whether a jump to anywhere may go through a register, or takes none.
func freeFor(arch *isa.Arch, free isa.RegSet, r isa.Reg) bool { return arch.Far == nil || free.Has(r) }

// displaces reports whether the point's instructions are in a window.
func (s *search) displaces(w place.Window) bool {
	return s.in.Displaced[0].Addr < w.Hi && w.Lo < s.in.Back
}

func (s *search) take(e place.Evicted, board isa.Addr, out, back isa.RegSet) (err error) {
	if s.moved, err = s.fn.evicted(e); err == nil {
		s.moved.Free, s.board = []isa.RegSet{out, back}, board
	}
	return err
}

// nearest looks through the point's function, then through the one behind it and the one
// before it, and so on, as far as a stretch in them is in reach.
func (s *search) nearest() error {
	run, ok := s.fn.text.RunOf(s.fn.Addr)
	if !ok {
		return nil
	}
	w := place.Window{Lo: s.reach.Lo - s.most, Hi: s.reach.Hi + s.most}.Intersect(place.Window{Lo: run.Lo, Hi: run.Hi})
	err := s.inside(s.fn.Func)
	behind, before := s.fn.End(), s.fn.Addr
	for err == nil && s.moved == nil && (behind < w.Hi || before > w.Lo) {
		if f, ok := s.at(behind, w); ok {
			behind, err = f.End(), s.inside(f)
		} else {
			behind = w.Hi // so is what is behind code without a symbol
		}
		if f, ok := s.at(before-1, w); ok && err == nil && s.moved == nil {
			before, err = f.Addr, s.inside(f)
		} else {
			before = w.Lo
		}
	}
	return err
}

// at is the function at an address in a window.
func (s *search) at(a isa.Addr, w place.Window) (ktext.Func, bool) {
	if !w.Holds(a, 1) {
		return ktext.Func{}, false
	}
	f, ok := s.fn.text.Locate(a)
	return f, ok && f.Module == s.fn.Module && f.Size > 0
}

// inside looks through the runs of a function.
func (s *search) inside(f ktext.Func) error {
	runs, err := s.open(f)
	if err != nil {
		return err
	}
	for k := len(runs) - 1; k >= 0 && s.moved == nil; k-- {
		spent := true
		for n := range runs[k] {
			gone, err := s.from(f, runs[k][n:])
			if err != nil || s.moved != nil {
				return err
			}
			spent = spent && gone
		}
		if spent && s.keeps() {
			runs = slices.Delete(runs, k, k+1)
			s.req.Known.open[f.Addr] = runs
		}
	}
	return nil
}

// keeps reports whether what is left of functions' runs is remembered.
func (s *search) keeps() bool {
	known := s.req.Known
	return known != nil && known.open != nil && known.runsIn == s.fn.text && !s.req.Still && s.req.Spare != nil
}

// open are the runs of a function without what the request spares: in a dense batch hardly any
// is left. They are remembered as long as the runs are, and that is of one request's points.
func (s *search) open(f ktext.Func) ([][]bound, error) {
	if s.keeps() {
		if runs, ok := s.req.Known.open[f.Addr]; ok {
			return runs, nil
		}
	}
	all, err := s.fn.runsOf(s.req, f)
	if err != nil || s.req.Spare == nil {
		return all, err
	}
	var out [][]bound
	for _, run := range all {
		out = append(out, s.cut(f, run)...)
	}
	if s.keeps() {
		s.req.Known.open[f.Addr] = out
	}
	return out, nil
}

// cut is a run without the instructions that are spared, in pieces that are long enough.
func (s *search) cut(f ktext.Func, run []bound) (out [][]bound) {
	first := 0
	for k := 1; k < len(run); k++ {
		spared := s.req.spared(f, run[k-1].at, run[k].at)
		if !spared && k < len(run)-1 {
			continue
		}
		last := k
		if spared {
			last--
		}
		if run[last].at-run[first].at >= s.least {
			out = append(out, run[first:last+1])
		}
		first = k
	}
	return out
}

// from tries the stretches that begin where a run does, the longest first. It reports whether none
// does for any point of the batch.
func (s *search) from(f ktext.Func, run []bound) (spent bool, err error) {
	lo := run[0].at
	out, ok := through(s.fn.text.Arch, run[0].free)
	if !ok || !run[0].begins || run[len(run)-1].at-lo < s.least {
		return true, nil
	}
	if lo+s.most <= s.reach.Lo || lo+s.far >= s.reach.Hi || s.displaces(place.Window{Lo: lo, Hi: lo + s.least}) {
		return false, nil
	}
	if !s.may(f, place.Window{Lo: lo, Hi: lo + s.least}) {
		return true, nil
	}
	k := 0
	for k+1 < len(run) && run[k+1].at-lo <= s.most {
		k++
	}
	for ; k > 0 && run[k].at-lo >= s.least; k-- {
		body := place.Window{Lo: lo, Hi: run[k].at}
		e := place.Evicted{Body: body, Room: place.Window{Lo: lo + s.far, Hi: body.Hi}, Stretch: true, Out: out}
		a, fits := s.want.in(s.req.Heap, e.Room)
		if e.Back, ok = through(s.fn.text.Arch, run[k].free); !ok || !fits || s.displaces(body) || !s.may(f, body) {
			continue
		}
		if e.Slot, ok = s.fn.copyLen(e); !ok {
			continue
		}
		if e.Patch, s.full = s.fn.copyOf(s.req, s.in, e, fmt.Sprintf("%v+%#x", f, uint64(lo-f.Addr))); s.full != nil {
			return false, nil
		}
		return false, s.take(e, a, run[0].free, run[k].free)
	}
	return false, nil
}

// copyLen is how long the copy of a stretch is, which does not depend on where it is.
func (fn *function) copyLen(e place.Evicted) (int, bool) {
	code := make([]byte, e.Body.Size())
	if err := fn.text.Read(e.Body.Lo, code); err != nil {
		return 0, false
	}
	out, _, err := moveStretch(fn.text.Arch, code, e.Body.Lo, e.Body.Lo, e.Back)
	return len(out), err == nil
}

// may reports whether part of a function is nobody's.
func (s *search) may(f ktext.Func, w place.Window) bool {
	return s.req.Heap.Stays(w) && !s.req.spared(f, w.Lo, w.Hi) && s.req.untouched(w.Lo, w.Hi)
}

// runsOf are the runs of this function or of another of the same text. They are remembered.
func (fn *function) runsOf(req Request, f ktext.Func) ([][]bound, error) {
	known := req.Known
	if known == nil {
		known = &Functions{}
	}
	if known.runs == nil || known.runsIn != fn.text || len(known.runs) >= mostRuns {
		known.runs, known.open, known.runsIn = map[isa.Addr][][]bound{}, map[isa.Addr][][]bound{}, fn.text
	}
	if runs, ok := known.runs[f.Addr]; ok {
		return runs, nil
	}
	g, r := fn, (*Refusal)(nil)
	if f.Addr != fn.Addr {
		if g, r = decode(fn.text, f); r != nil && r.Reason != Unreadable {
			known.runs[f.Addr] = nil
			return nil, nil
		}
	}
	if r == nil {
		r = g.learn(req)
	}
	if r != nil {
		return nil, errors.New(r.Detail)
	}
	runs, err := g.runs()
	if err == nil && known.runs != nil { // to learn may have been to forget
		known.runs[f.Addr] = runs
	}
	return runs, err
}

// runs are where the function has stretches: any part of one that is as long as it must
// be, and at whose begin and end a register is free, is a stretch.
func (fn *function) runs() (out [][]bound, err error) {
	if fn.waited() != nil {
		return nil, nil
	}
	if _, k := fn.indirectJump(); k >= 0 || fn.lostAny() {
		return nil, nil
	}
	if odd, err := fn.probed(); odd || err != nil {
		return nil, err
	}
	for first := 0; first < len(fn.insns); {
		end, err := fn.runFrom(first)
		if err != nil {
			return nil, err
		}
		if end > first && fn.insns[end-1].End()-fn.insns[first].Addr >= sizesOf(fn.text.Arch).least {
			run, err := fn.bounds(first, end)
			if err != nil {
				return nil, err
			}
			out = append(out, run)
		}
		first = max(end, first+1)
	}
	return out, nil
}

// probed reports whether somebody has put a trap into the function that no table of the
// kernel's has: a kprobe, beside which the module evicts nothing. Those that nothing runs
// are behind what control does not go on from (amd64).
func (fn *function) probed() (bool, error) {
	filler := false
	for _, i := range fn.insns {
		if i.Flow != isa.FlowTrap {
			filler = i.Flow == isa.FlowReturn || i.Flow == isa.FlowJump || i.Flow == isa.FlowIndirectJump
			continue
		}
		if filler = filler && len(fn.text.Arch.Trap) == 1 && i.Len == 1; filler {
			continue
		}
		if _, site, err := fn.text.Site(i.Addr, i.End()); err != nil || !site {
			return true, err
		}
	}
	return false, nil
}

// runFrom is the instruction behind the longest run from one.
func (fn *function) runFrom(first int) (int, error) {
	for k := first; k < len(fn.insns); k++ {
		ok, err := fn.evictable(k)
		if err != nil || !ok {
			return k, err
		}
		if on, err := fn.follows(k); err != nil || !on {
			return k + 1, err
		}
	}
	return len(fn.insns), nil
}

// follows reports whether nobody comes to the instruction behind k but from k.
func (fn *function) follows(k int) (bool, error) {
	i := fn.insns[k]
	if i.Flow.Ends() {
		return false, nil
	}
	_, ok, err := fn.ledInto(i.End(), i.End()+1)
	return !ok && err == nil, err
}

// evictable reports whether instruction k may be in a stretch: it does the same elsewhere,
// nobody is ever asleep in it, and nothing leads into its middle.
func (fn *function) evictable(k int) (bool, error) {
	i := fn.insns[k]
	if !moves(fn.text.Arch, i) || fn.displaceable(k) != nil {
		return false, nil
	}
	if _, site, err := fn.text.Site(i.Addr, i.End()); site || err != nil {
		return false, err
	}
	_, hit, err := fn.ledInto(i.Addr+1, i.End())
	return !hit, err
}

// unmoved is what nothing in a stretch is, whatever a window takes.
const unmoved = isa.Lost | isa.Privileged | isa.Landing | isa.Shadow | isa.Rebases

// moves reports whether an instruction may be in a stretch, by what it is. Where a jump to
// anywhere takes no register, it may form an address, leave, or end the stretch.
func moves(arch *isa.Arch, i isa.Insn) bool {
	switch {
	case i.Traits&unmoved != 0:
		return false
	case i.Flow == isa.FlowNone:
		return i.Traits&isa.PCRel == 0 || i.Rel32 != 0
	}
	return arch.Far == nil && (i.Flow == isa.FlowCond || i.Flow == isa.FlowJump || i.Flow == isa.FlowReturn)
}

// bounds are those of the run of instructions [first, end). None begins a stretch where a
// task may yet come back to from a patch that it sleeps in.
func (fn *function) bounds(first, end int) ([]bound, error) {
	run := make([]bound, 0, end-first+1)
	arch := fn.text.Arch
	for k := first; k <= end; k++ {
		b := bound{at: fn.insns[end-1].End()}
		if k < end {
			b.at = fn.insns[k].Addr
		}
		_, site, err := fn.text.Site(b.at-sizesOf(arch).widest, b.at)
		if err != nil {
			return nil, err
		}
		b.begins = !site && k < end
		if b.free, err = fn.free(k); err != nil {
			return nil, err
		}
		run = append(run, b)
	}
	return run, nil
}

// moveStretch is the copy of a stretch as it is elsewhere, and the state map of that: each
// instruction moved and, if control goes on behind the last, a jump to there.
func moveStretch(arch *isa.Arch, code []byte, from, to isa.Addr, back isa.Reg) (out []byte, states []gen.State, err error) {
	ends := false
	for k := 0; k < len(code); {
		i := arch.Decode(code[k:], from+isa.Addr(k))
		if ends || !moves(arch, i) || k+i.Len > len(code) {
			return nil, nil, fmt.Errorf("the instruction at %v of a stretch cannot be moved with it", i.Addr)
		}
		m, err := arch.Move(i, code[k:], to+isa.Addr(len(out)), 0)
		if err != nil {
			return nil, nil, err
		}
		states = append(states, gen.State{Off: len(out), Orig: i.Addr})
		out, ends, k = append(out, m.Code...), m.Ends, k+i.Len
	}
	if ends { // a prefix of a jump's, as amd64's kernel puts before one to a thunk, has not been moved
		return append(out, filling(arch, len(out), len(code))...), states, nil
	}
	end := from + isa.Addr(len(code))
	home, _, err := gen.Entry(arch, to+isa.Addr(len(out)), end, back)
	return append(out, home...), append(states, gen.State{Off: len(out), Orig: end}), err
}

// checkStretch holds a stretch to be instructions that can be moved, each followed by the
// next, its copy to be what they are there, and the jumps to it and back to go through what
// is free.
func (e *Eviction) checkStretch(arch *isa.Arch) error {
	if len(e.Free) != 2 || isa.Addr(len(e.Code)) > sizesOf(arch).most {
		return fmt.Errorf("%d bytes of %s with %d sets of free registers", len(e.Code), e.Name(), len(e.Free))
	}
	want, states, err := moveStretch(arch, e.Code, e.Body, e.Patch, e.Back)
	switch {
	case err != nil:
		return fmt.Errorf("%s: %w", e.Name(), err)
	case !bytes.Equal(want, e.Copy) || !reflect.DeepEqual(states, e.States):
		return fmt.Errorf("the copy of %s at %v does something else", e.Name(), e.Patch)
	case !freeFor(arch, e.Free[1]&^arch.NeverUse, e.Back):
		return fmt.Errorf("the jump back to %v goes through what is not free", e.End())
	}
	if err := leadsTo(arch, unfilled(arch, e.New, e.Body), e.Body, e.Patch, e.Free[0]&isa.Set(e.Out)); err != nil {
		return fmt.Errorf("%s: %w", e.Name(), err)
	}
	return nil
}
