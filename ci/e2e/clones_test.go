package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"kerninst/lab/status"
)

// cloned is a probe's document.
type cloned struct {
	Points []struct {
		Spec, Mechanism string
		Refusal         *struct{ Reason, Detail string }
		Value           *uint64
	}
	Clones []struct {
		Function string
		Points   int
	}
	Workload struct {
		Exit   int
		Stdout string
	}
}

func probeClone(t *testing.T, arch string, args ...string) (out cloned) {
	t.Helper()
	a := call(t, nil, append([]string{"probe", "--arch", arch, "--index", "--json"}, args...)...)
	if a.code != status.ExitPassed {
		t.Fatal(a)
	}
	if err := json.Unmarshal([]byte(a.stdout), &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// efaults reads a thousand times to where nothing is mapped, and as often to where something is.
const efaults = `package main

import ("os"; "syscall"; "unsafe")

func main() {
	f, err := os.Open("/dev/zero")
	if err != nil { os.Exit(2) }
	b := make([]byte, 64)
	for range 1000 {
		for k := range b { b[k] = 1 }
		if n, _, e := syscall.Syscall(syscall.SYS_READ, f.Fd(), uintptr(unsafe.Pointer(&b[0])), 64); n != 64 || e != 0 || b[0] != 0 || b[63] != 0 { os.Exit(3) }
		if _, _, e := syscall.Syscall(syscall.SYS_READ, f.Fd(), 4096, 64); e != syscall.EFAULT { os.Exit(4) }
	}
}
`

// TestClones: a clone counts what splices count, has the kernel rewrite its static keys with the others, and
// faults as the original does.
func TestClones(t *testing.T) {
	t.Parallel()
	for arch, faults := range map[string]string{"amd64": "rep_stos_alternative", "arm64": "__arch_clear_user", "riscv64": "__clear_user"} {
		t.Run(arch, func(t *testing.T) {
			t.Parallel()
			clonesOf(t, arch, faults)
		})
	}
}

// clonesOf looks at clones of an ISA; faults is the function in which reads of /dev/zero fault.
func clonesOf(t *testing.T, arch, faults string) {
	t.Run("counts", func(t *testing.T) {
		t.Parallel()
		args := []string{"kinst::vfs_read:block", "--if", `comm == "dd"`, "--run", "dd if=/dev/zero of=/dev/null bs=100 count=300"}
		in, of := probeClone(t, arch, append(args, "--mechanism", "clone")...), probeClone(t, arch, append(args, "--skip-refused", "--no-mechanism", "clone")...)
		chosen := probeClone(t, arch, args...)
		if len(in.Points) != len(of.Points) || len(in.Points) < 30 {
			t.Fatalf("%d points in a clone, %d splices", len(in.Points), len(of.Points))
		}
		if !reflect.DeepEqual(chosen.Points, in.Points) || len(chosen.Clones) != 1 || chosen.Clones[0].Points != len(in.Points) || chosen.Clones[0].Function != "vfs_read" {
			t.Errorf("of so many points nothing is said: %+v: %+v", chosen.Clones, chosen.Points)
		}
		if len(of.Clones) > 0 {
			t.Errorf("not to be in clones: %+v", of.Clones)
		}
		came := 0
		for k, p := range in.Points {
			if p.Mechanism != "clone" || p.Spec != of.Points[k].Spec {
				t.Errorf("%+v in a clone is %+v spliced", p, of.Points[k])
			}
			if of.Points[k].Refusal != nil { // a trap of the kernel's own
				continue
			}
			if *p.Value != *of.Points[k].Value {
				t.Errorf("%s: %d in a clone, %d spliced", p.Spec, *p.Value, *of.Points[k].Value)
			}
			if *p.Value >= 300 {
				came++
			}
		}
		if came < 8 {
			t.Errorf("only %d blocks came by as often as dd reads", came)
		}
	})
	t.Run("keys", func(t *testing.T) {
		t.Parallel()
		got := probeClone(t, arch, "kinst::kernel_clone:entry", "--mechanism", "clone", "--run",
			"cd /sys/kernel/tracing; for i in 1 2 3; do (:); done; echo 1 >events/sched/sched_process_fork/enable; for i in 1 2 3 4 5 6 7 8 9 10; do (:); done; "+
				"echo 0 >events/sched/sched_process_fork/enable; for i in 1 2 3 4 5; do (:); done; grep -c sched_process_fork: trace")
		if n := strings.TrimSpace(got.Workload.Stdout); n != "10" {
			t.Errorf("%s forks were traced of the 10 that were to be", n)
		}
		if n := *got.Points[0].Value; n < 18 || n > 22 {
			t.Errorf("%d forks, want 18 and what the shell itself does", n)
		}
	})
	t.Run("faults", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "main.go"), []byte(efaults), 0o644); err != nil {
			t.Fatal(err)
		}
		build := exec.Command("go", "build", "-o", "efaults", "main.go")
		build.Dir, build.Env = dir, append(os.Environ(), "CGO_ENABLED=0", "GOARCH="+arch)
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		// Where reading of /dev/zero faults, and what clearing of memory for a program takes.
		got := probeClone(t, arch, "kinst::"+faults+":entry", "kinst::"+faults+":return", "--mechanism", "clone", "--add", filepath.Join(dir, "efaults")+":/efaults", "--run", "/efaults")
		returned := uint64(0)
		for _, p := range got.Points[1:] {
			returned += *p.Value
		}
		if n := *got.Points[0].Value; got.Workload.Exit != 0 || n < 2000 || n > 2020 || returned != n {
			t.Errorf("exit status %d, %d came, %d of them left in the copy", got.Workload.Exit, n, returned)
		}
	})
}

// TestClonesCount: instructions counted in clones are those that are seen outside, and icount, whose counts these are,
// says as many of a call, but for what it knows nothing of: landing pads, and thunks that a copy compares away.
func TestClonesCount(t *testing.T) {
	t.Parallel()
	const entry = "__x64_sys_getppid"
	want := passed(t, "amd64", "clones-count", 4).Metrics["clones."+entry+".icount"].Value
	a := call(t, nil, "plugin", "run", pluginExamples+"icount/main.go", "--arch", "amd64", "--syscall", "getppid", "--", "/lib/kerninst/bench/bench", "null", "40", "1")
	if each := fmt.Sprintf(", %.1f each\n", want); a.code != status.ExitPassed || !strings.HasPrefix(a.stdout, entry+": ") || !strings.HasSuffix(a.stdout, each) || want < 20 {
		t.Errorf("icount says %v, want%s", a, each)
	}
}

// Clones that nobody has asked for count what splices do, for less.
func TestChosen(t *testing.T) { scenario(t, "chosen", 4, []string{"amd64"}) }

// TestClonesAnswers: what LMbench's operations ask is answered the same in clones. `make proof` asks it of all system calls by
// which that is asked, on each ISA.
func TestClonesAnswers(t *testing.T) { scenario(t, "clones-answers-slice", 25, []string{"arm64"}) }

// TestClonesTold: a warning in a copy is the original's, and kernel threads run copies.
func TestClonesTold(t *testing.T) { scenario(t, "clones-told", 5, arches) }

// TestClonesLeft: who sleeps in a clone keeps it, nobody else does, and what has kprobes is not copied.
func TestClonesLeft(t *testing.T) { scenario(t, "clones-left", 20, []string{"amd64"}) }

// entered is how often the copy of a function was, by a plugin's document: what its first block has.
func entered(t *testing.T, text, function string) int {
	t.Helper()
	var d struct {
		Points []struct {
			Function string
			Offset   uint64
			Entry    bool
		}
		Found []struct{ Value int }
	}
	if err := json.Unmarshal([]byte(text), &d); err != nil {
		t.Fatal(err, text)
	}
	for k, p := range d.Points {
		if p.Function == function && !p.Entry {
			return d.Found[k].Value
		}
	}
	t.Fatalf("nothing of %s", function)
	return 0
}

const pluginExamples = "../../agent/clone/examples/"

// tracedLater: who traces a function sees who would have run its copy, which is in the kernel already.
func tracedLater(t *testing.T, arch string) {
	t.Helper()
	a := call(t, nil, "plugin", "run", pluginExamples+"icount/main.go", "--arch", arch, "--syscall", "read", "--json", "--run",
		"cd /sys/kernel/tracing; dd if=/dev/zero of=/dev/null bs=10 count=50; echo vfs_read >set_ftrace_filter; echo function >current_tracer; "+
			"dd if=/dev/zero of=/dev/null bs=10 count=70; echo nop >current_tracer; dd if=/dev/zero of=/dev/null bs=10 count=50; cp trace /run/kept")
	if in := entered(t, a.stdout, "vfs_read"); in < 100 || in >= 170 {
		t.Errorf("%d calls of vfs_read's copy, while it was traced for 70 of at least 170: %v", in, a)
	}
}

// inVain: exchanges of locks are found on each ISA, by one instruction or by two, and counted: each of them is taken and given
// back, and nobody contends.
func inVain(t *testing.T, arch string) {
	t.Helper()
	a := call(t, nil, "plugin", "run", pluginExamples+"locks/main.go", "--arch", arch, "--syscall", "write", "--", "/lib/kerninst/bench/bench", "pipe", "200", "3")
	took := map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^ *(\d+) times, (\d+) in vain  \S+: (mutex_lock|mutex_unlock)\+`).FindAllStringSubmatch(a.stdout, -1) {
		took[m[3]] = m[1] + " " + m[2]
	}
	n, _ := strconv.Atoi(strings.TrimSuffix(took["mutex_lock"], " 0"))
	if a.code != status.ExitPassed || n < 600 || took["mutex_unlock"] != took["mutex_lock"] {
		t.Errorf("%s: %v", arch, a)
	}
}

// contended: two programs write to one pipe on two CPUs, byte by byte. Each write takes the pipe's lock, and gives it back; who does that
// in vain, as somebody waits for it, does it the long way.
func contended(t *testing.T, arch string) {
	t.Helper()
	a := call(t, nil, "plugin", "run", pluginExamples+"locks/main.go", "--arch", arch, "--cpus", "2", "--time", "host", "--syscall", "write",
		"--run", "(dd if=/dev/zero bs=1 count=20000 & dd if=/dev/zero bs=1 count=20000) 2>/dev/null | cat >/dev/null")
	times, vain := map[string]int{}, map[string]int{}
	for _, m := range regexp.MustCompile(`(?m)^ *(\d+) times, (\d+) in vain  \S+: (mutex_lock|mutex_unlock|__mutex_unlock_slowpath\.isra\.0|__mutex_handoff)\+`).FindAllStringSubmatch(a.stdout, -1) {
		n, _ := strconv.Atoi(m[1])
		v, _ := strconv.Atoi(m[2])
		times[m[3]], vain[m[3]] = times[m[3]]+n, vain[m[3]]+v
	}
	slow := 0 // exchanges that gave it back, each but for those in vain, wherever the compiler has put them
	for _, f := range []string{"__mutex_unlock_slowpath.isra.0", "__mutex_handoff"} {
		slow += times[f] - vain[f]
	}
	if a.code != status.ExitPassed || times["mutex_lock"] != 40000 || times["mutex_unlock"] != 40000 || vain["mutex_lock"] == 0 || vain["mutex_unlock"] == 0 || vain["mutex_unlock"] != slow {
		t.Errorf("%s: %v", arch, a)
	}
}

// TestPlugins: what two of them insert and are told, on each ISA.
func TestPlugins(t *testing.T) {
	t.Parallel()
	for _, arch := range arches {
		t.Run(arch, func(t *testing.T) {
			if arch != "arm64" || *full { // `make proof` has both on each ISA
				tracedLater(t, arch)
			}
			if arch != "amd64" || *full {
				inVain(t, arch)
			}
			if arch == "amd64" {
				contended(t, arch)
			}
			t.Logf("proof plugins %s 1", arch)
		})
	}
}

// TestPlugin: a plugin is told what a system call executes, and counts it; what is wrong with one is said.
func TestPlugin(t *testing.T) {
	t.Parallel()
	a := call(t, nil, "plugin", "run", pluginExamples+"icount/main.go", "--arch", "amd64", "--syscall", "getppid", "--", "/lib/kerninst/bench/bench", "null", "1000", "3")
	if a.code != status.ExitPassed {
		t.Fatal(a)
	}
	// __x64_sys_getppid: 3012 calls, 228912 instructions, 76.0 each
	f := strings.Fields(a.stdout)
	if len(f) != 7 {
		t.Fatal(a)
	}
	calls, _ := strconv.Atoi(f[1])
	each, _ := strconv.ParseFloat(f[5], 64)
	if calls < 3000 || each < 20 || each > 120 || each != float64(int(each)) {
		t.Errorf("%d calls of %v instructions each", calls, each)
	}
	a = call(t, nil, "plugin", "run", pluginExamples+"branches/main.go", "--arch", "amd64", "--syscall", "read", "--inline", "--copies", "../../scenarios/copies/amd64.copies", "--", "dd", "if=/dev/zero", "of=/dev/null", "bs=10", "count=200")
	if m := regexp.MustCompile(`^(\d+) conditional jumps, (\d+) of them come to, (\d+) taken nearly always\n +(2\d\d) taken +\d+ not  __x64_sys_read: `).FindStringSubmatch(a.stdout); a.code != status.ExitPassed || m == nil {
		t.Error(a)
	}
	if line := regexp.MustCompile(`(?m): fdget_pos\+0x\w+  je \w+  fs/file\.c:\d+$`); !line.MatchString(a.stdout) { // of inlined functions alone lines are known there
		t.Errorf("no line of the source: %v", a)
	}
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	plugged := "package main\nimport \"kerninst/agent/clone/plugin\"\nfunc main() { plugin.Main(plugin.Plugin{Syscall: func(s *plugin.Syscall) { s.Insert(\"ACTION\") }}) }\n"
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"no such file":       {[]string{"none.go", "--syscall", "read", "--run", "true"}, "no such file"},
		"nothing cloned":     {[]string{pluginExamples + "icount/main.go", "--run", "true"}, "--syscall"},
		"no workload":        {[]string{pluginExamples + "icount/main.go", "--syscall", "read"}, "workload"},
		"does not compile":   {[]string{file("bad.go", "package main\nfunc main() { x }\n"), "--syscall", "read", "--run", "true"}, "undefined: x"},
		"no such call":       {[]string{pluginExamples + "icount/main.go", "--arch", "amd64", "--syscall", "raed", "--run", "true"}, "__x64_sys_raed"},
		"an action it lacks": {[]string{file("action.go", strings.Replace(plugged, "ACTION", "cuont", 1)), "--arch", "amd64", "--syscall", "getppid", "--run", "true"}, "cuont"},
	} {
		a := call(t, nil, append([]string{"plugin", "run"}, c.args...)...)
		if a.code == status.ExitPassed || !strings.Contains(a.stderr, c.want) {
			t.Errorf("%s: %v; want %q", name, a, c.want)
		}
	}
	a = call(t, nil, "plugin", "run", pluginExamples+"icount/main.go", "--arch", "amd64", "--cache", "1", "--syscall", "openat", "--run", "cat /proc/version")
	if a.code != status.ExitPassed || !strings.Contains(a.stderr, "no more than 1 KiB: --cache") || !strings.Contains(a.stdout, "__x64_sys_openat: ") {
		t.Errorf("a small cache: %v", a)
	}
	// What is read once comes first, and what is read two thousand times later: there is room for one of them.
	a = call(t, nil, "plugin", "run", pluginExamples+"calls/main.go", "--json", "--arch", "amd64", "--cache", "6", "--syscall", "read", "--run", "cat /proc/version; dd if=/dev/zero of=/dev/null count=2000")
	if a.code != status.ExitPassed || !strings.Contains(a.stderr, "least are left out") || !strings.Contains(a.stdout, `"read_zero"`) || strings.Contains(a.stdout, `"proc_reg_read`) {
		t.Errorf("a cache that is too small for all paths: %v", a)
	}
	a = call(t, []string{"PATH=/nonexistent", "GO="}, "plugin", "run", pluginExamples+"icount/main.go", "--syscall", "read", "--run", "true")
	if a.code == status.ExitPassed || !strings.Contains(a.stderr, "there is none: install it") {
		t.Error(a)
	}
}
