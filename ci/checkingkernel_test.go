package ci

import (
	"os/exec"
	"strings"
	"testing"
)

// TestCheckingKernelLacks has the script that builds a kernel say what it wants, before it makes anything.
func TestCheckingKernelLacks(t *testing.T) {
	dir := t.TempDir() + "/kernel"
	for _, c := range []struct {
		name string
		args []string
		exit int
		says []string
	}{
		{"no folder", nil, 2, []string{"usage: ci/checkingkernel.sh DIR"}},
		{"two folders", []string{dir, dir}, 2, []string{"usage:"}},
		{"no programs", []string{dir}, 3, []string{"apt-get install", " gcc", " flex", " bison", " make"}},
	} {
		cmd := exec.Command("/bin/sh", append([]string{"checkingkernel.sh"}, c.args...)...)
		cmd.Env = []string{"PATH=" + t.TempDir()}
		out, err := cmd.CombinedOutput()
		if cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != c.exit {
			t.Errorf("%s: %v, want exit status %d: %s", c.name, err, c.exit, out)
		}
		for _, word := range c.says {
			if !strings.Contains(string(out), word) {
				t.Errorf("%s: %q is not said in %s", c.name, word, out)
			}
		}
	}
}
