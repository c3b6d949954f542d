package plan_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"kerninst/agent/gen"
	"kerninst/agent/isa"
	"kerninst/agent/isa/riscv64"
	"kerninst/agent/ktext"
	"kerninst/agent/ktext/ktexttest"
	"kerninst/agent/pad"
	"kerninst/agent/place"
	"kerninst/agent/plan"
	"kerninst/agent/snippet"
)

// heap lies behind the recorded text, in reach of all of it.
func heap(x *ktext.Text) *place.Heap {
	_, hi := x.Bounds()
	h := &place.Heap{}
	h.Add(place.NewArea(7, (hi+32<<20)&^4095, ((hi+32<<20)&^4095)+64<<10, 64<<10))
	return h
}

func request(x *ktext.Text, function string, off isa.Off) plan.Request {
	return plan.Request{Function: function, Offset: off, Features: gen.Features{LSE: true}, Heap: heap(x)}
}

// smoke lists, for every ISA, a function of the getppid or read path and what
// its first point without a save costs.
var smoke = []struct {
	arch, function string
	at             isa.Off
	mechanism      plan.Mechanism
	added          int
}{
	{"amd64", "ksys_read", 0x39, plan.Jump, 3},
	{"amd64", "vfs_read", 0x17, plan.Jump, 3},
	{"amd64", "__x64_sys_getppid", 0xf, plan.Jump, 3}, // its operand is rip-relative
	{"amd64", "ksys_write", 0x9, plan.Springboard, 3}, // a copy of its patch
	{"arm64", "__arm64_sys_getppid", 0xc, plan.Jump, 4},
	{"arm64", "ksys_read", 0xc, plan.Jump, 4},
	{"riscv64", "__riscv_sys_getppid", 0x8, plan.Quiesced, 6},
	{"riscv64", "ksys_read", 0x8, plan.Quiesced, 6},
}

func TestSearchCheap(t *testing.T) {
	for _, c := range smoke {
		k := ktexttest.Load(t, c.arch)
		x := k.Text(t)
		req := request(x, c.function, 0)
		req.NoSpill = true
		if c.mechanism == plan.Springboard { // never the best there is
			req.Mechanism = c.mechanism
		}
		p, r := plan.Search(x, req)
		if r != nil {
			t.Errorf("%s %s: %v", c.arch, c.function, r)
			continue
		}
		if p.Offset != c.at || p.Mechanism != c.mechanism || p.Added != c.added || p.Spilled != 0 {
			t.Errorf("%s %s+%#x: %v, %d added, %d spilled; want +%#x, %v, %d",
				c.arch, c.function, uint64(p.Offset), p.Mechanism, p.Added, p.Spilled, uint64(c.at), c.mechanism, c.added)
		}
		if _, used, _ := req.Heap.Usage(); used != 1 {
			t.Errorf("%s: %d lines of the heap taken", c.arch, used)
		}
	}
}

// TestSurvey plans every instruction of the recorded text. Whatever is planned
// passes its check, is cheap, and can be sent as JSON; planning is repeatable.
func TestSurvey(t *testing.T) {
	// Without what instructions become longer by, and without the way back.
	added := map[string][]int{"amd64": {2, 4}, "arm64": {3, 5}, "riscv64": {4, 9}}
	back := map[string]int{"amd64": 1, "arm64": 1, "riscv64": 2}
	for _, arch := range ktexttest.Arches {
		x := ktexttest.Load(t, arch).Text(t)
		planned, refused := 0, map[plan.Reason]int{}
		x.Functions("", func(f ktext.Func) bool {
			if strings.HasPrefix(f.Name, "gap") || f.Size == 0 {
				return true
			}
			seen := 0
			plan.Survey(x, f, request(x, "", 0), func(off isa.Off, p *plan.Plan, r *plan.Refusal) bool {
				seen++
				if (p == nil) == (r == nil) {
					t.Fatalf("%v+%#x: plan %v and refusal %v", f, uint64(off), p, r)
				}
				if r != nil {
					refused[r.Reason]++
					if r.Detail == "" || r.Reason == plan.ReasonInvalid {
						t.Errorf("%v+%#x: %v", f, uint64(off), r)
					}
					return true
				}
				planned++
				if err := p.Check(x.Arch); err != nil {
					t.Error(err)
				}
				want := added[arch][min(p.Spilled, len(added[arch])-1)] + longer(t, x.Arch, p)
				// One jump more, or the cell's address not formed by the first instruction.
				if p.Mechanism == plan.Springboard && !p.Board.Whole || arch == "riscv64" && p.Lead > 0 && p.Spilled == 0 {
					want++
				}
				if arch == "riscv64" && p.Mechanism == plan.Trap { // instead of auipc and jr
					want--
				}
				falls := !p.Displaced[len(p.Displaced)-1].Flow.Ends()
				if falls {
					want += back[arch]
				}
				if p.Home { // a breakpoint
					want--
				}
				if arch == "riscv64" && p.Board != nil && p.Board.Whole { // a jump there, auipc, amoadd, a jump back
					want = 3 + longer(t, x.Arch, p)
					if falls {
						want++
					}
				}
				if p.Added != want {
					t.Errorf("%v+%#x: %d added with %d spilled, not %d", f, uint64(off), p.Added, p.Spilled, want)
				}
				again, _ := plan.At(x, f, withOffset(request(x, "", 0), off))
				if !reflect.DeepEqual(p, again) {
					t.Errorf("%v+%#x: planned twice, differs", f, uint64(off))
				}
				throughJSON(t, p)
				return seen < 200
			})
			return true
		})
		if planned < 50 || len(refused) < 2 {
			t.Errorf("%s: %d planned, refused %v: too few to mean anything", arch, planned, refused)
		}
	}
}

// longer is how many instructions more the displaced ones are in the patch.
func longer(t *testing.T, arch *isa.Arch, p *plan.Plan) (n int) {
	t.Helper()
	at, from := p.Patch+isa.Addr(p.Start), p.Original
	for k, i := range p.Displaced {
		m, err := arch.Move(i, from, at, p.Free[k])
		if err != nil {
			t.Fatal(err)
		}
		n, at, from = n+m.Insns-1, at+isa.Addr(len(m.Code)), from[i.Len:]
	}
	return n
}

func withOffset(r plan.Request, off isa.Off) plan.Request {
	r.Offset = off
	return r
}

func throughJSON(t *testing.T, p *plan.Plan) {
	t.Helper()
	b, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	var back plan.Plan
	if err := json.Unmarshal(b, &back); err != nil || !reflect.DeepEqual(*p, back) {
		t.Errorf("%s came back as %+v, %v", b, back, err)
	}
}

// TestSealed: what boot has left of a landing pad stays, for the kernel looks for it.
func TestSealed(t *testing.T) {
	x := ktexttest.Load(t, "amd64").Text(t)
	if p, r := plan.Point(x, request(x, "ksys_write", 0)); r == nil || r.Reason != plan.ReservedText || r.Class != "landing pad" {
		t.Errorf("%+v, %v", p, r)
	}
	for _, find := range []func(*ktext.Text, plan.Request) (*plan.Plan, *plan.Refusal){plan.Search, plan.Entry} {
		if p, r := find(x, request(x, "ksys_write", 0)); r != nil || p.Offset == 0 {
			t.Errorf("%+v, %v", p, r)
		}
	}
}

// TestRefusals asks for one point of each kind.
func TestRefusals(t *testing.T) {
	for _, c := range []struct {
		arch, function string
		off            isa.Off
		change         func(*plan.Request)
		want           plan.Reason
		in             string
	}{
		{"amd64", "no_such", 0, nil, plan.NoSuchFunction, "no function no_such"},
		{"amd64", "ksys_read", 0xffff, nil, plan.OutsideFunction, "offset 0xffff"},
		{"amd64", "ksys_read", 0x3a, nil, plan.InsideInstruction, "one starts at +0x39, the next at +0x41"},
		{"amd64", "ksys_read", 4, nil, plan.ReservedText, "ftrace"},
		{"amd64", "__pfx_ksys_read", 0, nil, plan.ReservedText, "padding"},
		{"amd64", "ksys_read", 0x39, func(r *plan.Request) { r.Mechanism, r.Features.NoTraps = plan.Trap, true }, plan.UnsupportedMechanism, "trap"},
		{"amd64", "ksys_read", 0x39, func(r *plan.Request) { r.Mechanism, r.Without = plan.Trap, []plan.Mechanism{plan.Trap} }, plan.UnsupportedMechanism, "forbidden"},
		{"amd64", "ksys_read", 0x39, func(r *plan.Request) { r.Heap = nil }, plan.OutOfReach, "no patch memory"},
		{"amd64", "ksys_read", 0x39, func(r *plan.Request) { r.Heap = far() }, plan.OutOfReach, "no free slot"},
		{"amd64", "ksys_read", 0x39, func(r *plan.Request) {
			r.Taken, r.Mechanism = func(lo, hi isa.Addr) bool { return hi-lo == 8 }, plan.Jump
		}, plan.AlreadySpliced, "live splice"},
		{"amd64", "ksys_write", 0xb, func(r *plan.Request) { r.Mechanism = plan.Jump }, plan.TooShort, "a jump needs 5"},
		{"amd64", "ksys_write", 0x10, func(r *plan.Request) { r.Mechanism = plan.Springboard }, plan.TooShort, "is 1 bytes"},
		{"amd64", "vfs_read", 0x1c0, func(r *plan.Request) {
			r.Mechanism, r.Without = plan.Springboard, []plan.Mechanism{plan.Quiesced}
		}, plan.NoSpringboard, "no padding lies within"},
		{"amd64", "ksys_write", 0xb, func(r *plan.Request) { r.Heap = nil }, plan.OutOfReach, "no patch memory"},
		{"amd64", "ksys_write", 0xb, func(r *plan.Request) { r.Heap = far() }, plan.OutOfReach, "no free slot"},
		{"amd64", "ksys_write", 0xb, func(r *plan.Request) {
			r.Taken, r.Mechanism = func(lo, hi isa.Addr) bool { return hi-lo == 5 }, plan.Springboard
			r.Without = []plan.Mechanism{plan.Quiesced}
		}, plan.NoSpringboard, "no room"},
		{"arm64", "ksys_read", 0x20, func(r *plan.Request) { r.Mechanism = plan.Springboard }, plan.UnsupportedMechanism, "springboard"},
		{"arm64", "ksys_read", 0x20, func(r *plan.Request) { r.Features.LSE, r.Snippet = false, snippet.Poisoned() }, plan.NoAtomics, "FEAT_LSE"},
		{"arm64", "ksys_read", 0x22, nil, plan.InsideInstruction, "one starts at +0x20"},
		{"arm64", "ksys_read", 0x8, nil, plan.ReservedText, "landing pad"},
		{"arm64", "__arm64_sys_getppid", 0x30, func(r *plan.Request) { r.NoSpill = true }, plan.NeedsSpill, "1 registers"},
		{"riscv64", "ksys_read", 0xe, func(r *plan.Request) { r.Features.NoWindows, r.Features.NoTraps = true, true }, plan.UnsupportedMechanism, "preempted"},
		{"riscv64", "ksys_read", 0xe, func(r *plan.Request) { r.Mechanism = plan.Jump }, plan.UnsupportedMechanism, "jump"},
		{"riscv64", "ksys_read", 0, nil, plan.ReservedText, "ftrace"},
	} {
		x := ktexttest.Load(t, c.arch).Text(t)
		req := request(x, c.function, c.off)
		if c.change != nil {
			c.change(&req)
		}
		p, r := plan.Point(x, req)
		if r == nil {
			t.Errorf("%s %s+%#x was planned: %+v", c.arch, c.function, uint64(c.off), p)
			continue
		}
		if r.Reason != c.want || !strings.Contains(r.Detail, c.in) {
			t.Errorf("%s %s+%#x: %v; want %v with %q", c.arch, c.function, uint64(c.off), r, c.want, c.in)
		}
		if req.Heap != nil {
			if _, used, _ := req.Heap.Usage(); used != 0 {
				t.Errorf("%s %s+%#x: the refusal took %d lines", c.arch, c.function, uint64(c.off), used)
			}
		}
	}
}

func far() *place.Heap {
	h := &place.Heap{}
	h.Add(place.NewArea(1, 0x10000, 0x10000+4096, 4096))
	return h
}

// TestSpringboards: what is too short for a jump takes a springboard until there is
// no room for another. Each has bytes of its own, and what is forced is forced. Nothing is
// moved away where windows are forbidden.
func TestSpringboards(t *testing.T) {
	x := ktexttest.Load(t, "amd64").Text(t)
	req := request(x, "ksys_write", 0)
	req.Without = []plan.Mechanism{plan.Quiesced}
	var made []*plan.Plan
	req.Taken = func(lo, hi isa.Addr) bool {
		for _, p := range made {
			if p.Touches(lo, hi) {
				return true
			}
		}
		return false
	}
	offsets, r := plan.Offsets(x, plan.Request{Function: "ksys_write"}, plan.EachInstruction)
	if r != nil {
		t.Fatal(r)
	}
	full, whole := 0, 0
	for _, off := range offsets {
		req.Offset, req.Mechanism = off, plan.Jump
		p, r := plan.Point(x, req)
		if r != nil || off > 0x40 && off < 0xa0 {
			req.Mechanism = plan.Springboard
			p, r = plan.Point(x, req)
		}
		if r != nil {
			full += strings.Count(r.Detail, "have no room for another springboard")
			continue
		}
		if (p.Board != nil) != (p.Mechanism == plan.Springboard) || p.Board == nil && (len(p.New) < 5 || req.Mechanism != plan.Jump) {
			t.Errorf("+%#x: %v of %d bytes, springboard %v", uint64(off), p.Mechanism, p.Displaced[0].Len, p.Board)
		}
		if p.Board != nil && (len(p.New) != p.Displaced[0].Len || strings.Trim(string(p.New[2:]), "\xcc") != "" || strings.Trim(string(p.Board.Old), "\x90") != "") {
			t.Errorf("+%#x: %x to a springboard on %x", uint64(off), p.New, p.Board.Old)
		}
		for _, q := range made {
			if p.Board != nil && q.Touches(p.Board.Addr, p.Board.End()) {
				t.Errorf("+%#x and +%#x share a springboard", uint64(off), uint64(q.Offset))
			}
		}
		if p.Board != nil && p.Board.Whole {
			whole++
		}
		made = append(made, p)
	}
	// Four gaps are in reach, with room for a copy of a patch or for three jumps, one
	// of them from its end only.
	if n := req.Heap.Boards(); n != 9 || whole != 1 || full == 0 {
		t.Errorf("%d springboards, %d of them copies, %d points without room", n, whole, full)
	}
}

// TestCopyLeavesRoom: a patch is copied into padding only while another gap in reach
// has room for a jump.
func TestCopyLeavesRoom(t *testing.T) {
	x := ktexttest.Load(t, "amd64").Text(t)
	req := request(x, "ksys_write", 0x9)
	plain, r := plan.Point(x, req)
	if r != nil || !plain.Board.Whole || plain.Added != 3 {
		t.Fatal(plain, r)
	}
	req = request(x, "ksys_write", 0x9)
	req.Taken = func(lo, hi isa.Addr) bool { // all but that gap
		return lo != plain.Point && (lo < plain.Board.Addr || hi > plain.Board.Addr+16)
	}
	p, r := plan.Point(x, req)
	if r != nil || p.Board.Whole || p.Added != 4 {
		t.Error(p, r)
	}
}

// edited is the recorded kernel with a function overwritten from an offset.
func edited(t *testing.T, arch, function string, off isa.Off, code string) *ktext.Text {
	t.Helper()
	k := ktexttest.Load(t, arch)
	x := k.Text(t)
	f, err := x.Function("", function)
	if err != nil {
		t.Fatal(err)
	}
	k.Write(f.Addr+isa.Addr(off), []byte(code))
	return k.Text(t)
}

// TestEditedText changes one thing near a point that is fine and expects the
// reason that it now has.
func TestEditedText(t *testing.T) {
	const (
		cj     = "\x01\xa0"         // riscv64 c.j .
		lr     = "\x2f\x35\x05\x10" // lr.d a0, (a0)
		jrT1   = "\x02\x83"         // c.jr t1
		csrr   = "\x73\x25\x00\x10" // csrr a0, sstatus
		badAmd = "\x06"
		stiAmd = "\x90\x90\xfb"
		ldxr   = "\x20\x7c\x5f\xc8"
		ud2    = "\x0f\x0b"
	)
	for _, c := range []struct {
		name, arch, function string
		point, at            isa.Off
		code                 string
		want                 plan.Reason
	}{
		{"point jumps", "riscv64", "__riscv_sys_getppid", 8, 8, cj, plan.TooShort},
		{"window jumps", "riscv64", "__riscv_sys_getppid", 8, 0xa, cj, plan.TooShort},
		{"jump into window", "riscv64", "__riscv_sys_getppid", 8, 0x1a, "\xdd\xbf\xfd\xb7", plan.TargetInWindow},
		{"system instruction in window", "riscv64", "__riscv_sys_getppid", 8, 0xa, csrr, plan.PrivilegedInsn},
		{"exclusive in window", "riscv64", "__riscv_sys_getppid", 8, 0xa, lr, plan.ExclusiveSequence},
		{"after an exclusive load", "riscv64", "ksys_read", 0xe, 8, lr, plan.ExclusiveSequence},
		{"indirect jump", "riscv64", "__riscv_sys_getppid", 8, 0x1c, jrT1, plan.IndirectJump},
		{"unknown before the point", "amd64", "ksys_read", 0x39, 0x20, badAmd, plan.Undecodable},
		{"shadow", "amd64", "ksys_read", 0x39, 0x36, stiAmd, plan.PrivilegedInsn},
		{"exclusive before", "arm64", "ksys_read", 0x20, 0x1c, ldxr, plan.ExclusiveSequence},
		{"trap at the point", "amd64", "ksys_read", 0x39, 0x39, ud2, plan.ReservedText},
	} {
		x := edited(t, c.arch, c.function, c.at, c.code)
		req := request(x, c.function, c.point)
		if c.arch == "riscv64" { // what a window must not hold, one instruction may be
			req.Mechanism = plan.Quiesced
		}
		if c.name == "jump into window" {
			req.Offset = 0xa // windows from here hold the target at +0x10, from before that at +0xa
		}
		p, r := plan.Point(x, req)
		switch {
		case r == nil:
			t.Errorf("%s: planned at +%#x", c.name, uint64(p.Offset))
		case r.Reason != c.want:
			t.Errorf("%s: %v; want %v", c.name, r, c.want)
		}
	}
}

// TestNameless: what begins where functions do, behind what control does not go on from, may be the ftrace site of a
// function that has no symbol; elsewhere such a nop is one like any other.
func TestNameless(t *testing.T) {
	const nop5, from, at = "\x0f\x1f\x44\x00\x00", 0x36, 0x40 // an instruction begins at from
	for name, c := range map[string]struct {
		ends, filler string
		at           isa.Off
		site         bool
	}{
		"behind a return":      {"\xc3", "\xcc", at, true},
		"and filler":           {"\xc3", "\x90", at, true},
		"not behind one":       {"\x90", "\x90", at, false},
		"behind a condition":   {"\x74\x00", "\x90", at, false},
		"where nothing begins": {"\xc3", "\xcc", at + 4, false},
	} {
		before := c.ends + strings.Repeat(c.filler, int(c.at)-from-len(c.ends))
		x := edited(t, "amd64", "ksys_read", from, before+nop5)
		_, r := plan.Point(x, request(x, "ksys_read", c.at))
		if got := r != nil && strings.Contains(r.Detail, "a function without a symbol"); got != c.site {
			t.Errorf("%s: %v", name, r)
		}
	}
}

// TestLead: a window may begin before its point, if control comes to the point only
// from there. The snippet runs where the point was.
func TestLead(t *testing.T) {
	const (
		toTen  = "\xdd\xbf" // at +0x1a: c.j to +0x10
		toA    = "\xfd\xb7" // at +0x1c: c.j to +0xa
		branch = "\x11\xc1" // c.beqz a0, +4
	)
	for _, c := range []struct {
		name string
		at   isa.Off
		code string
		want bool
	}{
		{"jump behind the point", 0x1a, toTen, true},
		{"jump to the point", 0x1a, toTen + toA, false},
		{"a branch before the point", 0x8, branch, false},
	} {
		k := ktexttest.Load(t, "riscv64")
		f, err := k.Text(t).Function("", "__riscv_sys_getppid")
		if err != nil {
			t.Fatal(err)
		}
		k.Write(f.Addr+0x1a, []byte(toTen))
		k.Write(f.Addr+isa.Addr(c.at), []byte(c.code))
		x := k.Text(t)
		req := request(x, f.Name, 0xa)
		req.Without = []plan.Mechanism{plan.Trap}
		p, r := plan.Point(x, req)
		if (r == nil) != c.want {
			t.Errorf("%s: %+v, %v", c.name, p, r)
			continue
		}
		if r != nil {
			continue
		}
		if p.Lead != 1 || p.Offset != 0xa || p.Point != f.Addr+8 || p.At() != f.Addr+0xa || p.Back != f.Addr+0x10 {
			t.Errorf("%s: %+v", c.name, p)
		}
		for name, spoil := range map[string]func(*plan.Plan){
			"none":        func(p *plan.Plan) { p.Lead = 0 },
			"all":         func(p *plan.Plan) { p.Lead = len(p.Displaced) },
			"another":     func(p *plan.Plan) { p.Lead++ },
			"first byte":  func(p *plan.Plan) { p.Code = flip(p.Code, 0) },
			"ends before": func(p *plan.Plan) { p.Start-- },
			"may fault":   func(p *plan.Plan) { p.Fault = p.Patch + isa.Addr(p.Start) },
		} {
			q := *p
			spoil(&q)
			if q.Check(x.Arch) == nil {
				t.Errorf("%s: not noticed", name)
			}
		}
	}
}

// TestSites marks points of the recorded tables: a fault entry and a static key
// refuse the point, and both end the search for an overwriting instruction.
func TestSites(t *testing.T) {
	for _, arch := range ktexttest.Arches {
		x := ktexttest.Load(t, arch).Text(t)
		got := map[plan.Reason]int{}
		x.Functions("", func(f ktext.Func) bool {
			if strings.HasPrefix(f.Name, "gap") {
				return true
			}
			plan.Survey(x, f, request(x, "", 0), func(off isa.Off, p *plan.Plan, r *plan.Refusal) bool {
				res, site, err := x.Site(f.Addr+isa.Addr(off), f.Addr+isa.Addr(off)+1)
				if err != nil {
					t.Fatal(err)
				}
				if site && r == nil {
					t.Errorf("%s: %v+%#x is a %v and was planned", arch, f, uint64(off), res.Class)
				}
				if site && r != nil {
					got[r.Reason]++
				}
				return true
			})
			return true
		})
		if got[plan.MayFault]+got[plan.PrivilegedInsn] < 2 || got[plan.ReservedText] < 4 {
			t.Errorf("%s: sites refused %v", arch, got)
		}
	}
}

// other is a springboard where p has none, and none where it has one.
func other(p *plan.Plan) *plan.Board {
	if p.Board != nil {
		return nil
	}
	return &plan.Board{Addr: p.Point - 64, Old: p.Old, New: p.New}
}

// TestCheckCatchesBoard breaks each field of a good springboard.
func TestCheckCatchesBoard(t *testing.T) {
	x := ktexttest.Load(t, "amd64").Text(t)
	req := request(x, "ksys_write", 0xb)
	req.Snippet = snippet.Poisoned() // too long for a copy
	good, r := plan.Point(x, req)
	if r != nil || good.Board == nil || good.Board.Whole {
		t.Fatal(good, r)
	}
	for name, spoil := range map[string]func(*plan.Plan, *plan.Board){
		"moved":            func(_ *plan.Plan, b *plan.Board) { b.Addr++ },
		"leads elsewhere":  func(_ *plan.Plan, b *plan.Board) { b.New = flip(b.New, 2) },
		"does not jump":    func(_ *plan.Plan, b *plan.Board) { b.New = flip(b.New, 0) },
		"cut":              func(_ *plan.Plan, b *plan.Board) { b.New, b.Old = b.New[:4], b.Old[:4] },
		"more than a jump": func(_ *plan.Plan, b *plan.Board) { b.New, b.Old = append(b.New, 0x90), append(b.Old, 0x90) },
		"old too short":    func(_ *plan.Plan, b *plan.Board) { b.Old = b.Old[1:] },
		"empty":            func(_ *plan.Plan, b *plan.Board) { b.Old, b.New = nil, nil },
		"point elsewhere":  func(p *plan.Plan, _ *plan.Board) { p.New = flip(p.New, 1) },
		"on the point": func(p *plan.Plan, b *plan.Board) {
			b.Addr = p.Point + 2
			p.New = []byte{0xeb, 0}
			isa.ByteOrder.PutUint32(b.New[1:], uint32(p.Patch-b.End()))
		},
	} {
		p, b := *good, *good.Board
		b.Old, b.New = append([]byte(nil), b.Old...), append([]byte(nil), b.New...)
		p.Board = &b
		spoil(&p, &b)
		if err := p.Check(x.Arch); err == nil {
			t.Errorf("%s: not noticed", name)
		}
	}
}

// TestCheckCatchesCopy spoils each byte of a good copy of a patch, and what it says of
// itself.
func TestCheckCatchesCopy(t *testing.T) {
	x := ktexttest.Load(t, "amd64").Text(t)
	good, r := plan.Point(x, request(x, "ksys_write", 0xb))
	if r != nil || good.Board == nil || !good.Board.Whole {
		t.Fatal(good, r)
	}
	for k := range good.Board.New {
		for _, bit := range []byte{1, 0x40} {
			p, b := *good, *good.Board
			b.New = append([]byte(nil), b.New...)
			b.New[k] ^= bit
			p.Board = &b
			if err := p.Check(x.Arch); err == nil {
				t.Errorf("byte %d: not noticed", k)
			}
		}
	}
	for name, spoil := range map[string]func(*plan.Board){
		"moved":  func(b *plan.Board) { b.Addr++ },
		"jump":   func(b *plan.Board) { b.Whole = false },
		"start":  func(b *plan.Board) { b.Start++ },
		"longer": func(b *plan.Board) { b.New, b.Old = append(b.New, 0x90), append(b.Old, 0x90) },
	} {
		p, b := *good, *good.Board
		b.Old, b.New = append([]byte(nil), b.Old...), append([]byte(nil), b.New...)
		p.Board = &b
		spoil(&b)
		if err := p.Check(x.Arch); err == nil {
			t.Errorf("%s: not noticed", name)
		}
	}
}

// TestCheckCatchesFault: what may fault is the first that is displaced, as it is, in no
// copy of a patch and behind nothing that leads up to it.
func TestCheckCatchesFault(t *testing.T) {
	for _, c := range []struct {
		arch, function string
		at             isa.Off
		want           string // of the error; empty: it is fine
	}{
		{"amd64", "ksys_read", 0x39, ""},
		{"amd64", "ksys_write", 0xb, "may fault"},        // a copy lies in padding, which has no fixup
		{"amd64", "__x64_sys_getppid", 0xf, "may fault"}, // its operand is rip-relative: it is another in the patch
	} {
		x := ktexttest.Load(t, c.arch).Text(t)
		p, r := plan.Point(x, request(x, c.function, c.at))
		if r != nil {
			t.Fatal(r)
		}
		p.Fault = p.Patch + isa.Addr(p.Start)
		switch err := p.Check(x.Arch); {
		case c.want == "" && err != nil, c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s %s+%#x: %v", c.arch, c.function, uint64(c.at), err)
		}
	}
}

// TestCheckCatches breaks each field of a good plan.
func TestCheckCatches(t *testing.T) {
	for _, c := range smoke {
		x := ktexttest.Load(t, c.arch).Text(t)
		good, r := plan.Point(x, request(x, c.function, c.at))
		if r != nil {
			t.Fatal(r)
		}
		for name, spoil := range map[string]func(*plan.Plan){
			"old too short": func(p *plan.Plan) { p.Old = p.Old[1:] },
			"old differs":   func(p *plan.Plan) { p.Old = flip(p.Old, 0) },
			"new differs":   func(p *plan.Plan) { p.New = flip(p.New, len(p.New)-1) },
			"patch moved":   func(p *plan.Plan) { p.Patch += place.Line },
			"patch askew":   func(p *plan.Plan) { p.Patch += 4 },
			"cell askew":    func(p *plan.Plan) { p.Cell++ },
			"code cut":      func(p *plan.Plan) { p.Code = p.Code[:len(p.Code)-2] },
			"code longer":   func(p *plan.Plan) { p.Code = append(append([]byte(nil), p.Code...), p.Code[len(p.Code)-8:]...) },
			"back moved":    func(p *plan.Plan) { p.Back += 2 },
			"point moved":   func(p *plan.Plan) { p.Point += 4 },
			"window":        func(p *plan.Plan) { p.Window = !p.Window },
			"displaced":     func(p *plan.Plan) { p.Displaced = nil },
			"lead":          func(p *plan.Plan) { p.Lead = 1 - p.Lead },
			"lead below":    func(p *plan.Plan) { p.Lead = -1 },
			"no bytes":      func(p *plan.Plan) { p.Old, p.New = nil, nil },
			"mechanism":     func(p *plan.Plan) { p.Mechanism ^= plan.Jump | plan.Springboard },
			"board or none": func(p *plan.Plan) { p.Board = other(p) },
			"fault":         func(p *plan.Plan) { p.Fault = p.Patch + isa.Addr(p.Start) + 4 },
		} {
			p := *good
			spoil(&p)
			if err := p.Check(x.Arch); err == nil {
				t.Errorf("%s %s: %s: not noticed", c.arch, c.function, name)
			}
		}
	}
}

func flip(b []byte, k int) []byte {
	out := append([]byte(nil), b...)
	out[k] ^= 0x40
	return out
}

func TestWords(t *testing.T) {
	for m := plan.MechanismInvalid + 1; m <= plan.Trap; m++ {
		if got, ok := plan.ParseMechanism(m.String()); !ok || got != m {
			t.Errorf("%v parses as %v, %v", m, got, ok)
		}
	}
	if m, ok := plan.ParseMechanism("invalid"); ok {
		t.Errorf("invalid parses as %v", m)
	}
	seen := map[string]bool{}
	for r := plan.ReasonInvalid; r <= plan.MemoryFull; r++ {
		if s := r.String(); s == "" || seen[s] || strings.HasPrefix(s, "reason(") {
			t.Errorf("reason %d is %q", r, s)
		} else {
			seen[s] = true
		}
	}
}

// TestDeadEndsAtSite overwrites two registers behind a static key: they are
// not free before it, since the key may become a jump.
func TestDeadEndsAtSite(t *testing.T) {
	const block = "\x1f\x20\x03\xd5" + "\x1f\x20\x03\xd5" + "\x10\x00\x80\xd2" + "\x11\x00\x80\xd2" // nop nop mov x16 mov x17
	k := ktexttest.Load(t, "arm64")
	x := k.Text(t)
	var site isa.Addr
	lo, hi := x.Bounds()
	for a := lo; a < hi && site == 0; a += 4 {
		if r, ok, err := x.Site(a, a+4); err != nil {
			t.Fatal(err)
		} else if ok && r.Class == ktext.StaticKey {
			site = a
		}
	}
	for _, c := range []struct {
		point   isa.Addr
		spilled int
	}{{site - 4, 1}, {site + 4, 0}} {
		k.Write(site-4, []byte(block))
		f, ok := x.Locate(c.point)
		if !ok {
			t.Fatal("no function at the site")
		}
		p, r := plan.At(x, f, request(x, "", isa.Off(c.point-f.Addr)))
		if r != nil {
			t.Fatal(r)
		}
		if p.Spilled != c.spilled {
			t.Errorf("%v beside the site at %v saves %d registers, want %d", c.point, site, p.Spilled, c.spilled)
		}
	}
}

// TestFarTailCall: auipc and jr through one register is a direct jump.
func TestFarTailCall(t *testing.T) {
	x := edited(t, "riscv64", "__riscv_sys_getppid", 0x18, "\x17\x03\x00\x00"+"\x67\x00\x03\x00") // auipc t1; jr t1
	if p, r := plan.Point(x, request(x, "__riscv_sys_getppid", 8)); r != nil {
		t.Errorf("%+v, %v", p, r)
	}
}

// TestColdHalf: the cold half of a function that jumps indirectly may be
// entered through the same table.
func TestColdHalf(t *testing.T) {
	for _, indirect := range []bool{false, true} {
		k := ktexttest.Load(t, "riscv64")
		f, err := k.Text(t).Function("", "vfs_read")
		if err != nil {
			t.Fatal(err)
		}
		if indirect {
			k.Write(f.Addr+0x40, []byte("\x02\x83"))
		}
		k.Kallsyms = strings.Replace(k.Kallsyms, " ksys_read\n", " vfs_read.cold\n", 1)
		x := k.Text(t)
		req := request(x, "vfs_read.cold", 0xe)
		req.Mechanism = plan.Quiesced
		_, r := plan.Point(x, req)
		if indirect != (r != nil) || r != nil && (r.Reason != plan.IndirectJump || !strings.Contains(r.Detail, "vfs_read jumps")) {
			t.Errorf("indirect jump %v: %v", indirect, r)
		}
	}
}

// Planning one point of a known kernel, the release of its slot included.
func BenchmarkSearch(b *testing.B) {
	for _, c := range smoke {
		b.Run(c.arch+"/"+c.function, func(b *testing.B) {
			x := ktexttest.Load(b, c.arch).Text(b)
			req := request(x, c.function, 0)
			for b.Loop() {
				p, r := plan.Search(x, req)
				if r != nil {
					b.Fatal(r)
				}
				req.Heap.Free(p.Patch, p.Slot)
			}
		})
	}
}

// TestFacts: what is known of a function frees registers beyond those that the
// block overwrites, but never those that no snippet may touch; what cannot be
// known refuses the point.
func TestFacts(t *testing.T) {
	x := ktexttest.Load(t, "arm64").Text(t)
	req := request(x, "__arm64_sys_getppid", 0x30)
	req.NoSpill = true // refused without facts: see above
	asked := 0
	req.Facts = func(f ktext.Func) (plan.Facts, error) {
		asked++
		return plan.Facts{Source: plan.SourceFunction, Free: func(a isa.Addr) isa.RegSet {
			if a < f.Addr || a >= f.End() {
				t.Errorf("asked for %v, outside %v", a, f)
			}
			return x.Arch.All
		}}, nil
	}
	p, r := plan.Point(x, req)
	if r != nil || p.Spilled != 0 || p.Liveness != plan.SourceFunction || asked != 1 {
		t.Fatalf("%+v, %v, asked %d times", p, r, asked)
	}
	for k := 0; k < len(p.Code); k += 4 {
		if i := x.Arch.Decode(p.Code[k:], p.Patch+isa.Addr(k)); i.Writes&x.Arch.NeverUse&^p.Displaced[0].Writes != 0 {
			t.Errorf("%s overwrites %s", x.Arch.Text(p.Code[k:], i.Addr), x.Arch.Names(i.Writes&x.Arch.NeverUse))
		}
	}
	req.Facts = func(ktext.Func) (plan.Facts, error) { return plan.Facts{}, errors.New("it is gone") }
	if _, r := plan.Point(x, req); r == nil || r.Reason != plan.Unreadable || !strings.Contains(r.Detail, "it is gone") {
		t.Errorf("%v", r)
	}
	req.Facts, req.NoSpill = nil, false
	if p, r := plan.Point(x, req); r != nil || p.Spilled == 0 || p.Liveness != plan.SourceBlock {
		t.Errorf("without facts: %+v, %v", p, r)
	}
}

// TestKnown: what is kept of functions changes no plan, is asked for once, and is not
// taken for that of another kernel.
func TestKnown(t *testing.T) {
	for _, arch := range []string{"amd64", "arm64", "riscv64"} {
		k := ktexttest.Load(t, arch)
		x := k.Text(t)
		known, asked, padding := &plan.Functions{}, 0, pad.New(x)
		for _, name := range []string{"vfs_read", "ksys_read", "vfs_read"} {
			offs, r := plan.Offsets(x, plan.Request{Function: name}, plan.EachInstruction)
			if r != nil {
				t.Fatal(r)
			}
			for _, off := range offs {
				req := request(x, name, off)
				req.Padding = padding
				req.Facts = func(ktext.Func) (plan.Facts, error) {
					asked++
					return plan.Facts{Source: plan.SourceFunction, Free: func(isa.Addr) isa.RegSet { return 0 }}, nil
				}
				want, wantR := plan.Point(x, req)
				req.Heap = heap(x)
				req.Facts, req.Known = func(ktext.Func) (plan.Facts, error) {
					asked += 1 << 20
					return plan.Facts{Source: plan.SourceFunction, Free: func(isa.Addr) isa.RegSet { return 0 }}, nil
				}, known
				if got, gotR := plan.Point(x, req); !reflect.DeepEqual(got, want) || !reflect.DeepEqual(gotR, wantR) {
					t.Fatalf("%s %s+%#x: %+v, %v; without: %+v, %v", arch, name, uint64(off), got, gotR, want, wantR)
				}
			}
		}
		if often := asked >> 20; often > 2 || often == 0 || asked&(1<<20-1) < 10 {
			t.Errorf("%s: asked %d times of two functions, and %d without", arch, often, asked&(1<<20-1))
		}
		f, err := x.Function("", "vfs_read")
		if err != nil {
			t.Fatal(err)
		}
		k.Write(f.Addr, bytes.Repeat([]byte{0xff}, 64)) // no function begins like that
		now, req := k.Text(t), request(x, "vfs_read", 0x20)
		_, want := plan.Point(now, req)
		req.Known = known
		if _, got := plan.Point(now, req); want == nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: of another kernel: %v, want %v", arch, got, want)
		}
	}
}

// TestAgain: for another batch, what was learnt of a function is used while its bytes are what
// they were, and not behind.
func TestAgain(t *testing.T) {
	for _, arch := range []string{"amd64", "arm64", "riscv64"} {
		k := ktexttest.Load(t, arch)
		x := k.Text(t)
		req, asked := request(x, "vfs_read", 0x20), 0
		req.Facts = func(ktext.Func) (plan.Facts, error) {
			asked++
			return plan.Facts{Source: plan.SourceFunction, Free: func(isa.Addr) isa.RegSet { return 0 }}, nil
		}
		planned := func(known *plan.Functions) (*plan.Plan, *plan.Refusal, *plan.Functions) {
			req.Known, req.Heap = known, heap(x)
			p, r := plan.Search(x, req)
			return p, r, known
		}
		first, r, known := planned((*plan.Functions)(nil).Again())
		again, againR, known := planned(known.Again())
		if r != nil || againR != nil || !reflect.DeepEqual(first, again) || asked != 1 {
			t.Errorf("%s: %+v, %v, then %+v, %v, asked %d times", arch, first, r, again, againR, asked)
		}
		f, err := x.Function("", "vfs_read")
		if err != nil {
			t.Fatal(err)
		}
		k.Write(f.Addr+0x20, bytes.Repeat([]byte{0xff}, 64))
		got, gotR, _ := planned(known.Again())
		want, wantR, _ := planned(nil)
		if !reflect.DeepEqual(got, want) || !reflect.DeepEqual(gotR, wantR) || reflect.DeepEqual(got, first) {
			t.Errorf("%s: behind a change %+v, %v; want %+v, %v", arch, got, gotR, want, wantR)
		}
	}
}

func TestSourceText(t *testing.T) {
	for _, s := range []plan.Source{plan.SourceBlock, plan.SourceFunction, plan.SourceIndex} {
		b, err := s.MarshalText()
		var back plan.Source
		if err != nil || back.UnmarshalText(b) != nil || back != s {
			t.Errorf("%v: %q, %v", s, b, err)
		}
	}
	var s plan.Source
	if err := s.UnmarshalText([]byte("hearsay")); err == nil || !strings.Contains(err.Error(), "block, function") {
		t.Error(err)
	}
}

// TestWithout: what is forbidden is not taken, what was tried before is said.
func TestWithout(t *testing.T) {
	x := ktexttest.Load(t, "amd64").Text(t)
	offsets, r := plan.Offsets(x, plan.Request{Function: "ksys_read"}, plan.EachInstruction)
	if r != nil {
		t.Fatal(r)
	}
	rungs, took := plan.Rungs("amd64"), map[plan.Mechanism]int{}
	for _, off := range offsets {
		req := request(x, "ksys_read", off)
		p, r := plan.Point(x, req)
		if r != nil {
			continue
		}
		took[p.Mechanism]++
		if k := len(p.Passed); k >= len(rungs) || rungs[k] != p.Mechanism {
			t.Errorf("+%#x: %v, and %d of %v are passed over", uint64(off), p.Mechanism, k, rungs)
		}
		for k, was := range p.Passed {
			if was.Mechanism != rungs[k] || was.Refusal == nil || was.Refusal.Detail == "" {
				t.Errorf("+%#x: passed over: %+v", uint64(off), was)
			}
		}
		req.Without = []plan.Mechanism{p.Mechanism}
		q, _ := plan.Point(x, req)
		if q != nil && q.Mechanism == p.Mechanism {
			t.Errorf("+%#x: %v, which is forbidden", uint64(off), q.Mechanism)
		}
		req.Mechanism = p.Mechanism
		if _, r := plan.Point(x, req); r == nil || r.Reason != plan.UnsupportedMechanism {
			t.Errorf("+%#x: asked for and forbidden: %v", uint64(off), r)
		}
	}
	if took[plan.Jump] == 0 || len(took) < 2 {
		t.Errorf("only %v", took)
	}
	req := request(x, "ksys_read", 0)
	req.Without = plan.Ladder("amd64")
	if _, r := plan.Search(x, req); r == nil || r.Reason != plan.UnsupportedMechanism {
		t.Errorf("all are forbidden: %v", r)
	}
}

// TestNoBreakpoints: none stands where tracers run before they look whether they
// trace themselves, nor in what they call there that is not traced, for what handles
// breakpoints is, nor where a CPU that comes cannot handle one yet; nor does a window of
// amd64's, at which one waits.
func TestNoBreakpoints(t *testing.T) {
	for _, c := range []struct {
		arch, function, as string
		mechanism          plan.Mechanism
		refused            bool
	}{
		{"amd64", "ksys_read", "function_trace_call", plan.Trap, true},
		{"amd64", "ksys_read", "function_trace_call", plan.Quiesced, true},
		{"amd64", "ksys_read", "ksys_read", plan.Trap, false},
		{"arm64", "ksys_read", "prepare_ftrace_return", plan.Trap, true},
		{"riscv64", "ksys_read", "ftrace_return_to_handler", plan.Trap, true},
		{"riscv64", "ksys_read", "ftrace_return_to_handler", plan.Quiesced, false}, // all stand still meanwhile
		{"riscv64", "ksys_read", "ksys_read", plan.Trap, false},
		{"riscv64", "ksys_read", "migrate_disable", plan.Trap, true},
		{"riscv64", "ksys_read", "__bpf_prog_exit_recur", plan.Trap, true},
		{"arm64", "ksys_read", "__bpf_prog_enter_recur", plan.Trap, true},
		{"amd64", "ksys_read", "migrate_enable", plan.Quiesced, true},
		{"amd64", "ksys_read", "cr4_init", plan.Trap, true},
		{"amd64", "ksys_read", "cr4_init", plan.Quiesced, true},
		{"amd64", "ksys_read", "cr4_init", plan.Jump, false},
	} {
		k := ktexttest.Load(t, c.arch)
		x, err := ktext.New(k.Arch, strings.NewReader(strings.ReplaceAll(k.Kallsyms, " "+c.function+"\n", " "+c.as+"\n")), k.Read, ktext.Options{})
		if err != nil {
			t.Fatal(err)
		}
		req := request(x, c.as, 0x10)
		req.Mechanism = c.mechanism
		_, r := plan.Search(x, req)
		if met := r != nil && r.Reason == plan.Recursion; met != c.refused {
			t.Errorf("%s: %s as %s, by %v: %v", c.arch, c.function, c.as, c.mechanism, r)
		}
	}
}

// TestNoBreakpointsBehindCalls: nor does one stand in what is called or jumped to there, also by two instructions, of which
// the first is not a jump, and only both tell where they lead.
func TestNoBreakpointsBehindCalls(t *testing.T) {
	const x1, x6 = isa.Reg(1), isa.Reg(6)
	var (
		before = []byte("\x13\x05\x15\x00")                         // addi a0,a0,1
		ret    = []byte("\x82\x80")                                 // ret
		body   = []byte("\x03\x35\x05\x00\x0c\x61\x2e\x95\x82\x80") // ld a0,0(a0), ld a1,0(a0), add a0,a0,a1, ret
	)
	for name, way := range map[string]func(from, to isa.Addr) ([]byte, error){
		"call":     func(from, to isa.Addr) ([]byte, error) { return riscv64.FarCall(x1, from, to) },
		"far jump": func(from, to isa.Addr) ([]byte, error) { return riscv64.FarJump(x6, from, to) },
		"jump":     riscv64.Jump,
	} {
		for _, behind := range []bool{true, false} {
			k := ktexttest.Load(t, "riscv64")
			_, hi := k.Text(t).Bounds()
			caller, called, other := hi-128, hi-96, hi-64
			to := other
			if behind {
				to = called
			}
			there, err := way(caller+isa.Addr(len(before)), to)
			if err != nil {
				t.Fatal(err)
			}
			k.Add("function_trace_call", caller, slices.Concat(before, there, ret))
			k.Add("called", called, body)
			k.Add("other", other, body)
			x := k.Text(t)
			req := request(x, "called", 0)
			req.Mechanism = plan.Trap
			_, r := plan.Search(x, req)
			if met := r != nil && r.Reason == plan.Recursion; met != behind {
				t.Errorf("%s by what traces, to it %v: %v", name, behind, r)
			}
		}
	}
}

// TestLockPrefix: where the kernel took a lock prefix away that it would put back when a CPU
// comes, nothing is spliced, unless none can come.
func TestLockPrefix(t *testing.T) {
	k := ktexttest.Load(t, "amd64")
	_, hi := k.Text(t).Bounds()
	at := hi - 64
	k.Add("unlocked", at, []byte("\x48\x89\xf8\x3e\x48\xff\x80\x10\x00\x00\x00\x31\xc0\xc3")) // mov, ds incq 16(%rax), xor, ret
	for one, want := range map[bool]string{false: "lock prefix", true: ""} {
		x := k.TextWith(t, k.Read, ktext.Options{OneCPU: one})
		p, r := plan.Point(x, request(x, "unlocked", 3))
		if said := ""; r != nil {
			if said = r.Class; said != want {
				t.Errorf("one CPU %v: %v; want %q", one, r, want)
			}
		} else if want != "" || p.Mechanism != plan.Jump {
			t.Errorf("one CPU %v: %v; want %q", one, p.Mechanism, want)
		}
	}
}
