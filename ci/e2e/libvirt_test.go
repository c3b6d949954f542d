package e2e

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"kerninst/lab/libvirt/libvirttest"
	"kerninst/lab/status"
)

// Through a libvirtd, scenarios come out as they do without, to the byte: from a
// state (amd64) and from a boot (riscv64); with -full, on three ISAs, all of the smoke
// scenarios, with CPUs that take turns and CPUs that do not.
func TestLibvirt(t *testing.T) {
	t.Parallel()
	d := libvirttest.Start(t)
	for _, tt := range []struct{ arch, slice string }{{"amd64", "cost"}, {"arm64", ""}, {"riscv64", "boot"}} {
		if tt.slice == "" && !*full {
			continue
		}
		t.Run(tt.arch, func(t *testing.T) {
			scenario := tt.slice
			if *full {
				scenario = "smoke"
			}
			var docs [2][]byte
			var out string
			for i, host := range []string{"", d.URI} {
				out = t.TempDir()
				if a := call(t, nil, "run", "--arch", tt.arch, "--scenario", scenario, "--host", host, "--out", out); a.code != 0 {
					t.Fatal(a)
				}
				var err error
				if docs[i], err = os.ReadFile(filepath.Join(out, tt.arch, "results.json")); err != nil {
					t.Fatal(err)
				}
			}
			if !bytes.Equal(docs[0], docs[1]) {
				t.Errorf("results differ:\n%s\n%s", docs[0], docs[1])
			}
			t.Logf("proof libvirt %s %d scenarios", tt.arch, len(results(t, out, tt.arch).Scenarios))
		})
	}
}

// A libvirtd that is killed leaves its QEMU behind; the lab does not.
func TestLibvirtKilled(t *testing.T) {
	d := libvirttest.Start(t)
	cmd, stderr, temp := start(t, "--host", d.URI)
	d.Kill()
	_ = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != status.ExitLabFailed {
		t.Fatalf("exit status %d, want %d: %s", code, status.ExitLabFailed, stderr)
	}
	s := results(t, filepath.Join(temp, "out"), "riscv64").Scenarios[0]
	if s.Failure == nil || s.Failure.Kind != "host-lost" || !strings.Contains(s.Failure.Summary, d.URI) || !strings.Contains(s.Failure.Rerun, "--host") {
		t.Errorf("got %+v", s.Failure)
	}
	if left := leftovers(t, temp); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	if pids := mentioning(t, temp); len(pids) > 0 {
		t.Errorf("QEMU is left: %v", pids)
	}
}

// A lab that is killed leaves nothing running either.
func TestLibvirtLabKilled(t *testing.T) {
	d := libvirttest.Start(t)
	cmd, _, temp := start(t, "--host", d.URI)
	if err := syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	eventually(t, "QEMU ends", func() bool { return len(mentioning(t, temp)) == 0 })
}

// mentioning lists QEMUs that have dir in their arguments.
func mentioning(t *testing.T, dir string) (argvs []string) {
	t.Helper()
	procs, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range procs {
		argv, _ := os.ReadFile(p)
		name, _, _ := bytes.Cut(argv, []byte{0})
		if strings.HasPrefix(filepath.Base(string(name)), "qemu-system-") && bytes.Contains(argv, []byte(dir)) {
			argvs = append(argvs, p)
		}
	}
	return argvs
}

func TestLibvirtUnreachable(t *testing.T) {
	sock := filepath.Join(t.TempDir(), "none")
	out := filepath.Join(t.TempDir(), "out")
	a := call(t, nil, "run", "--arch", "riscv64", "--host", "qemu+unix:///system?socket="+sock, "--out", out)
	if a.code != status.ExitLabFailed || !strings.Contains(a.stderr, sock) || !strings.Contains(a.stderr, "is it running") {
		t.Errorf("exit status %d: %s", a.code, a)
	}
	if _, err := os.Stat(out); err == nil {
		t.Error("results of nothing were left")
	}
}
