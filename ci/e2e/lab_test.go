package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"kerninst/agent/ask"
	"kerninst/lab/card"
	"kerninst/lab/report"
	"kerninst/lab/status"
)

// lab is the command under test; `make test` builds it first.
var lab = func() string {
	path, err := filepath.Abs("../../bin/lab")
	if err != nil {
		panic(err)
	}
	return path
}()

// limit is far above what any call here takes; it is there so that a hang
// fails by itself.
const limit = 10 * time.Minute

type answer struct {
	code           int
	stdout, stderr string
}

// call runs bin/lab with the environment changed by env.
func call(t testing.TB, env []string, args ...string) answer {
	t.Helper()
	cmd := exec.Command(lab, args...)
	cmd.Env = append(os.Environ(), env...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Start(); err != nil {
		t.Fatalf("%v: build it with make bin/lab", err)
	}
	timer := time.AfterFunc(limit, func() { cmd.Process.Kill() })
	defer timer.Stop()
	err := cmd.Wait()
	var e *exec.ExitError
	if err != nil && !errors.As(err, &e) {
		t.Fatal(err)
	}
	return answer{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

func (a answer) String() string { return a.stdout + "\n" + a.stderr }

// results reads what a run of one ISA wrote.
func results(t *testing.T, out, arch string) report.Results {
	t.Helper()
	a, err := report.ReadArch(filepath.Join(out, arch))
	if err != nil {
		t.Fatal(err)
	}
	return a.Results
}

var arches = []string{"amd64", "arm64", "riscv64"}

func TestSmoke(t *testing.T) {
	t.Parallel()
	for _, arch := range arches {
		t.Run(arch, func(t *testing.T) {
			out := t.TempDir()
			a := call(t, nil, "run", "--arch", arch, "--out", out, "--force")
			if a.code == status.ExitLabFailed {
				t.Fatal(a)
			}
			for _, s := range results(t, out, arch).Scenarios {
				t.Run(s.Name, func(t *testing.T) {
					if s.Status != status.Passed {
						t.Errorf("%s: %+v", s.Status, s.Failure)
					}
				})
			}
			if a.code != 0 {
				t.Errorf("exit status %d: %s", a.code, a)
			}
			shown := slices.DeleteFunc(shownIn(t, "into `~/.cache/kerninst`")[0].commands[0].lines, func(line string) bool { return !strings.HasPrefix(line, arch) })
			if missing := lacking(shown, a.stdout); len(shown) == 0 || missing != "" {
				t.Errorf("the README shows %q, here came\n%s", missing, a.stdout)
			}
			for _, f := range []string{"report.html", "summary.md", arch + "/console.log", arch + "/qemu.argv", arch + "/manifest.json", arch + "/timings.json", arch + "/junit.xml", arch + "/bench.txt", arch + "/agent.log"} {
				if st, err := os.Stat(filepath.Join(out, f)); err != nil || st.Size() == 0 && f != arch+"/agent.log" {
					t.Errorf("%s: missing or empty (%v)", f, err)
				}
			}
		})
	}
}

// Wrong calls end with status 2, say what is wrong and leave nothing.
func TestWrongCalls(t *testing.T) {
	full := t.TempDir()
	if err := os.WriteFile(filepath.Join(full, "x"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name string
		args []string
		says string
	}{
		{"unknown verb", []string{"frobnicate"}, "frobnicate"},
		{"nearly a verb", []string{"porbe"}, "did you mean probe?"},
		{"nearly a verb of images", []string{"image", "biuld"}, "did you mean build?"},
		{"unknown flag", []string{"run", "--frob"}, "--frob"},
		{"nearly a flag", []string{"run", "--scenarios", "boot"}, "did you mean --scenario?"},
		{"an ISA's other name", []string{"run", "--arch", "aarch64"}, "did you mean arm64?"},
		{"nearly a name of places", []string{"probe", "kinst::f:entries", "--run", "true"}, "block, call, entry, return"},
		{"a list that runs", []string{"probe", "-l", "kinst::f:8", "--run", "true"}, "runs nothing"},
		{"nearly a mechanism", []string{"probe", "kinst::f:8", "--mechanism", "jmp", "--run", "true"}, "did you mean jump?"},
		{"unknown ISA", []string{"run", "--arch", "sparc"}, "amd64, arm64, riscv64"},
		{"unknown ISA of a probe", []string{"probe", "--arch", "sparc", "kinst::f:1", "--run", "true"}, "amd64, arm64, riscv64"},
		{"several ISAs for a probe", []string{"probe", "--arch", "all", "kinst::f:1", "--run", "true"}, "one ISA"},
		{"unknown scenario", []string{"run", "--scenario", "smok"}, "did you mean smoke?"},
		{"unknown time", []string{"run", "--time", "lunar"}, "one of exact, host"},
		{"host time in exact time", []string{"run", "--scenario", "boot,ab"}, "add --time host"},
		{"a host without encryption", []string{"run", "--host", "qemu+tcp://host/system"}, "use ssh or tls"},
		{"a host that is no URI", []string{"run", "--host", "host"}, "qemu+unix:///system"},
		{"no jobs", []string{"run", "--jobs", "0"}, "at least 1"},
		{"out is not empty", []string{"run", "--out", full}, "--force"},
		{"too many CPUs", []string{"run", "--cpus", "9"}, "1 to 8"},
		{"CPUs that exact time cannot have", []string{"probe", "--arch", "riscv64", "kinst::f:8", "--cpus", "2", "--run", "true"}, "use 1 CPU, or host time"},
		{"likewise of a run", []string{"run", "--arch", "riscv64", "--cpus", "2"}, "use 1 CPU, or host time"},
		{"memory that the files do not fit into", []string{"run", "--mem", "150"}, "give --mem"},
		{"too little memory", []string{"run", "--mem", "100"}, "128"},
		{"no time", []string{"run", "--timeout", "-1s"}, "more than 0"},
		{"nothing to add", []string{"run", "--add", "/nonexistent"}, "no such file"},
		{"add under a mount", []string{"probe", "kinst::f:8", "--add", "/etc/passwd:/proc/x", "--run", "true"}, "mounts over /proc"},
		{"add over the lab's own", []string{"probe", "kinst::f:8", "--add", "/etc/passwd:/init", "--run", "true"}, "lab's own"},
		{"unknown module", []string{"probe", "kinst::f:8", "--modprobe", "null_blkk", "--run", "true"}, "did you mean null_blk?"},
		{"no probe", []string{"probe"}, "arg"},
		{"probe without workload", []string{"probe", "kinst::vfs_read:8"}, "--run"},
		{"two workloads", []string{"probe", "kinst::vfs_read:8", "--run", "true", "--", "true"}, "choose one"},
		{"bad probe", []string{"probe", "vfs_read+8", "--run", "true"}, "kinst:"},
		{"twin probes", []string{"probe", "kinst::f:8", "kinst::f:0x8", "--run", "true"}, "twice"},
		{"unknown action", []string{"probe", "kinst::f:8", "--do", "dance", "--run", "true"}, "count"},
		{"no condition", []string{"probe", "kinst::f:8", "--if", "arg0", "--run", "true"}, "is no condition"},
		{"twin actions", []string{"probe", "kinst::f:8", "--do", "count", "--do", "count", "--run", "true"}, "given twice"},
		{"gdb of several ISAs", []string{"gdb", "--arch", "all"}, "one guest"},
		{"gdb of a guest that was not kept", []string{"gdb", full}, "no guest was kept"},
		{"the end of a guest that was not kept", []string{"kept", "--end", full}, "no guest was kept"},
		{"keep what libvirtd ends", []string{"run", "--keep", "--host", "qemu+unix:///system"}, "libvirtd ends its guests"},
		{"report of nothing", []string{"report"}, "arg"},
		{"report of no folder", []string{"report", "/nonexistent"}, "no such file"},
		{"report of no run", []string{"report", full}, "not the output of a run"},
		{"repro of nothing", []string{"repro"}, "arg"},
		{"repro of no run", []string{"repro", full}, "no manifest"},
		{"repro of no folder", []string{"repro", "/nonexistent"}, "no manifest"},
		{"comparison of one run", []string{"compare", full}, "arg"},
		{"comparison of no run", []string{"compare", full, full}, "no run is here"},
		{"history of no run", []string{"history", full}, "no run is here"},
		{"shell without a terminal", []string{"shell"}, "needs a terminal"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			cmd := exec.Command(lab, tt.args...)
			cmd.Dir = t.TempDir()
			out, err := cmd.CombinedOutput()
			if cmd.ProcessState.ExitCode() != status.ExitUsage {
				t.Fatalf("exit status %d (%v), want 2: %s", cmd.ProcessState.ExitCode(), err, out)
			}
			if !strings.Contains(string(out), tt.says) {
				t.Errorf("%q does not say %q", out, tt.says)
			}
			if left, _ := os.ReadDir(cmd.Dir); len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
		})
	}
}

// Without a folder for the cache nothing begins, so there is nothing to report on.
func TestNoCacheFolder(t *testing.T) {
	cmd := exec.Command(lab, "run")
	cmd.Dir, cmd.Env = t.TempDir(), append(os.Environ(), "HOME=", "XDG_CACHE_HOME=")
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState.ExitCode() != status.ExitLabFailed || !strings.Contains(string(out), "set HOME or XDG_CACHE_HOME") {
		t.Errorf("%v, want exit status %d and what to set: %s", err, status.ExitLabFailed, out)
	}
	if left, _ := os.ReadDir(cmd.Dir); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

type probeAnswer struct {
	Schema int
	Points []struct {
		Symbol, Mechanism string
		Refusal           *struct{ Reason, Detail string }
		Value             *uint64
	}
	Times    []ask.Times
	Series   []*ask.Series
	Card     *card.Card
	Workload *struct {
		Exit   int
		Stdout string
	}
}

func probe(t *testing.T, wantCode int, args ...string) probeAnswer {
	t.Helper()
	a := call(t, nil, append([]string{"probe", "--arch", "arm64", "--json"}, args...)...)
	if a.code != wantCode {
		t.Fatalf("exit status %d, want %d: %s", a.code, wantCode, a)
	}
	var p probeAnswer
	if err := json.Unmarshal([]byte(a.stdout), &p); err != nil {
		t.Fatalf("%v: %s", err, a.stdout)
	}
	return p
}

func TestProbe(t *testing.T) {
	t.Parallel()
	bench := []string{"--", "/lib/kerninst/bench/bench", "null", "100", "9"}
	t.Run("refused inside an instruction", func(t *testing.T) {
		p := probe(t, status.ExitFailed, append([]string{"kinst::__arm64_sys_getppid:17"}, bench...)...)
		if r := p.Points[0].Refusal; r == nil || r.Reason != "inside an instruction" {
			t.Errorf("got %+v", p.Points[0])
		}
		if p.Workload != nil {
			t.Error("the workload ran although nothing was spliced")
		}
	})
	t.Run("unknown function", func(t *testing.T) {
		p := probe(t, status.ExitFailed, append([]string{"kinst::__arm64_sys_getpid_:8"}, bench...)...)
		if r := p.Points[0].Refusal; r == nil || r.Reason != "no such function" || !strings.Contains(r.Detail, "getpid") {
			t.Errorf("got %+v", p.Points[0].Refusal)
		}
	})
	t.Run("unknown module", func(t *testing.T) {
		p := probe(t, status.ExitFailed, append([]string{"kinst:ext4:vfs_read:8"}, bench...)...)
		if r := p.Points[0].Refusal; r == nil || r.Detail != "module ext4 is not loaded; vfs_read is in the kernel itself" {
			t.Errorf("got %+v", p.Points[0].Refusal)
		}
	})
	t.Run("a workload without end", func(t *testing.T) {
		a := call(t, nil, "probe", "--arch", "arm64", "kinst::__arm64_sys_getppid:28", "--timeout", "10ms", "--run", "sleep 1000")
		if a.code != status.ExitTimeout || strings.Contains(a.stderr, "passed") || !strings.Contains(a.stderr, "probe: workload timed out after") {
			t.Errorf("exit status %d, want %d, and no word of passed: %s", a.code, status.ExitTimeout, a)
		}
	})
	t.Run("a workload that kills the kernel", func(t *testing.T) {
		p := probe(t, status.ExitCrashed, "kinst::__arm64_sys_getppid:28", "--run", "echo c >/proc/sysrq-trigger")
		if c := p.Card; c == nil || c.Status != status.Crashed || c.Step != "workload" || !strings.Contains(c.Text(), "sysrq_handle_crash+") || !strings.Contains(c.Text(), "--run 'echo c >/proc/sysrq-trigger'") {
			t.Errorf("card %+v", c)
		}
	})
	t.Run("the workload's status is its own", func(t *testing.T) {
		p := probe(t, 0, "--skip-refused", "kinst::__arm64_sys_getppid:17", "kinst::__arm64_sys_getppid:28", "--run", "echo out; exit 3")
		if p.Workload == nil || p.Workload.Exit != 3 || p.Workload.Stdout != "out\n" {
			t.Errorf("got %+v", p.Workload)
		}
	})
}
