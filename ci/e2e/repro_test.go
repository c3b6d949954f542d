package e2e

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"kerninst/lab/status"
)

// ran does the cost scenario once, on one ISA.
func ran(t *testing.T, arch, seed string) string {
	t.Helper()
	return ranIn(t, nil, arch, seed)
}

func ranIn(t *testing.T, env []string, arch, seed string) string {
	t.Helper()
	out := t.TempDir()
	if a := call(t, env, "run", "--arch", arch, "--scenario", "cost", "--seed", seed, "--out", out, "--force"); a.code != 0 {
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

// A run comes out again bit for bit, from a state and from a boot; whatever differs
// is named. TMPDIR is the test's own, so that what a difference leaves behind goes away.
func TestRepro(t *testing.T) {
	t.Parallel()
	env := []string{"TMPDIR=" + t.TempDir()}
	const arch = "arm64"
	out := ran(t, arch, "1")
	results := filepath.Join(out, arch, "results.json")
	manifest := filepath.Join(out, arch, "manifest.json")
	console := filepath.Join(out, arch, "guests", "cost.cost", "console.log")

	for _, from := range []string{out, ran(t, "riscv64", "1")} {
		if a := call(t, env, "repro", from); a.code != 0 || !strings.Contains(a.stdout, "REPRODUCED") {
			t.Errorf("the same: exit status %d: %s", a.code, a)
		}
	}
	t.Run("with a file and a module of one's own", func(t *testing.T) { reproOwn(t, env) })
	t.Run("one number", func(t *testing.T) {
		edit(t, results, replace(`("splice.insns_per_hit": \{\s*"value": )\d+`, "${1}6"))
		a := call(t, env, "repro", out)
		if a.code != status.ExitFailed || !strings.Contains(a.stdout, "metrics.splice.insns_per_hit.value: 6 recorded, 4 now") {
			t.Errorf("exit status %d: %s", a.code, a)
		}
	})
	t.Run("compared with itself, changed", func(t *testing.T) {
		changed := filepath.Join(t.TempDir(), "changed")
		must(t, os.CopyFS(changed, os.DirFS(out)))
		if a := call(t, env, "compare", out, changed); a.code != 0 || !strings.Contains(a.stdout, "same of") || a.stderr != "" {
			t.Errorf("the same: exit status %d: %s", a.code, a)
		}
		edit(t, filepath.Join(changed, arch, "results.json"), replace(`("splice.insns_per_hit": \{\s*"value": )\d+`, "${1}6"))
		if a := call(t, env, "compare", out, changed); a.code != status.ExitFailed || !strings.Contains(a.stdout, "worse") {
			t.Errorf("changed: exit status %d: %s", a.code, a)
		}
		if a := call(t, env, "history", filepath.Dir(changed)); a.code != 0 || !strings.Contains(a.stdout, "0 of") {
			t.Errorf("history: exit status %d: %s", a.code, a)
		}
	})
	t.Run("another seed", func(t *testing.T) {
		other := ran(t, arch, "2")
		if a := call(t, env, "compare", out, other); !strings.Contains(a.stderr, "seed: 1 in A, 2 in B") {
			t.Errorf("compared: exit status %d: %s", a.code, a)
		}
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
		edit(t, console, replace(`kerninst: loading`, "kerninst: unloading"))
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
// also when the state is made anew, and a damaged one is noticed. The states that are
// damaged are the test's own: beside it, others go on from the user's.
func TestReproFromGoldenStates(t *testing.T) {
	t.Parallel()
	t.Run("amd64", func(t *testing.T) {
		if a := call(t, nil, "repro", ran(t, "amd64", "1")); a.code != 0 {
			t.Errorf("from the state: exit status %d: %s", a.code, a)
		}
	})
	t.Run("riscv64", func(t *testing.T) { // part of its state is the lab's to keep
		s := newStoreOf(t, "riscv64")
		out := ranIn(t, s.env, "riscv64", "1")
		if a := call(t, s.env, "repro", out); a.code != 0 || strings.Contains(a.stderr, "booting") {
			t.Errorf("from the state: exit status %d: %s", a.code, a)
		}
		states, err := filepath.Glob(filepath.Join(s.dir, "golden", "*", "state"))
		if must(t, err); len(states) != 1 {
			t.Fatalf("states: %v", states)
		}
		must(t, os.Truncate(states[0], 4096))
		a := call(t, s.env, "repro", out)
		if a.code != 0 || !strings.Contains(a.stderr, "damaged") {
			t.Errorf("from a new state: exit status %d: %s", a.code, a)
		}
	})
}

// A lab that gets no CPU while its guest becomes ready is not too late: the guest
// boots once, and the state that is kept is the one that any other lab keeps.
func TestLateLab(t *testing.T) {
	v := newVictim(t, "arm64")
	results := filepath.Join(v.out, v.arch, "results.json")
	run := func() *exec.Cmd {
		must(t, os.RemoveAll(filepath.Join(v.dir, "golden")), os.RemoveAll(v.out))
		cmd := exec.Command(lab, "run", "--arch", v.arch, "--scenario", "cost", "--out", v.out)
		cmd.Env = append(os.Environ(), v.env...)
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		return cmd
	}
	if a := finish(t, run()); a.code != 0 {
		t.Fatal(a)
	}
	want, err := os.ReadFile(results)
	must(t, err)

	cmd := run()
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	must(t, cmd.Start())
	t.Cleanup(func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }) // if it is still there
	eventually(t, "the guest boots", func() bool {
		found, _ := filepath.Glob(filepath.Join(v.temp, "*", "*", "console.log"))
		return len(found) > 0 && size(found[0]) > 0
	})
	qemu := emulators(t, v.temp)
	must(t, syscall.Kill(-cmd.Process.Pid, syscall.SIGSTOP)) // QEMU is in a group of its own
	eventually(t, "the guest waits", func() bool { return idle(t, qemu) })
	must(t, syscall.Kill(-cmd.Process.Pid, syscall.SIGCONT), cmd.Wait())
	if n := strings.Count(stderr.String(), "booting a guest"); n != 1 {
		t.Errorf("%d guests booted: %s", n, &stderr)
	}
	got, err := os.ReadFile(results)
	must(t, err)
	if !bytes.Equal(got, want) {
		t.Errorf("results differ:\n%s\n%s", got, want)
	}
}

func size(path string) int64 {
	st, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return st.Size()
}

// idle watches processes for a second and says whether they used no CPU at all.
func idle(t *testing.T, pids []int) bool {
	t.Helper()
	used := func() (all string) {
		for _, pid := range pids {
			b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
			must(t, err)
			// utime and stime, see proc(5); the name before may hold spaces.
			fields := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
			all += fields[11] + "+" + fields[12] + " "
		}
		return all
	}
	before := used()
	time.Sleep(time.Second) // what is looked at is the time that passes
	return len(pids) > 0 && used() == before
}
