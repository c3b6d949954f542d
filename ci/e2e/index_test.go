package e2e

import (
	"encoding/json"
	"testing"

	"kerninst/agent/cfg"
	"kerninst/agent/index"
	"kerninst/agent/isa"
	"kerninst/lab/analysis"
)

// readAgain calls lab analyze a second time, which reads the index that the first
// has made.
func readAgain(t *testing.T, file string) (doc analysis.Totals) {
	t.Helper()
	a := call(t, nil, "analyze", "--dump", file, "--json")
	if err := json.Unmarshal([]byte(a.stdout), &doc); a.code != 0 || err != nil {
		t.Fatalf("%v: %v", err, a)
	}
	if s := doc.Seconds; s.Cached == 0 || s.CFG != 0 || s.Total != s.Cached {
		t.Errorf("the second time: %+v", s)
	}
	return doc
}

// checkIndex: through its index, every instruction of the kernel has the same
// registers live as in the analysis.
func checkIndex(t *testing.T, k *analysis.Kernel) {
	t.Helper()
	b, err := k.MakeIndex()
	if err != nil {
		t.Fatal(err)
	}
	x, err := index.Open(b)
	if err != nil {
		t.Fatal(err)
	}
	if err := x.Verify(); err != nil {
		t.Fatal(err)
	}
	v, err := index.NewView(x, k.Text)
	if err != nil {
		t.Fatal(err)
	}
	want, n := make(map[isa.Addr]isa.RegSet, 1<<12), 0
	for f, p := range k.Graph.Entries() {
		sym, _ := k.Text.Locate(k.Graph.Addr(p))
		if sym.Module != "" {
			continue
		}
		fn, err := v.Function(sym)
		if err != nil {
			t.Fatal(err)
		}
		clear(want)
		for lo, hi := k.Graph.FuncBlocks(f); lo < hi; lo++ {
			if k.Graph.Kind(lo) != cfg.KindPad {
				k.Live.Each(lo, func(i isa.Insn, before, _ isa.RegSet) { want[i.Addr] = before })
			}
		}
		if fn.How != index.Indexed {
			t.Fatalf("%v is not as in its own index: %v", sym, fn.How)
		}
		fn.Each(func(a isa.Addr, before isa.RegSet) {
			if n++; want[a] != before {
				t.Fatalf("%v at %v: live %#x in the index, %#x analysed", sym, a, before, want[a])
			}
		})
	}
	if left := k.Totals.Instructions - n; left < 0 || left > 10000 { // of modules, and where instructions overlap
		t.Errorf("%d instructions compared of %d", n, k.Totals.Instructions)
	}
}
