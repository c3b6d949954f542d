package e2e

import (
	"testing"

	"kerninst/lab/status"
)

// The module's own tests, a slice of what `make proof` does.
func TestHazards(t *testing.T) {
	for _, arch := range arches {
		t.Run(arch, func(t *testing.T) {
			out := t.TempDir()
			a := call(t, nil, "run", "--arch", arch, "--scenario", "hazards", "--out", out, "--force")
			if a.code != 0 {
				t.Fatal(a)
			}
			if s := results(t, out, arch).Scenarios[0]; s.Status != status.Passed || len(s.Checks) < 50 {
				t.Errorf("%s with %d checks", s.Status, len(s.Checks))
			}
		})
	}
}
