package daemon

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"kerninst/agent/ktext/ktexttest"
	"kerninst/agent/plan"
	"kerninst/agent/probe"
	"kerninst/agent/splice"
	"kerninst/agent/wire"
)

func actionsNamed(t *testing.T, names ...string) (out []*wire.Action) {
	t.Helper()
	for _, n := range names {
		s, err := probe.Compile("", n)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, &wire.Action{Name: n, Snippet: s.String()})
	}
	return out
}

// TestCompound: each action has its own words in the patch's, in order.
func TestCompound(t *testing.T) {
	whole, all, err := compound(actionsNamed(t, "count", "max(arg1)", "trace(arg0)", "sum(arg2)"))
	if err != nil {
		t.Fatal(err)
	}
	words := make([]uint64, whole.Words())
	for k := range words {
		words[k] = uint64(k)
	}
	var got []uint64
	for _, a := range all {
		got = append(got, a.words(whole, words)[0])
	}
	if want := []uint64{0, 1, 3, uint64(len(words) - 1)}; !slices.Equal(got, want) {
		t.Errorf("actions begin at words %v, want %v", got, want)
	}
	if whole, all, err := compound(nil); err != nil || !whole.IsCounter() || len(all) != 1 {
		t.Errorf("no action is no counter: %v, %v", whole, err)
	}
	many := []*wire.Action{}
	for _, n := range "abcdefghijklmnopqrstuvwxyzABCDEFG" { // one cell too many
		many = append(many, &wire.Action{Name: string(n), Snippet: "c0 sum\ncount c0 1"})
	}
	for want, bad := range map[string][]*wire.Action{
		"given twice":     actionsNamed(t, "count", "count"),
		"no instructions": {{Name: "x"}},
		"not one of":      {{Name: "x", Snippet: "dance"}},
		"33 cells":        many,
	} {
		if _, _, err := compound(bad); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want %q", err, want)
		}
	}
}

// TestWithout: what stays keeps its words; what is not there, or is all that there
// is, cannot go.
func TestWithout(t *testing.T) {
	all := actionsNamed(t, "count", "min(arg0)", "sum(arg1)")
	whole, actions, err := compound(all)
	if err != nil {
		t.Fatal(err)
	}
	s := &set{specs: []string{"here"}, actions: [][]action{actions}, points: []*wire.Point{{Function: "f", Actions: all}},
		live: []*splice.Live{{Plan: &plan.Plan{Snippet: whole}}}}
	rest, err := s.without("min(arg0)")
	if err != nil || len(rest) != 1 || len(rest[0].Actions) != 2 {
		t.Fatalf("%v, %v", rest, err)
	}
	_, left, err := compound(rest[0].Actions)
	if err != nil {
		t.Fatal(err)
	}
	if got := s.keep(0, left, []uint64{10, 20, 30, 40}); !slices.Equal(got, []uint64{10, 40}) {
		t.Errorf("words %v are kept", got)
	}
	if _, err := s.without("max(arg0)"); err == nil || !strings.Contains(err.Error(), "not one of several") {
		t.Errorf("an action that is not there: %v", err)
	}
	s.points[0].Actions = all[:1]
	if _, err := s.without("count"); err == nil {
		t.Error("the only action went")
	}
}

// TestNameKeys: a function's first instruction is named as probes ask for it, others with how far in
// they are; what is nowhere, or no address of code, is not named.
func TestNameKeys(t *testing.T) {
	k := ktexttest.Load(t, "amd64")
	f, err := k.Text(t).Function("", "vfs_read")
	if err != nil {
		t.Fatal(err)
	}
	at := uint64(f.Addr)
	k.Add("twin", f.Addr+0x40, make([]byte, 8))
	k.Add("twin", f.Addr+0x60, make([]byte, 8))
	for _, c := range []struct {
		code uint32
		keys [2]uint64
		want map[uint64]string
	}{
		{1, [2]uint64{at, at + 4}, map[uint64]string{at: "vfs_read"}},
		{2, [2]uint64{at, at + 4}, map[uint64]string{at + 4: "vfs_read+0x4"}},
		{3, [2]uint64{at + 0x60, 7}, map[uint64]string{at + 0x60: "twin#2"}},
		{0, [2]uint64{at, at}, nil},
	} {
		v := &wire.Value{}
		action{code: c.code}.nameKeys(v, c.keys[:], names{text: k.Text(t)})
		if !maps.Equal(v.Symbols, c.want) {
			t.Errorf("%b of %#x: %v, want %v", c.code, c.keys, v.Symbols, c.want)
		}
	}
}
