package plan_test

import (
	"testing"

	"kerninst/agent/isa"
	"kerninst/agent/ktext/ktexttest"
	"kerninst/agent/plan"
)

// A breakpoint of somebody's hides which instruction begins where it stands, and so where the
// next does: what is behind it is refused. The compiler's stand behind what does not come back.
func TestForeignBreakpoint(t *testing.T) {
	for name, tt := range map[string]struct {
		code    string
		off     isa.Off
		refused bool
	}{
		"mov %rdi, %rbx":                 {"\x90\x90\x90\x90\x90\x48\x89\xfb\x90\x90\x90\x90\x90\xc3", 8, false},
		"a breakpoint at its first byte": {"\x90\x90\x90\x90\x90\xcc\x89\xfb\x90\x90\x90\x90\x90\xc3", 6, true},
		"far behind one":                 {"\x90\x90\x90\x90\x90\xcc\x89\xfb\x90\x90\x90\x90\x90\xc3", 8, true},
		"behind a call":                  {"\x90\x90\x90\xe8\x00\x01\x00\x00\xcc\x89\xfb\x90\x90\xc3", 9, true},
		"a retpoline's":                  {"\x90\x90\x90\xe8\x01\x00\x00\x00\xcc\x48\x89\xfb\x90\xc3", 9, false},
		"behind a return":                {"\x90\x90\x90\x90\xc3\xcc\x90\x90\x48\x89\xfb\x90\x90\xc3", 8, false},
		"the compiler's, behind a jump":  {"\x90\x90\x90\x90\xeb\x01\xcc\x90\x48\x89\xfb\x90\x90\xc3", 8, false},
	} {
		t.Run(name, func(t *testing.T) {
			k := ktexttest.Load(t, "amd64")
			lo, _ := k.Text(t).Bounds()
			k.Add("probed", lo+0x8000, []byte(tt.code))
			x := k.Text(t)
			f, err := x.Function("", "probed")
			if err != nil {
				t.Fatal(err)
			}
			_, refusal := plan.At(x, f, request(x, "probed", tt.off))
			if got := refusal != nil && refusal.Reason == plan.Undecodable; got != tt.refused {
				t.Errorf("refused as undecodable %v, want %v: %v", got, tt.refused, refusal)
			}
		})
	}
}
