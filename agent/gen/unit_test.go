package gen

import (
	"math/rand/v2"
	"testing"

	"kerninst/agent/isa"
	"kerninst/agent/isa/all"
	"kerninst/agent/snippet"
)

// TestHits: as many as were added come back, for addresses as cells have them, up to the
// last number that is certain.
func TestHits(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for z := range 64 - hitBits + 1 {
		for range 1000 {
			unit := (r.Uint64() | 1) << z
			for _, n := range []uint64{0, 1, 2, 1<<hitBits - 1, r.Uint64N(1 << hitBits)} {
				if got := Hits(n*unit, unit); got != n {
					t.Fatalf("%d hits of %#x are taken for %d", n, unit, got)
				}
			}
		}
	}
	if n := Hits(1<<64-1, 1); n != 1<<64-1 {
		t.Errorf("a unit of 1 loses hits: %#x", n)
	}
}

// TestUnit: what a patch adds is what its unit says: the address only of counters, where
// it keeps enough bits and saves an instruction.
func TestUnit(t *testing.T) {
	two, err := snippet.Parse("c0 sum\ncount c0 2")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		arch string
		s    snippet.Snippet
		cell isa.Addr
		own  bool
	}{
		{"arm64", snippet.Counter(), 0xffff800082345040, true},
		{"arm64", snippet.Counter(), 0xffff800082345000, true},
		{"arm64", snippet.Counter(), 0xffff800082350000, true},
		{"arm64", snippet.Counter(), 0xffff800082360000, false},
		{"riscv64", snippet.Counter(), 0xffffffff82341000, true},
		{"riscv64", snippet.Counter(), 0xffffffff82360000, false},
		{"riscv64", two, 0xffffffff82341000, false},
		{"amd64", snippet.Counter(), 0xffffffffa0001040, false},
	} {
		a, err := all.Lookup(c.arch)
		if err != nil {
			t.Fatal(err)
		}
		want := uint64(1)
		if c.own {
			want = uint64(c.cell)
		}
		if got := Unit(a, c.s, c.cell); got != want {
			t.Errorf("%s, cell at %v: %#x, want %#x", c.arch, c.cell, got, want)
		}
	}
}

// TestCountOne: where the address is not added, 1 is, from a register of its own.
func TestCountOne(t *testing.T) {
	for _, c := range []struct {
		arch string
		free isa.RegSet
		lse  bool
		want string
	}{
		{"arm64", isa.Set(3, 20), true,
			"adr x3, .+0x1ffc0; mov x20, #0x1; stadd x20, [x3]; mov x29, sp; b 0xffff800081000044"},
		{"arm64", 0, true,
			"stp x16, x17, [sp,#-16]!; adr x16, .+0x1ffbc; mov x17, #0x1; stadd x17, [x16]; ldp x16, x17, [sp],#16; mov x29, sp; b 0xffff800081000044"},
		{"arm64", isa.Set(3, 20, 21), false,
			"adr x3, .+0x1ffc0; ldxr x20, [x3]; add x20, x20, #0x1; stxr w21, x20, [x3]; cbnz x21, 0xffff800082000044; mov x29, sp; b 0xffff800081000044"},
		{"riscv64", isa.Set(12, 14), true,
			"auipc x14,0x20; addi x14,x14,-64; li x12,1; amoadd.d x0,x12,(x14); addi x2,x2,-16; sd x8,0(x2); sd x1,8(x2); addi x8,x2,16; auipc x6,0xff000; jr -14(x6)"},
	} {
		a, err := all.Lookup(c.arch)
		if err != nil {
			t.Fatal(err)
		}
		in := input(t, a, c.free)
		in.Cell = (in.Cell | 0x1ffff) + 1
		in.Features.LSE = c.lse
		checkStates(t, a, in, patched(t, a, in, c.want))
	}
}
