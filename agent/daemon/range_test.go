package daemon

import (
	"testing"

	"kerninst/agent/cfg"
	"kerninst/agent/isa"
	"kerninst/agent/ktext"
	"kerninst/agent/ktext/ktexttest"
	"kerninst/agent/plan"
	"kerninst/agent/wire"
)

// TestRange: a range is of each function from one to another, by address, and of the same
// instructions as when the function is named; the bound is none of them.
func TestRange(t *testing.T) {
	for _, arch := range ktexttest.Arches {
		d := planning(t, arch)
		d.known = &plan.Functions{}
		first, err := d.text.Function("", "ksys_read")
		if err != nil {
			t.Fatal(err)
		}
		until, err := d.text.Function("", "ksys_write")
		if err != nil {
			t.Fatal(err)
		}
		got, err := d.expand(t.Context(), &wire.Splice{Points: []*wire.Point{{Function: first.Name, Until: until.Name, Each: wire.Each_BLOCK}}})
		if err != nil {
			t.Fatal(err)
		}
		at := map[isa.Addr]bool{}
		for _, p := range got {
			if p.Each == wire.Each_ITSELF {
				at[d.info.TextStart+isa.Addr(p.Text-1)] = true
			}
		}
		want := 0
		d.text.Functions("", func(f ktext.Func) bool {
			if f.Addr < first.Addr || f.Addr >= until.Addr || cfg.IsPaddingName(f.Name) {
				return true
			}
			offsets, _ := plan.Offsets(d.text, plan.Request{Function: f.Name, Facts: d.facts}, plan.EachBlock)
			for _, off := range offsets {
				if want++; !at[f.Addr+isa.Addr(off)] {
					t.Errorf("%s: %v+%#x is missing", arch, f, uint64(off))
				}
			}
			return true
		})
		if len(at) != want || want < 3 {
			t.Errorf("%s: %d points, want %d", arch, len(at), want)
		}
		for _, p := range []*wire.Point{
			{Function: until.Name, Until: first.Name, Each: wire.Each_BLOCK},
			{Function: first.Name, Until: until.Name},
			{Function: first.Name, Until: "no_such", Each: wire.Each_BLOCK},
			{Function: first.Name, Until: until.Name, Each: wire.Each_BLOCK, Module: "some"},
		} {
			if _, err := d.expand(t.Context(), &wire.Splice{Points: []*wire.Point{p}}); err == nil {
				t.Errorf("%s: %v is accepted", arch, p)
			}
		}
	}
}

// TestRoom: many points get areas besides; few take what there is.
func TestRoom(t *testing.T) {
	d := planning(t, "arm64")
	d.room(20)
	if n := len(d.splicer.Heap().Areas()); n != 1 {
		t.Errorf("%d areas for 20 points, of which there is room for more", n)
	}
}
