package index_test

import (
	"bytes"
	"testing"

	"kerninst/agent/cfg"
	"kerninst/agent/index"
	"kerninst/agent/isa"
	"kerninst/agent/ktext/ktexttest"
	"kerninst/agent/live"
)

// source analyses a recorded kernel.
func source(t testing.TB, k *ktexttest.Kernel) index.Source {
	t.Helper()
	s := index.Source{Text: k.Text(t), About: []byte("about it"), Dump: [32]byte{1, 2, 3}, Workers: 2}
	var err error
	if s.Graph, err = cfg.Build(s.Text, cfg.Options{Workers: 2}); err != nil {
		t.Fatal(err)
	}
	if s.Live, err = live.Solve(s.Graph, s.Text, live.Options{Workers: 2}); err != nil {
		t.Fatal(err)
	}
	return s
}

func made(t testing.TB, s index.Source) []byte {
	t.Helper()
	b, err := index.Make(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func opened(t testing.TB, b []byte) *index.Index {
	t.Helper()
	x, err := index.Open(b)
	if err != nil {
		t.Fatal(err)
	}
	if err := x.Verify(); err != nil {
		t.Fatal(err)
	}
	return x
}

// TestSameAsAnalysed compares every block and every instruction with what the
// analysis says, through a file.
func TestSameAsAnalysed(t *testing.T) {
	for _, arch := range ktexttest.Arches {
		k := ktexttest.Load(t, arch)
		s := source(t, k)
		b := made(t, s)
		if !bytes.Equal(b, made(t, s)) {
			t.Errorf("%s: made twice, two indexes", arch)
		}
		x := opened(t, b)
		about, err := x.About()
		if err != nil || string(about) != "about it" || x.Source() != s.Dump || x.Arch() != arch || x.Size() != len(b) {
			t.Errorf("%s: %q, %v, %x, %s", arch, about, err, x.Source(), x.Arch())
		}
		if x.Funcs() != len(s.Graph.Entries()) || x.Edges() != len(s.Graph.Edges()) {
			t.Errorf("%s: %d functions, %d edges", arch, x.Funcs(), x.Edges())
		}
		sameBlocks(t, x, s)
		if n := sameInstructions(t, x, s); n < 1000 {
			t.Errorf("%s: only %d instructions compared", arch, n)
		}
	}
}

func sameBlocks(t *testing.T, x *index.Index, s index.Source) {
	t.Helper()
	lo, _ := s.Text.Bounds()
	for b := range cfg.Block(x.Blocks()) {
		i, err := x.Block(index.Block(b))
		if err != nil {
			t.Fatal(err)
		}
		if lo+isa.Addr(i.Start) != s.Graph.Start(b) || i.Kind != s.Graph.Kind(b) || i.Marks != s.Graph.Marks(b) ||
			cfg.Block(i.Target) != s.Graph.Target(b) || i.Out != s.Live.Out(b) || lo+isa.Addr(i.End) != s.Graph.End(b) {
			t.Fatalf("%s: block %d: %+v", s.Graph.Arch.Name, b, i)
		}
		edges, err := x.EdgesOf(index.Block(b))
		if err != nil || len(edges) != len(s.Graph.Extra(b)) {
			t.Fatalf("%s: block %d: %v, %v, not %v", s.Graph.Arch.Name, b, edges, err, s.Graph.Extra(b))
		}
	}
}

// sameInstructions compares what is live before each, and returns how many.
func sameInstructions(t *testing.T, x *index.Index, s index.Source) (n int) {
	t.Helper()
	v, err := index.NewView(x, s.Text)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range s.Graph.Entries() {
		f, _ := s.Text.Locate(s.Graph.Addr(p))
		fn, err := v.Function(f)
		if err != nil {
			t.Fatal(err)
		}
		if fn.How != index.Indexed {
			t.Fatalf("%v: %v", f, fn.How)
		}
		fn.Each(func(a isa.Addr, before isa.RegSet) {
			n++
			if want, err := s.Live.Before(a); err != nil || want != before {
				t.Fatalf("%v at %v: live %s, not %s (%v)", f, a, s.Graph.Arch.Names(before), s.Graph.Arch.Names(want), err)
			}
			if want, _ := s.Live.Free(a); want != fn.Free(a) {
				t.Fatalf("%v at %v: free %s", f, a, s.Graph.Arch.Names(fn.Free(a)))
			}
		})
	}
	return n
}

// TestAloneIsNoBolder: what one function by itself calls free is free to who
// knows the whole kernel.
func TestAloneIsNoBolder(t *testing.T) {
	for _, arch := range ktexttest.Arches {
		s := source(t, ktexttest.Load(t, arch))
		v, err := index.NewView(nil, s.Text)
		if err != nil {
			t.Fatal(err)
		}
		free, n := 0, 0
		for _, p := range s.Graph.Entries() {
			f, _ := s.Text.Locate(s.Graph.Addr(p))
			if f.Size > 1<<16 { // a gap in what was recorded
				continue
			}
			fn, err := v.Function(f)
			if err != nil {
				t.Fatal(err)
			}
			if fn.How != index.Absent {
				t.Fatalf("%v: %v", f, fn.How)
			}
			fn.Each(func(a isa.Addr, _ isa.RegSet) {
				whole, err := s.Live.Free(a)
				if err != nil {
					return // padding to who sees all
				}
				n++
				free += fn.Free(a).Len()
				if more := fn.Free(a) &^ whole; more != 0 {
					t.Errorf("%v at %v: %s is free only by itself", f, a, s.Graph.Arch.Names(more))
				}
			})
		}
		if n < 1000 || free < n/2 {
			t.Errorf("%s: %d free registers at %d instructions", arch, free, n)
		}
	}
}
