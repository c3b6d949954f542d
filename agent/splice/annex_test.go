package splice_test

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"kerninst/agent/gen"
	"kerninst/agent/isa"
	"kerninst/agent/ktext"
	"kerninst/agent/place"
	"kerninst/agent/plan"
	"kerninst/agent/splice"
)

// annexed is a kernel with accesses to a user's memory, whose annex is out of a b's
// reach, and the plan for one of them.
func annexed(t *testing.T) (*bench, *plan.Plan) {
	t.Helper()
	b, sites := accesses(t)
	return b, b.access(t, sites[0])
}

// accesses are put in place of system instructions that have entries in the exception
// table.
func accesses(t *testing.T) (*bench, []isa.Addr) {
	t.Helper()
	const ldtr = "\x20\x08\x40\xf8" // ldtr x0, [x1]
	b := &bench{k: newKernel(t, "arm64")}
	links, err := b.k.Text(t).Links("")
	if err != nil {
		t.Fatal(err)
	}
	var sites []isa.Addr
	for _, l := range links.Faults {
		if f, ok := b.k.Text(t).Locate(l.Site); ok && !strings.HasPrefix(f.Name, "gap") {
			b.k.Write(l.Site, []byte(ldtr))
			sites = append(sites, l.Site)
		}
	}
	b.k.annexAt = sites[0]&^4095 + 1<<31
	b.s = splice.New(b.k.Arch, b.k)
	b.text = b.k.TextWith(t, b.s.Read, ktext.Options{})
	lo, hi := b.text.Bounds()
	if err := errors.Join(b.s.Reserve(lo, hi, 64<<10), b.s.ReserveAnnex()); err != nil {
		t.Fatal(err)
	}
	return b, sites
}

func (b *bench) access(t *testing.T, site isa.Addr) *plan.Plan {
	t.Helper()
	f, _ := b.text.Locate(site)
	p, r := plan.At(b.text, f, plan.Request{Offset: isa.Off(site - f.Addr), Heap: b.s.Heap(), Taken: b.s.Taken, Features: gen.Features{LSE: true}})
	if r != nil || p.Annex == nil {
		t.Fatal(p, r)
	}
	return p
}

// TestAnnex: both parts are written before the point, and are told to the kernel; both
// slots are free again when it is undone.
func TestAnnex(t *testing.T) {
	b, p := annexed(t)
	before := b.outside()
	live, err := b.s.Apply([]*plan.Plan{p})
	if err != nil {
		t.Fatal(err)
	}
	if !b.k.hold(p.Patch, p.Code) || !b.k.hold(p.Annex.Addr, p.Annex.Code) || b.used() != 2 {
		t.Errorf("the parts are not in memory, or %d lines are used", b.used())
	}
	if got := strings.Join(b.k.calls, " "); got != "alloc alloc code code splice" {
		t.Errorf("calls %q", got)
	}
	if !reflect.DeepEqual(b.k.said(p.Patch, len(p.Code)), p.States) || !reflect.DeepEqual(b.k.said(p.Annex.Addr, len(p.Annex.Code)), p.Annex.States) {
		t.Error("the parts were written with other state maps than theirs")
	}
	s := b.k.live[live[0].ID]
	if s.Annex != p.Annex.Addr || s.AnnexLen != len(p.Annex.Code) || s.Fault != p.Fault || s.Original != p.Point || s.Awake {
		t.Errorf("the kernel is told %+v", s)
	}
	if err := b.s.Verify(); err != nil {
		t.Error(err)
	}
	b.k.Write(p.Annex.Addr+4, []byte{1, 2, 3, 4})
	if err := b.s.Verify(); err == nil {
		t.Error("what was written over the annex is not noticed")
	}
	b.s.Release(p) // of a live plan nothing is given back
	if b.used() != 2 {
		t.Errorf("%d lines are used by a live plan", b.used())
	}
	if err := b.s.Undo(live); err != nil {
		t.Fatal(err)
	}
	if b.used() != 0 {
		t.Errorf("%d lines are used after the undo", b.used())
	}
	if err := b.s.Close(); err != nil || !slices.Contains(b.k.calls, "free") {
		t.Error(err)
	}
	for a := range before {
		if !b.k.hold(a*4096, before[a]) {
			t.Errorf("the page at %v differs", a*4096)
		}
	}
}

// TestAnnexElsewhere: a plan whose second part is not in the annex, or is on another's,
// is not made.
func TestAnnexElsewhere(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(*bench, *plan.Plan)
		want  string
	}{
		"no annex": {func(b *bench, p *plan.Plan) {
			*b.s.Heap() = place.Heap{}
			b.s.Heap().Add(place.NewArea(1, p.Patch&^4095, (p.Patch&^4095)+64<<10, 64<<10))
		}, "not in the annex"},
		"in an area": {func(b *bench, p *plan.Plan) {
			*b.s.Heap() = place.Heap{}
			b.s.Heap().Add(place.NewArea(1, p.Patch&^4095, (p.Patch&^4095)+64<<10, 64<<10))
			b.s.Heap().Add(place.NewArea(2, p.Annex.Addr&^4095, (p.Annex.Addr&^4095)+64<<10, 64<<10))
		}, "not in the annex"},
		"the first part in an annex": {func(b *bench, p *plan.Plan) {
			*b.s.Heap() = place.Heap{}
			b.s.Heap().Add(place.NewAnnex(1, p.Patch&^4095, p.Patch&^4095+64<<10, 64<<10))
		}, "belongs into the annex"},
		"both gone": {func(b *bench, p *plan.Plan) { p.Annex = nil }, "may fault"},
	} {
		b, p := annexed(t)
		c.spoil(b, p)
		if _, err := b.s.Apply([]*plan.Plan{p}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestAnnexShared: two plans have no part in common, in one batch or one after the other.
func TestAnnexShared(t *testing.T) {
	other, sites := accesses(t)
	for _, a := range other.s.Heap().Areas() {
		if !a.Annex() {
			other.s.Heap().Take(a.Addr, place.Line) // so that only the annex's slot is the same
		}
	}
	q := other.access(t, sites[1])
	b, p := annexed(t)
	if p.Patch == q.Patch || p.Annex.Addr != q.Annex.Addr {
		t.Fatalf("parts at %v and %v, %v and %v", p.Patch, q.Patch, p.Annex.Addr, q.Annex.Addr)
	}
	if _, err := b.s.Apply([]*plan.Plan{p, q}); err == nil || !strings.Contains(err.Error(), "shares its patch") {
		t.Errorf("in one batch: %v", err)
	}
	b, p = annexed(t)
	if _, err := b.s.Apply([]*plan.Plan{p}); err != nil {
		t.Fatal(err)
	}
	if _, err := b.s.Apply([]*plan.Plan{q}); err == nil || !strings.Contains(err.Error(), "is live") || b.used() != 2 {
		t.Errorf("after the other: %v, %d lines used", err, b.used())
	}
}

// TestAnnexFails: whichever write fails, the slots of both parts are free again.
func TestAnnexFails(t *testing.T) {
	for n := 1; n <= 2; n++ {
		b, p := annexed(t)
		b.k.failWith, b.k.failAt = "code", n
		if _, err := b.s.Apply([]*plan.Plan{p}); !errors.Is(err, errInjected) || b.used() != 0 {
			t.Errorf("write %d: %v, %d lines used", n, err, b.used())
		}
	}
}
