package index_test

import (
	"bytes"
	"strconv"
	"strings"
	"testing"

	"kerninst/agent/cfg"
	"kerninst/agent/index"
	"kerninst/agent/isa"
	"kerninst/agent/ktext"
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
		sameBegins(t, fn, f, s.Graph)
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

// sameBegins compares where jumps of a function may lead: to its blocks, as far as all of
// its jumps are understood.
func sameBegins(t *testing.T, fn *index.Function, f ktext.Func, g *cfg.Graph) {
	t.Helper()
	want := true
	var starts []isa.Addr
	for b := range cfg.Block(g.Blocks()) {
		if a := g.Start(b); a >= f.Addr && a < f.End() && g.Kind(b) != cfg.KindPad && g.Marks(b)&cfg.Data == 0 {
			starts, want = append(starts, a), want && g.Kind(b) != cfg.KindIndirectJump
		}
	}
	for _, a := range starts {
		if at, ok, known := fn.Begins(a, a+1); known != want || ok != want || ok && at != a {
			t.Fatalf("%v: a block begins at %v: %v, %v, known %v of %v", f, a, at, ok, known, want)
		}
	}
	if at, ok, _ := fn.Begins(starts[0]+1, starts[min(1, len(starts)-1)]); ok {
		t.Fatalf("%v: a block begins at %v, inside another", f, at)
	}
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

// TestAloneAtFixup: before an instruction that may go to a fixup, a register is free if
// neither way reads it, and the fixup is the function's own.
func TestAloneAtFixup(t *testing.T) {
	const (
		load  = "\x20\x08\x40\xf8" // ldtr x0, [x1]
		clear = "\x09\x00\x80\xd2" // mov x9, #0
		read  = "\xe0\x03\x09\xaa" // mov x0, x9
		ret   = "\xc0\x03\x5f\xd6"
		x9    = 9
	)
	for name, c := range map[string]struct {
		code  string
		fixup int32 // from the load, in bytes
		free  bool
	}{
		"both overwrite it":      {load + clear + ret + clear + ret, 12, true},
		"the fixup is behind it": {load + clear + ret, 4, true},
		"the fixup reads it":     {load + clear + ret + read + ret, 12, false},
		"it is read behind":      {load + read + ret + clear + ret, 12, false},
		"the fixup leaves":       {load + clear + ret + ret, 12, false},
		"it is somebody else's":  {load + clear + ret + clear + ret, 0x100, false},
		"no instruction's begin": {load + clear + ret + clear + ret, 14, false},
	} {
		k := ktexttest.Load(t, "arm64")
		at, err := k.Text(t).Function("", "__arm64_sys_getppid")
		if err != nil {
			t.Fatal(err)
		}
		site, table := at.Addr+0x8000, exceptionTable(t, k)
		k.Add("reader", site, []byte(c.code))
		k.Add("next", site+isa.Addr(len(c.code)), []byte(ret))
		entry := isa.ByteOrder.AppendUint32(nil, uint32(site-table))
		k.Write(table, isa.ByteOrder.AppendUint32(entry, uint32(int32(site-table-4)+c.fixup)))
		v, err := index.NewView(nil, k.Text(t))
		if err != nil {
			t.Fatal(err)
		}
		f, err := k.Text(t).Function("", "reader")
		if err != nil {
			t.Fatal(err)
		}
		fn, err := v.Function(f)
		if err != nil {
			t.Fatal(err)
		}
		if got := fn.Free(site).Has(x9); got != c.free {
			t.Errorf("%s: x9 is free: %v, want %v", name, got, c.free)
		}
	}
}

// TestAloneAsC: before a return of what only C calls, what C says is lost is free, and what it is
// handed is not; of all else, nothing is. Who sees the whole kernel says the same, even of a caller
// that reads what was lost.
func TestAloneAsC(t *testing.T) {
	const (
		code             = "\x01\x00\x82\x80"                 // nop, ret
		call             = "\x97\x00\x00\x00\xe7\x80\xc0\xff" // auipc ra, 0; jalr ra, -4(ra)
		reads            = "\x33\x05\x55\x00\x82\x80\x01\x00" // add a0, a0, t0; ret; nop
		ra, sp, t0       = 1, 2, 5
		s0, a0, a2       = 8, 10, 12
		callerLen, apart = 16, 0x100
	)
	k := ktexttest.Load(t, "riscv64")
	at, err := k.Text(t).Function("", "__riscv_sys_getppid")
	if err != nil {
		t.Fatal(err)
	}
	for n, name := range []string{"__memcpy", "memcpy_other"} {
		to := at.Addr + 0x8000 + isa.Addr(n*apart)
		k.Add(name, to, []byte(code))
		k.Add("calls_"+name, to+4, []byte(call+reads))
		k.Add("next_"+name, to+4+callerLen, []byte(code))
	}
	all := source(t, k)
	v, err := index.NewView(nil, all.Text)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		module, name string
		free         isa.RegSet
		whole        bool // t0 is free to who sees all
	}{
		{"", "__memcpy", isa.Set(t0, a2), true},
		{"", "memcpy_other", 0, false},
		{"m", "__memcpy", 0, true},
	} {
		f, err := k.Text(t).Function("", c.name)
		if err != nil {
			t.Fatal(err)
		}
		f.Module = c.module
		fn, err := v.Function(f)
		if err != nil {
			t.Fatal(err)
		}
		for a := f.Addr; a < f.End(); a += 2 {
			if got := fn.Free(a) & isa.Set(ra, sp, t0, s0, a0, a2); got != c.free {
				t.Errorf("%v at +%d: %s is free, want %s", f, a-f.Addr, k.Arch.Names(got), k.Arch.Names(c.free))
			}
			if whole, err := all.Live.Free(a); err != nil || whole.Has(t0) != c.whole {
				t.Errorf("%v at +%d: %v, to who sees all %s is free", f, a-f.Addr, err, k.Arch.Names(whole))
			}
		}
	}
}

// exceptionTable is where the recorded kernel's begins.
func exceptionTable(t *testing.T, k *ktexttest.Kernel) isa.Addr {
	t.Helper()
	for _, line := range strings.Split(k.Kallsyms, "\n") {
		if words := strings.Fields(line); len(words) == 3 && words[2] == "__start___ex_table" {
			a, err := strconv.ParseUint(words[0], 16, 64)
			if err != nil {
				t.Fatal(err)
			}
			return isa.Addr(a)
		}
	}
	t.Fatal("no exception table was recorded")
	return 0
}
