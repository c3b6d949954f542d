package e2e

import (
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"kerninst/lab/status"
)

// pathWithout is a folder of links to all commands but one, with others added.
func pathWithout(t *testing.T, missing string, scripts map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for _, from := range filepath.SplitList(os.Getenv("PATH")) {
		entries, _ := os.ReadDir(from)
		for _, e := range entries {
			if e.Name() != missing {
				_ = os.Symlink(filepath.Join(from, e.Name()), filepath.Join(dir, e.Name()))
			}
		}
	}
	for name, text := range scripts {
		_ = os.Remove(filepath.Join(dir, name))
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+text+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return "PATH=" + dir
}

// What the host lacks is the lab's failure, said with what to do.
func TestHostLacks(t *testing.T) {
	empty := httptest.NewServer(http.NotFoundHandler())
	defer empty.Close()
	const qemu = "qemu-system-riscv64"
	for _, tt := range []struct {
		name string
		env  func(t *testing.T) []string
		says []string
	}{
		{"no QEMU", func(t *testing.T) []string { return []string{pathWithout(t, qemu, nil)} },
			[]string{qemu, "package", "lab doctor"}},
		{"an old QEMU", func(t *testing.T) []string {
			return []string{pathWithout(t, qemu, map[string]string{qemu: "echo QEMU emulator version 6.2.0"})}
		}, []string{"6.2.0", "7.2"}},
		{"no network, empty cache", func(t *testing.T) []string {
			return []string{"XDG_CACHE_HOME=" + t.TempDir(), "MIRROR=http://127.0.0.1:1/debian", "GO=" + goPath(t)}
		}, []string{"127.0.0.1:1"}},
		{"a mirror without Debian", func(t *testing.T) []string {
			return []string{"XDG_CACHE_HOME=" + t.TempDir(), "MIRROR=" + empty.URL, "GO=" + goPath(t)}
		}, []string{empty.URL, "trixie"}},
		{"a mirror that is no address", func(t *testing.T) []string { return []string{"MIRROR=here"} },
			[]string{"here"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a := call(t, tt.env(t), "run", "--arch", "riscv64", "--scenario", "boot", "--out", t.TempDir())
			if a.code != status.ExitLabFailed {
				t.Fatalf("exit status %d, want %d: %s", a.code, status.ExitLabFailed, a)
			}
			for _, s := range tt.says {
				if !strings.Contains(a.stderr, s) {
					t.Errorf("%q does not say %q", a.stderr, s)
				}
			}
		})
	}
}

// goPath is the Go that runs this test: with an empty cache, none is found.
func goPath(t *testing.T) string {
	t.Helper()
	p, err := exec.LookPath("go")
	if g := os.Getenv("GO"); g != "" {
		return g
	}
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// emulators lists the processes of this test's QEMUs: those whose working
// directory lies below dir.
func emulators(t *testing.T, dir string) []int {
	t.Helper()
	procs, err := filepath.Glob("/proc/[0-9]*/cwd")
	if err != nil {
		t.Fatal(err)
	}
	var pids []int
	for _, p := range procs {
		if cwd, err := os.Readlink(p); err == nil && strings.HasPrefix(cwd, dir) {
			comm, _ := os.ReadFile(filepath.Join(filepath.Dir(p), "comm"))
			if strings.HasPrefix(string(comm), "qemu-system") {
				pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(p)))
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

// eventually polls for something that another process does. It is bounded, and
// what is polled for is the thing itself, not the passing of time.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	// Processes and files of others have no event to wait for that works for all of them.
	for deadline := time.Now().Add(time.Minute); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within a minute", what)
		}
	}
}

// start runs a scenario that takes long to end by itself, in a temporary directory of
// its own, and returns when the guest has begun to boot.
func start(t *testing.T, flags ...string) (cmd *exec.Cmd, stderr *strings.Builder, temp string) {
	t.Helper()
	temp = t.TempDir()
	stderr = &strings.Builder{}
	cmd = exec.Command(lab, append([]string{"run", "--arch", "riscv64", "--scenario", "fault-boot-hang", "--out", filepath.Join(temp, "out")}, flags...)...)
	cmd.Env = append(os.Environ(), "TMPDIR="+temp, "XDG_RUNTIME_DIR=")
	cmd.Stderr = stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if t.Failed() {
			cmd.Process.Kill()
			cmd.Wait()
			t.Log(stderr)
		}
	}()
	eventually(t, "the guest boots", func() bool {
		logs, _ := filepath.Glob(filepath.Join(temp, "*", "*", "console.log"))
		for _, l := range logs {
			if st, err := os.Stat(l); err == nil && st.Size() > 0 {
				return true
			}
		}
		return false
	})
	return cmd, stderr, temp
}

// leftovers are files below temp that are no results.
func leftovers(t *testing.T, temp string) (left []string) {
	t.Helper()
	err := filepath.Walk(temp, func(p string, info os.FileInfo, err error) error {
		if err != nil {
			return err
		}
		if p == filepath.Join(temp, "out") {
			return filepath.SkipDir
		}
		if !info.IsDir() && info.Name() != "lock" {
			left = append(left, p)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return left
}

func TestQEMUKilledFromOutside(t *testing.T) {
	cmd, stderr, temp := start(t)
	for _, pid := range emulators(t, temp) {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	_ = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != status.ExitLabFailed {
		t.Fatalf("exit status %d, want %d: %s", code, status.ExitLabFailed, stderr)
	}
	s := results(t, filepath.Join(temp, "out"), "riscv64").Scenarios[0]
	if s.Failure == nil || s.Failure.Kind != "qemu-killed" {
		t.Errorf("got %+v", s.Failure)
	}
	if c := theCard(t, answer{stderr: stderr.String()}, filepath.Join(temp, "out"), "riscv64"); c.Status != status.LabFailed || c.Kind != "qemu-killed" {
		t.Errorf("card %+v", c)
	}
	if left := leftovers(t, temp); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestInterrupt(t *testing.T) {
	for name, flags := range map[string][]string{"": nil, "keep": {"--keep"}} {
		t.Run(name, func(t *testing.T) {
			cmd, stderr, temp := start(t, flags...)
			// As a terminal does it: to the whole group.
			if err := syscall.Kill(-cmd.Process.Pid, syscall.SIGINT); err != nil {
				t.Fatal(err)
			}
			_ = cmd.Wait()
			if code := cmd.ProcessState.ExitCode(); code != status.ExitInterrupted {
				t.Fatalf("exit status %d, want %d: %s", code, status.ExitInterrupted, stderr)
			}
			if said := stderr.String(); strings.Count(said, "lab: interrupted\n") != 1 || strings.Contains(said, "context canceled") {
				t.Errorf("an interruption is told as %q", said)
			}
			eventually(t, "QEMU ends", func() bool { return len(emulators(t, temp)) == 0 })
			if left := leftovers(t, temp); len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
		})
	}
}

// SIGKILL lets nobody clean up. The one process ends those that it started; when
// all are killed, QEMU dies with its parent, or, if it was to be kept, with the next
// lab, which removes what is left.
func TestKilledLab(t *testing.T) {
	for name, tt := range map[string]struct {
		whom  int
		flags []string
	}{"the lab": {whom: 1}, "all of its processes": {whom: -1}, "all, and the guests were to be kept": {-1, []string{"--keep"}}} {
		t.Run(name, func(t *testing.T) {
			cmd, _, temp := start(t, tt.flags...)
			if err := syscall.Kill(tt.whom*cmd.Process.Pid, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			_ = cmd.Wait()
			if tt.flags == nil {
				eventually(t, "QEMU ends", func() bool { return len(emulators(t, temp)) == 0 })
			}
			a := call(t, []string{"TMPDIR=" + temp, "XDG_RUNTIME_DIR="}, "run", "--arch", "riscv64", "--scenario", "boot", "--out", filepath.Join(temp, "out"), "--force")
			if a.code != 0 {
				t.Fatal(a)
			}
			eventually(t, "QEMU ends", func() bool { return len(emulators(t, temp)) == 0 })
			if left := leftovers(t, temp); len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
		})
	}
}

// A /dev/kvm that is there and runs no guest is said to be so, and the guests of
// host time are emulated.
func TestUnusableKVM(t *testing.T) {
	device := filepath.Join(t.TempDir(), "kvm")
	if err := os.WriteFile(device, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	env := []string{"KERNINST_KVM=" + device}
	out := filepath.Join(t.TempDir(), "out")
	a := call(t, env, "run", "--arch", runtime.GOARCH, "--scenario", "boot", "--time", "host", "--out", out)
	if a.code != 0 || !strings.Contains(a.stderr, "KVM is not used: "+device+" is not KVM") {
		t.Fatal(a)
	}
	timings, err := os.ReadFile(filepath.Join(out, runtime.GOARCH, "timings.json"))
	if err != nil || !strings.Contains(string(timings), "tcg: "+device) {
		t.Errorf("timings: %s, %v", timings, err)
	}
	argv, err := os.ReadFile(filepath.Join(out, runtime.GOARCH, "qemu.argv"))
	if err != nil || !strings.Contains(string(argv), "-accel tcg") {
		t.Errorf("argv: %s, %v", argv, err)
	}
	if a := call(t, env, "doctor", "--arch", runtime.GOARCH); a.code != 0 || !strings.Contains(a.stdout, device+" is not KVM") {
		t.Errorf("doctor: %s", a)
	}
}
