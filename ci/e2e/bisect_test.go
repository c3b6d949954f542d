package e2e

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"kerninst/images"
	"kerninst/lab/status"
)

// A search asks about both ends first: where they come out alike, or of one nothing can be told, it
// says so and asks about no other. (Of kernels between which there is something to find, not each
// host has two.)
func TestBisect(t *testing.T) {
	t.Parallel()
	img, err := images.Ensure(context.Background(), images.Options{Arch: "riscv64", Root: "../..", Progress: t.Logf})
	must(t, err)
	release := strings.TrimSuffix(img.Release, "-riscv64")
	for _, tt := range []struct {
		name, kernels string
		code          int
		says          string
		came          []status.Status
	}{
		{"alike", "locked," + release + "," + img.Release, status.ExitUsage,
			"boot passes with kernel locked and with " + img.Release + ": there is nothing to look for", []status.Status{status.Passed, status.Passed}},
		{"an end that is no kernel", "/nonexistent/linux,locked," + release, status.ExitLabFailed,
			"kernel linux: it cannot be told how boot comes out: --kernel: ", []status.Status{status.LabFailed}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			out := filepath.Join(t.TempDir(), "out")
			a := call(t, nil, "bisect", "--arch", "riscv64", "--scenario", "boot", "--kernel", tt.kernels, "--out", out)
			if a.code != tt.code || !strings.Contains(a.stderr, tt.says) {
				t.Errorf("exit status %d, want %d, and %q: %s", a.code, tt.code, tt.says, a)
			}
			var came []status.Status
			for _, c := range matrixOf(t, out).Cells {
				came = append(came, c.Status)
			}
			if !slices.Equal(came, tt.came) {
				t.Errorf("asked about %v, want %v", came, tt.came)
			}
		})
	}
}
