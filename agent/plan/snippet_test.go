package plan_test

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"testing"

	"kerninst/agent/isa"
	"kerninst/agent/ktext"
	"kerninst/agent/ktext/ktexttest"
	"kerninst/agent/pad"
	"kerninst/agent/place"
	"kerninst/agent/plan"
	"kerninst/agent/snippet"
)

// predicated counts and traces where an argument is not 3.
func predicated(t *testing.T, arg string) snippet.Snippet {
	t.Helper()
	s, err := snippet.Parse("c0 sum\nc1 ring 16 1\nv0 u64 = arg " + arg + "\nif v0 eq 3 goto 4\ncount c0 1\nappend c1 v0\n4:")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestSnippet: arguments can be had until their register is written or somebody is
// called, wherever in a function that is, and nowhere else.
func TestSnippet(t *testing.T) {
	for _, arch := range ktexttest.Arches {
		x := ktexttest.Load(t, arch).Text(t)
		made, gone := 0, 0
		for _, name := range []string{"vfs_read", "ksys_read", "ksys_write"} {
			f, err := x.Function("", name)
			if err != nil {
				continue
			}
			req := request(x, "", 0)
			req.Snippet = predicated(t, "0")
			r := plan.Survey(x, f, req, func(off isa.Off, p *plan.Plan, r *plan.Refusal) bool {
				switch {
				case r == nil:
					made++
					throughJSON(t, p)
					if p.Slot < 8*req.Snippet.Words() {
						t.Errorf("%s %s+%#x: a slot of %d bytes for %d words", arch, name, uint64(off), p.Slot, req.Snippet.Words())
					}
				case r.Reason == plan.NoArgument:
					gone++
				}
				return true
			})
			if r != nil {
				t.Errorf("%s %s: %v", arch, name, r)
			}
		}
		if made == 0 || gone < made {
			t.Errorf("%s: %d points have the argument, %d do not", arch, made, gone)
		}
	}
}

// TestMemoryFull: plans take patch memory that no other has until there is none left in
// one piece. What is refused then says so and takes nothing, and what is given back can
// be had again.
func TestMemoryFull(t *testing.T) {
	s, err := snippet.Parse("c0 array 1000\nv0 u64 = const 5\nv1 u64 = index c0 0 0 999 v0\ntally c0 v1 0 1")
	if err != nil {
		t.Fatal(err)
	}
	const line = place.Line
	size := (8*s.Words() + line - 1) / line * line // of a slot
	most := 64 << 10 / size
	for _, arch := range ktexttest.Arches {
		x := ktexttest.Load(t, arch).Text(t)
		req := request(x, "vfs_read", 0)
		req.Snippet, req.Padding = s, pad.New(x)
		var made []*plan.Plan
		req.Taken = func(lo, hi isa.Addr) bool {
			return slices.ContainsFunc(made, func(p *plan.Plan) bool { return p.Touches(lo, hi) })
		}
		offsets, r := plan.Offsets(x, plan.Request{Function: "vfs_read"}, plan.EachInstruction)
		if r != nil {
			t.Fatal(r)
		}
		fill := func() string { // what it ends with
			for _, req.Offset = range offsets {
				p, r := plan.Point(x, req)
				if r != nil && r.Reason == plan.MemoryFull {
					return r.Detail
				}
				if r != nil {
					continue
				}
				for _, q := range made {
					if p.Patch < q.Patch+isa.Addr(q.Slot) && q.Patch < p.Patch+isa.Addr(p.Slot) {
						t.Errorf("%s: %v and %v take %d bytes each", arch, p.Patch, q.Patch, p.Slot)
					}
				}
				made = append(made, p)
			}
			return ""
		}
		if said := fill(); len(made) != most || !strings.Contains(said, "undo some") {
			t.Errorf("%s: %d plans of %d bytes, then %q", arch, len(made), size, said)
		}
		_, before, _ := req.Heap.Usage()
		last := made[len(made)-1]
		made = made[:len(made)-1]
		req.Heap.Free(last.Patch, last.Slot)
		if said := fill(); len(made) != most || said == "" {
			t.Errorf("%s: %d plans after one was given back, then %q", arch, len(made), said)
		}
		if _, after, _ := req.Heap.Usage(); after != before {
			t.Errorf("%s: %d lines used, %d before", arch, after, before)
		}
	}
}

// TestSnippetRefused: what is wrong with a snippet is said, and the heap is as before.
func TestSnippetRefused(t *testing.T) {
	x := ktexttest.Load(t, "amd64").Text(t)
	loading := snippet.Snippet{Cells: []snippet.Cell{{Kind: snippet.Faults}}, Code: []snippet.Insn{{Op: snippet.Load, Type: snippet.U64, A: snippet.C(8), N: 8}}}
	for _, c := range []struct {
		s    snippet.Snippet
		want plan.Reason
		in   string
	}{
		{snippet.Snippet{Code: []snippet.Insn{{Op: snippet.Goto, To: 0}}}, plan.BadSnippet, "goes on at 0"},
		{snippet.Snippet{Code: []snippet.Insn{{Op: snippet.Reg, Type: snippet.U64, Name: "x0"}}}, plan.BadSnippet, `no register "x0"`},
		{loading, plan.BadSnippet, "nothing is known to load with"},
	} {
		req := request(x, "vfs_read", 0x17)
		req.Snippet = c.s
		p, r := plan.Point(x, req)
		if r == nil || r.Reason != c.want || !strings.Contains(r.Detail, c.in) {
			t.Errorf("%v: %v, %v; want %v with %q", c.s, p, r, c.want, c.in)
		}
		if _, used, _ := req.Heap.Usage(); used != 0 {
			t.Errorf("%v: %d lines of the heap are taken", c.s, used)
		}
	}
}

// TestCheckCatchesBranch: a branch of the snippet that leads into an instruction, out
// of the patch or behind the snippet is noticed, and a slot that is too small.
func TestCheckCatchesBranch(t *testing.T) {
	x := ktexttest.Load(t, "amd64").Text(t)
	good := func() *plan.Plan {
		req := request(x, "vfs_read", 0x17)
		req.Snippet = predicated(t, "1")
		p, r := plan.Point(x, req)
		if r != nil {
			t.Fatal(r)
		}
		return p
	}
	at := strings.Index(string(good().Code), "\x0f\x84") + 2
	for _, by := range []int{-1, 80} {
		p := good()
		p.Code[at] += byte(by)
		if err := p.Check(x.Arch); err == nil || !strings.Contains(err.Error(), "branch") {
			t.Errorf("a branch %d bytes further: %v", by, err)
		}
	}
	p := good()
	p.Slot = place.Line
	if err := p.Check(x.Arch); err == nil || !strings.Contains(err.Error(), "slot") {
		t.Errorf("a slot of %d bytes: %v", p.Slot, err)
	}
}

// TestLocals: sums are in per-CPU memory where the heap has some, and where the function
// leaves alone what a CPU finds it with.
func TestLocals(t *testing.T) {
	const function, point, before = "ksys_read", 0x39, 0x36
	bounds, err := snippet.Parse("c0 min u64\nc1 sum\nv0 u64 = cycles\nlower c0 v0\ncount c1 1")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, code string
		s          snippet.Snippet
		words      int // that the heap has
		want       []isa.Addr
	}{
		{"a counter", "", snippet.Counter(), 1, []isa.Addr{0x1f000}},
		{"a bound and a sum", "", bounds, 1, []isa.Addr{0, 0x1f000}},
		{"no per-CPU memory", "", snippet.Counter(), 0, nil},
		{"swapgs", "\x0f\x01\xf8", snippet.Counter(), 1, nil},
		{"wrmsr", "\x90\x0f\x30", snippet.Counter(), 1, nil},
		{"a load of a segment", "\x8e\xe8\x90", snippet.Counter(), 1, nil},
		{"not understood", "\x90\x0f\xb5", snippet.Counter(), 1, nil},
		{"cli", "\x90\x90\xfa", snippet.Counter(), 1, []isa.Addr{0x1f000}},
	} {
		x := edited(t, "amd64", function, before, c.code)
		req := request(x, function, point)
		req.Snippet = c.s
		if c.words > 0 {
			req.Heap.AddLocals(0x1f000, 8*c.words)
		}
		p, r := plan.Point(x, req)
		switch {
		case c.name == "not understood" && r != nil: // it is refused already
		case r != nil:
			t.Errorf("%s: %v", c.name, r)
		case !slices.Equal(p.Locals, c.want):
			t.Errorf("%s: cells at %v, want %v", c.name, p.Locals, c.want)
		case len(c.want) > 0 && req.Heap.TakeLocal(0x1f000):
			t.Errorf("%s: the word is free", c.name)
		}
		if r != nil || c.name != "a bound and a sum" {
			continue
		}
		for _, bad := range [][]isa.Addr{{0x1f000, 0}, {0x1f000}, {0, 0x1f004}} {
			p.Locals = bad
			if p.Check(x.Arch) == nil {
				t.Errorf("a plan with cells at %v is right", bad)
			}
		}
	}
}

// TestStack: a snippet that walks the stack may call what the module walks with, from
// wherever it is, and no snippet that does not walk may; where a walk comes by itself,
// there is no such snippet.
func TestStack(t *testing.T) {
	walking := snippet.Snippet{Cells: []snippet.Cell{{Kind: snippet.Stacks, Records: 16, Fields: 5}}, Code: []snippet.Insn{{Op: snippet.Stack}}}
	for _, arch := range ktexttest.Arches {
		x := ktexttest.Load(t, arch).Text(t)
		f, err := x.Function("", "vfs_read")
		if err != nil {
			t.Fatal(err)
		}
		req := request(x, "", 0)
		lo, _ := x.Bounds()
		req.Snippet, req.Loads = walking, lo+0x4200
		made := 0
		r := plan.Survey(x, f, req, func(off isa.Off, p *plan.Plan, r *plan.Refusal) bool {
			if r != nil {
				return true
			}
			made++
			throughJSON(t, p)
			if err := p.Check(x.Arch); err != nil {
				t.Errorf("%s vfs_read+%#x: %v", arch, uint64(off), err)
			}
			for what, spoil := range map[string]func(*plan.Plan){
				"another place to walk with": func(p *plan.Plan) { p.Loads += 8 },
				"nothing to walk with":       func(p *plan.Plan) { p.Loads = 0 },
				"a snippet that walks not":   func(p *plan.Plan) { p.Snippet = snippet.Counter() },
			} {
				bad := *p
				if spoil(&bad); bad.Check(x.Arch) == nil {
					t.Errorf("%s vfs_read+%#x: no error with %s", arch, uint64(off), what)
				}
			}
			return true
		})
		if r != nil || made == 0 {
			t.Errorf("%s: %d points, %v", arch, made, r)
		}
	}
}

// TestStackTraced: the stack may be walked when symbols were read while somebody traced what walks it: by a trampoline, which
// cannot be read, or by all that ftrace leads to.
func TestStackTraced(t *testing.T) {
	t.Run("trampoline", func(t *testing.T) {
		k := ktexttest.Load(t, "amd64")
		_, hi := k.Text(t).Bounds()
		at := hi - 128
		k.Add("stack_trace_save_regs", at, []byte("\xe8\xfb\xff\xff\x3e\xc3")) // call of a trampoline; ret
		k.Kallsyms += fmt.Sprintf("%x t ftrace_trampoline\t[__builtin__ftrace]\n", uint64(at+0x3f000000))
		walksInRead(t, k.Text(t))
	})
	t.Run("caller", func(t *testing.T) {
		k := ktexttest.Load(t, "amd64")
		_, hi := k.Text(t).Bounds()
		read, err := k.Text(t).Function("", "vfs_read")
		if err != nil {
			t.Fatal(err)
		}
		at := hi - 128
		k.Add("stack_trace_save_regs", at, []byte("\xe8\x3b\x00\x00\x00\xc3")) // call ftrace_caller; ret
		k.Add("ftrace_caller", at+0x40, binary.LittleEndian.AppendUint32([]byte("\xe9"), uint32(read.Addr-(at+0x45))))
		walksInRead(t, k.Text(t))
	})
}

// walksInRead asks for a snippet in vfs_read that walks the stack.
func walksInRead(t *testing.T, x *ktext.Text) {
	t.Helper()
	req := request(x, "vfs_read", 0)
	lo, _ := x.Bounds()
	req.Loads = lo + 0x4200
	req.Snippet = snippet.Snippet{Cells: []snippet.Cell{{Kind: snippet.Stacks, Records: 16, Fields: 5}}, Code: []snippet.Insn{{Op: snippet.Stack}}}
	if p, r := plan.Entry(x, req); r != nil {
		t.Errorf("%v, %v", p, r)
	}
}
