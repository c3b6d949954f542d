package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"kerninst/agent/cfg"
	"kerninst/agent/index"
	"kerninst/agent/isa"
	"kerninst/agent/ktext"
	"kerninst/agent/live/livetest"
	"kerninst/agent/pad"
	"kerninst/images"
	"kerninst/lab/analysis"
	"kerninst/lab/status"
)

// TestWholeKernels analyses the three stock kernels as they are in memory. The
// graph and the solution must hold their own invariants, and what the kernel's
// tables say must agree with them.
func TestWholeKernels(t *testing.T) {
	t.Parallel()
	for _, arch := range images.Arches() {
		t.Run(arch, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "kernel.dump")
			if a := call(t, nil, "image", "dump", "--arch", arch, file); a.code != 0 {
				t.Fatal(a)
			}
			b, d := readDump(t, file)
			k, err := analysis.Analyse(d)
			if err != nil {
				t.Fatal(err)
			}
			if err := k.Graph.Check(); err != nil {
				t.Error(err)
			}
			if err := k.Live.Check(); err != nil {
				t.Error(err)
			}
			checkSites(t, k)
			checkPadding(t, k)
			checkTotals(t, k.Totals)
			checkIndex(t, k)
			checkAlone(t, k)
			checkLost(t, k)
			t.Run("flow", func(t *testing.T) { checkFlow(t, k) })
			t.Run("live", func(t *testing.T) { checkSlowly(t, k) })

			if arch == "arm64" || *full { // the same work once more
				checkAnalyze(t, file, k.Totals)
			}
			a := call(t, nil, "analyze", "--dump", file, "--function", "no_such_function")
			if a.code != status.ExitUsage || !strings.Contains(a.stderr, "no_such_function") {
				t.Errorf("%d: %v", a.code, a)
			}
			if err := os.Truncate(file, int64(len(b)/2)); err != nil {
				t.Fatal(err)
			}
			if a = call(t, nil, "analyze", "--dump", file); a.code != status.ExitUsage || !strings.Contains(a.stderr, "cut off") {
				t.Errorf("half a dump: %d: %v", a.code, a)
			}
		})
	}
}

// checkAnalyze: what lab analyze says is what the package says, also when it says so
// from the index that it has stored.
func checkAnalyze(t *testing.T, file string, want analysis.Totals) {
	t.Helper()
	a := call(t, nil, "analyze", "--dump", file, "--json")
	var doc analysis.Totals
	if err := json.Unmarshal([]byte(a.stdout), &doc); a.code != 0 || err != nil {
		t.Fatalf("%v: %v", err, a)
	}
	again := readAgain(t, file)
	for _, x := range []*analysis.Totals{&doc, &again} {
		x.Seconds, x.FreeRegisters, x.FreeFlags = want.Seconds, 0, 0
		if *x != want {
			t.Errorf("lab analyze says %+v, the package %+v", x, want)
		}
	}
}

// checkPadding: nothing in the graph of the whole kernel leads into what springboards
// may be written to.
func checkPadding(t *testing.T, k *analysis.Kernel) {
	t.Helper()
	lo, hi := k.Text.Bounds()
	gaps, err := pad.New(k.Text).Near(lo, lo, hi)
	if err != nil {
		t.Fatal(err)
	}
	if least := map[string]int{"amd64": 40000}[k.Text.Arch.Name]; len(gaps) < least {
		t.Errorf("%d runs of padding, want %d", len(gaps), least)
	}
	wrong := 0
	for _, g := range gaps {
		for a := g.Lo; a < g.Hi; {
			b, ok := k.Graph.AtAddr(a)
			if !ok || k.Graph.Kind(b) != cfg.KindPad || k.Graph.Marks(b)&cfg.Reached != 0 {
				if wrong++; wrong < 10 {
					t.Errorf("%v is taken for padding", a)
				}
				break
			}
			a = k.Graph.End(b)
		}
	}
}

// checkSites: every address in the tables of the kernel and of its modules is an
// instruction's, both sides of a static key and every fixup begin blocks, and a
// static call is a block's last instruction, whatever stands there now.
func checkSites(t *testing.T, k *analysis.Kernel) {
	t.Helper()
	g := k.Graph
	seen, wrong := map[string]int{}, 0
	see := func(table string, a isa.Addr, ok bool) {
		if _, in := g.Pos(a); !in { // freed after boot
			return
		}
		seen[table]++
		if !ok {
			if wrong++; wrong < 10 {
				t.Errorf("%s: %v is not where it should be", table, a)
			}
		}
	}
	begins := func(a isa.Addr) bool { _, ok := g.Begins(a); return ok }
	for _, module := range append(k.Text.Modules(), "") {
		x, err := k.Text.Links(module)
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range x.Keys {
			see("static keys", l.Site, g.Boundary(l.Site))
			if _, in := g.Pos(l.Site); in { // else its code is gone
				see("sides of static keys", l.Target, begins(l.Target))
			}
		}
		for _, l := range x.Faults {
			see("exception table", l.Site, begins(l.Site))
			if _, in := g.Pos(l.Site); in {
				see("fixups", l.Fixup, begins(l.Fixup))
			}
		}
		for _, l := range x.Bugs {
			see("bug table", l.Site, g.Boundary(l.Site))
		}
		for _, a := range x.Calls {
			b, in := g.AtAddr(a)
			see("static calls", a, g.Boundary(a) && (!in || g.Kind(b) == cfg.KindStaticCall || g.Kind(b) == cfg.KindTail))
		}
	}
	least := map[string]int{"static keys": 8000, "sides of static keys": 8000, "exception table": 400, "fixups": 400, "bug table": 7000}
	if g.Arch.Name == "amd64" {
		least["static calls"] = 5000
	}
	for table, n := range least {
		if seen[table] < n {
			t.Errorf("%s: only %d places seen, want %d or more", table, seen[table], n)
		}
	}
	t.Logf("%s: %v", g.Arch.Name, seen)
}

// checkSlowly compares the solution with the slow solver's in every block: one
// register that code often keeps across direct calls, or all of them.
func checkSlowly(t *testing.T, k *analysis.Kernel) {
	g := k.Graph
	list := map[string][]isa.Reg{"amd64": {9}, "arm64": {13}, "riscv64": {14}}[g.Arch.Name]
	if *full {
		list = g.Arch.All.Regs()
	}
	n := 0
	for _, r := range list {
		slow := livetest.Solve(g, k.Live, r, k.Live.Root)
		for b := range cfg.Block(g.Blocks()) {
			if g.Kind(b) == cfg.KindPad {
				continue
			}
			if n++; k.Live.In(b).Has(r) != slow.Live(b) {
				t.Fatalf("%s at %v: live is %v, slowly %v", g.Arch.RegName(r), g.Start(b), k.Live.In(b).Has(r), slow.Live(b))
			}
		}
	}
	t.Logf("proof live %s %d", g.Arch.Name, n)
}

// checkLost: the kernel's code bears out that nobody has anything in a register that a function which may be traced
// need not keep. Behind no call of one is one or two of these read; where many are, control is not understood, and in
// riscv64's strncpy_from_user one is that a fault's handler clears.
// amd64's code reads registers of which it has written a part.
func checkLost(t *testing.T, k *analysis.Kernel) {
	g := k.Graph
	calls, unknown, kept := 0, 0, 0
	for b := range cfg.Block(g.Blocks() - 1) {
		to := g.Target(b)
		if g.Arch.Name == "amd64" || g.Kind(b) != cfg.KindCall || to == cfg.NoBlock || k.Live.Hidden(to) == 0 {
			continue
		}
		calls++
		hidden := k.Live.Hidden(to) &^ isa.Set(g.Arch.Flags)
		reads, _ := k.Live.Callee(b + 1)
		switch n := (reads & hidden).Len(); {
		case n > 2:
			unknown++
		case n > 0:
			kept++
		}
	}
	if g.Arch.Name != "amd64" && (calls < 100_000 || unknown > calls/500 || kept > 1) {
		t.Errorf("%d calls: behind %d one or two registers are read that are lost, behind %d control is not understood", calls, kept, unknown)
	}
	t.Logf("%s: %d calls of functions that may be traced, or are written for C", g.Arch.Name, calls)
}

// checkAlone: what a function's own code shows to be free, which is what splices
// rely on, is free to who sees the whole kernel.
func checkAlone(t *testing.T, k *analysis.Kernel) {
	v, err := index.NewView(nil, k.Text)
	if err != nil {
		t.Fatal(err)
	}
	every, functions, n, free := 16, 0, 0, 0
	if *full {
		every = 1
	}
	lo, hi := k.Text.Bounds()
	k.Text.Functions("", func(f ktext.Func) bool {
		if functions++; f.Addr < lo || f.Addr >= hi || functions%every != 0 {
			return true
		}
		fn, err := v.Function(f)
		if err != nil {
			t.Fatal(err)
		}
		fn.Each(func(a isa.Addr, _ isa.RegSet) {
			whole, err := k.Live.Free(a)
			if err != nil { // padding to who sees all
				return
			}
			n, free = n+1, free+fn.Free(a).Len()
			if more := fn.Free(a) &^ whole; more != 0 {
				t.Fatalf("%v at %v: %s is free only to itself", f, a, k.Graph.Arch.Names(more))
			}
		})
		return true
	})
	if free < n || n < k.Totals.Instructions/every/2 {
		t.Errorf("%d free registers at %d instructions", free, n)
	}
}

// checkTotals bounds what is not analysed by what it was when this was written.
func checkTotals(t *testing.T, s analysis.Totals) {
	tables := map[string]int{"amd64": 0, "arm64": 397, "riscv64": 740}
	unknown := map[string]int{"amd64": 20, "arm64": 60, "riscv64": 42}
	if s.JumpTables < tables[s.Arch] || s.Unanalysable > unknown[s.Arch] {
		t.Errorf("%d jump tables, %d unanalysable jumps; want at least %d, at most %d",
			s.JumpTables, s.Unanalysable, tables[s.Arch], unknown[s.Arch])
	}
	if s.Misaligned > 0 {
		t.Errorf("%d branches lead into other instructions", s.Misaligned)
	}
	if s.Functions < 40000 || s.Blocks < 500000 || s.Instructions < 3000000 {
		t.Errorf("%+v: not a whole kernel", s)
	}
}
