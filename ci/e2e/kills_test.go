package e2e

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"kerninst/lab/status"
)

var seed = flag.Uint64("seed", 1, "of the moments at which labs are killed, and of the source files that are looked at")

const (
	killMoments = 20 // with -full, for each ISA
	killSlice   = 4  // of riscv64 alone, the fastest to boot: each way to end a lab once
)

// killing is one way to end a lab, and what its exit status must be. A lab that
// was already done says 0.
type killing struct {
	signal syscall.Signal
	group  bool // to all of the lab's processes, as a terminal does
	code   int
}

var killings = []killing{
	{syscall.SIGINT, true, status.ExitInterrupted},
	{syscall.SIGKILL, false, 128 + int(syscall.SIGKILL)},
	{syscall.SIGINT, false, status.ExitInterrupted},
	{syscall.SIGKILL, true, 128 + int(syscall.SIGKILL)},
}

// However and whenever a lab ends, between its first instruction and its result:
// no process, socket or mount is left; after SIGINT no file either, and after
// SIGKILL none once another lab has run. Its cache is whole.
//
// Moments are fractions of what an undisturbed run took, drawn by the seed. Each
// run has to write the initramfs into the cache first, and a golden state where
// there are some, so that moments fall into that, too; with -full, it compiles
// everything that goes into the initramfs before.
func TestKills(t *testing.T) {
	t.Parallel()
	for _, arch := range arches {
		t.Run(arch, func(t *testing.T) {
			n := killMoments
			if !*full {
				if n = killSlice; arch != "riscv64" {
					return // a slice is enough: what ISAs share is what is tried here
				}
			}
			v := newVictim(t, arch)
			whole := v.run(t)
			draw := rand.New(rand.NewPCG(*seed, 0))
			for i := range n {
				k, moment := killings[i%len(killings)], draw.Float64()
				what := fmt.Sprintf("moment %d of seed %d, at %.3f of a run of %v: %v (group: %t)", i, *seed, moment, whole, k.signal, k.group)
				t.Log(what)
				took, over := v.kill(t, what, k, time.Duration(moment*float64(whole)))
				for over { // the host has become faster, and its measure is this run
					whole = took
					took, over = v.kill(t, what, k, time.Duration(moment*float64(whole)))
				}
			}
			v.run(t)
			v.whole(t)
			t.Logf("proof lab-kills %s %d", arch, n)
		})
	}
}

// victim is a place for labs that get killed: a cache, temporary files and
// results of their own.
type victim struct {
	store
	arch, out string
}

func newVictim(t *testing.T, arch string) *victim {
	t.Helper()
	v := &victim{store: newStoreOf(t, arch), arch: arch, out: filepath.Join(t.TempDir(), "out")}
	if *full {
		linkToolchain(t, v.dir, arch)
	}
	return v
}

// command is a run that has everything to do that takes no network.
func (v *victim) command(t *testing.T) *exec.Cmd {
	t.Helper()
	made, asked := []string{"base"}, "boot"
	if *full {
		made, asked = append(made, "go", "module", "bench"), "boot,refuse" // two guests at once
	}
	for _, kind := range made {
		must(t, os.RemoveAll(filepath.Join(v.dir, "index", kind)))
	}
	must(t, os.RemoveAll(v.out))
	golden, err := filepath.Glob(filepath.Join(v.dir, "golden", "*", "sums.json"))
	must(t, err)
	for _, g := range golden {
		must(t, os.RemoveAll(filepath.Dir(g)))
	}
	cmd := exec.Command(lab, "run", "--arch", v.arch, "--scenario", asked, "--out", v.out)
	cmd.Env = append(os.Environ(), v.env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return cmd
}

// run is an undisturbed one, after which nothing of any run before is left.
func (v *victim) run(t *testing.T) time.Duration {
	t.Helper()
	start := time.Now()
	if a := finish(t, v.command(t)); a.code != 0 {
		t.Fatalf("undisturbed: exit status %d: %s", a.code, a)
	}
	took := time.Since(start)
	v.nothing(t, "an undisturbed run")
	v.clean(t)
	return took
}

// kill starts a run and ends it after a while. over says that the run ended before
// by itself, in the time that it took.
func (v *victim) kill(t *testing.T, what string, k killing, after time.Duration) (took time.Duration, over bool) {
	t.Helper()
	start := time.Now()
	cmd := v.command(t)
	before := v.unfinished(t) // of labs killed before: this one may end too soon to see to it
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	must(t, cmd.Start())
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	to := cmd.Process.Pid
	if k.group {
		to = -to
	}
	select {
	case <-time.After(after): // the moment itself
		must(t, syscall.Kill(to, k.signal))
		<-ended
	case <-ended:
		over = true
	}
	took = time.Since(start)
	code := shellCode(cmd)
	if code != k.code && code != status.ExitPassed {
		t.Errorf("%s: exit status %d, want %d: %s", what, code, k.code, &stderr)
	}
	v.nothing(t, what)
	if k.signal == syscall.SIGINT {
		left := slices.DeleteFunc(v.unfinished(t), func(f string) bool { return slices.Contains(before, f) })
		if len(left) > 0 {
			t.Errorf("%s: left behind: %v", what, left)
		}
	}
	if t.Failed() {
		t.Fatalf("%s: its output:\n%s", what, &stderr)
	}
	return took, over
}

// shellCode is how a shell tells how a command ended: one that was interrupted
// before it could see to that itself has died of the signal.
func shellCode(cmd *exec.Cmd) int {
	if ws := cmd.ProcessState.Sys().(syscall.WaitStatus); ws.Signaled() {
		return 128 + int(ws.Signal())
	}
	return cmd.ProcessState.ExitCode()
}

// nothing fails the test if a process or a mount is left. A compiler may still be
// at its one file. Sockets that a process holds go with it, and those in the file
// system are files.
func (v *victim) nothing(t *testing.T, what string) {
	t.Helper()
	var left []string
	// They are no children of the test's: it cannot wait for them, only see them go.
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if left = v.processes(t); len(left) == 0 {
			break
		}
	}
	if len(left) > 0 {
		t.Errorf("%s: processes are left: %v", what, left)
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	must(t, err)
	if v.in(string(mounts)) {
		t.Errorf("%s: a mount is left: %s", what, mounts)
	}
}

// processes are those that have to do with the victim's folders: by where they
// work, their arguments, their environment or an open file.
func (v *victim) processes(t *testing.T) (found []string) {
	t.Helper()
	procs, err := filepath.Glob("/proc/[0-9]*")
	must(t, err)
	for _, p := range procs {
		if p != fmt.Sprintf("/proc/%d", os.Getpid()) && v.concerns(p) {
			argv, _ := os.ReadFile(filepath.Join(p, "cmdline"))
			found = append(found, p+" "+string(bytes.ReplaceAll(argv, []byte{0}, []byte{' '})))
		}
	}
	return found
}

func (v *victim) concerns(proc string) bool {
	var known []string
	for _, text := range []string{"cmdline", "environ"} {
		b, _ := os.ReadFile(filepath.Join(proc, text))
		known = append(known, string(b))
	}
	links, _ := filepath.Glob(filepath.Join(proc, "fd", "*"))
	for _, l := range append(links, filepath.Join(proc, "cwd"), filepath.Join(proc, "root")) {
		to, _ := os.Readlink(l)
		known = append(known, to)
	}
	return v.in(strings.Join(known, "\n"))
}

// in says whether a text names one of the victim's folders.
func (v *victim) in(text string) bool {
	return strings.Contains(text, v.dir) || strings.Contains(text, v.temp) || strings.Contains(text, v.out)
}

// whole fails the test if the cache holds anything that was not put there whole,
// or is not known to be of use.
func (v *victim) whole(t *testing.T) {
	t.Helper()
	if a := call(t, v.env, "image", "verify"); a.code != 0 {
		t.Errorf("the cache is damaged: %s", a)
	}
	known := map[string]bool{"sha256": true, "index": true, "tree": true, "apt": true, "lock": true, "tmp": true, "golden": true, "version": true}
	entries, err := os.ReadDir(v.dir)
	must(t, err)
	for _, e := range entries {
		if !known[e.Name()] && !strings.HasSuffix(e.Name(), ".json") {
			t.Errorf("left in the cache: %s", e.Name())
		}
	}
	if _, err := os.Stat(v.out); errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the last run left no results")
	}
}
