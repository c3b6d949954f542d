package e2e

import (
	"context"
	"path/filepath"
	"slices"
	"testing"

	"kerninst/agent/cfg"
	"kerninst/agent/isa"
	"kerninst/images"
	"kerninst/lab/analysis"
	"kerninst/lab/sweep"
)

// flowSlice is of how many functions one is compared when not everything is.
const flowSlice = 50

// checkFlow holds the graph against what objdump prints of the kernel's text: a
// slice of it and all functions with indirect jumps, or everything. Every jump
// table is read once more from where objdump's text says that it lies.
func checkFlow(t *testing.T, k *analysis.Kernel) {
	g := k.Graph
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	tools, err := images.Toolchain(context.Background(), images.Options{Arch: g.Arch.Name, Root: root, Progress: t.Logf})
	if err != nil {
		t.Fatal(err)
	}
	pieces, err := sweep.Kernel(k.Text)
	if err != nil {
		t.Fatal(err)
	}
	if !*full {
		pieces = flowPieces(k, pieces)
	}
	r, err := sweep.Flow(context.Background(), tools, g, k.Text, pieces)
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range r.Wrong {
		t.Error(w)
	}
	if *full {
		for _, w := range r.Unseen(g, k.Text) {
			t.Errorf("objdump sees no end of a block at %s", w)
		}
	}
	checkJumps(t, k, r)
	checkTables(t, k, r)
	t.Logf("%s: %d instructions; blocks that end alike %v; for a reason %v; instructions begin where the kernel's tables say, %v",
		g.Arch.Name, r.Instructions, r.Ends, r.Listed, r.Sites)
	t.Logf("proof flow %s %d targets", g.Arch.Name, r.Targets)
}

// flowPieces are every flowSlice-th function and those with indirect jumps.
func flowPieces(k *analysis.Kernel, all []sweep.Piece) (out []sweep.Piece) {
	jumps := map[isa.Addr]bool{}
	for b := range cfg.Block(k.Graph.Blocks()) {
		if kind := k.Graph.Kind(b); kind == cfg.KindTable || kind == cfg.KindIndirectJump || kind == cfg.KindTail {
			f, _ := k.Text.Locate(k.Graph.Start(b))
			jumps[f.Addr] = true
		}
	}
	for n, p := range all {
		if n%flowSlice == 0 || jumps[p.Addr] {
			out = append(out, p)
		}
	}
	return out
}

// checkJumps: every indirect jump that objdump prints is one by a table, a thunk
// known by its name, one whose target the instruction before it makes, or listed
// as unanalysable; and those lists hold no others.
func checkJumps(t *testing.T, k *analysis.Kernel, r *sweep.FlowReport) {
	count := map[cfg.Kind]int{}
	for _, j := range r.Jumps {
		count[j.Kind]++
	}
	lo, hi := k.Text.Bounds()
	direct := 0 // to code that is gone, or out of the text
	for _, a := range k.Graph.UnanalysableJumps() {
		if a < lo || a >= hi {
			direct++
		} else if !slices.ContainsFunc(r.Jumps, func(j sweep.IndirectJump) bool { return j.Addr == a }) {
			direct++
			if b, _ := k.Graph.AtAddr(a); k.Graph.Target(b) != cfg.NoBlock {
				t.Errorf("the jump at %v has a target, and is listed as unanalysable", a)
			}
		}
	}
	t.Logf("%s: %d indirect jumps: %v; %d unanalysable ones are direct and lead to code that is gone", k.Graph.Arch.Name, len(r.Jumps), count, direct)
	if got := count[cfg.KindTable]; got != k.Totals.JumpTables {
		t.Errorf("objdump prints %d jumps by tables, the graph has %d", got, k.Totals.JumpTables)
	}
	if got := count[cfg.KindIndirectJump] + direct; got != k.Totals.Unanalysable {
		t.Errorf("objdump prints %d jumps that are not analysed, the graph has %d", got, k.Totals.Unanalysable)
	}
	for kind := range count {
		if kind != cfg.KindTable && kind != cfg.KindIndirectJump && kind != cfg.KindTail && kind != cfg.KindJump {
			t.Errorf("%d indirect jumps are %v to the graph", count[kind], kind)
		}
	}
}

// checkTables: the contents of every jump table, read from the kernel's memory where
// objdump's text says that it lies, are the graph's edges.
func checkTables(t *testing.T, k *analysis.Kernel, r *sweep.FlowReport) {
	x := r.Tables(k.Graph, k.Text)
	if len(x.Lost) > 1 {
		t.Errorf("tables of which objdump's text does not say where they are: %v", x.Lost)
	}
	for _, w := range x.Wrong {
		t.Error(w)
	}
	t.Logf("%s: %d tables as long as the comparison before them says, %d within what may follow", k.Graph.Arch.Name, x.Compared, x.Read)
	for _, a := range x.Other {
		f, _ := k.Text.Locate(a)
		t.Errorf("%v in %s: a table in a form that nothing but the graph reads", a, f)
	}
}
