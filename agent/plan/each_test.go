package plan_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"kerninst/agent/isa"
	"kerninst/agent/ktext/ktexttest"
	"kerninst/agent/plan"
)

// split is, by ISA, a function in two halves: a test, a conditional jump to the cold half, a
// jump over what nothing leads to, a call, and a return; the cold half jumps back. riscv64's
// compiler splits none.
var split = map[string]struct {
	hot, cold             string
	blocks, calls, leaves []isa.Off
}{
	// test; je cold; jmp +5; int3*5; call next; ret
	"amd64": {
		hot:    "\x48\x85\xff\x0f\x84\xf7\x00\x00\x00\xeb\x05\xcc\xcc\xcc\xcc\xcc\xe8\xeb\x0f\x00\x00\xc3",
		cold:   "\x90\xe9\x0a\xff\xff\xff", // nop; jmp call
		blocks: []isa.Off{0, 9, 16}, calls: []isa.Off{16}, leaves: []isa.Off{21},
	},
	// cbz x0, cold; b +8; brk #0; bl +0x400; ret
	"arm64": {
		hot:    "\x00\x08\x00\xb4\x02\x00\x00\x14\x00\x00\x20\xd4\x00\x01\x00\x94\xc0\x03\x5f\xd6",
		cold:   "\x1f\x20\x03\xd5\xc2\xff\xff\x17", // nop; b call
		blocks: []isa.Off{0, 4, 12}, calls: []isa.Off{12}, leaves: []isa.Off{16},
	},
}

// TestEach: a jump to the other half is no way out, calls end no block, and what nothing leads
// to begins none.
func TestEach(t *testing.T) {
	for arch, c := range split {
		k := ktexttest.Load(t, arch)
		lo, _ := k.Text(t).Bounds()
		at := lo + 0x8000
		k.Add("halves", at, []byte(c.hot))
		k.Add("behind_halves", at+isa.Addr(len(c.hot)), []byte("\x90"))
		k.Add("halves.cold", at+0x100, []byte(c.cold))
		k.Add("behind_cold", at+0x100+isa.Addr(len(c.cold)), []byte("\x90"))
		x := k.Text(t)
		for each, want := range map[plan.Each][]isa.Off{plan.EachBlock: c.blocks, plan.EachCall: c.calls, plan.EachReturn: c.leaves} {
			got, r := plan.Offsets(x, plan.Request{Function: "halves"}, each)
			if r != nil || fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("%s, %d: %v, %v, want %v", arch, each, got, r, want)
			}
		}
		got, r := plan.Offsets(x, plan.Request{Function: "halves.cold"}, plan.EachReturn)
		if r != nil || len(got) != 0 {
			t.Errorf("%s: the cold half is left at %v, %v", arch, got, r)
		}
	}
}

// TestReturns: what jumps to another function leaves; what may, or may not, or leads nobody
// knows where, bars the question.
func TestReturns(t *testing.T) {
	for name, c := range map[string]struct {
		code string
		want string
	}{
		"two returns":        {"\x74\x01\xc3\xc3", "[2 3] <nil>"},
		"a tail call":        {"\x90\xe9\x00\x01\x00\x00", "[1] <nil>"},
		"a loop":             {"\x90\xeb\xfd", "[] <nil>"},
		"perhaps":            {"\x0f\x84\x00\x01\x00\x00\xc3", plan.ControlFlow.String()},
		"through a register": {"\xff\xe0", plan.IndirectJump.String()},
	} {
		k := ktexttest.Load(t, "amd64")
		lo, _ := k.Text(t).Bounds()
		k.Add("out", lo+0x8000, []byte(c.code))
		k.Add("behind_out", lo+0x8000+isa.Addr(len(c.code)), []byte("\x90"))
		off, r := plan.Offsets(k.Text(t), plan.Request{Function: "out"}, plan.EachReturn)
		got := fmt.Sprint(off, " <nil>")
		if r != nil {
			got = r.Reason.String()
		}
		if got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

// TestEachOfReal: of real functions of each ISA, blocks are fewer than instructions, each call
// is one, and somebody returns.
func TestEachOfReal(t *testing.T) {
	for _, arch := range ktexttest.Arches {
		x := ktexttest.Load(t, arch).Text(t)
		for _, f := range []string{"ksys_read", "vfs_write"} {
			n := map[plan.Each]int{}
			g, err := x.Function("", f)
			if err != nil {
				t.Fatal(err)
			}
			code, err := x.Code(g)
			if off, r := plan.Offsets(x, plan.Request{Function: f}, plan.EachBlock); err != nil || r != nil || off[0] != isa.Off(x.FtraceSite(g.Addr, code)) || off[0] == 0 {
				t.Errorf("%s: %s has blocks at %v, %v, %v; the first is behind ftrace's site", arch, f, off, r, err)
			}
			for each := plan.EachInstruction; each <= plan.EachReturn; each++ {
				off, r := plan.Offsets(x, plan.Request{Function: f, Known: &plan.Functions{}}, each)
				if r != nil {
					t.Errorf("%s: %s, %d: %v", arch, f, each, r)
				}
				n[each] = len(off)
			}
			if n[plan.EachBlock] < 3 || n[plan.EachBlock] >= n[plan.EachInstruction]/2 || n[plan.EachCall] == 0 || n[plan.EachReturn] == 0 {
				t.Errorf("%s: %s has %v", arch, f, n)
			}
		}
	}
}

// TestBlocksOfTables: where the kernel's tables have control go, blocks begin: at the targets of
// static keys, behind their sites, and at fixups.
func TestBlocksOfTables(t *testing.T) {
	for _, arch := range ktexttest.Arches {
		x := ktexttest.Load(t, arch).Text(t)
		links, err := x.Links("")
		if err != nil {
			t.Fatal(err)
		}
		known := &plan.Functions{}
		seen := map[string]int{}
		begins := func(what string, a isa.Addr) {
			f, ok := x.Locate(a)
			if !ok || strings.HasPrefix(f.Name, "gap") {
				return
			}
			got, r := plan.OffsetsAt(x, f, plan.Request{Known: known}, plan.EachBlock)
			if r != nil {
				return
			}
			if seen[what]++; !slices.Contains(got, isa.Off(a-f.Addr)) {
				t.Errorf("%s: no block of %v begins at +%#x, %s", arch, f, uint64(a-f.Addr), what)
			}
		}
		for _, k := range links.Keys {
			begins("the target of a static key", k.Target)
			if f, ok := x.Locate(k.Site); ok && !strings.HasPrefix(f.Name, "gap") {
				code := make([]byte, 16)
				if x.Read(k.Site, code) == nil {
					begins("behind a static key", x.Arch.Decode(code, k.Site).End())
				}
			}
		}
		for _, f := range links.Faults {
			begins("a fixup", f.Fixup)
		}
		t.Logf("%s: %v", arch, seen)
		if seen["the target of a static key"] == 0 || seen["behind a static key"] == 0 || seen["a fixup"] == 0 {
			t.Errorf("%s: not all are in the recording: %v", arch, seen)
		}
	}
}
