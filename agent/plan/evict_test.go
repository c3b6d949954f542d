package plan_test

import (
	"strings"
	"testing"

	"kerninst/agent/gen"
	"kerninst/agent/isa"
	"kerninst/agent/isa/riscv64"
	"kerninst/agent/ktext"
	"kerninst/agent/ktext/ktexttest"
	"kerninst/agent/place"
	"kerninst/agent/plan"
	"kerninst/agent/snippet"
)

// leafCode is a function of 50 bytes, behind whose ftrace site there is room for four
// springboards beside the jump to a copy of it.
var leafCode = strings.Repeat("\x13\x00\x00\x00", 2) + strings.Repeat("\x01\x00", 20) + "\x82\x80"

const leafOf = "__riscv_sys_getppid" // the instruction at +0x10 is four bytes long

// withLeaf is a request by springboard in a kernel that has a leaf so many bytes behind
// a function, and no other.
func withLeaf(t *testing.T, behind isa.Addr, gap bool) (*ktext.Text, plan.Request) {
	t.Helper()
	k := ktexttest.Load(t, "riscv64")
	f, err := k.Text(t).Function("", leafOf)
	if err != nil {
		t.Fatal(err)
	}
	k.Add("leaf", f.Addr+behind, []byte(leafCode))
	if gap { // the text ends early
		k.Kallsyms += (f.Addr + 0x20002).String()[2:] + " T _etext\n" + (f.Addr + 0x21000).String()[2:] + " T __init_begin\n"
	}
	x := k.Text(t)
	req := request(x, leafOf, 0x10)
	req.Mechanism = plan.Springboard
	if req.Snippet, err = snippet.Parse("c0 sum\nc1 sum\ncount c0 1\ncount c1 1"); err != nil { // too long for a copy
		t.Fatal(err)
	}
	req.Spare = func(f ktext.Func, _, _ isa.Addr) bool { return f.Name != "leaf" }
	return x, req
}

// TestEvicted: springboards are in one function until there is no room for another.
func TestEvicted(t *testing.T) {
	x, req := withLeaf(t, 0x8000, false)
	var first *plan.Plan
	for k, off := range []isa.Off{0x10, 0x10, 0x10, 0x10} {
		req.Offset = off
		p, r := plan.Point(x, req)
		if r != nil {
			t.Fatalf("+%#x: %v", uint64(off), r)
		}
		throughJSON(t, p)
		if p.Board == nil || p.Board.In == nil || p.Board.In.Symbol != "leaf" || p.Added != 13 || len(p.New) != 4 {
			t.Fatalf("+%#x: %+v", uint64(off), p)
		}
		if first == nil {
			first = p
		}
		if e := p.Board.In; !e.Same(first.Board.In) || p.Board.Addr != e.Body+isa.Addr(8*(k+1)) || p.Patch == e.Patch {
			t.Errorf("springboard %d of %v is at %v, its patch at %v, the copy at %v", k, e.Body, p.Board.Addr, p.Patch, e.Patch)
		}
		for _, b := range []struct {
			a    isa.Addr
			want bool
		}{{p.Board.In.Body, true}, {p.Board.In.End() - 1, true}, {p.Board.In.End(), false}, {p.Point, true}} {
			if p.Touches(b.a, b.a+1) != b.want {
				t.Errorf("it touches %v: %v", b.a, !b.want)
			}
		}
	}
	if _, r := plan.Point(x, req); r == nil || r.Reason != plan.NoSpringboard {
		t.Errorf("a fifth springboard in room for four: %v", r)
	}
}

// TestCopied: the patch of a counter is short enough for a copy of it to be where a
// function was: a jump there, its two instructions, and a jump back. Its cell is one auipc
// away. When there is no room for another copy, there may be for a jump.
func TestCopied(t *testing.T) {
	x, req := withLeaf(t, 0x8000, false)
	req.Snippet = snippet.Counter()
	for k, added := range []int{4, 7} {
		p, r := plan.Point(x, req)
		if r != nil {
			t.Fatal(r)
		}
		throughJSON(t, p)
		b := p.Board
		if p.Added != added || b.Whole != (added == 4) || b.In.Symbol != "leaf" || len(p.New) != 4 {
			t.Fatalf("the board of point %d: %+v, %d instructions added", k, b, p.Added)
		}
		if b.Whole && (p.Cell%4096 != b.Addr%4096 || p.Cell%8 != 0 || p.Cell-(p.Patch+0x10000) >= place.Line) {
			t.Errorf("copy at %v, patch at %v, cell at %v", b.Addr, p.Patch, p.Cell)
		}
		for name, spoil := range map[string]func(*plan.Board){
			"another cell":               func(b *plan.Board) { b.New = flip(b.New, 1) },
			"another way back":           func(b *plan.Board) { b.New = flip(b.New, len(b.New)-1) },
			"no way back":                func(b *plan.Board) { b.New = b.New[:len(b.New)-4]; b.Old = b.Old[:len(b.New)] },
			"another place":              func(b *plan.Board) { b.Addr += 2 },
			"not the whole or the whole": func(b *plan.Board) { b.Whole = !b.Whole },
		} {
			q, c := *p, *b
			spoil(&c)
			q.Board = &c
			if err := q.Check(riscv64.Arch); err == nil {
				t.Errorf("point %d: %s: not noticed", k, name)
			}
		}
	}
	req.Features.NoWindows = true
	if p, r := plan.Point(x, req); r == nil {
		t.Errorf("in a function that is preempted: %+v", p)
	}
}

// TestEvictedNot: why there is no springboard.
func TestEvictedNot(t *testing.T) {
	for name, c := range map[string]struct {
		behind isa.Addr
		spoil  func(*plan.Request)
		want   plan.Reason
	}{
		"out of reach":       {1 << 20, func(*plan.Request) {}, plan.NoSpringboard},
		"nothing moved":      {0x8000, func(r *plan.Request) { r.Still = true }, plan.NoSpringboard},
		"spared":             {0x8000, func(r *plan.Request) { r.Spare = func(ktext.Func, isa.Addr, isa.Addr) bool { return true } }, plan.NoSpringboard},
		"a splice is in it":  {0x8000, func(r *plan.Request) { r.Taken = func(lo, hi isa.Addr) bool { return hi-lo > 8 } }, plan.NoSpringboard},
		"preemption":         {0x8000, func(r *plan.Request) { r.Features.NoWindows = true }, plan.UnsupportedMechanism},
		"two bytes, too far": {0x8000, func(r *plan.Request) { r.Offset = 0x14 }, plan.NoSpringboard},
		"no patch memory": {0x8000, func(r *plan.Request) {
			h := &place.Heap{}
			a := r.Heap.Areas()[0]
			n := (gen.Room(riscv64.Arch, snippet.Counter()) + 63) &^ 63
			h.Add(place.NewArea(7, a.Addr, a.Addr+isa.Addr(n), n))
			r.Heap = h
		}, plan.MemoryFull},
	} {
		x, req := withLeaf(t, c.behind, false)
		c.spoil(&req)
		if _, r := plan.Point(x, req); r == nil || r.Reason != c.want {
			t.Errorf("%s: %v, want %v", name, r, c.want)
		}
	}
}

// TestShortHop: two bytes reach a function that is near.
func TestShortHop(t *testing.T) {
	x, req := withLeaf(t, 0x400, false)
	req.Offset = 0x14
	p, r := plan.Point(x, req)
	if r != nil || len(p.New) != 2 || p.Board.In.Symbol != "leaf" {
		t.Fatal(p, r)
	}
}

// TestGap: before a function is moved, what is behind the text is used up, on a kernel
// that preempts itself as well.
func TestGap(t *testing.T) {
	x, req := withLeaf(t, 0x8000, true)
	req.Features.NoWindows = true
	lo, hi := x.Gap()
	if lo == hi {
		t.Fatal("no gap behind the text")
	}
	p, r := plan.Point(x, req)
	if r != nil || p.Board.In != nil || p.Board.Addr < lo || p.Board.End() > hi {
		t.Fatal(p, r)
	}
}

// TestCheckCatchesEviction spoils one thing about each part.
func TestCheckCatchesEviction(t *testing.T) {
	x, req := withLeaf(t, 0x8000, false)
	good, r := plan.Point(x, req)
	if r != nil {
		t.Fatal(r)
	}
	for name, spoil := range map[string]func(p *plan.Plan, b *plan.Board, e *plan.Eviction){
		"none": func(_ *plan.Plan, b *plan.Board, _ *plan.Eviction) { b.In = nil; b.Addr = 3 },
		"board on the jump": func(p *plan.Plan, b *plan.Board, e *plan.Eviction) {
			b.Addr, b.Old = e.Body+4, e.Code[4:12]
			b.New, _ = riscv64.FarJump(12, b.Addr, p.Patch)
			p.New, _ = riscv64.Jump(p.Point, b.Addr)
		},
		"board behind the end": func(_ *plan.Plan, b *plan.Board, e *plan.Eviction) { b.Addr = e.End() - 4 },
		"board on other bytes": func(_ *plan.Plan, b *plan.Board, _ *plan.Eviction) { b.Old = flip(b.Old, 0) },
		"jump elsewhere":       func(_ *plan.Plan, _ *plan.Board, e *plan.Eviction) { e.New = flip(e.New, 6) },
		"copy elsewhere":       func(_ *plan.Plan, _ *plan.Board, e *plan.Eviction) { e.Patch += 64 },
		"copy is not aligned":  func(_ *plan.Plan, _ *plan.Board, e *plan.Eviction) { e.Patch += 2 },
		"slot too short":       func(_ *plan.Plan, _ *plan.Board, e *plan.Eviction) { e.Slot = len(e.Code) - 1 },
		"body that calls":      func(_ *plan.Plan, _ *plan.Board, e *plan.Eviction) { copy(e.Code[16:], "\xef\x00\x00\x01") },
		"body without an end":  func(_ *plan.Plan, _ *plan.Board, e *plan.Eviction) { copy(e.Code[40:], "\x01\x00") },
		"the point is in it":   func(p *plan.Plan, _ *plan.Board, e *plan.Eviction) { e.Body = p.Point - 16 },
		"patch on the copy": func(p *plan.Plan, _ *plan.Board, e *plan.Eviction) {
			e.Patch = p.Patch - 64
			e.Slot = 128
			e.New, _ = riscv64.FarJump(5, e.Body, e.Patch)
		},
		"board through s1":      func(p *plan.Plan, b *plan.Board, _ *plan.Eviction) { b.New, _ = riscv64.FarJump(9, b.Addr, p.Patch) },
		"body too short":        func(_ *plan.Plan, _ *plan.Board, e *plan.Eviction) { e.Code = e.Code[:8] },
		"body too long":         func(_ *plan.Plan, _ *plan.Board, e *plan.Eviction) { e.Code = append(e.Code, make([]byte, 512)...) },
		"through what may live": func(_ *plan.Plan, _ *plan.Board, e *plan.Eviction) { e.New[1] |= 1; e.New[5] = e.New[5]&0xf | 0xf0 },
	} {
		p, b, e := *good, *good.Board, *good.Board.In
		e.Code, e.New = append([]byte(nil), e.Code...), append([]byte(nil), e.New...)
		b.In, p.Board = &e, &b
		if err := p.Check(riscv64.Arch); err != nil {
			t.Fatalf("%s: wrong before: %v", name, err)
		}
		spoil(&p, &b, &e)
		if err := p.Check(riscv64.Arch); err == nil {
			t.Errorf("%s: not noticed", name)
		}
	}
}
