package scenarios

import (
	"strings"
	"testing"

	"kerninst/lab/oracle"
)

func callsTree() (*oracle.Call, oracle.Names) {
	read := func(calls uint64) *oracle.Call {
		return &oracle.Call{Addr: 1, Calls: calls, Insns: 20, NS: 30, Children: []*oracle.Call{{Addr: 2, Calls: calls, Insns: 10, NS: 20}}}
	}
	return &oracle.Call{Insns: 100, NS: 200, Children: []*oracle.Call{
		read(3), {Addr: 3, Calls: 1, Insns: 30, NS: 40, Children: []*oracle.Call{read(4)}},
	}}, oracle.Names{1: "read", 2: "copy", 3: "splice"}
}

func TestAlong(t *testing.T) {
	tree, names := callsTree()
	for path, want := range map[string]uint64{"read copy": 7, "splice read copy": 4, "copy": 7, "splice copy": 0, "copy read": 0, "read splice read copy": 0} {
		if n := along(tree, names, strings.Fields(path)); n != want {
			t.Errorf("%s: %d calls, want %d", path, n, want)
		}
	}
}

// A function that takes less than what it calls, or runs for longer than it takes, is
// told.
func TestAddsUp(t *testing.T) {
	for name, spoil := range map[string]func(tree *oracle.Call){
		"":                           func(*oracle.Call) {},
		"splice: 19 instructions":    func(tree *oracle.Call) { tree.Children[1].Insns = 19 },
		"splice: 30 instructions":    func(tree *oracle.Call) { tree.Children[1].NS = 29 },
		"copy: 31 instructions":      func(tree *oracle.Call) { tree.Children[0].Children[0].Insns = 31 },
		"100 instructions and 69 ns": func(tree *oracle.Call) { tree.NS = 69 },
	} {
		tree, names := callsTree()
		spoil(tree)
		got := failure(func(fail func(string)) { NewT("amd64", "", nil, fail).addsUp(tree, names) })
		if (got == "") != (name == "") || !strings.Contains(got, name) {
			t.Errorf("failed with %q, want %q", got, name)
		}
	}
}
