package e2e

import (
	"path/filepath"
	"strings"
	"testing"

	"kerninst/lab/status"
)

// A search asks about both ends first: where they come out alike, or of one nothing can be told, it
// says so and asks about no other. (Of kernels between which there is something to find, not each
// host has two.)
func TestBisect(t *testing.T) {
	t.Parallel()
	out := filepath.Join(t.TempDir(), "out")
	a := call(t, nil, "run", "--arch", "riscv64", "--scenario", "boot", "--out", out)
	if a.code != 0 {
		t.Fatal(a)
	}
	release := strings.TrimSuffix(results(t, out, "riscv64").Kernel, "-riscv64")
	for _, tt := range []struct {
		name, last string
		code       int
		says       string
		came       []status.Status
	}{
		{"alike", release + "-riscv64", status.ExitUsage, "boot passes with kernel locked and with " + release + "-riscv64: there is nothing to look for",
			[]status.Status{status.Passed, status.Passed}},
		{"an end that is no kernel", "/nonexistent/linux", status.ExitLabFailed, "kernel linux: it cannot be told how boot comes out: --kernel: ",
			[]status.Status{status.Passed, status.LabFailed}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			out := filepath.Join(t.TempDir(), "out")
			a := call(t, nil, "bisect", "--arch", "riscv64", "--scenario", "boot", "--kernel", "locked,"+release, "--kernel", tt.last, "--out", out)
			if a.code != tt.code || !strings.Contains(a.stderr, tt.says) {
				t.Errorf("exit status %d, want %d, and %q: %s", a.code, tt.code, tt.says, a)
			}
			var came []status.Status
			for _, c := range matrixOf(t, out).Cells {
				came = append(came, c.Status)
			}
			if len(came) != 2 || came[0] != tt.came[0] || came[1] != tt.came[1] {
				t.Errorf("asked about %v, want %v", came, tt.came)
			}
		})
	}
}
