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
		"every one":       {&wire.Point{Function: name, Offset: 8, Each: wire.Each_INSTRUCTION}, 0x1e, 0x20, true},
		"before those":    {&wire.Point{Function: name, Offset: 8, Each: wire.Each_INSTRUCTION}, 0, 8, false},
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
	if len(all.near[f.Addr]) != 2 || len(all.near[other.Addr]) != 1 {
		t.Errorf("of several: %v", all)
	}
}

// TestWanted: the jump of a point may not end in the bytes of another that is asked for with it,
// nor its window displace that, until it has a plan.
func TestWanted(t *testing.T) {
	x := ktexttest.Load(t, "riscv64").Text(t)
	d := &Daemon{text: x}
	all := d.askedOf([]*wire.Point{{Function: "vfs_read", Offset: 8}, {Function: "vfs_read", Offset: 4},
		{Function: "__riscv_sys_getppid", Offset: 8, Each: wire.Each_INSTRUCTION}, {Function: "ksys_read", Search: true}})
	for what, c := range map[string]struct {
		function string
		lo, hi   isa.Off
		want     bool
		planned  isa.Off // of a point
	}{
		"before the first":     {"vfs_read", 0, 4, false, 0},
		"up to it":             {"vfs_read", 2, 5, true, 0},
		"between the two":      {"vfs_read", 5, 8, false, 0},
		"the other":            {"vfs_read", 6, 9, true, 0},
		"one is planned":       {"vfs_read", 0, 8, false, 4},
		"one of two is":        {"vfs_read", 0, 9, true, 4},
		"behind both":          {"vfs_read", 9, 200, false, 0},
		"before every one":     {"__riscv_sys_getppid", 0, 8, false, 0},
		"one of every":         {"__riscv_sys_getppid", 12, 13, true, 0},
		"what may be searched": {"ksys_read", 0, 100, false, 0},
	} {
		f, err := x.Function("", c.function)
		if err != nil {
			t.Fatal(err)
		}
		planned := func(a isa.Addr) bool { return c.planned != 0 && a == f.Addr+isa.Addr(c.planned) }
		if got := all.has(f.Addr+isa.Addr(c.lo), f.Addr+isa.Addr(c.hi), planned); got != c.want {
			t.Errorf("%s: %v", what, got)
		}
	}
	if (*asked)(nil).has(0, ^isa.Addr(0), nil) {
		t.Error("nobody has asked")
	}
}
