package gen_test

import (
	"testing"

	"kerninst/agent/gen"
	"kerninst/agent/isa"
	"kerninst/agent/isa/all"
)

// TestHops: each decodes as a jump to where it should lead, at both ends of its reach,
// and is refused behind them.
func TestHops(t *testing.T) {
	const at isa.Addr = 0xffffffff80400000
	for _, c := range []struct {
		arch         string
		size, n      int
		lowest, most int
		step         int
	}{
		{"amd64", 2, 2, -126, 129, 1}, {"amd64", 4, 2, -126, 129, 1},
		{"riscv64", 2, 2, -2048, 2046, 2}, {"riscv64", 4, 4, -1 << 20, 1<<20 - 2, 2},
		{"amd64", 1, 0, 0, 0, 0}, {"arm64", 4, 0, 0, 0, 0},
	} {
		arch, err := all.Lookup(c.arch)
		if err != nil {
			t.Fatal(err)
		}
		n, lo, hi := gen.HopReach(arch, c.size)
		if n != c.n || lo != c.lowest || hi != c.most {
			t.Errorf("%s, %d bytes: %d, %d to %d", c.arch, c.size, n, lo, hi)
		}
		if n == 0 {
			if _, err := gen.Hop(arch, c.size, at, at); err == nil {
				t.Errorf("%s has a jump of %d bytes", c.arch, c.size)
			}
			continue
		}
		for d := lo - c.step; d <= hi+c.step; d += max(c.step, min((hi-lo)/1000&^1, hi+c.step-d)) {
			code, err := gen.Hop(arch, c.size, at, at+isa.Addr(d))
			if in := d >= lo && d <= hi; (err == nil) != in {
				t.Fatalf("%s, %d bytes, %d away: %v", c.arch, c.size, d, err)
			}
			if i := arch.Decode(code, at); err == nil && (i.Flow != isa.FlowJump || i.Target != at+isa.Addr(d) || i.Len != n || len(code) != n) {
				t.Errorf("%s, %d bytes, %d away: %x leads to %v", c.arch, c.size, d, code, i.Target)
			}
		}
	}
}
