package daemon

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"kerninst/agent/isa"
	"kerninst/agent/ktext"
	"kerninst/agent/ktext/ktexttest"
	"kerninst/agent/plan"
	"kerninst/agent/snippet"
	"kerninst/agent/wire"
)

// TestExpand: a pattern stands for all functions that it matches, each for instructions of
// them, and no point is there twice.
func TestExpand(t *testing.T) {
	d := planning(t, "riscv64")
	d.known = &plan.Functions{}
	names := func(points ...*wire.Point) (out []string) {
		t.Helper()
		got, err := d.expand(t.Context(), &wire.Splice{Points: points})
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range got {
			if len(out) == 0 || out[len(out)-1] != p.Function {
				out = append(out, p.Function)
			}
		}
		return out
	}
	for _, c := range []struct {
		pattern string
		want    string
	}{
		{"ksys_read", "ksys_read"},
		{"no_such", "no_such"}, // its plan says so
		{"ksys_*", "ksys_read ksys_write ksys_pread64 ksys_pwrite64"},
		{"ksys_rea[a-d]", "ksys_read"},
		{"?sys_write", "ksys_write"},
	} {
		for _, each := range []wire.Each{wire.Each_ITSELF, wire.Each_BLOCK} {
			if got := strings.Join(names(&wire.Point{Function: c.pattern, Each: each}), " "); got != c.want {
				t.Errorf("%s, %v: %s, want %s", c.pattern, each, got, c.want)
			}
		}
	}
	twice, err := d.expand(t.Context(), &wire.Splice{Points: []*wire.Point{{Function: "ksys_read", Each: wire.Each_CALL}, {Function: "ksys_*", Each: wire.Each_INSTRUCTION}}})
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, p := range twice {
		seen[p.Function+string(rune(p.Offset))] = true
		if p.Each != wire.Each_ITSELF {
			t.Errorf("%v", p)
		}
	}
	if len(seen) != len(twice) || len(seen) < 50 {
		t.Errorf("%d points at %d places", len(twice), len(seen))
	}
}

// TestExpandRefuses: a pattern that matches nothing or too much is said to, and where the
// points of a function cannot be told, its one point is refused for that.
func TestExpandRefuses(t *testing.T) {
	d := planning(t, "riscv64")
	d.known = &plan.Functions{}
	for says, s := range map[string]*wire.Splice{
		"no function matches": {Points: []*wire.Point{{Function: "no_such_*"}}},
		"no pattern":          {Points: []*wire.Point{{Function: "ksys_[rea"}}},
		"more than 3":         {Limit: 3, Points: []*wire.Point{{Function: "ksys_read", Each: wire.Each_INSTRUCTION}}},
	} {
		if _, err := d.expand(t.Context(), s); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", says, err)
		}
	}
	p := &wire.Point{Function: "no_such", Each: wire.Each_RETURN}
	out, err := d.expand(t.Context(), &wire.Splice{Points: []*wire.Point{p}})
	if err != nil || len(out) != 1 {
		t.Fatal(out, err)
	}
	made, res, err := d.plan(out[0], &plan.Set{}, false)
	if made != nil || err != nil || res.Refusal.GetReason() != plan.NoSuchFunction.String() {
		t.Errorf("%v, %v, %v", made, res, err)
	}
	if got := refused(&plan.Refusal{Reason: plan.TooShort, Class: "c", Detail: "d"}); !reflect.DeepEqual(got, &wire.Refusal{Reason: "too short", Class: "c", Detail: "d"}) {
		t.Error(got)
	}
}

// TestJoined: what is asked of one instruction in several ways, by its offset, by another name
// of the function, by a pattern, as a call or as the entry, is done there at one point, whichever
// is asked for first. Without that, one of them would be refused or left out.
func TestJoined(t *testing.T) {
	d := planning(t, "amd64")
	d.known = &plan.Functions{}
	counts := func(name string) []*wire.Action {
		return []*wire.Action{{Name: name, Snippet: snippet.Counter().String()}}
	}
	left := counts("left") // as where it jumps out of a function whose time is taken
	left[0].Timed = wire.Timed_LEAVES
	const function, call = "__x64_sys_getppid", 10
	points := []*wire.Point{
		{Function: function, Entry: true, Actions: counts("entry")},
		{Function: "__do_sys_getppid", Offset: call, Actions: counts("offset")},
		{Function: "__x64_sys_getpp*", Each: wire.Each_CALL, Actions: counts("call")},
		{Function: function, Each: wire.Each_INSTRUCTION, Actions: counts("call")},
		{Function: function, Offset: call, Actions: left},
	}
	for range points {
		points = append(points[1:], points[0])
		got, err := d.expand(t.Context(), &wire.Splice{Points: points})
		if err != nil {
			t.Fatal(err)
		}
		var there []string
		at := 0
		for _, p := range got {
			if p.Offset == call || p.Entry {
				at++
				for _, a := range p.Actions {
					there = append(there, a.Name)
				}
			}
		}
		slices.Sort(there)
		if want := []string{"call", "entry", "left", "offset"}; at != 1 || !slices.Equal(there, want) {
			t.Errorf("%v first: %v at the call, at %d points, want %v at one", points[0], there, at, want)
		}
	}
	other := counts("call")
	other[0].Snippet = "other"
	if _, err := d.expand(t.Context(), &wire.Splice{Points: append(points, &wire.Point{Function: function, Offset: call, Actions: other})}); err == nil || !strings.Contains(err.Error(), "not the same") {
		t.Errorf("two actions of one name: %v", err)
	}
}

// TestInTurn: entries are planned behind what is asked for itself, wherever they stand.
func TestInTurn(t *testing.T) {
	points := []*wire.Point{{Entry: true}, {Offset: 1}, {Entry: true}, {Offset: 2}}
	if got, want := inTurn(points, 0), []int{1, 3, 0, 2}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if got, want := inTurn(points, 1), []int{0, 1, 2, 3}; !slices.Equal(got, want) {
		t.Errorf("the first so many are %v, want %v", got, want)
	}
}

// TestChosen: of functions that share a name each is had by its number or its address, with a plan
// that is its own; by the name alone none is, and what is said lists them; a pattern means all.
func TestChosen(t *testing.T) {
	for _, arch := range ktexttest.Arches {
		const name = "t_show"
		d := planning(t, arch, " ksys_read\n", " "+name+"\n", " ksys_write\n", " "+name+"\n")
		var shared *ktext.NotFound
		if _, err := d.text.Function("", name); !errors.As(err, &shared) || len(shared.Same) < 2 {
			t.Fatalf("%s: %v", arch, err)
		}
		ask := func(name string) *wire.PointResult {
			t.Helper()
			res := &wire.Result{}
			if err := d.onlyPlan(t.Context(), "", &wire.Splice{Points: []*wire.Point{{Function: name, Entry: true}}, SkipRefused: true, OnlyPlan: true}, res); err != nil || len(res.Points) != 1 {
				t.Fatalf("%s: %s: %v, %v", arch, name, res.Points, err)
			}
			return res.Points[0]
		}
		alone := ask(name)
		for k, a := range shared.Same {
			nth, at := fmt.Sprintf("%s#%d", name, k+1), fmt.Sprintf("%s@%#x", name, uint64(a))
			if alone.Refusal.GetReason() != plan.AmbiguousFunction.String() || !strings.Contains(alone.Refusal.GetDetail(), nth+" or "+at) {
				t.Errorf("%s: %s: %v, want %s", arch, name, alone, nth)
			}
			for _, asked := range []string{nth, at} {
				p := ask(asked)
				if p.Refusal != nil || p.Symbol != nth || isa.Addr(p.Address-p.Offset) != a || p.Spec != fmt.Sprintf("kinst::%s:%d", nth, p.Offset) {
					t.Errorf("%s: %s: %v, want a plan at %v", arch, asked, p, a)
				}
			}
		}
		if out := ask(fmt.Sprintf("%s#%d", name, len(shared.Same)+1)); out.Refusal.GetReason() != plan.AmbiguousFunction.String() {
			t.Errorf("%s: %v", arch, out)
		}
		d.known = &plan.Functions{}
		all, err := d.matching(&wire.Point{Function: "t_sho[w]"})
		if err != nil || len(all) != len(shared.Same) || all[0] != name+"#1" {
			t.Errorf("%s: the pattern matches %v, %v", arch, all, err)
		}
	}
}
