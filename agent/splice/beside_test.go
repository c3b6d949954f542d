package splice

import (
	"testing"

	"kerninst/agent/gen"
	"kerninst/agent/isa"
	"kerninst/agent/isa/all"
	"kerninst/agent/plan"
	"kerninst/agent/snippet"
)

// words are cells.
type words []uint64

func (w words) Load(off int) uint64     { return w[off/8] }
func (w words) Store(off int, v uint64) { w[off/8] = v }

// TestCountedBeside: what is counted beside a clone's points is told in hits, whatever its unit.
func TestCountedBeside(t *testing.T) {
	const cell = isa.Addr(0xffff800080100040)
	for _, arch := range all.Arches() {
		w := make(words, 4)
		l := &Live{Plan: &plan.Plan{Cell: cell}, cells: w}
		w[2] = 2000 * gen.Unit(arch, snippet.Counter(), cell+16)
		if n := l.CountedBeside(arch, 2); n != 2000 {
			t.Errorf("%s: %d hits, 2000 were", arch.Name, n)
		}
	}
}
