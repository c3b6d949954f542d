package daemon

import (
	"context"
	"strings"
	"testing"

	"kerninst/agent/index"
	"kerninst/agent/kpoke"
	"kerninst/agent/ktext/ktexttest"
	"kerninst/agent/pad"
	"kerninst/agent/place"
	"kerninst/agent/plan"
	"kerninst/agent/splice"
	"kerninst/agent/wire"
)

// planning is a daemon with a recorded kernel and patch memory behind it, but no device. Of some
// functions the names are others, in pairs.
func planning(t *testing.T, arch string, renamed ...string) *Daemon {
	t.Helper()
	k := ktexttest.Load(t, arch)
	k.Kallsyms = strings.NewReplacer(renamed...).Replace(k.Kallsyms)
	d := &Daemon{arch: k.Arch, text: k.Text(t)}
	lo, hi := d.text.Bounds()
	d.info.TextStart, d.padding = lo, pad.New(d.text)
	d.splicer = splice.New(k.Arch, kpoke.New(nil, d.info, nil))
	const area = 64 << 10
	at := (hi + 1<<20) &^ 4095
	d.splicer.Heap().Add(place.NewArea(1, at, at+area, area))
	d.index.alone, _ = index.NewView(nil, d.text)
	d.index.view = d.index.alone
	return d
}

// TestOnlyPlan: each point gets what it would get alone, named or by its address, however
// many are asked for with it, and nothing is taken.
func TestOnlyPlan(t *testing.T) {
	for _, arch := range ktexttest.Arches {
		d := planning(t, arch)
		ask := func(points ...*wire.Point) []*wire.PointResult {
			t.Helper()
			res := &wire.Result{}
			if err := d.onlyPlan(t.Context(), "", &wire.Splice{Points: points, SkipRefused: true, OnlyPlan: true}, res); err != nil {
				t.Fatal(err)
			}
			if _, used, dirty := d.splicer.Heap().Usage(); used+dirty+d.splicer.Heap().Boards()+len(d.splicer.Heap().Evicted()) != 0 || d.dry {
				t.Fatalf("%s: %d lines of patch memory are taken, %d were", arch, used, dirty)
			}
			if res.Planned == nil || res.Planned.Indexed {
				t.Errorf("%s: %v", arch, res.Planned)
			}
			return res.Points
		}
		each := &wire.Point{Function: "ksys_read", Each: wire.Each_INSTRUCTION}
		all, twice := ask(each), ask(each, each)
		if len(twice) != len(all) {
			t.Fatalf("%s: %d points, %d when they are asked for twice", arch, len(all), len(twice))
		}
		planned := 0
		for k, p := range all {
			f, err := d.text.Function("", "ksys_read")
			if err != nil {
				t.Fatal(err)
			}
			byAddress := ask(&wire.Point{Text: uint64(f.Addr-d.info.TextStart) + p.Offset + 1})[0]
			for _, q := range []*wire.PointResult{twice[k], byAddress} {
				if q.Mechanism != p.Mechanism || q.RunsAt != p.RunsAt || q.Refusal.GetReason() != p.Refusal.GetReason() || q.Refusal.GetClass() != p.Refusal.GetClass() {
					t.Errorf("%s: %v, then %v", arch, p, q)
				}
			}
			if p.Refusal == nil {
				planned++
			}
			if p.Instruction == "" || p.Address != uint64(f.Addr)+p.Offset {
				t.Errorf("%s: at %#x, of %v, is %q", arch, p.Address, f, p.Instruction)
			}
		}
		to, by := led(all), led(ask(&wire.Point{Function: "vfs_read", Each: wire.Each_CALL}))
		if !to["vfs_read"] || to["ksys_read"] || len(to) > 9 {
			t.Errorf("%s: ksys_read calls %v", arch, to)
		}
		if arch != "amd64" && !by["by a register"] { // a file's own function; amd64: TestLeadsByThunk
			t.Errorf("%s: vfs_read calls %v", arch, by)
		}
		if planned < 5 || planned == len(all) {
			t.Errorf("%s: %d of %d points have a plan", arch, planned, len(all))
		}
		for name, s := range map[string]*wire.Splice{
			"announces": {Announce: true}, "the most": {Most: 1}, "one is refused": {Points: []*wire.Point{{Function: "no_such"}}},
		} {
			if d.onlyPlan(t.Context(), "", s, &wire.Result{}) == nil {
				t.Errorf("%s: %s is no error", arch, name)
			}
		}
	}
}

// TestOnlyPlanClocks: what keeps the clocks of virtual time is foretold, once, where any of the
// points would read one, and what refuses it is; nothing is where none does, and nothing is kept.
func TestOnlyPlanClocks(t *testing.T) {
	const name = switched + ".isra.0"
	reads := []*wire.Action{{Name: "vtime", Timed: wire.Timed_ENTERS, Snippet: "c0 clocks 2\nc1 sum\nv0 u64 = clock c0 1234\ncount c1 v0"}}
	for _, arch := range ktexttest.Arches {
		d := planning(t, arch, " ksys_write\n", " "+name+"\n")
		ask := func(actions []*wire.Action) (*wire.PointResult, error) {
			res := &wire.Result{}
			p := &wire.Point{Function: "ksys_read", Entry: true, Actions: actions}
			err := d.onlyPlan(t.Context(), "", &wire.Splice{Points: []*wire.Point{p, p}, SkipRefused: true, OnlyPlan: true}, res)
			return res.GetPlanned().GetClocks(), err
		}
		if got, err := ask(nil); got != nil || err != nil {
			t.Errorf("%s: no clock is read: %v, %v", arch, got, err)
		}
		f, err := d.text.Function("", name)
		if err != nil {
			t.Fatal(err)
		}
		got, err := ask(reads)
		if err != nil || got.GetSymbol() != name || got.Address != uint64(f.Addr)+got.Offset || got.Instruction == "" || (got.Mechanism == "") == (got.Refusal == nil) || d.clocks.plan != nil {
			t.Errorf("%s: %v, %v, want what becomes of %s", arch, got, err, name)
		}
		d = planning(t, arch)
		if got, err := ask(reads); got != nil || err == nil || !strings.Contains(err.Error(), "0 functions "+switched) {
			t.Errorf("%s: a kernel without: %v, %v", arch, got, err)
		}
	}
}

// TestUnwanted: who asks may take it back while points are listed or planned; what is said then is
// not that a point is refused, and nothing is taken.
func TestUnwanted(t *testing.T) {
	enough := make(chan struct{})
	close(enough)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for name, c := range map[string]struct {
		ctx    context.Context
		enough chan struct{}
		want   string
	}{"enough": {t.Context(), enough, "not all points were planned"}, "gone": {gone, nil, context.Canceled.Error()}} {
		t.Run(name, func(t *testing.T) {
			d := planning(t, "riscv64")
			d.known, d.enough = &plan.Functions{}, c.enough
			if _, err := d.expand(c.ctx, &wire.Splice{Points: []*wire.Point{{Function: "ksys_read", Each: wire.Each_BLOCK}}}); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("listing: %v, want %s", err, c.want)
			}
			ones, results := make([]*plan.Plan, 1), make([]*wire.PointResult, 1)
			err := d.planInTurn(c.ctx, []*wire.Point{{Function: "ksys_read", Entry: true}}, true, 0, &plan.Set{}, ones, results)
			if err == nil || !strings.Contains(err.Error(), c.want) || ones[0] != nil || results[0] != nil {
				t.Errorf("planning: %v %v, want %s", ones, err, c.want)
			}
		})
	}
}

// led is where points lead, and whether any does by a register.
func led(points []*wire.PointResult) map[string]bool {
	out := map[string]bool{}
	for _, p := range points {
		switch {
		case p.LeadsTo != "":
			out[p.LeadsTo] = true
		case p.LeadsBy != "":
			out["by a register"] = true
		}
	}
	return out
}

// TestLeadsByThunk: where amd64 calls by a register, a thunk's name says by which; the first has
// that of all of them, too.
func TestLeadsByThunk(t *testing.T) {
	k := ktexttest.Load(t, "amd64")
	lo, _ := k.Text(t).Bounds()
	k.Add("__x86_indirect_thunk_array", lo+0x8000, []byte("\x41\xff\xe3\xcc"))
	k.Add("__x86_indirect_thunk_r11", lo+0x8000, []byte("\x41\xff\xe3\xcc"))
	k.Add("caller", lo+0x8100, []byte("\xe8\xfb\xfe\xff\xff\xc3"))
	d := &Daemon{arch: k.Arch, text: k.Text(t)}
	if to, by := d.leads(lo + 0x8100); to != "" || by != "r11" {
		t.Errorf("leads to %q, by %q", to, by)
	}
}

// TestFirstSoMany: of points of which so many are wanted none is passed by that can be had, if only at another instruction. On
// riscv64 they would be in each other's way.
func TestFirstSoMany(t *testing.T) {
	for _, arch := range []string{"amd64", "arm64"} {
		d := planning(t, arch)
		d.known = &plan.Functions{}
		all, err := d.expand(t.Context(), &wire.Splice{Points: []*wire.Point{{Function: "ksys_read", Each: wire.Each_INSTRUCTION}}})
		if err != nil {
			t.Fatal(err)
		}
		had := func(points []*wire.Point, most int) []*plan.Plan {
			d := planning(t, arch)
			d.known = &plan.Functions{}
			ones, results := make([]*plan.Plan, len(points)), make([]*wire.PointResult, len(points))
			if err := d.planInTurn(t.Context(), points, true, most, &plan.Set{}, ones, results); err != nil {
				t.Fatal(err)
			}
			return ones
		}
		const most = 5
		n, elsewhere := 0, 0
		for k, one := range had(all, most) {
			switch alone := had(all[k:k+1], 0)[0]; {
			case one != nil:
				if n++; one.For != 0 {
					elsewhere++
				}
			case n < most && alone != nil:
				t.Errorf("%s: ksys_read+%#x can be had, and is passed by", arch, all[k].Offset)
			}
		}
		if n != most || elsewhere == 0 {
			t.Errorf("%s: %d of %d, %d at another instruction", arch, n, most, elsewhere)
		}
	}
}
