package daemon

import (
	"maps"
	"slices"
	"testing"

	"kerninst/agent/gen"
	"kerninst/agent/isa"
	"kerninst/agent/ktext/ktexttest"
	"kerninst/agent/plan"
	"kerninst/agent/splice"
	"kerninst/agent/wire"
)

// TestNamesOfPatches: who is called by a patch is said to come back to the kernel's own code, behind the
// instruction that the patch has a copy of. An address that is nobody's keeps its number, and so does where
// a patch begins, to which nobody comes back.
func TestNamesOfPatches(t *testing.T) {
	x := ktexttest.Load(t, "amd64").Text(t)
	f, err := x.Function("", "vfs_read")
	if err != nil {
		t.Fatal(err)
	}
	const patch = 0x1000
	n := names{x, []*splice.Live{{Plan: &plan.Plan{
		Patch: patch, Code: make([]byte, 20),
		Displaced: []isa.Insn{{Addr: f.Addr + 8, Len: 3}, {Addr: f.Addr + 11, Len: 5}},
		States:    []gen.State{{Off: 4, Orig: f.Addr + 8}, {Off: 10, Orig: f.Addr + 11}},
	}}}}
	in := uint64(f.Addr)
	got := n.stack([]uint64{in + 2, patch + 15, patch + 10, patch + 2, in + 5, patch, patch + 20, patch + 21})
	want := []string{"vfs_read+0x2", "vfs_read+0x10", "vfs_read+0xb", "0x1002", "vfs_read+0x5", "0x1000", "vfs_read+0x10", "0x1015"}
	if !slices.Equal(got, want) {
		t.Errorf("a stack is in %v, want %v", got, want)
	}
	if got := n.stack([]uint64{in}); !slices.Equal(got, []string{"vfs_read+0x0"}) {
		t.Errorf("who is at a function's begin is in %v", got)
	}
	v := &wire.Value{}
	action{code: 1}.nameKeys(v, []uint64{patch + 15}, n)
	if want := map[uint64]string{patch + 15: "vfs_read+0x10"}; !maps.Equal(v.Symbols, want) {
		t.Errorf("a key in a patch is %v, want %v", v.Symbols, want)
	}
}
