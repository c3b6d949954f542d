package e2e

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"kerninst/agent/cfg"
	"kerninst/agent/index"
	"kerninst/agent/isa"
	"kerninst/agent/plan"
	"kerninst/agent/wire"
	"kerninst/images"
	"kerninst/lab/analysis"
	"kerninst/lab/qemu"
	"kerninst/lab/runner"
	"kerninst/lab/status"
	"kerninst/lab/vm"
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
	want, n, led := make(map[isa.Addr]isa.RegSet, 1<<12), 0, 0
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
		led += sameTables(t, k.Graph, f, fn)
		fn.Each(func(a isa.Addr, before isa.RegSet) {
			if n++; want[a] != before {
				t.Fatalf("%v at %v: live %#x in the index, %#x analysed", sym, a, before, want[a])
			}
		})
	}
	if left := k.Totals.Instructions - n; left < 0 || left > 10000 { // of modules, and where instructions overlap
		t.Errorf("%d instructions compared of %d", n, k.Totals.Instructions)
	}
	if led < k.Totals.JumpTables {
		t.Errorf("%d jump tables lead to %d places", k.Totals.JumpTables, led)
	}
}

// sameTables compares where the jumps of a function through tables lead, if those of all are
// known, with the graph. It returns to how many places that is.
func sameTables(t *testing.T, g *cfg.Graph, f int, fn *index.Function) int {
	t.Helper()
	var want []isa.Addr
	for lo, hi := g.FuncBlocks(f); lo < hi; lo++ {
		switch g.Kind(lo) {
		case cfg.KindIndirectJump:
			want = nil
			lo = hi
		case cfg.KindTable:
			for _, e := range g.Extra(lo) {
				want = append(want, g.Start(e.To))
			}
		}
	}
	if got := fn.Tables(); !slices.Equal(got, want) {
		t.Fatalf("%v: tables lead to %v in the index, %v analysed", fn.Func, got, want)
	}
	return len(want)
}

// TestIndexInGuest gives a guest the index of its kernel, made on the host, and
// has its daemon look functions up; and once more without it. Times are said, not
// asserted.
func TestIndexInGuest(t *testing.T) {
	t.Parallel()
	for _, arch := range images.Arches() {
		t.Run(arch, func(t *testing.T) {
			if arch != "amd64" && !*full {
				return // the one whose text differs most with the number of CPUs; TestOracle has all
			}
			size, results := lookInGuest(t, arch)
			for _, res := range results {
				switch res.Step {
				case "indexed", "alone":
					checkLooked(t, arch, res, size)
				case "splice":
					if p := res.Points[0]; p.Refusal != nil || p.Liveness != plan.SourceIndex.String() || p.Spilled != 0 {
						t.Errorf("%v", p)
					}
				case "read":
					if v := res.Values; len(v) != 1 || v[0].Count != 3000 {
						t.Errorf("counted %v", v)
					}
				}
			}
		})
	}
}

// getppid is the system call that bench's null does.
var getppid = map[string]string{"amd64": "__x64_sys_getppid", "arm64": "__arm64_sys_getppid", "riscv64": "__riscv_sys_getppid"}

// lookInGuest boots a guest with its kernel's index and has functions looked up:
// in the step "indexed" with it, in "alone" as if there were none. Then a system
// call is spliced, and called 3000 times. It returns the index's size in bytes.
func lookInGuest(tb testing.TB, arch string) (size int, results []*wire.Result) {
	tb.Helper()
	ctx := context.Background()
	img, err := images.Ensure(ctx, images.Options{Arch: arch, Root: "../..", Progress: tb.Logf})
	if err != nil {
		tb.Fatal(err)
	}
	r := runner.New(runner.Runner{Image: img, Backend: qemu.Backend{}, Seed: 1, Jobs: 1, Progress: tb.Logf})
	d, err := r.Dump(ctx, "")
	if err != nil {
		tb.Fatal(err)
	}
	s, err := analysis.Find(ctx, d, tb.Logf)
	if err != nil {
		tb.Fatal(err)
	}
	file := filepath.Join(tb.TempDir(), "kernel.index")
	if err := os.WriteFile(file, s.Bytes, 0o600); err != nil {
		tb.Fatal(err)
	}
	look := func(name string, l *wire.Look) *wire.Step {
		return &wire.Step{Name: name, Do: &wire.Step_Look{Look: l}}
	}
	g := r.Start(ctx, runner.Request{
		Name: "index", CPUs: 2, Time: vm.Host, Append: "nokaslr",
		Files: []images.File{{Path: "/lib/kerninst/kernel.index", Mode: 0o644, Source: file}},
		Job: &wire.Job{Schema: 1, Steps: []*wire.Step{
			look("indexed", &wire.Look{Every: 37}), look("alone", &wire.Look{Every: 371, Alone: true}),
			{Name: "splice", Do: &wire.Step_Splice{Splice: &wire.Splice{Points: []*wire.Point{{Function: getppid[arch], Search: true}}}}},
			{Name: "run", Do: &wire.Step_Run{Run: &wire.Run{Argv: []string{"/lib/kerninst/bench/bench", "null", "1000", "2"}}}},
			{Name: "read", Do: &wire.Step_Read{Read: &wire.Read{}}},
		}},
	}).Wait()
	if g.Err != nil {
		tb.Fatal(g.Err)
	}
	if g.Outcome.Status != status.Passed {
		tb.Fatal(r.Card(g, "index").Text())
	}
	for _, rec := range g.Outcome.Records {
		if res := rec.GetResult(); res != nil {
			results = append(results, res)
		}
	}
	return len(s.Bytes), results
}

// checkLooked: with the index, functions are as they were on the host, where the
// kernel was elsewhere and had another number of CPUs.
func checkLooked(t *testing.T, arch string, res *wire.Result, size int) {
	t.Helper()
	l := res.Looked
	if l.IndexError != "" || int(l.IndexBytes) != size {
		t.Fatalf("%d bytes of index, %s", l.IndexBytes, l.IndexError)
	}
	hows := map[string]int{}
	var ns []uint64
	var differ []string
	free, insns := 0, 0
	for _, f := range l.Functions {
		if strings.HasPrefix(f.Name, "__pfx_") || strings.HasPrefix(f.Name, "__kvm_nvhe___st") { // no functions
			continue
		}
		hows[f.How]++
		ns = append(ns, f.Ns)
		free, insns = free+int(f.Free), insns+int(f.Instructions)
		if f.How == index.Differs.String() {
			differ = append(differ, f.Name)
		}
	}
	slices.Sort(ns)
	if len(ns) < 100 {
		t.Fatalf("only %d functions", len(ns))
	}
	t.Logf("%s %s: opened in %.1f ms, all text compared in %.1f ms; %d functions %v, median %.2f ms, 90 %% %.2f ms, most %.1f ms; %.1f free registers and flags at an instruction; differing: %v",
		arch, res.Step, float64(l.OpenNs)/1e6, float64(l.WholeNs)/1e6, len(ns), hows, float64(ns[len(ns)/2])/1e6, float64(ns[len(ns)*9/10])/1e6,
		float64(ns[len(ns)-1])/1e6, float64(free)/float64(insns), differ)
	want := index.Indexed
	if res.Step == "alone" {
		want = index.Absent
	}
	t.Logf("proof index %s %d functions", arch, len(ns))
	if n := hows[want.String()]; n < len(ns)*99/100 {
		t.Errorf("%s: %d of %d functions are %v", res.Step, n, len(ns), want)
	}
	if free == 0 {
		t.Errorf("%s: no register is free anywhere", res.Step)
	}
}

// TestProbeIndex probes with the kernel's index: the plan relies on it, and who asks
// again gets the same, from a state that has the index.
func TestProbeIndex(t *testing.T) {
	t.Parallel()
	args := []string{"probe", "--arch", "arm64", "--index", "--json", "kinst::vfs_read:40", "--run", "cat /proc/version"}
	first, again := call(t, nil, args...), call(t, nil, args...)
	if first.code != status.ExitPassed || again.code != status.ExitPassed || first.stdout != again.stdout {
		t.Fatalf("%v\nand again: %v", first, again)
	}
	if !strings.Contains(first.stdout, `"liveness": "index"`) || strings.Contains(again.stderr, "booting") {
		t.Errorf("%v\nand again: %v", first, again)
	}
}

// TestProbeIndexAppended: words on the command line change the kernel's text, and the index that a guest takes along is
// of the text that it has. Without five-level page tables, other instructions are in place on amd64.
func TestProbeIndexAppended(t *testing.T) {
	t.Parallel()
	a := call(t, nil, "probe", "--arch", "amd64", "--index", "--json", "--append", "no5lvl", "kinst::vfs_read:entry", "--run", "cat /proc/version")
	if a.code != status.ExitPassed || !strings.Contains(a.stdout, `"liveness": "index"`) {
		t.Error(a)
	}
}
