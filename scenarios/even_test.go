package scenarios

import (
	"strings"
	"testing"

	"kerninst/agent/cfg"
	"kerninst/agent/isa"
	"kerninst/agent/ktext/ktexttest"
	"kerninst/agent/wire"
)

// TestEven: one hit that one of the points of a block lacks, and one that a block lacks of those that lead to it, is seen; on a kernel
// whose tasks may be anywhere nothing is held.
func TestEven(t *testing.T) {
	for _, arch := range []string{"amd64", "riscv64"} { // what is recorded of arm64 has no such blocks
		g, err := cfg.Build(ktexttest.Load(t, arch).Text(t), cfg.Options{Workers: 1})
		if err != nil {
			t.Fatal(err)
		}
		f := &flow{g: g, preds: g.Preds()}
		points := pointsOfSum(f)
		if len(points) < 2 {
			t.Fatalf("%s: %d points", arch, len(points))
		}
		for wrong := -1; wrong < len(points); wrong++ {
			read := &wire.Result{}
			for k, a := range points {
				n := uint64(10)
				if k == wrong {
					n--
				}
				read.Addresses, read.Counts = append(read.Addresses, a), append(read.Counts, n)
			}
			a := &Answer{Results: map[string]*wire.Result{"count": read}}
			for _, preempted := range []bool{false, true} {
				e := &even{flow: f, preempted: preempted}
				got := failure(func(fail func(string)) {
					e.hold(NewT(arch, "", map[string]*Answer{"guest": a}, fail), "guest", "count")
				})
				if want := wrong >= 0 && !preempted; (got != "") != want || want && !strings.Contains(got, "counts that are not what others say") {
					t.Errorf("%s: the %d-th of %d is wrong, preempted %v: %q", arch, wrong, len(points), preempted, got)
				}
				if e.pairs < len(points)-2 || e.moved == 0 {
					t.Errorf("%s: %d pairs, %d sums", arch, e.pairs, e.moved)
				}
			}
		}
	}
}

// pointsOfSum are all instructions of the longest block that leads to one other alone, to which nothing else leads, and the first of
// that.
func pointsOfSum(f *flow) (most []uint64) {
	var out []uint64
	point := func(a isa.Addr) { out = append(out, uint64(a)) }
	for b := range cfg.Block(f.g.Blocks()) {
		succ := f.g.Succ(b, nil)
		if len(succ) != 1 || succ[0] == b || !f.passed(b) || !f.closed(succ[0]) || len(f.preds.Of(succ[0])) != 1 {
			continue
		}
		out = nil
		f.g.Insns(b, func(i isa.Insn) { point(i.Addr) })
		point(f.g.Start(succ[0]))
		if len(most) < len(out) {
			most = out
		}
	}
	return most
}
