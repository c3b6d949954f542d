package daemon

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"kerninst/agent/index"
	"kerninst/agent/isa"
	"kerninst/agent/kpoke"
	"kerninst/agent/ktext/ktexttest"
	"kerninst/agent/place"
	"kerninst/agent/plan"
	"kerninst/agent/splice"
	"kerninst/agent/wire"
)

// stacked writes what /proc says of tasks: who asks, and one who sleeps. "": there is nothing of who asks.
func stacked(t *testing.T, own, other string) string {
	t.Helper()
	runtime.LockOSThread() // for the test's whole time
	t.Cleanup(runtime.UnlockOSThread)
	proc := t.TempDir()
	for task, text := range map[string]string{fmt.Sprintf("%d/task/%d", os.Getpid(), unix.Gettid()): own, "1/task/1": other} {
		if text == "" {
			continue
		}
		if err := os.MkdirAll(filepath.Join(proc, task), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(proc, task, "stack"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return proc
}

// TestChoose: points that are many in one function, and of which nothing is said, are in a copy of it; unless somebody
// sleeps in there, or it is not known who does.
func TestChoose(t *testing.T) {
	const reading = "[<0>] proc_pid_stack+0x90/0x130\n[<0>] vfs_read+0xa5/0x380\n"
	blocks := &wire.Point{Function: "vfs_read", Each: wire.Each_BLOCK}
	timed := &wire.Point{Function: "vfs_read", Entry: true, Actions: []*wire.Action{{Name: "time", Timed: wire.Timed_ENTERS, Snippet: "c0 sum\nv0 u64 = const 1\ncount c0 v0"}}}
	for _, arch := range ktexttest.Arches {
		for _, c := range []struct {
			name       string
			own, other string
			points     []*wire.Point
			chosen     bool
		}{
			{"many", reading, "[<0>] do_epoll_wait+0x1/0x2\n", []*wire.Point{blocks}, true},
			{"few", reading, "", []*wire.Point{{Function: "vfs_read", Each: wire.Each_RETURN}}, false},
			{"somebody sleeps there", reading, "[<0>] pipe_read+0x1/0x2\n[<0>] vfs_read+0xb1/0x380\n", []*wire.Point{blocks}, false},
			{"somebody sleeps in a module's of that name", reading, "[<0>] vfs_read+0xb1/0x380 [other]\n", []*wire.Point{blocks}, true},
			{"who sleeps is not known", "", "[<0>] do_epoll_wait+0x1/0x2\n", []*wire.Point{blocks}, false},
			{"not in clones", reading, "", []*wire.Point{{Function: "vfs_read", Each: wire.Each_BLOCK, Without: []string{plan.Clone.String()}}}, false},
			{"as is said", reading, "", []*wire.Point{{Function: "vfs_read", Each: wire.Each_BLOCK, Mechanism: plan.Trap.String()}}, false},
			{"one is timed", reading, "", []*wire.Point{blocks, timed}, false},
		} {
			t.Run(arch+"/"+c.name, func(t *testing.T) {
				d := planning(t, arch)
				d.proc, d.known = stacked(t, c.own, c.other), &plan.Functions{}
				all, err := d.expand(t.Context(), &wire.Splice{Points: c.points})
				if err != nil {
					t.Fatal(err)
				}
				got, of := d.choose(all)
				n := 0
				for k := range got {
					if cloned(got[k]) {
						n++
					}
					if all[k].Mechanism == plan.Clone.String() {
						t.Errorf("what was asked for is changed: %v", all[k])
					}
				}
				if c.chosen && (n != len(all) || len(of) != 1) || !c.chosen && n+len(of) > 0 {
					t.Errorf("%d of %d points are in %d clones", n, len(all), len(of))
				}
			})
		}
	}
}

// TestInCopy: the points of a clone that nobody has asked for are all in it, but those that could not be spliced either, or
// else are spliced one by one, and say why. An ftrace site can be neither; what fills up behind a
// function's last instruction can be spliced.
func TestInCopy(t *testing.T) {
	for _, arch := range ktexttest.Arches {
		function := "vfs_read"
		if arch == "riscv64" { // whose copy takes more registers than are known to be free
			function = "ksys_write"
		}
		blocks := &wire.Point{Function: function, Each: wire.Each_BLOCK}
		type asking struct {
			room    int // of the heap, in bytes; 0: as it is
			points  []*wire.Point
			chosen  bool
			without int // so many points are in no clone
		}
		cases := map[string]asking{
			"alone":                            {0, []*wire.Point{blocks}, true, 0},
			"beside what can be had in no way": {0, []*wire.Point{blocks, {Function: function, Offset: map[string]uint64{"amd64": 4}[arch]}}, true, 1},
			"there is no room":                 {512, []*wire.Point{blocks}, false, 0},
		}
		if end, ok := filled(t, arch, function); ok {
			cases["beside what is in no copy"] = asking{0, []*wire.Point{blocks, {Function: function, Offset: end}}, false, 0}
			cases["which there is room for without the copy"] = asking{1280, []*wire.Point{blocks, {Function: function, Offset: end}}, false, 0}
		}
		for name, c := range cases {
			t.Run(arch+"/"+name, func(t *testing.T) {
				d := planning(t, arch)
				if c.room > 0 {
					d.splicer = splice.New(d.arch, kpoke.New(nil, d.info, nil))
					_, hi := d.text.Bounds()
					at := (hi + 1<<20) &^ 4095
					d.splicer.Heap().Add(place.NewArea(1, at, at+4096, c.room))
				}
				d.proc, d.known, d.resolved = stacked(t, "[<0>] a+0x1/0x2\n", ""), &plan.Functions{}, map[string][]addr{}
				res := &wire.Result{}
				made, plans, err := d.planAll(t.Context(), "", &wire.Splice{Points: c.points, SkipRefused: true, Choose: true}, res)
				if err != nil {
					t.Fatal(err)
				}
				in, refused := 0, 0
				for _, p := range plans {
					if p.In != nil {
						in++
					}
				}
				for _, p := range res.Points {
					if p.Refusal != nil {
						refused++
						if c.chosen && strings.Contains(p.Refusal.Detail, "clone") {
							t.Errorf("who has not asked for a clone is told of one: %v", p)
						}
					}
				}
				why := slices.ContainsFunc(res.Points, func(p *wire.PointResult) bool {
					return slices.ContainsFunc(p.Passed, func(r *wire.Refusal) bool { return strings.HasPrefix(r.Detail, "clone: ") })
				})
				switch {
				case c.chosen && (in != len(plans) || len(made.said) != 1 || int(made.said[0].Points) != in+c.without || refused != c.without || why):
					t.Errorf("%d of %d points are in %v, %d are refused; says why: %v\n%v", in, len(plans), made.said, refused, why, res.Points)
				case !c.chosen && (in > 0 || len(made.said) > 0 || len(plans) == 0 || !why):
					t.Errorf("%d of %d points are in %v; says why: %v\n%v", in, len(plans), made.said, why, res.Points)
				}
			})
		}
	}
}

// filled is where what fills up begins behind a function, which has been decoded, if anything does.
func filled(t *testing.T, arch, function string) (off uint64, ok bool) {
	d := planning(t, arch)
	f, err := d.text.Function("", function)
	if err != nil {
		t.Fatal(err)
	}
	code, err := d.text.Code(f)
	if err != nil {
		t.Fatal(err)
	}
	for k, n := 0, 0; k < len(code); k += n {
		i := d.arch.Decode(code[k:], f.Addr+addr(k))
		if n = i.Len; k+n == len(code) && i.Flow == isa.FlowNone {
			return uint64(k), true
		}
	}
	return 0, false
}

// TestNotInCopies: splices are cheaper where each CPU has its own counters; a return address in a copy has no name; and a
// copy by one name of a function is without what another has a half of.
func TestNotInCopies(t *testing.T) {
	counting := []*wire.Action{{Name: "count", Snippet: "c0 count\ncount c0"}}
	keyed := []*wire.Action{{Name: "count by ksym(arg0)", Snippet: counting[0].Snippet, CodeKeys: 1}}
	for name, c := range map[string]struct {
		cpus    int
		actions []*wire.Action
		others  []string // symbols: at the function's begin, and behind it
		chosen  bool
	}{
		"where tasks are switched": {1, counting, []string{"__sched_text_start", "__sched_text_end"}, false},
		"as it is":                 {1, counting, nil, true},
		"two CPUs":                 {2, counting, nil, false},
		"names of code":            {1, keyed, nil, false},
		"an alias":                 {1, counting, []string{"other"}, true},
		"and its half":             {1, counting, []string{"other", "other.cold"}, false},
	} {
		k := ktexttest.Load(t, "amd64")
		lo, _ := k.Text(t).Bounds()
		code := append(slices.Repeat([]byte{0x90}, many), 0xc3, 0xcc)
		k.Add("round", lo+0x8000, code)
		for n, symbol := range c.others {
			k.Add(symbol, lo+0x8000+isa.Addr(n*0x40), code)
		}
		d := &Daemon{arch: k.Arch, text: k.Text(t), known: &plan.Functions{}, proc: stacked(t, "[<0>] a+0x1/0x2\n", "")}
		d.info.CPUs = c.cpus
		d.index.alone, _ = index.NewView(nil, d.text)
		d.index.view = d.index.alone
		var points []*wire.Point
		for off := range uint64(many) {
			points = append(points, &wire.Point{Function: "round", Offset: off, Actions: c.actions})
		}
		if _, of := d.choose(points); (len(of) > 0) != c.chosen {
			t.Errorf("%s: %d clones", name, len(of))
		}
	}
}

// TestNeverLeft: who is in a function that has no way out comes by no copy of it.
func TestNeverLeft(t *testing.T) {
	for name, c := range map[string]struct {
		last   []byte
		chosen bool
	}{"it returns": {[]byte{0xc3, 0xcc}, true}, "it goes round": {[]byte{0xeb, 0xf6}, false}} { // ret; int3, or jmp to its begin
		k := ktexttest.Load(t, "amd64")
		lo, _ := k.Text(t).Bounds()
		k.Add("round", lo+0x8000, append(slices.Repeat([]byte{0x90}, many), c.last...))
		d := &Daemon{arch: k.Arch, text: k.Text(t), known: &plan.Functions{}, proc: stacked(t, "[<0>] a+0x1/0x2\n", "")}
		d.index.alone, _ = index.NewView(nil, d.text)
		d.index.view = d.index.alone
		var points []*wire.Point
		for off := range uint64(many) {
			points = append(points, &wire.Point{Function: "round", Offset: off})
		}
		if _, of := d.choose(points); (len(of) > 0) != c.chosen {
			t.Errorf("%s: %d clones", name, len(of))
		}
	}
}

// TestWhoRuns: of who runs on another CPU the kernel says no function, so he may be in any; who is dead is in none. A stack
// that nobody may read is not empty.
func TestWhoRuns(t *testing.T) {
	for stat, chosen := range map[string]bool{"7 (a b) R) R 1 0": false, "7 (a) S 1 0": true, "7 (R) Z 1 0": true} {
		d := planning(t, "arm64")
		d.proc, d.known = stacked(t, "[<0>] a+0x1/0x2\n", "[<0>] b+0x1/0x2\n"), &plan.Functions{}
		dir := filepath.Join(d.proc, "7/task/7")
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		for file, text := range map[string]string{"stack": "", "stat": stat} {
			if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if got := d.sleepers(); (got != nil) != chosen || chosen && got["b"] != 1 {
			t.Errorf("%s: %v", stat, got)
		}
	}
}

// TestFewInMuch: a copy takes no more memory than splices would.
func TestFewInMuch(t *testing.T) {
	d := planning(t, "arm64")
	d.proc, d.known, d.resolved = stacked(t, "[<0>] a+0x1/0x2\n", ""), &plan.Functions{}, map[string][]addr{}
	all, err := d.expand(t.Context(), &wire.Splice{Points: []*wire.Point{{Function: "vfs_read", Each: wire.Each_BLOCK}}})
	if err != nil {
		t.Fatal(err)
	}
	made, _, err := d.planAll(t.Context(), "", &wire.Splice{Points: all[:many], SkipRefused: true, Choose: true}, &wire.Result{})
	if err != nil || len(made.said) > 0 {
		t.Errorf("%v, %v", made.said, err)
	}
}

// TestCopiedElsewhere: what is in somebody's clone is in no copy of its own, whose points would miss who runs that.
func TestCopiedElsewhere(t *testing.T) {
	for _, function := range []string{"vfs_read", "ksys_write"} {
		d := planning(t, "amd64")
		d.proc, d.known, d.resolved = stacked(t, "[<0>] a+0x1/0x2\n", ""), &plan.Functions{}, map[string][]addr{}
		res := &wire.Result{}
		made, plans, err := d.planAll(t.Context(), "", &wire.Splice{
			Points: []*wire.Point{{Function: function, Each: wire.Each_BLOCK}}, SkipRefused: true, Choose: true,
			Clones: []*wire.Cloning{{Entry: "ksys_read", Functions: []string{"vfs_read"}, Still: true}},
		}, res)
		if err != nil {
			t.Fatal(err)
		}
		alone := function != "vfs_read"
		if got := len(made.said) == 2 && len(plans) > many; got != alone || !alone && (len(made.said) != 1 || len(plans) > 0) {
			t.Errorf("%s: %d plans, %v", function, len(plans), made.said)
		}
		if !alone && !strings.Contains(res.Points[0].Refusal.GetDetail(), "in the clone from ksys_read") {
			t.Errorf("%s: %v", function, res.Points[0])
		}
	}
}
