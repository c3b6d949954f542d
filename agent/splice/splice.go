package splice

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"

	"kerninst/agent/gen"
	"kerninst/agent/isa"
	"kerninst/agent/place"
	"kerninst/agent/plan"
	"kerninst/agent/snippet"
)

// Splicer applies and undoes plans. It is not for use by several goroutines at
// once.
type Splicer struct {
	arch   *isa.Arch
	poker  Poker
	heap   place.Heap
	areas  map[uint32]Area
	local  Local
	live   []*Live              // in the order in which they were made
	set    plan.Set             // of them
	moved  map[isa.Addr]evicted // by where their bodies begin
	most   int                  // writes in one batch of the kernel's: MostWrites
	asleep []place.Window       // of clones that were undone and that tasks are asleep in
	first  place.Window         // that patch memory was had in first: the kernel's own text reaches it
}

// Live is a splice that the kernel runs.
type Live struct {
	Plan  *plan.Plan
	ID    uint32
	board uint32 // the springboard's, if there is one
	cells Cells
	cell  int    // offset in cells
	unit  uint64 // that its patch counts in: gen.Unit
	sums  []sum
}

// sum is a cell in per-CPU memory, which somebody else may have had before: it holds
// what it should have held at first, and what has come since.
type sum struct {
	word, off    int // among the snippet's words, and in per-CPU memory
	first, since uint64
	load         func(off int) uint64
}

// Unit is what a hit adds to the word of a counter.
func (l *Live) Unit() uint64 { return l.unit }

// Words reads the cells, one word after the other: what another CPU changes
// meanwhile may be in a later one and not in an earlier. A counter's word is its hits.
func (l *Live) Words() []uint64 {
	raw := make([]uint64, l.Plan.Snippet.Words())
	for k := range raw {
		raw[k] = l.cells.Load(l.cell + 8*k)
	}
	for _, s := range l.sums {
		raw[s.word] = s.load(s.off)
	}
	return l.Read(raw)
}

// Beside reads a word of what a clone's patch has beside what its points have.
func (l *Live) Beside(word int) uint64 { return l.cells.Load(l.cell + 8*word) }

// CountedBeside is what a counter has counted there, which may be in units of where it is (gen.Unit).
func (l *Live) CountedBeside(arch *isa.Arch, word int) uint64 {
	return gen.Hits(l.Beside(word), gen.Unit(arch, snippet.Counter(), l.Plan.Cell+isa.Addr(8*word)))
}

// Read is what Words would say if memory held so at each of Places.
func (l *Live) Read(raw []uint64) []uint64 {
	out := make([]uint64, len(raw))
	for k, w := range raw {
		out[k] = gen.Hits(w, l.unit)
	}
	for _, s := range l.sums {
		out[s.word] = s.first + raw[s.word] - s.since
	}
	return out
}

// Came reports whether a counter has counted anything since it was made.
func (l *Live) Came() bool {
	for _, s := range l.sums {
		if s.word == 0 {
			return s.first+s.load(s.off) != s.since
		}
	}
	return l.cells.Load(l.cell) != 0
}

// Place is where a word of a splice's cells is. Local ones are in per-CPU memory, and the
// word is the sum of all CPUs'.
type Place struct {
	Addr  isa.Addr
	Local bool
}

// Places are those of each of Words.
func (l *Live) Places() []Place {
	out := make([]Place, l.Plan.Snippet.Words())
	for k := range out {
		out[k].Addr = l.Plan.Cell + isa.Addr(8*k)
	}
	for k, a := range l.Plan.Locals {
		if a != 0 {
			out[l.Plan.Snippet.Word(k)] = Place{a, true}
		}
	}
	return out
}

// Restart puts a smallest or largest back to where nothing has come by; for other
// cells it does nothing, as what came by just then would be lost.
func (l *Live) Restart() {
	s := l.Plan.Snippet
	for k, c := range s.Cells {
		if c.Kind == snippet.Min || c.Kind == snippet.Max {
			l.cells.Store(l.cell+8*s.Word(k), c.Start())
		}
		for _, top := range s.Tops(k) {
			for n := range c.Records {
				l.cells.Store(l.cell+8*(s.Word(k)+n*c.Stride()+snippet.MapHead+top), 0)
			}
		}
	}
}

// New returns a splicer without patch memory.
func New(arch *isa.Arch, p Poker) *Splicer {
	return &Splicer{arch: arch, poker: p, most: MostWrites, areas: map[uint32]Area{}, moved: map[isa.Addr]evicted{}}
}

// Reserve gets an area of codeLen bytes of code that points in [lo, hi) reach.
func (s *Splicer) Reserve(lo, hi isa.Addr, codeLen int) error {
	if err := place.CheckCodeLen(s.arch, codeLen); err != nil {
		return err
	}
	w := place.Reach(s.arch, lo, hi)
	if w.Size() < 2*uint64(codeLen) {
		return fmt.Errorf("no address reaches all of %v to %v on %s", lo, hi, s.arch.Name)
	}
	if s.first == (place.Window{}) {
		s.first = w
	}
	return s.reserveIn(w, codeLen)
}

func (s *Splicer) reserveIn(w place.Window, codeLen int) error {
	a, err := s.poker.AllocArea(w.Lo, w.Hi, codeLen)
	if err != nil {
		return fmt.Errorf("patch memory of %d bytes in %v to %v: %w", codeLen, w.Lo, w.Hi, err)
	}
	if uint64(a.Addr)%place.Line != 0 || !w.Holds(a.Addr, codeLen) || !w.Holds(a.CellAddr, codeLen) {
		err := fmt.Errorf("patch memory at %v with cells at %v is not aligned or outside %v to %v", a.Addr, a.CellAddr, w.Lo, w.Hi)
		return errors.Join(err, s.poker.FreeArea(a.ID))
	}
	s.areas[a.ID] = a
	spare := s.spare(a)
	s.heap.Add(place.NewArea(a.ID, a.Addr+isa.Addr(spare), a.CellAddr+isa.Addr(spare), codeLen-spare))
	return nil
}

// spare is how many bytes at the begin of an area no patch is placed in: what lies at so
// round an address would be the first of all, and takes an instruction more to count.
func (s *Splicer) spare(a Area) int {
	if gen.CountsAddresses(s.arch) && gen.Unit(s.arch, snippet.Counter(), a.CellAddr) == 1 {
		return place.Line
	}
	return 0
}

// Reach gets an area for points in [lo, hi) unless there is one that they reach. A module
// calls the kernel, and what is displaced does so from there: where both are reached, that
// is where an area is had first.
func (s *Splicer) Reach(lo, hi isa.Addr, codeLen int) error {
	w := place.Reach(s.arch, lo, hi)
	for _, a := range s.heap.Areas() {
		if !a.Annex() && !a.Page() && w.Holds(a.Addr, a.CodeLen) {
			return nil
		}
	}
	if both := w.Intersect(s.first); both.Size() >= 2*uint64(codeLen) && s.reserveIn(both, codeLen) == nil {
		return nil
	}
	return s.Reserve(lo, hi, codeLen)
}

// ReservePages lets punned jumps have pages of memory in some windows: place.PageRoom.
func (s *Splicer) ReservePages(room []place.Window) { s.heap.Pages(room, s.page) }

// page gets the page at a.
func (s *Splicer) page(a isa.Addr) (*place.Area, error) {
	got, err := s.poker.AllocArea(a, a+2*place.PageLen, place.PageLen)
	if err != nil {
		return nil, fmt.Errorf("a page of patch memory at %v: %w", a, err)
	}
	if got.Addr != a || got.CellAddr != a+place.PageLen {
		err := fmt.Errorf("the page of patch memory is at %v with cells at %v, %v was asked for", got.Addr, got.CellAddr, a)
		return nil, errors.Join(err, s.poker.FreeArea(got.ID))
	}
	s.areas[got.ID] = got
	return place.NewPage(got.ID, a), nil
}

// ReserveAnnex gets the patch memory for what may fault.
func (s *Splicer) ReserveAnnex() error {
	a, err := s.poker.AllocAnnex()
	if err != nil {
		return fmt.Errorf("patch memory in the module: %w", err)
	}
	s.areas[a.ID] = a
	s.heap.Add(place.NewAnnex(a.ID, a.Addr, a.CellAddr, a.CodeLen))
	return nil
}

// Own is patch memory in the module's own text beside the annex, where code may have sites; empty: others
// have it, or the ISA has none.
func (s *Splicer) Own() place.Window {
	for _, a := range s.heap.Areas() {
		if !a.Annex() {
			continue
		}
		for _, b := range s.heap.Areas() {
			if b.Addr == a.Code().Hi && !b.Page() {
				return b.Code()
			}
		}
	}
	return place.Window{}
}

// ReserveLocal gets cells in per-CPU memory, where the kernel has some to give: without
// them all cells are shared.
func (s *Splicer) ReserveLocal() error {
	if !gen.Locals(s.arch) {
		return nil
	}
	local, err := s.poker.AllocLocal()
	if err != nil {
		return fmt.Errorf("cells in per-CPU memory: %w", err)
	}
	s.local = local
	s.heap.AddLocals(local.Addr, local.Len)
	return nil
}

// Heap is the patch memory, for plan.Request.
func (s *Splicer) Heap() *place.Heap { return &s.heap }

// Live lists the live splices, oldest first.
func (s *Splicer) Live() []*Live { return slices.Clone(s.live) }

// Taken reports whether a live splice touches [lo, hi), for plan.Request. What
// counts is all that it displaced, not only what it overwrote, and its springboard.
func (s *Splicer) Taken(lo, hi isa.Addr) bool { return s.set.Touches(lo, hi) }

// Probed reports whether kprobes that are armed change anything in [lo, hi), for plan.Request. One that comes later, or is
// not armed yet, is the module's to find (guest/module/probes.c).
func (s *Splicer) Probed(lo, hi isa.Addr) bool {
	now, bare := make([]byte, hi-lo), make([]byte, hi-lo)
	if err := errors.Join(s.poker.Read(lo, now), s.poker.ReadUnprobed(lo, bare)); err != nil {
		return true // whoever cannot be asked may have some
	}
	return !bytes.Equal(now, bare)
}

// Copied is the entry of a live clone that has a copy of what is at a; nil: there is none.
func (s *Splicer) Copied(a isa.Addr) *plan.Plan { return s.set.Copied(a) }

// Asked reports whether a live splice is that of the point at a.
func (s *Splicer) Asked(a isa.Addr) bool { return s.set.Asked(a) }

// Read reads kernel memory as it would be without the live splices, and without kprobes. It is
// the reader to make a ktext.Text with: instructions can only be told apart in
// code that is not half overwritten.
func (s *Splicer) Read(a isa.Addr, b []byte) error {
	if err := s.poker.ReadUnprobed(a, b); err != nil {
		return err
	}
	for _, p := range s.near(a, len(b)) {
		restore(p, a, b)
	}
	for _, e := range s.moved {
		overlay(e.Body, e.Code[:len(e.New)], a, b)
	}
	return nil
}

// near are the live plans that may have any of n bytes at a.
func (s *Splicer) near(a isa.Addr, n int) (out []*plan.Plan) {
	if n < manyBytes {
		return s.set.Near(place.Window{Lo: a, Hi: a + isa.Addr(n)})
	}
	for _, l := range s.live {
		out = append(out, l.Plan)
	}
	return out
}

// manyBytes is so much that asking for those of each place takes longer than going through all.
const manyBytes = 1 << 20

// restore puts a plan's old bytes into b, which was read at a.
func restore(p *plan.Plan, a isa.Addr, b []byte) {
	overlay(p.Point, p.Old, a, b)
	if p.Board != nil {
		overlay(p.Board.Addr, p.Board.Old, a, b)
	}
}

// overlay copies what is at from into b, which is at a, as far as they overlap.
func overlay(from isa.Addr, old []byte, a isa.Addr, b []byte) {
	for k, c := range old {
		if at := from + isa.Addr(k); at >= a && at-a < isa.Addr(len(b)) {
			b[at-a] = c
		}
	}
}

// Release gives back the slots of plans that will not be applied. Plans that
// are live keep theirs.
func (s *Splicer) Release(plans ...*plan.Plan) {
	for _, p := range plans {
		if p.In == nil && !s.patchLive(p.Patch) {
			for _, w := range p.Slots(false) {
				if !s.held(w) {
					s.heap.Free(w.Lo, int(w.Size()))
				}
			}
			if p.Board != nil && !s.boardLive(p.Board.Addr) {
				s.heap.FreeBoard(p.Board.Addr)
			}
			if e := p.Moves(); e != nil {
				if _, live := s.moved[e.Body]; !live {
					s.heap.Restore(e.Body) // unless others are in it
				}
			}
			for _, a := range p.Locals {
				if s.set.Local(a) == nil { // a plan that was refused may name a live one's
					s.heap.FreeLocal(a)
				}
			}
		}
	}
}

func (s *Splicer) patchLive(a isa.Addr) bool {
	return slices.ContainsFunc(s.near(a, 1), func(p *plan.Plan) bool { return p.Patch == a })
}

// held reports whether a live splice has any of a window for its patch, or for the copy
// of what it moved away: a plan from elsewhere may name it.
func (s *Splicer) held(w place.Window) bool {
	return slices.ContainsFunc(s.set.Near(w), func(p *plan.Plan) bool {
		return slices.ContainsFunc(p.Slots(true), func(v place.Window) bool { return !v.Intersect(w).Empty() })
	})
}

func (s *Splicer) boardLive(a isa.Addr) bool {
	return slices.ContainsFunc(s.near(a, 1), func(p *plan.Plan) bool { return p.Board != nil && p.Board.Addr == a })
}

// Apply makes all plans live, or none. Patches are written first, then all
// points change in one batch. The plans' slots belong to the splicer from here
// on; on error they are free again.
func (s *Splicer) Apply(plans []*plan.Plan) ([]*Live, error) { return s.ApplyFrom(plans, nil) }

// ApplyFrom is Apply, with what the cells of each plan hold at first; nil: what their
// snippet says.
func (s *Splicer) ApplyFrom(plans []*plan.Plan, cells [][]uint64) ([]*Live, error) {
	live, err := s.apply(plans, cells)
	var stuck *stuckError
	if err != nil && !errors.As(err, &stuck) {
		s.Release(plans...)
		for _, p := range plans {
			if p.Clone != nil && !s.patchLive(p.Patch) { // no key's site stays in what is nobody's, and who came by may sleep there
				s.leave(p)
			}
		}
	}
	if err != nil {
		return nil, err
	}
	s.live = append(s.live, live...)
	for _, l := range live {
		s.set.Add(l.Plan)
	}
	return live, nil
}

func (s *Splicer) apply(plans []*plan.Plan, cells [][]uint64) ([]*Live, error) {
	if cells != nil && len(cells) != len(plans) {
		return nil, fmt.Errorf("cells of %d splices for %d", len(cells), len(plans))
	}
	live := make([]*Live, len(plans))
	var before plan.Set
	for k, p := range plans {
		l, err := s.accept(p, &before, plans)
		if err != nil {
			return nil, describe(p, err)
		}
		live[k] = l
		before.Add(p)
	}
	if len(plans) == 0 {
		return nil, nil
	}
	moved := s.fresh(plans)
	var parts []part
	for _, e := range moved {
		parts = append(parts, part{at: e.Patch, code: e.Copy, states: e.States, slot: e.Slot, copy: e})
	}
	for _, p := range plans {
		if p.In == nil {
			parts = append(parts, patchOf(p)...)
		}
	}
	if err := s.putAll(parts); err != nil {
		return nil, err
	}
	for k, p := range plans {
		if p.Clone != nil { // what its points have is among these
			live[k].set(make([]uint64, p.Clone.Words()))
		}
	}
	for k, p := range plans {
		words := p.Snippet.Starts()
		if cells != nil {
			if len(cells[k]) != len(words) {
				return nil, describe(p, fmt.Errorf("%d words for cells of %d", len(cells[k]), len(words)))
			}
			words = cells[k]
		}
		live[k].set(words)
	}
	if err := s.stillBare(plans); err != nil {
		return nil, err
	}
	batch, of := writes(plans, moved)
	if err := s.pokeAll(batch, of); err != nil {
		return nil, err
	}
	k := 0
	for _, e := range moved {
		s.moved[e.Body] = evicted{e, batch[k].ID}
		k++
	}
	for _, l := range live {
		if l.Plan.In != nil {
			continue
		}
		if l.Plan.Board != nil {
			l.board = batch[k].ID
			k++
		}
		l.ID = batch[k].ID
		k++
	}
	return live, nil
}

// writes lists what is written for plans, functions that are moved away first, a
// springboard right before its point, and which plan each is of.
func writes(plans []*plan.Plan, moved []*plan.Eviction) (batch []Splice, of []*plan.Plan) {
	first := map[isa.Addr]*plan.Plan{} // for which what is there is moved away
	for _, p := range plans {
		if e := p.Moves(); e != nil && first[e.Body] == nil {
			first[e.Body] = p
		}
	}
	for _, e := range moved {
		batch, of = append(batch, moveAway(e)), append(of, first[e.Body])
	}
	for _, p := range plans {
		if p.In != nil {
			continue
		}
		// Displaced calls return to where they would have, unless a jump was made one; what
		// the module loads with waits for no fault, and of what else may fault, the annex's
		// is waited for.
		s := Splice{Point: p.Point, Old: p.Old, New: p.New, Patch: p.Patch, PatchLen: len(p.Code), Window: p.Window, Awake: p.Fault == 0 && !p.Called && p.Clone == nil, Trap: p.Mechanism == plan.Trap, Home: p.Home}
		s.Copied, s.Resumes = p.Clone.Copied(), p.Resumes
		if b := p.Board; b != nil {
			board := s
			board.Copied, board.Resumes = nil, nil
			board.Point, board.Old, board.New, board.Springboard, board.Code = b.Addr, b.Old, b.New, true, b.Whole
			batch, of = append(batch, board), append(of, p)
		}
		if p.Fault != 0 {
			s.Fault, s.Original = p.Fault, p.Displaced[0].Addr
		}
		if p.Annex != nil {
			s.Annex, s.AnnexLen = p.Annex.Addr, len(p.Annex.Code)
		}
		batch, of = append(batch, s), append(of, p)
	}
	return batch, of
}

// accept checks a plan against what is live, what is before it in the batch,
// and the areas.
func (s *Splicer) accept(p *plan.Plan, before *plan.Set, batch []*plan.Plan) (*Live, error) {
	if p.In != nil {
		return s.acceptInClone(p, batch)
	}
	if err := p.Check(s.arch); err != nil {
		return nil, err
	}
	if err := s.unchanged(p); err != nil {
		return nil, err
	}
	for _, q := range before.Near(p.Windows()...) {
		if err := clash(p, q); err != nil {
			return nil, fmt.Errorf("%w, which is in the same batch", err)
		}
	}
	for _, q := range s.set.Near(p.Windows()...) {
		if err := clash(p, q); err != nil {
			return nil, fmt.Errorf("%w, which is live", err)
		}
	}
	r, ok := s.heap.Find(p.Patch)
	if !ok || !r.Code().Holds(p.Patch, p.Slot) || p.Cell < r.Cell(p.Patch) || p.Cell-r.Cell(p.Patch)+isa.Addr(8*p.Snippet.Words()) > isa.Addr(p.Slot) {
		return nil, fmt.Errorf("patch at %v with cell %v is not in an area of this kernel", p.Patch, p.Cell)
	}
	if err := s.checkAnnex(p, r); err != nil {
		return nil, err
	}
	l, err := s.cellsOf(p, p)
	if err != nil {
		return nil, err
	}
	if err := s.sums(l, before); err != nil {
		return nil, err
	}
	s.heap.Take(p.Patch, p.Slot) // a plan from elsewhere has not taken it yet
	if p.Annex != nil {
		s.heap.Take(p.Annex.Addr, len(p.Annex.Code))
	}
	if p.Board != nil {
		s.heap.TakeBoard(p.Board.Addr, len(p.Board.New))
	}
	if e := p.Moves(); e != nil {
		if err := s.acceptEviction(e); err != nil {
			return nil, err
		}
	}
	return l, nil
}

// cellsOf is where the cells of a plan are, which has them beside another's patch, or its own.
func (s *Splicer) cellsOf(p, in *plan.Plan) (*Live, error) {
	r, ok := s.heap.Find(in.Patch)
	if !ok {
		return nil, fmt.Errorf("patch at %v is not in an area of this kernel", in.Patch)
	}
	a := s.areas[r.ID]
	return &Live{Plan: p, cells: a.Cells, cell: int(p.Cell - a.CellAddr), unit: gen.Unit(s.arch, p.Snippet, p.Cell)}, nil
}

// sums finds the cells in per-CPU memory, each of which is this splice's alone.
func (s *Splicer) sums(l *Live, before *plan.Set) error {
	for k, a := range l.Plan.Locals {
		if a == 0 {
			continue
		}
		off, ok := s.heap.Local(a)
		if !ok {
			return fmt.Errorf("cell %d at %v is not in per-CPU memory of this kernel", k, a)
		}
		if q := cmp.Or(before.Local(a), s.set.Local(a)); q != nil {
			return fmt.Errorf("shares its cell at %v of per-CPU memory with the splice of %v", a, q.Point)
		}
		s.heap.TakeLocal(a)
		l.sums = append(l.sums, sum{word: l.Plan.Snippet.Word(k), off: off, load: s.local.Load})
	}
	return nil
}

// set sets the cells, before anything leads to the patch.
func (l *Live) set(words []uint64) {
	for k, w := range words {
		l.cells.Store(l.cell+8*k, w*l.unit)
	}
	for k := range l.sums {
		c := &l.sums[k]
		c.first, c.since = words[c.word], c.load(c.off)
	}
}

// holds compares kernel memory with what should be there.
func (s *Splicer) holds(a isa.Addr, want []byte) error {
	got := make([]byte, len(want))
	if err := s.poker.Read(a, got); err != nil {
		return err
	}
	if !bytes.Equal(got, want) {
		return fmt.Errorf("%v holds %x, not %x", a, got, want)
	}
	return nil
}

// Undo takes splices back, all or none, newest first. On success their slots
// are free, and hold traps. Of more than MostWrites, those are gone on an error that came
// before it.
func (s *Splicer) Undo(which []*Live) error {
	which = slices.Clone(which)
	moved, err := s.undo(which)
	if err == nil {
		s.fill(which, moved)
	}
	return err
}

// undo leaves the patches as they are. It tells which functions are back.
func (s *Splicer) undo(which []*Live) (moved []evicted, err error) {
	if which, err = withoutInner(which); err != nil {
		return nil, err
	}
	u := s.undoing()
	defer func() { s.live = slices.DeleteFunc(s.live, func(l *Live) bool { return u.made[l] == 0 }) }()
	which = slices.SortedFunc(slices.Values(which), func(a, b *Live) int { return u.made[b] - u.made[a] })
	for some := range slices.Chunk(which, s.most) {
		back, err := s.undoSome(some, u)
		if err != nil {
			return nil, err
		}
		moved = append(moved, back...)
	}
	return moved, nil
}

// undoing is what is known of all live splices while some of them are undone.
type undoing struct {
	made   map[*Live]int    // the order in which they were made, counted from 1
	needed map[isa.Addr]int // for how many of them something is moved away, by where that is
}

func (s *Splicer) undoing() undoing {
	u := undoing{make(map[*Live]int, len(s.live)), map[isa.Addr]int{}}
	for k, l := range s.live {
		u.made[l] = k + 1
		if e := l.Plan.Moves(); e != nil {
			u.needed[e.Body]++
		}
	}
	return u
}

// undoSome takes back splices in their order, the newest first.
func (s *Splicer) undoSome(order []*Live, u undoing) ([]evicted, error) {
	made := u.made
	var ids []uint32
	var plans []*plan.Plan
	for k, l := range order {
		if made[l] == 0 || k > 0 && order[k-1] == l {
			return nil, describe(l.Plan, errors.New("is not live, or is listed twice"))
		}
		ids, plans = append(ids, l.ID), append(plans, l.Plan)
		if l.Plan.Board != nil {
			ids, plans = append(ids, l.board), append(plans, l.Plan)
		}
	}
	stale := s.stale(order, u.needed)
	for _, e := range stale {
		ids, plans = append(ids, e.id), append(plans, order[0].Plan)
	}
	if err := s.poker.Undo(ids); err != nil {
		return nil, blame(plans, err)
	}
	for _, e := range stale {
		delete(s.moved, e.Body)
	}
	order = append(slices.Clip(order), s.inner(order)...)
	for _, l := range order {
		s.set.Remove(l.Plan)
		delete(made, l)
	}
	for _, l := range order {
		s.Release(l.Plan)
	}
	// Their slots are written anew only when nobody is asleep in them, which the kernel
	// sees to; for cells that a patch leads to, it has to be asked.
	if n, err := s.poker.Quarantined(); err == nil && n == 0 {
		s.heap.CleanLocals()
	}
	return stale, nil
}

// Verify checks that every live splice is in memory as it was planned.
func (s *Splicer) Verify() error {
	var errs []error
	pages := pages{read: s.poker.Read}
	for _, l := range s.live {
		if l.Plan.In != nil {
			continue
		}
		written := append([]part{{at: l.Plan.Point, code: l.Plan.New}}, patchOf(l.Plan)...)
		if b := l.Plan.Board; b != nil {
			written = append(written, part{at: b.Addr, code: b.New})
		}
		for _, c := range written {
			if len(c.sites) == 0 && pages.hold(c.at, c.code) {
				continue
			}
			if err := s.holdsBut(c); err != nil {
				errs = append(errs, describe(l.Plan, err))
			}
		}
	}
	for _, e := range s.moved {
		for _, err := range []error{s.holds(e.Body, e.New), s.holds(e.Patch, e.Copy)} {
			if err != nil {
				errs = append(errs, fmt.Errorf("%s, which runs elsewhere: %w", e.Name(), err))
			}
		}
	}
	return errors.Join(errs...)
}

// pages are what was read last of memory, in whole pages: splices are many in a page, and to ask for each
// takes longer than to compare.
type pages struct {
	read func(a isa.Addr, b []byte) error
	last [4]struct {
		at   isa.Addr
		code []byte
	}
	next int
}

const pageLen = 4096

// hold reports whether memory holds what is wanted; false, too, where that is not in one page, or cannot be read.
func (p *pages) hold(a isa.Addr, want []byte) bool {
	at := a &^ (pageLen - 1)
	for _, l := range p.last {
		if l.code != nil && l.at == at {
			return bytes.HasPrefix(l.code[a-at:], want)
		}
	}
	l := &p.last[p.next]
	p.next = (p.next + 1) % len(p.last)
	l.at, l.code = at, make([]byte, pageLen)
	if p.read(at, l.code) != nil {
		l.code = nil
		return false
	}
	return bytes.HasPrefix(l.code[a-at:], want)
}

// Close undoes everything and gives the areas back.
func (s *Splicer) Close() error {
	if _, err := s.undo(s.live); err != nil { // its memory goes as a whole
		return err
	}
	var errs []error
	for _, r := range s.heap.Areas() {
		if err := s.poker.FreeArea(r.ID); err != nil {
			errs = append(errs, fmt.Errorf("patch memory at %v: %w", r.Addr, err))
		}
	}
	s.heap, s.areas = place.Heap{}, map[uint32]Area{}
	return errors.Join(errs...)
}

// describe says which splice an error is about.
func describe(p *plan.Plan, err error) error {
	return fmt.Errorf("splice of %s+%#x at %v: %w", p.Symbol, uint64(p.Offset), p.Point, err)
}

// blame puts the name of the plan to an error that has only its index.
func blame(plans []*plan.Plan, err error) error {
	var e *BatchError
	if errors.As(err, &e) && e.Index >= 0 && e.Index < len(plans) {
		return describe(plans[e.Index], e.Err)
	}
	return fmt.Errorf("batch of %d splices: %w", len(plans), err)
}
