package splice_test

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"

	"kerninst/agent/gen"
	"kerninst/agent/isa"
	"kerninst/agent/isa/amd64"
	"kerninst/agent/place"
	"kerninst/agent/plan"
)

// withPages is a kernel of which punned jumps have pages.
func withPages(t *testing.T) *bench {
	t.Helper()
	b := setUp(t, "amd64")
	lo, _ := b.text.Bounds()
	b.s.ReservePages(place.PageRoom(amd64.Arch, lo))
	return b
}

// pun plans the first punned jump in a function.
func (b *bench) pun() (*plan.Plan, *plan.Refusal) { return plan.Search(b.text, b.punned(0)) }

func (b *bench) punned(off isa.Off) plan.Request {
	return plan.Request{Function: "vfs_read", Offset: off, Heap: b.s.Heap(), Taken: b.s.Taken,
		Mechanism: plan.Pun, Features: gen.Features{LSE: true}}
}

// TestPages: a punned jump's patch and cell are in a page at the address that was asked
// for; the bytes that complete the jump are locked while it lives; Close gives pages back.
func TestPages(t *testing.T) {
	b := withPages(t)
	before := b.outside()
	p, r := b.pun()
	if r != nil {
		t.Fatal(r)
	}
	live, err := b.s.Apply([]*plan.Plan{p})
	if err != nil {
		t.Fatal(err)
	}
	a, ok := b.s.Heap().Find(p.Patch)
	if !ok || !a.Page() || !b.k.hold(p.Patch, p.Code) || !b.k.hold(p.Point, p.New) || len(b.k.areas) != 2 {
		t.Errorf("the patch at %v in %+v or the point are not in memory; %d areas", p.Patch, a, len(b.k.areas))
	}
	if !b.k.hold(p.Point+isa.Addr(len(p.New)), p.Tail) || !b.s.Taken(p.End()-1, p.End()) || b.s.Taken(p.End(), p.End()+1) {
		t.Errorf("%x behind %v is not there or not locked", p.Tail, p.Point)
	}
	b.k.Write(p.Cell, []byte{42})
	if n := live[0].Words()[0]; n != 42/live[0].Unit() {
		t.Errorf("%d counted, want 42", n)
	}
	if err := errors.Join(b.s.Verify(), b.s.Undo(live)); err != nil {
		t.Error(err)
	}
	if b.s.Taken(p.End()-1, p.End()) {
		t.Error("what completed the jump is locked although it is gone")
	}
	b.same(t, before)
	if err := b.s.Close(); err != nil || len(b.k.areas) != 0 {
		t.Errorf("%v, %d areas are left", err, len(b.k.areas))
	}
}

// same holds memory outside the areas to be what it was.
func (b *bench) same(t *testing.T, before map[isa.Addr][]byte) {
	t.Helper()
	now := b.outside()
	for p, old := range before {
		if string(now[p]) != string(old) {
			t.Errorf("the page at %v is another", p*4096)
		}
	}
}

// TestPageElsewhere: where the kernel has no page, or gives another than was asked for, the
// next is tried; what it gave is given back.
func TestPageElsewhere(t *testing.T) {
	for name, spoil := range map[string]func(*kernel){
		"denied":  func(k *kernel) { k.failWith, k.failAt = "alloc", 1 },
		"another": func(k *kernel) { k.astray = 1 },
	} {
		b := withPages(t)
		want, r := b.pun()
		if r != nil {
			t.Fatal(r)
		}
		b = withPages(t)
		spoil(b.k)
		p, r := b.pun()
		if r != nil {
			t.Errorf("%s: %v", name, r)
			continue
		}
		if p.Point == want.Point && p.Patch < want.Patch+place.PageLen || len(b.k.areas) != 2 {
			t.Errorf("%s: %v leads to %v, as if nothing were, or %d areas are there", name, p.Point, p.Patch, len(b.k.areas))
		}
		if _, err := b.s.Apply([]*plan.Plan{p}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestNoPages: where the kernel has no page at all, a point is refused with the reason, and
// nothing is kept.
func TestNoPages(t *testing.T) {
	b := withPages(t)
	good, r := b.pun()
	if r != nil {
		t.Fatal(r)
	}
	b = withPages(t)
	b.k.astray = 1 << 20
	p, r := plan.Point(b.text, b.punned(good.Offset))
	if r == nil || r.Reason != plan.OutOfReach || !strings.Contains(r.Detail, "no page of memory") {
		t.Errorf("%+v, %v", p, r)
	}
	if len(b.k.areas) != 1 || b.s.Verify() != nil {
		t.Errorf("%d areas, %v", len(b.k.areas), b.s.Verify())
	}
}

// successor plans the first punned jump of four bytes for which the instruction behind it is
// moved away: there are pages only where a jump leads whose last byte is that of a jump.
func (b *bench) successor(t *testing.T) *plan.Plan {
	t.Helper()
	f, r := b.pun()
	if r != nil {
		t.Fatal(r)
	}
	b.s.Release(f)
	lo, hi := gen.PunReach(f.Point, 0, []byte{0xe9})
	b.s.ReservePages([]place.Window{{Lo: lo &^ (place.PageLen - 1), Hi: hi}})
	for off := isa.Off(0); ; {
		p, r := plan.Search(b.text, b.punned(off))
		if r != nil {
			t.Fatal(r)
		}
		if p.Next != nil {
			return p
		}
		b.s.Release(p)
		off = p.Offset + isa.Off(p.Back-p.Point)
	}
}

// TestSuccessor: what is moved away for a punned jump is written before it and taken back
// behind it, is nobody else's meanwhile, and reads as it was.
func TestSuccessor(t *testing.T) {
	b := withPages(t)
	before, used := b.outside(), b.used()
	for _, cell := range [][][]uint64{{{1, 2}}, nil} { // refused, and then made
		p := b.successor(t)
		e := p.Next
		live, err := b.s.ApplyFrom([]*plan.Plan{p}, cell)
		if cell != nil {
			if err == nil || len(b.s.Heap().Evicted()) != 0 {
				t.Fatalf("two words for one cell: %v, %d are moved away", err, len(b.s.Heap().Evicted()))
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if !b.k.hold(e.Body, e.New) || !b.k.hold(e.Patch, e.Copy) || !b.k.hold(p.Point, p.New) || !bytes.HasPrefix(e.New, p.Tail) {
			t.Errorf("%+v and %+v are not in memory", p, e)
		}
		was := make([]byte, len(p.Old)+len(e.Code))
		if err := b.s.Read(p.Point, was); err != nil || !bytes.Equal(was, slices.Concat(p.Old, e.Code)) {
			t.Errorf("%x is read at %v: %v", was, p.Point, err)
		}
		if !b.s.Taken(e.End()-1, e.End()) || b.s.Taken(e.End(), e.End()+1) {
			t.Errorf("%v to %v is not locked, or more is", e.Body, e.End())
		}
		for _, s := range b.k.live {
			if s.Point == e.Body && (s.Window || s.Span != 0 || !s.Awake) {
				t.Errorf("somebody waits for one instruction: %+v", s)
			}
		}
		other := *p
		other.Patch += place.Line
		for _, q := range []*plan.Plan{p, &other} {
			if _, err := b.s.Apply([]*plan.Plan{q}); err == nil || len(b.s.Heap().Evicted()) != 1 {
				t.Errorf("made twice: %v, %d are moved away", err, len(b.s.Heap().Evicted()))
			}
		}
		if err := errors.Join(b.s.Verify(), b.s.Undo(live)); err != nil {
			t.Error(err)
		}
	}
	b.same(t, before)
	if len(b.s.Heap().Evicted()) != 0 || b.used() != used {
		t.Errorf("%d are moved away, %d slots are used, of %d before", len(b.s.Heap().Evicted()), b.used(), used)
	}
}
