package e2e

import (
	"encoding/json"
	"strings"
	"testing"

	"kerninst/images"
	"kerninst/lab/status"
)

// listed is a probe's document.
type listed struct {
	Points []struct {
		Spec, Symbol, Instruction, Mechanism string
		RunsAt                               string `json:"runs_at"`
		Refusal                              *struct{ Reason, Detail string }
		Value                                *uint64
	}
}

// TestPlaces: what a specification stands for is listed with what is there, and counted: who
// comes in goes out, and calls on the way.
func TestPlaces(t *testing.T) {
	t.Parallel()
	for _, arch := range images.Arches() {
		t.Run(arch, func(t *testing.T) {
			t.Parallel()
			probe := func(args ...string) (out listed) {
				t.Helper()
				a := call(t, nil, append([]string{"probe", "--arch", arch, "--json"}, args...)...)
				if a.code != status.ExitPassed {
					t.Fatal(a)
				}
				if err := json.Unmarshal([]byte(a.stdout), &out); err != nil {
					t.Fatal(err)
				}
				return out
			}
			instructions, blocks := len(probe("-l", "kinst::vfs_read:").Points), len(probe("-l", "kinst::vfs_read:block").Points)
			if blocks < 10 || instructions < 2*blocks {
				t.Errorf("%d blocks of %d instructions", blocks, instructions)
			}
			for _, p := range probe("-l", "kinst::vfs_read:call", "kinst::vfs_read:return").Points {
				if p.Instruction == "" || p.Mechanism == "" && p.Refusal == nil {
					t.Errorf("%+v", p)
				}
			}
			in, out := uint64(0), uint64(0)
			for _, p := range probe("kinst::vfs_rea[d]:entry", "kinst::vfs_read:return", "--run", "cat /proc/version").Points {
				if in == 0 {
					in = *p.Value
				} else {
					out += *p.Value
				}
			}
			if in < 3 || in != out {
				t.Errorf("%d came in, %d went out", in, out)
			}
			if arch == "riscv64" { // a breakpoint elsewhere has the module write there
				n := 0
				for _, p := range probe("-l", "kinst::handle_break:").Points {
					if p.Refusal != nil && strings.Contains(p.Refusal.Detail, "led elsewhere while anything is reached by a breakpoint") {
						n++
					}
				}
				if n != 2 {
					t.Errorf("%d instructions of the call that asks whose a breakpoint is are refused, want both", n)
				}
			}
			if arch != "amd64" {
				return
			}
			// What the block rule serves gets no trap; what a listing says is what is had.
			for _, p := range probe("-l", "kinst::amd_uncore_read:").Points {
				if p.RunsAt == "" || p.Instruction != "nop" {
					continue
				}
				if got := probe(p.Spec, "--run", "true").Points[0]; got.Mechanism != p.Mechanism || got.RunsAt == "" {
					t.Errorf("%s is had by a %s at %q, and listed as a %s", p.Spec, got.Mechanism, got.RunsAt, p.Mechanism)
				}
				in = 0
			}
			if in != 0 {
				t.Error("no nop is counted elsewhere")
			}
		})
	}
}

// TestNoPlaces: what matches nothing, or far too much, ends with nothing spliced, and says so.
func TestNoPlaces(t *testing.T) {
	t.Parallel()
	for spec, says := range map[string]string{
		"kinst::no_such_*:entry": "no function matches",
		"kinst::*:entry":         "--yes",
	} {
		a := call(t, nil, "probe", "--arch", "amd64", spec, "--run", "true")
		if a.code != status.ExitFailed || !strings.Contains(a.stderr, says) {
			t.Errorf("%s: %+v", spec, a)
		}
	}
}
