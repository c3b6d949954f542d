package scenarios

import (
	"slices"
	"testing"

	"kerninst/lab/oracle"
)

// pretended is a profile of few functions: read has most of the time, write calls copy often.
func pretended() callProfile {
	names := oracle.Names{1: "entry", 2: "__x64_sys_read", 3: "__x64_sys_write", 4: "find", 5: "copy", 6: "both", 7: "irq", 8: "twice", 9: "twice", 10: "leaf"}
	call := func(addr, calls, insns uint64, below ...*oracle.Call) *oracle.Call {
		return &oracle.Call{Addr: addr, Calls: calls, Insns: insns, NS: insns, Children: below}
	}
	irq := call(7, 100, 1<<40, call(6, 1, 1<<39))
	irq.Exception = true
	return callProfile{call(0, 0, 1<<42, call(1, 20, 1<<41,
		call(2, 10, 60e6, call(4, 10, 50e6, call(8, 1, 10), call(9, 1, 10)), call(6, 10, 5e6)),
		call(3, 10, 40e6, call(5, 1000, 30e6, call(10, 1000, 1e6)), call(6, 10, 5e6)),
		irq)), names, "amd64", virtualIn}
}

// TestPlantable: what a delay would make the most of at each level, and nothing else; what shares its
// name with another cannot be planted, and what is called in two ways has no one way down.
func TestPlantable(t *testing.T) {
	var got []string
	for _, d := range pretended().plantable() {
		got = append(got, d.function+" > "+d.callee)
	}
	if want := []string{"__x64_sys_write > copy", "copy > leaf"}; !slices.Equal(got, want) {
		t.Errorf("plantable: %q, want %q", got, want)
	}
	p := pretended()
	p.names[11] = "leaf"
	if again := p.plantable(); len(again) != 1 || again[0].callee != "copy" {
		t.Errorf("with two functions called leaf: %v", again)
	}
	if way := p.way(); !slices.Equal(way, []string{"__x64_sys_read", "find", "twice"}) {
		t.Errorf("without a delay the way is %q", way)
	}
	p.names[8] = "once" // where find leads: a delay there would be found without one
	p.tree.Children[0].Children[0].Children[0].Children[0].Calls = 1000
	if again := p.plantable(); slices.ContainsFunc(again, func(d delayed) bool { return d.function == "find" || d.function == "__x64_sys_read" }) {
		t.Errorf("planted on the way: %v", again)
	}
	q := p.with(delayed{"copy", "leaf", 1000})
	if seen := q.called(q.systemCalls()); seen["__x64_sys_write"] != 40e6+1000*plantedDelay*1000 || seen["__x64_sys_read"] != 60e6 || len(seen) != 2 {
		t.Errorf("with it: %v", seen)
	}
}

// TestDrawnDelays: the seed decides, and the same one the same way.
func TestDrawnDelays(t *testing.T) {
	first := func(seed uint64) string { tried, _ := pretended().drawnDelays(seed); return tried[0].function }
	seen := map[string]bool{}
	for seed := range uint64(20) {
		if first(seed) != first(seed) {
			t.Error("one seed draws two")
		}
		seen[first(seed)] = true
	}
	if len(seen) != 2 {
		t.Errorf("twenty seeds drew %v", seen)
	}
}
