package daemon

import (
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"testing"

	"kerninst/agent/isa"
	"kerninst/agent/kdev"
	"kerninst/agent/ktext"
	"kerninst/agent/ktext/ktexttest"
	"kerninst/agent/place"
	"kerninst/agent/plan"
	"kerninst/agent/splice"
	"kerninst/agent/wire"
)

// growingOf is a clone of some functions of a daemon's kernel, in which each leads to others.
func growingOf(t *testing.T, d *Daemon, names []string, leads map[string][]string) *growing {
	t.Helper()
	find := func(name string) ktext.Func {
		f, err := d.text.Function("", name)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	g := &growing{spec: &wire.Cloning{}, links: map[isa.Addr][]isa.Addr{}, never: map[isa.Addr]*plan.Refusal{}}
	for _, n := range names {
		g.functions = append(g.functions, find(n))
	}
	for from, all := range leads {
		for k, to := range all {
			g.links[find(from).Addr+isa.Addr(0x10*(k+1))] = []isa.Addr{find(to).Addr}
		}
	}
	return g
}

func namesOf(all []ktext.Func) (out []string) {
	for _, f := range all {
		out = append(out, f.Name)
	}
	return out
}

// TestHottestFirst: of where a site leads, what is entered most comes first; what is as often stays in its order, and so
// does what nobody has counted.
func TestHottestFirst(t *testing.T) {
	g := &growing{links: map[isa.Addr][]isa.Addr{1: {10, 20, 30, 40}, 2: {50, 60}}, uses: map[isa.Addr]uint64{20: 3, 30: 900, 40: 3}}
	g.hottestFirst()
	if want := map[isa.Addr][]isa.Addr{1: {30, 20, 40, 10}, 2: {50, 60}}; !reflect.DeepEqual(g.links, want) {
		t.Errorf("%v, want %v", g.links, want)
	}
}

// TestFlush: what leads to what is used stays, however seldom it is entered itself; of what is used
// as little the latest goes; what was not counted goes last.
func TestFlush(t *testing.T) {
	d := planning(t, "amd64")
	names := []string{"__x64_sys_read", "ksys_read", "ksys_write", "vfs_read", "vfs_write", "kernel_write", "ksys_pread64"}
	leads := map[string][]string{"__x64_sys_read": {"ksys_read", "ksys_write"}, "ksys_read": {"vfs_read"}, "vfs_read": {"ksys_read"}, "ksys_write": {"vfs_write", "kernel_write"}}
	uses := map[string]uint64{"__x64_sys_read": 2, "ksys_read": 1, "ksys_write": 1, "vfs_read": 900, "vfs_write": 7, "kernel_write": 7}
	for _, c := range []struct {
		what  string
		uses  map[string]uint64
		order []string
	}{
		{"counted, but one", uses, []string{"kernel_write", "vfs_write", "ksys_write", "vfs_read", "ksys_read", "ksys_pread64"}},
		{"nothing counted", nil, []string{"ksys_pread64", "kernel_write", "vfs_write", "vfs_read", "ksys_write", "ksys_read"}},
	} {
		g := growingOf(t, d, names, leads)
		if c.uses != nil {
			g.uses = map[isa.Addr]uint64{}
			for _, f := range g.functions {
				if n, ok := c.uses[f.Name]; ok {
					g.uses[f.Addr] = n
				}
			}
			if p := d.pathsOf(g); p[g.functions[1].Addr] != 900 || p[g.functions[2].Addr] != 7 || p[g.functions[0].Addr] != 900 || p[g.functions[6].Addr] != math.MaxUint64 {
				t.Errorf("%s: paths %v", c.what, p)
			}
		}
		for len(g.functions) > 1 {
			g.flush(g.coldest(d.pathsOf(g))[:1], &plan.Refusal{Reason: plan.MemoryFull})
		}
		if got := namesOf(g.leftOut); !slices.Equal(got, c.order) || !g.full || len(g.never) != len(c.order) {
			t.Errorf("%s: %v go, in this order", c.what, got)
		}
	}
}

// TestShorten: of a clone that takes too much goes what that is, by what its functions' own code takes, the least used first, one
// at least; a part of them, if it is not known what it takes.
func TestShorten(t *testing.T) {
	for _, c := range []struct{ takes, most, stay int }{{4000, 2500, 13}, {4000, 2000, 10}, {4000, 3999, 20}, {4000, 1, 1}, {0, 2500, 20}} {
		g := &growing{spec: &wire.Cloning{Most: uint32(c.most)}, takes: c.takes, never: map[isa.Addr]*plan.Refusal{}}
		paths := map[isa.Addr]uint64{}
		for k := range isa.Addr(21) {
			g.functions = append(g.functions, ktext.Func{Addr: k, Size: 100})
			paths[k] = uint64(100 - k)
		}
		if g.shorten(paths, &plan.Refusal{Reason: plan.MemoryFull}); len(g.functions) != c.stay || !g.full || g.functions[len(g.functions)-1].Addr != isa.Addr(c.stay-1) {
			t.Errorf("of 21 functions that take %d bytes, and are to have %d, %d stay, not the first %d", c.takes, c.most, len(g.functions), c.stay)
		}
	}
}

// TestFit: a clone that may have less than it would take is what fits, and no memory is taken yet;
// what is not there goes back with what the clone was.
func TestFit(t *testing.T) {
	d := planning(t, "amd64")
	d.known = &plan.Functions{}
	names := []string{"ksys_read", "ksys_pread64", "ksys_write", "ksys_pwrite64"}
	g := growingOf(t, d, names, nil)
	dirtied := 0
	whole := func(most int) {
		t.Helper()
		g.spec.Most = uint32(most)
		if err := d.fit(t.Context(), []*growing{g}); err != nil {
			t.Fatal(err)
		}
		if _, used, dirty := d.splicer.Heap().Usage(); used+dirty != dirtied || d.trial != nil {
			t.Fatalf("%d lines of patch memory are taken, %d were", used, dirty)
		}
	}
	if whole(1 << 20); len(g.functions) != len(names) || g.full {
		t.Fatalf("there is room, and %v are left out", namesOf(g.leftOut))
	}
	before := g.now()
	if whole(600); len(g.functions) < 2 || len(g.functions)+len(g.leftOut) != len(names) || !g.full {
		t.Errorf("in 600 bytes are %v; %v are not", namesOf(g.functions), namesOf(g.leftOut))
	}
	made, plans, err := d.replan(t.Context(), []*growing{g})
	if err != nil || len(plans) != 0 || len(made.said) != 1 || !made.said[0].Full || len(made.said[0].Left) != len(g.leftOut) || made.said[0].Bytes > 600 {
		t.Fatalf("%v, %v: %v", made, plans, err)
	}
	d.splicer.Release(made.entries...)
	_, _, dirtied = d.splicer.Heap().Usage()
	if whole(1); !slices.Equal(namesOf(g.functions), names[:1]) {
		t.Errorf("in a byte are %v", namesOf(g.functions))
	}
	if _, _, err := d.replan(t.Context(), []*growing{g}); err == nil {
		t.Error("a clone of a byte")
	}
	g.back(before)
	if got := namesOf(g.functions); !slices.Equal(got, names) || len(g.leftOut)+len(slices.Collect(maps.Keys(g.never))) != 0 {
		t.Errorf("it is %v again, and %v are left out", got, namesOf(g.leftOut))
	}
}

// TestWhole: a step is what its parts are together, in the order of its clones, whichever of these
// were made anew.
func TestWhole(t *testing.T) {
	s := &set{}
	for k := range 3 {
		e := &plan.Plan{Point: isa.Addr(k)}
		s.entries, s.spliced = append(s.entries, e), append(s.spliced, &splice.Live{Plan: e})
		s.said, s.growing = append(s.said, &wire.Clone{Entry: fmt.Sprint(k)}), append(s.growing, &growing{entry: e})
		for n := range 2 {
			name := fmt.Sprintf("%d+%d", k, n)
			s.specs, s.actions = append(s.specs, name), append(s.actions, []action{{name: name}})
			s.points = append(s.points, &wire.Point{Function: name})
			s.live = append(s.live, &splice.Live{Plan: &plan.Plan{Symbol: name, In: e}})
		}
	}
	for _, some := range [][]int{nil, {1}, {0, 2}, {2, 0}, {0, 1, 2}} {
		var anew, kept []*growing
		for k, g := range s.growing {
			if slices.Contains(some, k) {
				anew = append(anew, g)
			} else {
				kept = append(kept, g)
			}
		}
		part := s.of(anew)
		if len(part.spliced) != len(some) || len(part.live) != 2*len(some) || len(part.points) != len(part.live) {
			t.Errorf("%v: a part of %d clones, %d points", some, len(part.spliced), len(part.live))
		}
		if got := whole(s.growing, s.of(kept), part); !reflect.DeepEqual(got, s) {
			t.Errorf("%v: %+v", some, got)
		}
	}
}

// TestShare: clones that together take more than there is have each what fits, and the first does not take what
// the last would have.
func TestShare(t *testing.T) {
	d := planning(t, "amd64")
	d.known = &plan.Functions{}
	reads, writes := []string{"ksys_read", "ksys_pread64", "kernel_write", "ksys_pwrite64", "vfs_read"}, []string{"ksys_write", "vfs_write"}
	clones := func() []*growing { return []*growing{growingOf(t, d, reads, nil), growingOf(t, d, writes, nil)} }
	made, _, err := d.replan(t.Context(), clones())
	if err != nil || len(made.said) != 2 {
		t.Fatalf("%v: %v", made, err)
	}
	whole := int(made.said[0].Bytes + made.said[1].Bytes)
	d = planning(t, "amd64")
	d.known = &plan.Functions{}
	area := d.splicer.Heap().Areas()[0]
	room := whole * 3 / 4 &^ 63
	if !d.splicer.Heap().Take(area.Addr, area.CodeLen-room) {
		t.Fatal("the memory is taken already")
	}
	all := clones()
	made, _, err = d.replan(t.Context(), all)
	if err != nil {
		t.Fatal(err)
	}
	for k, g := range all {
		if len(g.functions) < 2 || made.said[k].Refusal != nil {
			t.Errorf("of a room of %d bytes for %d, clone %d has %v", room, whole, k, namesOf(g.functions))
		}
	}
	if got := int(made.said[0].Bytes + made.said[1].Bytes); got > room || got < room/2 {
		t.Errorf("clones of %d bytes in a room of %d", got, room)
	}
}

// TestFitSites: of a clone that has more of what the kernel's side knows by its address than it can, functions are left out.
func TestFitSites(t *testing.T) {
	names := []string{"ksys_read", "pmu_msr_read"} // which has some of both
	for _, c := range []struct {
		most place.Sites
		in   int
	}{
		{place.Sites{Faults: 100, Keys: 100}, 2},
		{place.Sites{Faults: 0, Keys: 100}, 1},
		{place.Sites{Faults: 100, Keys: 0}, 1},
	} {
		d := planning(t, "amd64")
		d.known = &plan.Functions{}
		d.info.Features |= kdev.FeatureSited | kdev.FeatureKeys
		d.splicer.Heap().LimitSites(c.most)
		g := growingOf(t, d, names, nil)
		made, _, err := d.replan(t.Context(), []*growing{g})
		if err != nil {
			t.Fatalf("%+v: %v", c, err)
		}
		if got := made.said[0]; len(g.functions) != c.in || got.Full != (c.in < len(names)) {
			t.Errorf("%+v: %v, %v are left out", c, namesOf(g.functions), namesOf(g.leftOut))
		}
	}
}

// TestOwnHalf: of two functions that share a name, and so do their cold halves, a point in either half is in its own clone, and
// a rule for each block has points in both.
func TestOwnHalf(t *testing.T) {
	// test; je cold; jmp +5; int3*5; call next; ret, and: mov; jmp to the call
	const hot, cold = "\x48\x85\xff\x0f\x84\xf7\x00\x00\x00\xeb\x05\xcc\xcc\xcc\xcc\xcc\xe8\xeb\x0f\x00\x00\xc3", "\x48\x89\xd8\xe9\x08\xff\xff\xff"
	k := ktexttest.Load(t, "amd64")
	lo, _ := k.Text(t).Bounds()
	for n := range 2 {
		at := lo + 0x8000 + isa.Addr(n)*0x400
		k.Add("halves", at, []byte(hot))
		k.Add(fmt.Sprint("behind_hot", n), at+isa.Addr(len(hot)), []byte("\x90"))
		k.Add("halves.cold", at+0x100, []byte(cold))
		k.Add(fmt.Sprint("behind_cold", n), at+0x100+isa.Addr(len(cold)), []byte("\x90"))
	}
	x := k.Text(t)
	d := &Daemon{arch: x.Arch, text: x, known: &plan.Functions{}}
	for n := 1; n <= 2; n++ {
		g := growingOf(t, d, []string{fmt.Sprintf("halves#%d", n)}, nil)
		g.spec.Rules = []*wire.Rule{{Each: wire.Each_BLOCK}}
		points := d.pointsOf([]*growing{g})
		in := map[string]int{}
		for _, p := range points {
			in[p.Function]++
		}
		results := make([]*wire.PointResult, len(points))
		groups := d.groups(points, []*growing{g}, results)
		if in[fmt.Sprintf("halves#%d", n)] == 0 || in[fmt.Sprintf("halves.cold#%d", n)] == 0 || len(in) != 2 {
			t.Errorf("points of halves#%d are in %v", n, in)
		}
		if len(groups) != 1 || len(groups[0].points) != len(points) || len(groups[0].functions) != 1 {
			t.Errorf("halves#%d: %+v", n, groups)
		}
		for _, r := range results {
			if r != nil {
				t.Errorf("halves#%d: %v", n, r)
			}
		}
	}
}
