package plan_test

import (
	"fmt"
	"strings"
	"testing"

	"kerninst/agent/isa"
	"kerninst/agent/ktext/ktexttest"
	"kerninst/agent/plan"
	"kerninst/agent/snippet"
)

// timed is a snippet that may stand at no other instruction by the block rule.
func timed(t *testing.T) snippet.Snippet {
	t.Helper()
	s, err := snippet.Parse("c0 sum\nv0 u64 = cycles\ncount c0 v0")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// ends plans both ends of a block, the second behind the first.
func ends(t *testing.T, k *ktexttest.Kernel, function string, b plan.Block, loose bool, by plan.Mechanism) (at [2]isa.Off, r *plan.Refusal) {
	t.Helper()
	x := k.Text(t)
	req := request(x, function, b.Begin)
	req.Snippet, req.Mechanism = timed(t), by
	in, r := plan.Comes(x, req, b, loose)
	if r != nil {
		return at, r
	}
	req.Offset, req.Taken = in.Offset+1, in.Touches
	out, r := plan.Goes(x, req, b)
	if r != nil {
		return at, r
	}
	return [2]isa.Off{in.Offset, out.Offset}, nil
}

// TestBlocks: a block ends where control may go elsewhere, or comes from there, and not at a call.
func TestBlocks(t *testing.T) {
	for arch, want := range map[string]string{
		"amd64": "[{0 9} {9 11} {16 22}]",
		"arm64": "[{0 4} {4 8} {12 20}]",
	} {
		c, k := split[arch], ktexttest.Load(t, arch)
		lo, _ := k.Text(t).Bounds()
		k.Add("halves", lo+0x8000, []byte(c.hot))
		k.Add("behind_halves", lo+0x8000+isa.Addr(len(c.hot)), []byte("\x90"))
		k.Add("halves.cold", lo+0x8100, []byte(c.cold))
		k.Add("behind_cold", lo+0x8100+isa.Addr(len(c.cold)), []byte("\x90"))
		got, r := plan.Blocks(k.Text(t), plan.Request{Function: "halves"})
		if r != nil || fmt.Sprint(got) != want {
			t.Errorf("%s: %v, %v, want %s", arch, got, r, want)
		}
	}
}

// TestEnds: a block is entered at its first instruction and left at its last, or beside them, on
// the same side of all calls; else it is refused, with the reason.
func TestEnds(t *testing.T) {
	const mov, call, ret = "\x48\xc7\xc0\x01\x00\x00\x00", "\xe8\xe0\x0f\x00\x00", "\xc3\xcc\xcc\xcc\xcc" // 7, 5, and 1 byte
	for name, c := range map[string]struct {
		code, want string
		end        isa.Off
		loose      bool
	}{
		"a call inside":        {mov + call + mov + ret, "[0 19]", 20, true},
		"a call first":         {call + mov + ret, "[0 12]", 13, true},
		"short, then the next": {"\x53" + mov + mov + ret, "[1 15]", 16, true},
		"short, and no other":  {"\x53" + mov + mov + ret, "too short", 16, false},
		"the last but one":     {mov + mov + "\x5b" + mov, "[0 7]", 15, true},
		"a call last":          {mov + call + ret, "and calls", 12, true},
		"a trap last":          {mov + "\x0f\x0b" + ret, "is a trap", 9, true},
		"one instruction":      {mov + ret, "no time in between", 7, true},
		"only a call":          {call + mov + ret, "and calls", 5, true},
		"a call before it":     {mov + call + "\x53" + ret, "too short", 13, true},
		"behind the call":      {call + "\x53" + ret, "too short", 6, true},
	} {
		k := ktexttest.Load(t, "amd64")
		lo, _ := k.Text(t).Bounds()
		code := "\x90" + c.code // a call at a function's begin is ftrace's
		k.Add("one", lo+0x8000, []byte(code))
		k.Add("behind_one", lo+0x8000+isa.Addr(len(code)), []byte("\x90"))
		at, r := ends(t, k, "one", plan.Block{Begin: 1, End: 1 + c.end}, c.loose, plan.Jump)
		got := fmt.Sprint([2]isa.Off{at[0] - 1, at[1] - 1})
		if r != nil {
			got = r.Reason.String() + ": " + r.Detail
		}
		if !strings.Contains(got, c.want) {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

// TestEndsOfReal: of real functions of each ISA most blocks can be had, entered before they are
// left, and within.
func TestEndsOfReal(t *testing.T) {
	for _, arch := range ktexttest.Arches {
		k, had, of := ktexttest.Load(t, arch), 0, map[plan.Reason]int{}
		for _, f := range []string{"ksys_read", "ksys_write", "vfs_read", "vfs_write"} {
			blocks, r := plan.Blocks(k.Text(t), plan.Request{Function: f})
			if r != nil {
				t.Fatal(r)
			}
			for _, b := range blocks {
				at, r := ends(t, k, f, b, true, plan.MechanismInvalid)
				switch {
				case r != nil:
					of[r.Reason]++
				case at[0] < b.Begin || at[0] >= at[1] || at[1] >= b.End:
					t.Errorf("%s, %s: %v has its ends at %v", arch, f, b, at)
				default:
					had++
				}
			}
		}
		t.Logf("%s: %d blocks can be had; refused: %v", arch, had, of)
		if had < 20 {
			t.Errorf("%s: %d blocks can be had", arch, had)
		}
	}
}
