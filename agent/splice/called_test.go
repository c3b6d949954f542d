package splice_test

import (
	"testing"

	"kerninst/agent/gen"
	"kerninst/agent/isa"
	"kerninst/agent/ktext"
	"kerninst/agent/plan"
	"kerninst/agent/snippet"
)

// TestCalledSleeps: whoever is called out of a patch may sleep, so a patch that calls is not
// said to have nobody asleep in it; others are.
func TestCalledSleeps(t *testing.T) {
	for arch, c := range map[string]struct {
		code string
		jump isa.Off
	}{
		"amd64":   {"\x90\xe9\xfa\x00\x00\x00", 1},
		"arm64":   {"\x1f\x20\x03\xd5\x3f\x00\x00\x14", 4},
		"riscv64": {"\x17\x03\x00\x00\x67\x00\x03\x10", 4},
	} {
		b := setUp(t, arch)
		lo, _ := b.text.Bounds()
		b.k.Add("leaver", lo+0x8000, []byte(c.code))
		b.k.Add("next", lo+0x8100, []byte(c.code))
		x := b.k.TextWith(t, b.s.Read, ktext.Options{})
		for text, awake := range map[string]bool{"c0 sum\ncount c0 1": true, "c0 sum\nv0 u64 = ret\ncount c0 v0": false} {
			s, err := snippet.Parse(text)
			if err != nil {
				t.Fatal(err)
			}
			p, r := plan.Point(x, plan.Request{Function: "leaver", Offset: c.jump,
				Heap: b.s.Heap(), Taken: b.s.Taken, Features: gen.Features{LSE: true}, Snippet: s, OnStack: func(ktext.Func) (bool, error) { return false, nil }})
			if r != nil {
				t.Fatalf("%s: %v", arch, r)
			}
			live, err := b.s.Apply([]*plan.Plan{p})
			if err != nil {
				t.Fatalf("%s: %v", arch, err)
			}
			if got := b.k.live[live[0].ID]; got.Awake != awake {
				t.Errorf("%s, %q: awake is %v", arch, text, got.Awake)
			}
			if err := b.s.Undo(live); err != nil {
				t.Errorf("%s: %v", arch, err)
			}
		}
	}
}
