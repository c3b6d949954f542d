package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"kerninst/agent/cfg"
	"kerninst/agent/isa"
	"kerninst/agent/ktext"
	"kerninst/agent/live/livetest"
	"kerninst/images"
	"kerninst/lab/analysis"
	"kerninst/lab/status"
)

// TestWholeKernels analyses the three stock kernels as they are in memory. The
// graph and the solution must hold their own invariants, and what the kernel's
// tables say must agree with them.
func TestWholeKernels(t *testing.T) {
	for _, arch := range images.Arches() {
		t.Run(arch, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "kernel.dump")
			if a := call(t, nil, "image", "dump", "--arch", arch, file); a.code != 0 {
				t.Fatal(a)
			}
			b, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			d, err := ktext.ReadDump(b)
			if err != nil {
				t.Fatal(err)
			}
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
			checkTargets(t, k.Graph)
			checkTotals(t, k.Totals)
			checkSlowly(t, k)

			a := call(t, nil, "analyze", "--dump", file, "--json")
			var doc analysis.Totals
			if err := json.Unmarshal([]byte(a.stdout), &doc); a.code != 0 || err != nil {
				t.Fatalf("%v: %v", err, a)
			}
			doc.Seconds, doc.FreeRegisters, doc.FreeFlags = k.Totals.Seconds, 0, 0
			if doc != k.Totals {
				t.Errorf("lab analyze says %+v, the package %+v", doc, k.Totals)
			}
			a = call(t, nil, "analyze", "--dump", file, "--function", "no_such_function")
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

// checkSites: every address in the kernel's tables is an instruction's, and both
// sides of a static key and every fixup begin blocks.
func checkSites(t *testing.T, k *analysis.Kernel) {
	links, err := k.Text.Links("")
	if err != nil {
		t.Fatal(err)
	}
	g := k.Graph
	wrong, sites := 0, 0
	see := func(what string, a isa.Addr, ok bool) {
		if _, in := g.Pos(a); !in { // freed after boot
			return
		}
		sites++
		if !ok {
			if wrong++; wrong < 10 {
				t.Errorf("%s: %v", what, a)
			}
		}
	}
	begins := func(a isa.Addr) bool { _, ok := g.Begins(a); return ok }
	for _, x := range links.Keys {
		see("static key inside an instruction", x.Site, g.Boundary(x.Site))
		if _, in := g.Pos(x.Site); in { // else its code is gone
			see("static key leads into a block", x.Target, begins(x.Target))
		}
	}
	for _, x := range links.Faults {
		see("exception-table entry inside an instruction", x.Site, begins(x.Site))
		if _, in := g.Pos(x.Site); in {
			see("fixup inside a block", x.Fixup, begins(x.Fixup))
		}
	}
	for _, x := range links.Bugs {
		see("bug-table entry inside an instruction", x.Site, g.Boundary(x.Site))
	}
	for _, x := range links.Calls {
		see("static call inside an instruction", x, g.Boundary(x))
	}
	if sites < 10000 {
		t.Errorf("only %d sites seen", sites)
	}
}

// checkTargets decodes everything once more: direct targets begin blocks.
func checkTargets(t *testing.T, g *cfg.Graph) {
	wrong := 0
	for b := range cfg.Block(g.Blocks()) {
		g.Insns(b, func(i isa.Insn) {
			if i.Target == 0 || !g.Boundary(i.Target) {
				return
			}
			if _, ok := g.Begins(i.Target); !ok {
				if wrong++; wrong < 10 {
					t.Errorf("%v leads to %v, inside a block", i.Addr, i.Target)
				}
			}
		})
	}
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

// checkTotals bounds what is not analysed by what it was when this was written.
func checkTotals(t *testing.T, s analysis.Totals) {
	tables := map[string]int{"amd64": 0, "arm64": 160, "riscv64": 500}
	unknown := map[string]int{"amd64": 20, "arm64": 300, "riscv64": 250}
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
