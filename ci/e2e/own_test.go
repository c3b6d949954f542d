package e2e

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"kerninst/lab/status"
)

// ownFile is a program of a user's.
func ownFile(t *testing.T, says string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "hello")
	must(t, os.WriteFile(name, []byte("#!/bin/sh\necho "+says+"\n"), 0o755))
	return name
}

// A guest has what the user adds to it, and the modules, CPUs and memory that
// were asked for.
func TestOwn(t *testing.T) {
	t.Parallel()
	to := filepath.Join(t.TempDir(), "new", "made")
	p := probe(t, 0, "--fetch", "/var/tmp/made:"+to, "--modprobe", "null-blk", "--cpus", "2", "--mem", "512", "--append", "nokaslr preempt=none", "--add", ownFile(t, "own"), "--skip-refused",
		"kinst:null_blk:null_queue_rq:0", "kinst::__arm64_sys_getppid:28",
		"--run", "/root/hello; nproc; lsmod | grep -c -e ^null_blk -e ^configfs; awk '/MemTotal/ {print ($2 < 512*1024)}' /proc/meminfo; [ -b /dev/nullb0 ] && echo block; grep -c 'nokaslr preempt=none' /proc/cmdline; mkdir -p /var/tmp/made/sub; echo out >/var/tmp/made/sub/file")
	if p.Workload == nil || p.Workload.Stdout != "own\n2\n2\n1\nblock\n1\n" {
		t.Errorf("got %+v", p.Workload)
	}
	if r := p.Points[0].Refusal; r != nil && strings.Contains(r.Detail, "not loaded") {
		t.Errorf("a function of the module: %+v", r)
	}
	if b, err := os.ReadFile(filepath.Join(to, "sub", "file")); string(b) != "out\n" {
		t.Errorf("fetched %q, %v", b, err)
	}
}

// What cannot be fetched is said, before a guest starts where that is known.
func TestFetch(t *testing.T) {
	t.Parallel()
	a := call(t, nil, "probe", "--arch", "arm64", "kinst::__arm64_sys_getppid:28", "--run", "true", "--fetch", "/none:"+filepath.Join(t.TempDir(), "none"))
	if a.code != status.ExitFailed || !strings.Contains(a.stderr, "--fetch /none: lstat /none: no such file or directory") {
		t.Errorf("exit status %d: %s", a.code, a)
	}
	for _, words := range [][]string{{"relative"}, {"/"}, {"/a:" + lab}, {"/a", "/b/a"}, {"/a", "/a/b"}} {
		args := []string{"probe", "--arch", "arm64", "kinst::__arm64_sys_getppid:28", "--run", "true"}
		for _, w := range words {
			args = append(args, "--fetch", w)
		}
		if a := call(t, nil, args...); a.code != status.ExitUsage || !strings.Contains(a.stderr, "--fetch "+words[len(words)-1]) {
			t.Errorf("%q: exit status %d: %s", words, a.code, a)
		}
	}
	if a := call(t, nil, "run", "--arch", "arm64", "--fetch", "/a:b"); a.code != status.ExitUsage || !strings.Contains(a.stderr, "the guest's path alone") {
		t.Errorf("exit status %d: %s", a.code, a)
	}
	a = call(t, nil, "run", "--arch", "arm64", "--scenario", "boot", "--fetch", "/none", "--fetch", "/proc/version", "--out", t.TempDir())
	if a.code != status.ExitFailed || !strings.Contains(a.stderr, "--fetch /none: no guest had it") || strings.Contains(a.stderr, "version: no guest") {
		t.Errorf("exit status %d: %s", a.code, a)
	}
}

// reproOwn: what a user added is in the run's folder, and comes out again from
// there; who changes it there is told.
func reproOwn(t *testing.T, env []string) {
	file, out := ownFile(t, "own"), t.TempDir()
	a := call(t, nil, "run", "--arch", "riscv64", "--scenario", "cost", "--mem", "800", "--append", "nokaslr", "--add", file+":/opt/hello", "--modprobe", "configfs", "--fetch", "/proc/version", "--out", out)
	if a.code != 0 {
		t.Fatal(a)
	}
	fetched, err := filepath.Glob(filepath.Join(out, "riscv64", "guests", "*", "fetched", "proc", "version"))
	if err != nil || len(fetched) == 0 {
		t.Fatalf("fetched %v, %v: %s", fetched, err, a)
	}
	if b, err := os.ReadFile(fetched[0]); err != nil || !strings.HasPrefix(string(b), "Linux version") {
		t.Errorf("fetched %q: %q, %v", fetched, b, err)
	}
	if b, err := os.ReadFile(filepath.Join(filepath.Dir(filepath.Dir(filepath.Dir(fetched[0]))), "qemu.argv")); err != nil || !strings.Contains(string(b), "nokaslr") {
		t.Errorf("the command line has not what was appended: %q, %v", b, err)
	}
	must(t, os.Remove(file))
	if a := call(t, env, "repro", out); a.code != 0 || !strings.Contains(a.stdout, "REPRODUCED") {
		t.Errorf("exit status %d: %s", a.code, a)
	}
	kept, err := filepath.Glob(filepath.Join(out, "riscv64", "added", "*"))
	if err != nil || len(kept) != 1 {
		t.Fatalf("kept: %v, %v", kept, err)
	}
	edit(t, kept[0], func([]byte) []byte { return []byte("other") })
	if a := call(t, env, "repro", out); a.code != status.ExitUsage || !strings.Contains(a.stderr, "changed since") {
		t.Errorf("exit status %d: %s", a.code, a)
	}
}

// A dry run says what would be done, in a form that a shell or a program can
// take, and does nothing: not even the cache comes into being.
func TestDryRun(t *testing.T) {
	cache := filepath.Join(t.TempDir(), "cache")
	for _, verb := range [][]string{
		{"run", "--arch", "all", "--scenario", "count", "--json"},
		{"probe", "--arch", "arm64", "kinst::vfs_read:16", "--run", "true", "--json"},
	} {
		cmd := exec.Command(lab, append(verb, "--dry-run", "--cpus", "1", "--mem", "512", "--add", lab+":/opt/lab")...)
		cmd.Dir, cmd.Env = t.TempDir(), append(os.Environ(), "XDG_CACHE_HOME="+cache)
		a := finish(t, cmd)
		var doc struct {
			Schema int
			DryRun bool `json:"dry_run"`
			Arches []struct {
				Arch   string
				Cached bool
				Guests []struct {
					Name  string
					Mem   int `json:"mem_mib"`
					Files []string
					Argv  []string
				}
			}
		}
		if err := json.Unmarshal([]byte(a.stdout), &doc); err != nil || a.code != 0 {
			t.Fatalf("%v: %v: %s", verb, err, a)
		}
		if doc.Schema != 1 || !doc.DryRun || len(doc.Arches) == 0 {
			t.Errorf("%v: got %+v", verb, doc)
		}
		for _, arch := range doc.Arches {
			for _, g := range arch.Guests {
				if g.Mem != 512 || !slices.Contains(g.Files, "/opt/lab") || !strings.Contains(strings.Join(g.Argv, " "), "-m 512") || arch.Cached {
					t.Errorf("%s on %s: %+v", g.Name, arch.Arch, g)
				}
			}
		}
		if _, err := os.Stat(cache); err == nil {
			t.Errorf("%v: made a cache", verb)
		}
		if left, _ := os.ReadDir(cmd.Dir); len(left) > 0 {
			t.Errorf("%v: left behind: %v", verb, left)
		}
	}
}
