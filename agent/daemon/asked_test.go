package daemon

import (
	"testing"

	"kerninst/agent/isa"
	"kerninst/agent/ktext/ktexttest"
	"kerninst/agent/wire"
)

// TestAsked: what a step's points may displace is nobody's to move away, and what lies
// beside may be moved.
func TestAsked(t *testing.T) {
	const name = "__riscv_sys_getppid"
	x := ktexttest.Load(t, "riscv64").Text(t)
	f, err := x.Function("", name)
	if err != nil {
		t.Fatal(err)
	}
	other, err := x.Function("", "vfs_read")
	if err != nil {
		t.Fatal(err)
	}
	d := &Daemon{text: x, resolved: map[string][]addr{"before": {f.Addr + 0x20}}}
	lo, _ := x.Bounds()
	d.info.TextStart = lo
	for what, c := range map[string]struct {
		p      *wire.Point
		lo, hi isa.Off
		want   bool
	}{
		"the point":       {&wire.Point{Function: name, Offset: 0x10}, 0x10, 0x12, true},
		"up to it":        {&wire.Point{Function: name, Offset: 0x10}, 0, 0x10, false},
		"its window":      {&wire.Point{Function: name, Offset: 0x10}, 0x18, 0x1a, true},
		"its widest":      {&wire.Point{Function: name, Offset: 0x10}, 0x22, 0x23, true}, // four bytes and fifteen
		"far behind it":   {&wire.Point{Function: name, Offset: 0x10}, 0x24, 0x30, false},
		"every one":       {&wire.Point{Function: name, Offset: 8, Every: true}, 0x1e, 0x20, true},
		"before those":    {&wire.Point{Function: name, Offset: 8, Every: true}, 0, 8, false},
		"one searched":    {&wire.Point{Function: name, Offset: 8, Search: true}, 0x1e, 0x20, true},
		"the entry":       {&wire.Point{Function: name, Entry: true}, 0x1e, 0x20, true},
		"by address":      {&wire.Point{Text: uint64(f.Addr-lo) + 0x11}, 0x10, 0x12, true},
		"an earlier one":  {&wire.Point{SameAs: "before"}, 0x20, 0x22, true},
		"no such one":     {&wire.Point{Function: "nobody"}, 0x10, 0x12, false},
		"another's point": {&wire.Point{Function: "vfs_read", Offset: 0x10}, 0x10, 0x12, false},
	} {
		got := d.askedOf([]*wire.Point{c.p}).in(f, f.Addr+isa.Addr(c.lo), f.Addr+isa.Addr(c.hi))
		if got != c.want {
			t.Errorf("%s: %v", what, got)
		}
	}
	all := d.askedOf([]*wire.Point{{Function: name, Offset: 0x10}, {Function: "nobody"}, {Function: "vfs_read", Offset: 4}, {Function: name, Offset: 0x30}})
	if len(all[f.Addr]) != 2 || len(all[other.Addr]) != 1 {
		t.Errorf("of several: %v", all)
	}
}
