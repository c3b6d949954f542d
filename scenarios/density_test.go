package scenarios

import (
	"slices"
	"testing"

	"kerninst/agent/cfg"
	"kerninst/agent/ktext/ktexttest"
)

// TestExceeding: round a call a sum holds up to who is inside, and who has ended there, and to no more.
func TestExceeding(t *testing.T) {
	in := crowded{before: 3, after: 5, ended: 7}
	for _, arch := range ktexttest.Arches {
		g, err := cfg.Build(ktexttest.Load(t, arch).Text(t), cfg.Options{Workers: 1})
		if err != nil {
			t.Fatal(err)
		}
		f := &flow{g: g, preds: g.Preds(), counts: map[cfg.Block]uint64{}}
		for b := range cfg.Block(g.Blocks()) {
			if g.Marks(b)&cfg.Split == 0 { // calls end no block that is counted
				f.counts[b] = 0
			}
		}
		for _, s := range f.sums() {
			if slices.ContainsFunc(s.from, f.goesOn) {
				t.Errorf("%s: an exact sum has a block that calls", arch)
			}
		}
		f = f.throughCalls()
		sums := slices.DeleteFunc(f.callSums(), func(s sum) bool { // who is on both sides tells nothing
			return slices.ContainsFunc(s.from, func(b cfg.Block) bool { return slices.Contains(s.to, b) })
		})
		if len(sums) == 0 {
			t.Fatalf("%s: no sum goes round a call", arch)
		}
		s := sums[0]
		for _, tt := range []struct {
			from, to                uint64
			wrong, ended, exactness int
		}{{100, 100, 0, 0, 1}, {100, 103, 0, 0, 0}, {100, 104, 1, 0, 0}, {100, 95, 0, 0, 0}, {100, 94, 0, 1, 0}, {100, 88, 0, 1, 0}, {100, 87, 1, 0, 0}} {
			for _, b := range append(s.from, s.to...) {
				f.counts[b] = 0
			}
			f.counts[s.from[0]], f.counts[s.to[0]] = tt.from, tt.to
			wrong, ended, exact := f.exceeding([]sum{s}, in)
			if len(wrong) != tt.wrong || ended != tt.ended || exact != tt.exactness {
				t.Errorf("%s: %d come and %d go on: %q, %d ended, %d exact", arch, tt.from, tt.to, wrong, ended, exact)
			}
		}
	}
}
