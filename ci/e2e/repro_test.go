package e2e

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"kerninst/lab/status"
)

// ran does the cost scenario once, on one ISA.
func ran(t *testing.T, arch, seed string) string {
	t.Helper()
	out := t.TempDir()
	if a := call(t, nil, "run", "--arch", arch, "--scenario", "cost", "--seed", seed, "--out", out, "--force"); a.code != 0 {
		t.Fatal(a)
	}
	return out
}

// edit changes one file and puts it back at the test's end.
func edit(t *testing.T, path string, change func([]byte) []byte) {
	t.Helper()
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	after := change(bytes.Clone(before))
	if bytes.Equal(before, after) {
		t.Fatalf("%s: the edit changes nothing", path)
	}
	if err := os.WriteFile(path, after, 0o644); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.WriteFile(path, before, 0o644) })
}

func replace(old, new string) func([]byte) []byte {
	return func(b []byte) []byte { return regexp.MustCompile(old).ReplaceAll(b, []byte(new)) }
}

// A run comes out again bit for bit; whatever differs is named. TMPDIR is the
// test's own, so that what a difference leaves behind goes away.
func TestRepro(t *testing.T) {
	env := []string{"TMPDIR=" + t.TempDir()}
	const arch = "riscv64"
	out := ran(t, arch, "1")
	results := filepath.Join(out, arch, "results.json")
	manifest := filepath.Join(out, arch, "manifest.json")
	console := filepath.Join(out, arch, "guests", "cost.cost", "console.log")

	t.Run("the same", func(t *testing.T) {
		if a := call(t, env, "repro", out); a.code != 0 || !strings.Contains(a.stdout, "REPRODUCED") {
			t.Errorf("exit status %d: %s", a.code, a)
		}
	})
	t.Run("with a file and a module of one's own", func(t *testing.T) { reproOwn(t, env) })
	t.Run("one number", func(t *testing.T) {
		edit(t, results, replace(`("splice.insns_per_hit": \{\s*"value": )\d+`, "${1}6"))
		a := call(t, env, "repro", out)
		if a.code != status.ExitFailed || !strings.Contains(a.stdout, "metrics.splice.insns_per_hit.value: 6 recorded, 7 now") {
			t.Errorf("exit status %d: %s", a.code, a)
		}
	})
	t.Run("another seed", func(t *testing.T) {
		other := ran(t, arch, "2")
		b, err := os.ReadFile(filepath.Join(other, arch, "results.json"))
		if err != nil {
			t.Fatal(err)
		}
		edit(t, results, func([]byte) []byte { return b })
		a := call(t, env, "repro", out)
		if a.code != status.ExitFailed || !strings.Contains(a.stdout, "results.json: seed: 2 recorded, 1 now") {
			t.Errorf("exit status %d: %s", a.code, a)
		}
	})
	t.Run("console", func(t *testing.T) {
		edit(t, console, replace(`OpenSBI v\S+`, "OpenSBI v0"))
		a := call(t, env, "repro", out)
		if a.code != status.ExitFailed || !strings.Contains(a.stdout, "cost.cost/console.log: line ") {
			t.Errorf("exit status %d: %s", a.code, a)
		}
	})
	t.Run("manifest changed by hand", func(t *testing.T) {
		edit(t, manifest, replace(`"seed": 1`, `"seed": 2`))
		a := call(t, env, "repro", out)
		if a.code != status.ExitUsage || !strings.Contains(a.stderr, "changed since the run") {
			t.Errorf("exit status %d: %s", a.code, a)
		}
	})
	t.Run("not a run", func(t *testing.T) {
		if a := call(t, env, "repro", t.TempDir()); a.code != status.ExitUsage || !strings.Contains(a.stderr, "no manifest") {
			t.Errorf("exit status %d: %s", a.code, a)
		}
	})
}

// Guests that go on from a state say the same as the one that was kept first,
// also when the state is made anew, and a damaged one is noticed.
func TestReproFromGoldenStates(t *testing.T) {
	for _, arch := range []string{"amd64", "arm64"} {
		t.Run(arch, func(t *testing.T) {
			cache, err := os.UserCacheDir()
			if err != nil {
				t.Fatal(err)
			}
			// A seed of its own, so that no other run's state is touched.
			out := ran(t, arch, "4711")
			if a := call(t, nil, "repro", out); a.code != 0 {
				t.Errorf("from the state: exit status %d: %s", a.code, a)
			}
			state := newest(t, filepath.Join(cache, "kerninst", "golden", "*", "state"))
			if err := os.Truncate(state, 4096); err != nil {
				t.Fatal(err)
			}
			a := call(t, nil, "repro", out)
			if a.code != 0 || !strings.Contains(a.stderr, "damaged") {
				t.Errorf("from a new state: exit status %d: %s", a.code, a)
			}
		})
	}
}

// newest is the file of a pattern whose entry was used last.
func newest(t *testing.T, pattern string) (path string) {
	t.Helper()
	found, err := filepath.Glob(pattern)
	if err != nil || len(found) == 0 {
		t.Fatalf("%s: nothing there (%v)", pattern, err)
	}
	var last int64
	for _, f := range found {
		st, err := os.Stat(filepath.Join(filepath.Dir(f), "sums.json"))
		if err == nil && st.ModTime().UnixNano() > last {
			path, last = f, st.ModTime().UnixNano()
		}
	}
	return path
}
