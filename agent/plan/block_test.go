package plan_test

import (
	"slices"
	"testing"

	"kerninst/agent/isa"
	"kerninst/agent/ktext"
	"kerninst/agent/ktext/ktexttest"
	"kerninst/agent/plan"
	"kerninst/agent/snippet"
)

// TestBlock: what only counts stands at the nearest instruction that runs as often, or
// nowhere. ksys_write+0x10 is push, push, sub; all before +0x16 runs as often.
func TestBlock(t *testing.T) {
	argument, err := snippet.Parse("c0 sum\nv0 u64 = arg 0\ncount c0 v0\n")
	if err != nil {
		t.Fatal(err)
	}
	const jumpToIt = "\xeb\xf6" // at +0x18: jmp to +0x10
	for _, c := range []struct {
		name   string
		code   string // at +0x18
		change func(*plan.Request)
		at     isa.Off // where it stands; 0: refused
	}{
		{"nearest", "", nil, 0xe},
		{"its own", "", func(r *plan.Request) { r.Asked = func(isa.Addr) bool { return true } }, 0},
		{"not asked for", "", func(r *plan.Request) { r.Block = false }, 0},
		{"a mechanism is asked for", "", func(r *plan.Request) { r.Mechanism = plan.Jump }, 0},
		{"does not only count", "", func(r *plan.Request) { r.Snippet = argument }, 0},
		{"a jump leads to the point", jumpToIt, nil, 0x11},
	} {
		x := edited(t, "amd64", "ksys_write", 0x18, c.code)
		f, err := x.Function("", "ksys_write")
		if err != nil {
			t.Fatal(err)
		}
		req := request(x, "ksys_write", 0x10)
		req.Block = true
		// The point itself is taken.
		req.Taken = func(lo, hi isa.Addr) bool { return lo <= f.Addr+0x10 && f.Addr+0x10 < hi }
		if c.change != nil {
			c.change(&req)
		}
		p, r := plan.Point(x, req)
		switch {
		case c.at == 0 && r == nil:
			t.Errorf("%s: planned at %v", c.name, p.At())
		case c.at == 0:
		case r != nil:
			t.Errorf("%s: %v", c.name, r)
		case p.At() != f.Addr+isa.Addr(c.at) || p.Offset != 0x10 || p.For != f.Addr+0x10 || p.Asked() != p.For:
			t.Errorf("%s: %v for %v, +%#x", c.name, p.At(), p.For, uint64(p.Offset))
		}
	}
}

// TestBlockLanding: to a landing pad who comes through a register may jump, so it is not
// counted before it.
func TestBlockLanding(t *testing.T) {
	x := edited(t, "amd64", "ksys_write", 0xe, "\xf3\x0f\x1e\xfa") // endbr64
	req := request(x, "ksys_write", 0xe)
	req.Block = true
	p, r := plan.Point(x, req)
	if r != nil {
		t.Fatal(r)
	}
	if p.At() != p.For+4 {
		t.Errorf("what comes by %v is counted at %v", p.For, p.At())
	}
}

// TestBlockEnds: nothing that another may run more or less often is counted instead.
func TestBlockEnds(t *testing.T) {
	for _, arch := range []string{"amd64", "arm64", "riscv64"} {
		x := ktexttest.Load(t, arch).Text(t)
		n := 0
		for _, name := range []string{"ksys_read", "ksys_write", "vfs_read", "vfs_write"} {
			f, err := x.Function("", name)
			if err != nil {
				t.Fatal(err)
			}
			code, err := x.Code(f)
			if err != nil {
				t.Fatal(err)
			}
			var insns []isa.Insn
			for k := 0; k < len(code); k += insns[len(insns)-1].Len {
				insns = append(insns, x.Arch.Decode(code[k:], f.Addr+isa.Addr(k)))
			}
			for _, i := range insns {
				req := request(x, name, isa.Off(i.Addr-f.Addr))
				req.Block = true
				req.Taken = func(lo, hi isa.Addr) bool { return lo <= i.Addr && i.Addr < hi }
				p, r := plan.Point(x, req)
				if r != nil || p.For == 0 {
					continue
				}
				n++
				lo, hi := min(p.For, p.At()), max(p.For, p.At())
				for _, j := range insns {
					if j.Addr >= lo && j.Addr < hi && j.Flow != isa.FlowNone {
						t.Errorf("%v for %v, and %v between them is %v", p.At(), p.For, j.Addr, j.Flow)
					}
					if j.Target > lo && j.Target <= hi && j.Flow != isa.FlowNone {
						t.Errorf("%v for %v, and %v leads to %v", p.At(), p.For, j.Addr, j.Target)
					}
				}
			}
		}
		if n < 20 {
			t.Errorf("%s: %d points counted elsewhere", arch, n)
		}
	}
}

// TestShortJump: a jump of two bytes into a window, from the function or from what lies
// beside it, is seen.
func TestShortJump(t *testing.T) {
	for _, c := range []struct {
		name string
		at   isa.Off
		code string
		want bool
	}{
		{"none", 0, "", true},
		{"from the function", 0x18, "\xeb\xf7", false}, // to +0x11
		{"from padding before it", ^isa.Off(1), "\xeb\x11", false},
		{"from there to the window's begin", ^isa.Off(1), "\xeb\x10", true},
	} {
		x := edited(t, "amd64", "ksys_write", c.at, c.code)
		req := request(x, "ksys_write", 0x10)
		req.Mechanism = plan.Quiesced
		p, r := plan.Point(x, req)
		if (r == nil) != c.want || r != nil && r.Reason != plan.TargetInWindow {
			t.Errorf("%s: %v, %v", c.name, p, r)
		}
	}
}

// TestFiller: what follows a return and is never run is room for a jump, and nothing else.
func TestFiller(t *testing.T) {
	x := ktexttest.Load(t, "amd64").Text(t)
	req := request(x, "ksys_write", 0xa4) // retq, and four int3
	p, r := plan.Point(x, req)
	if r != nil || p.Mechanism != plan.Jump || len(p.Displaced) != 1 || p.Back != p.Point+1 || p.End() != p.Point+5 {
		t.Fatalf("%+v, %v", p, r)
	}
	if p.Writes(p.Point+4, p.Point+5) == false || p.Writes(p.Point+5, p.Point+6) {
		t.Error("what is written ends elsewhere")
	}
	for name, spoil := range map[string]func(*plan.Plan){
		"no trap":     func(p *plan.Plan) { p.Old = flip(p.Old, 3) },
		"no return":   func(p *plan.Plan) { p.Original = []byte{0x50}; p.Old = append([]byte{0x50}, p.Old[1:]...) },
		"other bytes": func(p *plan.Plan) { p.Old = flip(p.Old, 0) },
	} {
		q := *p
		spoil(&q)
		if q.Check(x.Arch) == nil {
			t.Errorf("%s: not noticed", name)
		}
	}
	y := edited(t, "amd64", "ksys_write", 0xa4+3, "\x90")
	if p, r := plan.Point(y, request(y, "ksys_write", 0xa4)); r == nil && p.Mechanism == plan.Jump {
		t.Errorf("planned over what is no trap: %+v", p)
	}
}

// TestFillerBytes: traps behind a return are the jump's, whatever bytes come behind them; bytes
// that only are no text either are not.
func TestFillerBytes(t *testing.T) {
	const ret = "\xc3\xcc\xcc\xcc\xcc"
	for code, want := range map[string]bool{
		ret:                                true,
		ret + "\x90":                       true, // cc 90 were a letter
		ret + "\x8b\x03":                   true,
		ret + "\xff\xd0":                   true,
		"\xc3\xcc\xcc\xcc\xff\xd0":         false,
		"\xc3\xcc\xcc\xe8\x00\x01\x00\x00": false,
		"\xc3\xff\xd0\xff\xd0":             false,
		"\xc3\xcc\xcc\xcc\x8b\x03":         false,
		"\x53\xcc\xcc\xcc\xcc":             false,
	} {
		k, _, req := withHops(t, code, 0)
		req.Mechanism = plan.Jump
		p, r := plan.Point(k.Text(t), req)
		if r == nil != want || r != nil && r.Reason != plan.TooShort {
			t.Errorf("% x: %+v, %v, want a jump: %v", code, p, r, want)
		}
		if p != nil {
			throughJSON(t, p)
		}
	}
}

// TestJumpsKnown: a jump through a register bars windows unless it is known where it leads,
// and then where it leads does.
func TestJumpsKnown(t *testing.T) {
	const jrT1 = "\x02\x83"
	x := edited(t, "riscv64", "__riscv_sys_getppid", 0x1c, jrT1)
	f, err := x.Function("", "__riscv_sys_getppid")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name  string
		known bool
		to    isa.Off
		want  plan.Reason // ReasonInvalid: none
	}{
		{"not known", false, 0, plan.IndirectJump},
		{"to the begin", true, 0x8, plan.ReasonInvalid},
		{"inside", true, 0xa, plan.TargetInWindow},
		{"behind", true, 0x10, plan.ReasonInvalid},
	} {
		req := request(x, f.Name, 0x8)
		req.Mechanism = plan.Quiesced
		req.Facts = func(ktext.Func) (plan.Facts, error) {
			return plan.Facts{
				Source: plan.SourceIndex, Free: func(isa.Addr) isa.RegSet { return isa.Set(6, 7) },
				Jumps: jumps{to: []isa.Addr{f.Addr + isa.Addr(c.to)}, known: c.known},
			}, nil
		}
		p, r := plan.Point(x, req)
		switch {
		case r == nil && c.want != plan.ReasonInvalid:
			t.Errorf("%s: planned: %+v", c.name, p)
		case r != nil && r.Reason != c.want:
			t.Errorf("%s: %v", c.name, r)
		}
	}
}

// TestArgumentsOfTables: where a jump through a register leads may be known; with which arguments is not.
func TestArgumentsOfTables(t *testing.T) {
	const jrT1 = "\x02\x83"
	x := edited(t, "riscv64", "__riscv_sys_getppid", 0x1c, jrT1)
	s := snippet.Snippet{Cells: []snippet.Cell{{Kind: snippet.Sum}}, Code: []snippet.Insn{
		{Op: snippet.Arg, Dst: 0, Type: snippet.U64, N: 1}, {Op: snippet.Count, A: snippet.V(0)}}}
	for _, known := range []bool{false, true} {
		req := request(x, "__riscv_sys_getppid", 0x8)
		req.Known = &plan.Functions{}
		req.Facts = func(f ktext.Func) (plan.Facts, error) {
			return plan.Facts{
				Source: plan.SourceIndex, Free: func(isa.Addr) isa.RegSet { return isa.Set(6, 7, 28, 29, 30) },
				Jumps: jumps{to: []isa.Addr{f.Addr}, known: known},
			}, nil
		}
		asked := req
		asked.Snippet = s
		for _, req := range []plan.Request{asked, req, asked} { // before and after it is learnt where it leads
			p, r := plan.Point(x, req)
			switch {
			case len(req.Snippet.Code) == len(s.Code):
				if r == nil || r.Reason != plan.NoArgument {
					t.Errorf("known %v: %+v, %v", known, p, r)
				}
			case r != nil || (p.Mechanism == plan.Quiesced) != known:
				t.Errorf("known %v, a counter behind who asked for an argument: %+v, %v", known, p, r)
			}
		}
	}
}

// jumps are a function's that lead to some addresses, or anywhere.
type jumps struct {
	to    []isa.Addr
	known bool
}

func (j jumps) Begins(lo, hi isa.Addr) (isa.Addr, bool, bool) {
	for _, a := range j.to {
		if j.known && lo <= a && a < hi {
			return a, true, true
		}
	}
	return 0, false, j.known
}

func (j jumps) Tables() []isa.Addr { return j.to }

// TestBlocksOfJumpTables: what a table leads to is a block, and what only follows a call is none,
// though the index has one begin there.
func TestBlocksOfJumpTables(t *testing.T) {
	const jrT1 = "\x02\x83"
	x := edited(t, "riscv64", "__riscv_sys_getppid", 0x1c, jrT1)
	f, err := x.Function("", "__riscv_sys_getppid")
	if err != nil {
		t.Fatal(err)
	}
	for _, to := range []isa.Off{0xa, 0x10} {
		req := request(x, f.Name, 0)
		req.Known = &plan.Functions{}
		req.Facts = func(ktext.Func) (plan.Facts, error) {
			return plan.Facts{Source: plan.SourceIndex, Free: func(isa.Addr) isa.RegSet { return 0 }, Jumps: jumps{to: []isa.Addr{f.Addr + isa.Addr(to)}, known: true}}, nil
		}
		got, r := plan.OffsetsAt(x, f, req, plan.EachBlock)
		for _, a := range []isa.Off{0xa, 0x10} {
			if slices.Contains(got, a) != (a == to) {
				t.Errorf("a jump leads to +%#x; blocks begin at %#x (%v)", uint64(to), got, r)
			}
		}
	}
}
