package e2e

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"kerninst/images"
	"kerninst/lab/repro"
	"kerninst/lab/status"
)

// A locked version that the mirror does not have any more, here one that it never
// had, stops nobody: the mirror's is used, and the lab and the manifest say so.
// The mirror is the host's own; all but its index is cached.
func TestLockedVersionIsGone(t *testing.T) {
	t.Parallel()
	s, src, out := newStore(t), t.TempDir(), t.TempDir()
	copySources(t, src)
	name := filepath.Join(src, images.LockFile)
	lock, err := os.ReadFile(name)
	must(t, err)
	line := regexp.MustCompile(`(?m)^busybox-static (\S+) arm64 \d+ \S+ (\S+) \S+$`)
	found := line.FindSubmatch(lock)
	if found == nil {
		t.Fatalf("%s has no %v", images.LockFile, line)
	}
	must(t, os.WriteFile(name, line.ReplaceAll(lock, []byte("busybox-static 1:0.0-1 arm64 1 "+strings.Repeat("0", 64)+" $2 pool/main/b/busybox/none.deb")), 0o644))
	cmd := exec.Command(filepath.Join(src, "bin", "lab"), "run", "--arch", "arm64", "--scenario", "boot", "--out", out)
	cmd.Env = append(append(os.Environ(), s.env...), "MIRROR=")
	text, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	m, err := repro.ReadManifest(filepath.Join(out, "arm64"))
	must(t, err)
	const gone = "busybox-static 1:0.0-1 arm64 is locked, the mirror has "
	drift, used := "", ""
	for _, d := range m.Image.Drift {
		if strings.HasPrefix(d, gone) {
			drift = d
		}
	}
	for _, p := range m.Image.Packages {
		if p.Name == "busybox-static" {
			used = p.Version
		}
	}
	if drift == "" || drift != gone+used || !strings.Contains(string(text), "lock file: "+drift+"\n") {
		t.Errorf("drift %q, busybox-static %s in use; the mirror had %s when it was locked: %s", m.Image.Drift, used, found[1], text)
	}
	t.Run("software", func(t *testing.T) { softwareIsGone(t, s, src, lock) })
	s.clean(t)
}

// softwareIsGone: a guest for which something of Debian's cannot be had, here as it is another file than the locked one, fails,
// and says so; the other scenarios run.
func softwareIsGone(t *testing.T, s store, src string, lock []byte) {
	line, out := regexp.MustCompile(`(?m)^(squid \S+ arm64 \d+) \S+`), t.TempDir()
	if !line.Match(lock) {
		t.Fatalf("%s has no %v", images.LockFile, line)
	}
	must(t, os.WriteFile(filepath.Join(src, images.LockFile), line.ReplaceAll(lock, []byte("$1 "+strings.Repeat("0", 64))), 0o644))
	cmd := exec.Command(filepath.Join(src, "bin", "lab"), "run", "--arch", "arm64", "--scenario", "boot,squid", "--out", out)
	cmd.Env = append(append(os.Environ(), s.env...), "MIRROR=")
	text, err := cmd.CombinedOutput()
	var failed *exec.ExitError
	if !errors.As(err, &failed) || failed.ExitCode() != status.ExitLabFailed {
		t.Fatalf("%v: %s", err, text)
	}
	got := map[string]status.Status{}
	for _, s := range results(t, out, "arm64").Scenarios {
		got[s.Name] = s.Status
		if s.Name == "squid" && (s.Failure == nil || !strings.Contains(s.Failure.Summary, "guest drive: squid cannot be had: ")) {
			t.Errorf("%+v", s.Failure)
		}
	}
	if got["boot"] != status.Passed || got["squid"] != status.LabFailed || len(got) != 2 {
		t.Errorf("%v: %s", got, text)
	}
}
