package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"kerninst/scenarios"
)

// The commit of sources is known where they are a clone, and so is that they differ from it.
func TestCommit(t *testing.T) {
	dir := t.TempDir()
	if got := described(t.Context(), dir); got != "" {
		t.Errorf("no clone: %q", got)
	}
	if _, err := exec.LookPath("git"); err != nil {
		return // then none is known, as has been seen
	}
	file := filepath.Join(dir, "file")
	git := func(args ...string) {
		t.Helper()
		who := []string{"-C", dir, "-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"}
		if out, err := exec.Command("git", append(who, args...)...).CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v: %s", args, err, out)
		}
	}
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	git("init", "-q")
	write("a")
	git("add", "file")
	git("commit", "-qm", "a")
	git("tag", "v1")
	if got := described(t.Context(), dir); !regexp.MustCompile(`^[0-9a-f]{12}$`).MatchString(got) {
		t.Errorf("a clone: %q", got)
	}
	write("other")
	if got := described(t.Context(), dir); !regexp.MustCompile(`^[0-9a-f]{12}-dirty$`).MatchString(got) {
		t.Errorf("a clone with a change: %q", got)
	}
}

// A run notes what it was made of and ran on, where that is known.
func TestTimings(t *testing.T) {
	env := &scenarios.Env{Took: map[string]float64{"cost.cost": 2}}
	f := runFlags{commit: "abc", accel: "kvm"}
	got := f.timings(env, time.Unix(0, 0), 1)
	if got.Host["commit"] != "abc" || got.Host["accel"] != "kvm" || got.Host["start"] != "1970-01-01T00:00:00Z" || got.Seconds["guest/cost.cost"] != 2 || got.Seconds["prepare"] != 1 {
		t.Errorf("%+v", got)
	}
	f = runFlags{}
	if got := f.timings(env, time.Unix(0, 0), 1).Host; len(got) != 2 {
		t.Errorf("%v", got)
	}
}
