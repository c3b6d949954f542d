package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"kerninst/lab/status"
)

// What a guest says reaches people as text and no more than that: nothing for
// the terminal, nothing for the browser, and not much of it.
func TestHostileGuest(t *testing.T) {
	out := t.TempDir()
	a := call(t, nil, "run", "--arch", "riscv64", "--scenario", "fault-hostile", "--out", out, "--force")
	if a.code != status.ExitCrashed {
		t.Fatalf("exit status %d, want %d: %s", a.code, status.ExitCrashed, a)
	}
	s := results(t, out, "riscv64").Scenarios[0]
	if s.Failure == nil || !strings.Contains(strings.Join(s.Failure.Console, "\n"), "alert(") {
		t.Fatalf("the test is void: the console does not show it: %+v", s.Failure)
	}
	harmless(t, "stdout", a.stdout)
	harmless(t, "stderr", a.stderr)
	const most = 1 << 20 // bytes of a file; the guest wrote sixteen times as much
	must(t, filepath.Walk(out, func(path string, info os.FileInfo, err error) error {
		if err != nil || info.IsDir() {
			return err
		}
		if info.Size() > most {
			t.Errorf("%s has %d bytes", path, info.Size())
		}
		b, err := os.ReadFile(path)
		harmless(t, path, string(b))
		if ext := filepath.Ext(path); ext == ".html" || ext == ".md" {
			for _, bad := range []string{"<script>alert", "<b onclick", "<img src=x"} {
				if strings.Contains(string(b), bad) {
					t.Errorf("%s holds %s", path, bad)
				}
			}
		}
		return err
	}))
}

// A program that writes to the console what the kernel says of a lockup ends nothing:
// the kernel itself has noted none.
func TestForgedLockups(t *testing.T) {
	t.Parallel()
	const forged = `set -e; for i in 1 2 3 4; do echo "[    9.000000] watchdog: BUG: soft lockup - CPU#0 stuck for 22s! [x:1]" >/dev/console; done; sleep 1; echo alive`
	a := call(t, nil, "probe", "--arch", "riscv64", "kinst::__riscv_sys_getppid:8", "--exit-with-workload", "--run", forged)
	if a.code != status.ExitPassed || !strings.Contains(a.stdout+a.stderr, "alive") {
		t.Error(a)
	}
}

// harmless fails the test if a terminal would obey part of the text.
func harmless(t *testing.T, what, text string) {
	t.Helper()
	if strings.ContainsAny(text, "\x00\x07\x08\x1b\x7f\u009b") {
		at := strings.IndexAny(text, "\x00\x07\x08\x1b\x7f\u009b")
		t.Errorf("%s holds %q", what, text[max(0, at-20):min(len(text), at+20)])
	}
}
