package splice_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"kerninst/agent/ktext/ktexttest"
)

// TestBatches: what does not fit into one batch of the kernel's is several, of which all are made
// or none, and is undone likewise.
func TestBatches(t *testing.T) {
	for _, arch := range ktexttest.Arches {
		b := setUp(t, arch)
		b.s.SetMost(2)
		lo, hi := b.text.Bounds()
		before := make([]byte, hi-lo)
		if err := b.k.Read(lo, before); err != nil {
			t.Fatal(err)
		}
		same := func() bool { return b.k.hold(lo, before) }
		splices := func() (n int) {
			for _, c := range b.k.calls {
				if c == "splice" {
					n++
				}
			}
			return n
		}
		b.k.failAt, b.k.failWith = 2, "splice"
		if _, err := b.s.Apply(b.plans); !errors.Is(err, errInjected) || !same() || len(b.k.live) != 0 {
			t.Errorf("%s: refused in the second batch: %v, %d are live, text as before: %v", arch, err, len(b.k.live), same())
		}
		if _, used, _ := b.s.Heap().Usage(); used != 0 {
			t.Errorf("%s: %d lines are in use when all is taken back", arch, used)
		}
		b.k.calls = nil
		plans := b.plan(t, 5)
		live, err := b.s.Apply(plans)
		if err != nil || splices() < 3 {
			t.Fatalf("%s: in %d batches: %v", arch, splices(), err)
		}
		if err := b.s.Undo(live); err != nil || !same() || len(b.s.Live()) != 0 {
			t.Errorf("%s: undone: %v, %d are live, text as before: %v", arch, err, len(b.s.Live()), same())
		}
		if !slices.Contains(b.k.calls, "undo") {
			t.Errorf("%s: nothing was undone", arch)
		}
	}
}

// TestBatchesStuck: what cannot be taken back stays, and nobody gets its memory.
func TestBatchesStuck(t *testing.T) {
	b := setUp(t, "arm64")
	b.s.SetMost(2)
	b.k.failNext("splice", 2)
	_, err := b.s.Apply(b.plans)
	if err == nil || !strings.Contains(err.Error(), "stays") || len(b.k.live) != 2 {
		t.Errorf("%v, %d are live", err, len(b.k.live))
	}
	if _, used, _ := b.s.Heap().Usage(); used == 0 {
		t.Error("the memory of what stays is free")
	}
}
