package qemu

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"kerninst/lab/qemu/qemutest"
	"kerninst/lab/qmp"
	"kerninst/lab/vm"
)

// soon is a context that fails a test which hangs.
func soon(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// runDir makes a run directory below a folder of the test's own.
func runDir(t *testing.T) *RunDir {
	t.Helper()
	d, err := newRunDir(filepath.Join(t.TempDir(), "k"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

// tiny is the specification of a guest that needs no image.
func tiny(t *testing.T, arch, text string, act qemutest.Act) vm.Spec {
	return vm.Spec{
		Arch: arch, Kernel: qemutest.Kernel(t, arch, text, act), Initrd: qemutest.Initrd(t),
		CPUs: 1, MemMiB: 128, Time: vm.Host, Seed: 1, Dir: runDir(t).Path,
	}
}

func mustStart(t *testing.T, s vm.Spec) *machine {
	t.Helper()
	m, err := Backend{}.Start(soon(t), s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Kill(); m.Wait(context.Background()) })
	return m.(*machine)
}

func mustEnd(t *testing.T, m vm.Machine) vm.Ending {
	t.Helper()
	e, err := m.Wait(soon(t))
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// Real guests on each ISA, in both times: how they end is told apart although
// QEMU's exit status is 0 for all.
func TestEndingsOfGuests(t *testing.T) {
	want := map[qemutest.Act]vm.Kind{qemutest.PowerOff: vm.Clean, qemutest.Reset: vm.Panicked}
	for _, arch := range Arches() {
		for act, kind := range want {
			for _, mode := range []vm.Time{vm.Exact, vm.Host} {
				t.Run(fmt.Sprintf("%s/%s/%s", arch, act, mode), func(t *testing.T) {
					s := tiny(t, arch, "the last words\n", act)
					s.Time = mode
					m := mustStart(t, s)
					e := mustEnd(t, m)
					if e.Kind != kind {
						t.Errorf("ending = %+v, want kind %v", e, kind)
					}
					text, err := os.ReadFile(m.Console())
					if err != nil || !strings.Contains(string(text), "the last words") {
						t.Errorf("console = %q, %v", text, err)
					}
					if records, err := io.ReadAll(m.Results()); len(records) != 0 || err != nil {
						t.Errorf("results = %q, %v", records, err)
					}
					if again, _ := m.Wait(soon(t)); again != e {
						t.Errorf("second Wait = %+v", again)
					}
				})
			}
		}
	}
}

func TestEndingsFromOutside(t *testing.T) {
	tests := []struct {
		name string
		do   func(*machine)
		want string
	}{
		{"killed by us", func(m *machine) { m.Kill(); m.Kill() }, "signal: killed"},
		{"SIGTERM", func(m *machine) { syscall.Kill(m.Pid(), syscall.SIGTERM) }, "host-signal"},
		{"quit", func(m *machine) { m.monitor.Execute(context.Background(), "quit", nil, nil) }, "host-qmp-quit"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := mustStart(t, tiny(t, "arm64", "", qemutest.Hang))
			tt.do(m)
			if e := mustEnd(t, m); e.Kind != vm.Killed || e.Reason != tt.want {
				t.Errorf("ending = %+v, want killed, %s", e, tt.want)
			}
		})
	}
}

// A guest's memory has small pages, and the lab keeps its own word on them. (A kernel
// that knows no others says nothing.)
func TestSmallPages(t *testing.T) {
	enabled := func(pid int) (bool, string) {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if err != nil {
			t.Fatal(err)
		}
		_, rest, found := strings.Cut(string(b), "THP_enabled:\t")
		word, _, _ := strings.Cut(rest, "\n")
		return found, word
	}
	_, before := enabled(os.Getpid())
	m := mustStart(t, tiny(t, "arm64", "", qemutest.Hang))
	if found, of := enabled(m.Pid()); found && of != "0" {
		t.Errorf("QEMU may have huge pages: %s", of)
	}
	if _, after := enabled(os.Getpid()); after != before {
		t.Errorf("the lab's own: %s, before %s", after, before)
	}
}

func TestInspect(t *testing.T) {
	registers := map[string]string{"amd64": "CR3=", "arm64": "PC=", "riscv64": "mhartid"}
	for _, arch := range Arches() {
		s := tiny(t, arch, "", qemutest.Hang)
		s.CPUs = 2
		m := mustStart(t, s)
		in, err := m.Inspect(soon(t))
		if err != nil {
			t.Fatal(err)
		}
		text, err := in.Registers(soon(t))
		if err != nil || strings.Count(text, registers[arch]) != 2 {
			t.Errorf("%s: %v, registers:\n%s", arch, err, text)
		}
		in.Close()
		m.Kill()
		if _, err := m.Inspect(soon(t)); err == nil {
			t.Errorf("%s: inspected a machine that is being killed, twice", arch)
		}
	}
}

func TestWaitHeedsContext(t *testing.T) {
	m := mustStart(t, tiny(t, "arm64", "", qemutest.Hang))
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := m.Wait(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("err = %v", err)
	}
}

func TestStartFails(t *testing.T) {
	t.Run("no kernel", func(t *testing.T) {
		s := tiny(t, "arm64", "", qemutest.Hang)
		s.Kernel = "/nonexistent/kernel"
		_, err := Backend{}.Start(soon(t), s)
		if !errors.Is(err, os.ErrNotExist) {
			t.Errorf("err = %v", err)
		}
	})
	t.Run("QEMU refuses", func(t *testing.T) {
		s := tiny(t, "arm64", "", qemutest.Hang)
		s.Plugins = []vm.Plugin{{Object: "/nonexistent/plugin.so"}}
		_, err := Backend{}.Start(soon(t), s)
		var e *StartError
		if !errors.As(err, &e) || e.Ending.Kind != vm.LabFault || !strings.Contains(err.Error(), "plugin.so") || len(e.Command()) == 0 {
			t.Errorf("err = %v", err)
		}
	})
	t.Run("cancelled", func(t *testing.T) {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_, err := Backend{}.Start(ctx, tiny(t, "arm64", "", qemutest.Hang))
		if !errors.Is(err, context.Canceled) {
			t.Errorf("err = %v", err)
		}
	})
	t.Run("killed before it speaks", func(t *testing.T) {
		s := tiny(t, "arm64", "", qemutest.Hang)
		argv := []string{"/bin/sh", "-c", "kill -9 $$"}
		_, err := start(soon(t), argv, s)
		var e *StartError
		if !errors.As(err, &e) || e.Ending.Kind != vm.Killed {
			t.Errorf("err = %v", err)
		}
	})
}

// A run directory may lie deeper than the 107 bytes of a socket's path.
func TestDeepRunDir(t *testing.T) {
	base := filepath.Join(t.TempDir(), strings.Repeat("deep/", 40))
	if err := os.MkdirAll(base, 0o700); err != nil {
		t.Fatal(err)
	}
	s := tiny(t, "arm64", "", qemutest.PowerOff)
	s.Dir = base
	if e := mustEnd(t, mustStart(t, s)); e.Kind != vm.Clean {
		t.Errorf("ending = %+v", e)
	}
}

func TestEnding(t *testing.T) {
	const (
		exit0   = syscall.WaitStatus(0)
		exit1   = syscall.WaitStatus(1 << 8)
		killed  = syscall.WaitStatus(syscall.SIGKILL)
		aborted = syscall.WaitStatus(syscall.SIGABRT)
	)
	tests := []struct {
		reason string
		status syscall.WaitStatus
		mute   bool
		want   vm.Kind
	}{
		{"guest-shutdown", exit0, false, vm.Clean},
		{"guest-shutdown", killed, false, vm.Clean}, // killed while it was ending
		{"guest-shutdown", aborted, false, vm.LabFault},
		{"guest-reset", exit0, true, vm.Panicked},
		{"host-signal", exit0, false, vm.Killed},
		{"host-error", exit0, false, vm.LabFault},
		{"new-reason", exit0, false, vm.LabFault},
		{"", killed, true, vm.Killed},
		{"", aborted, true, vm.LabFault},
		{"", exit1, true, vm.LabFault},
		{"", exit0, true, vm.Clean},
		{"", exit0, false, vm.LabFault},
	}
	for _, tt := range tests {
		if got := ending(tt.reason, tt.status, "", tt.mute); got.Kind != tt.want {
			t.Errorf("ending(%q, %#x, mute %v) = %+v, want kind %v", tt.reason, tt.status, tt.mute, got, tt.want)
		}
	}
	if e := ending("", exit1, " boom\n", false); !strings.Contains(e.Detail, "status 1: boom") {
		t.Errorf("detail = %q", e.Detail)
	}
}

// lonely is set in the process that TestDiesWithTheLab starts and kills.
const lonely = "KERNINST_TEST_LONELY"

func TestMain(m *testing.M) {
	if base := os.Getenv(lonely); base != "" {
		os.Exit(beLonely(base))
	}
	os.Exit(m.Run())
}

// beLonely is a lab that starts a machine, says so, and waits to be killed.
func beLonely(base string) int {
	d, err := newRunDir(base)
	if err != nil {
		fmt.Println(err)
		return 1
	}
	var s vm.Spec
	fmt.Sscanf(os.Getenv(lonely+"_SPEC"), "%s %s", &s.Kernel, &s.Initrd)
	s.Arch, s.CPUs, s.MemMiB, s.Time, s.Dir = "arm64", 1, 64, vm.Host, d.Path
	m, err := Backend{}.Start(context.Background(), s)
	if err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println(d.Path)
	m.Wait(context.Background())
	return 1
}

// A lab that is killed with SIGKILL takes its QEMU along, and the next lab
// removes what it left.
func TestDiesWithTheLab(t *testing.T) {
	base := filepath.Join(t.TempDir(), "k")
	kernel, initrd := qemutest.Kernel(t, "arm64", "", qemutest.Hang), qemutest.Initrd(t)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), lonely+"="+base, lonely+"_SPEC="+kernel+" "+initrd)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	var dir string
	if _, err := fmt.Fscanln(out, &dir); err != nil || !filepath.IsAbs(dir) {
		t.Fatalf("the other lab says %q, %v", dir, err)
	}
	// A connection to the other lab's QEMU ends when that QEMU does.
	watched := qmp.New(qmp.Unix(filepath.Join(dir, debugSock)), qmp.Options{})
	if err := watched.ConnectContext(soon(t)); err != nil {
		t.Fatal(err)
	}
	defer watched.Disconnect()
	if err := sweep(base); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir); err != nil {
		t.Fatalf("swept away under a lab that is alive: %v", err)
	}

	cmd.Process.Kill()
	select {
	case <-watched.Done():
	case <-soon(t).Done():
		t.Fatal("QEMU outlives the lab")
	}
	cmd.Wait()
	if err := sweep(base); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("the dead lab's run directory is still there: %v", err)
	}
}

// A QEMU that announces its end and stays is killed, and what it was to end as is not
// lost. Here it was told, behind the lab's back, to stay.
func TestStuck(t *testing.T) {
	defer func(d time.Duration) { stuckAfter = d }(stuckAfter)
	stuckAfter = 300 * time.Millisecond
	for _, tt := range []struct{ lingers, reports bool }{{}, {false, true}, {true, false}} {
		s := tiny(t, "arm64", "", qemutest.Hang)
		s.Linger = tt.lingers
		m := mustStart(t, s)
		m.reports = tt.reports
		for _, do := range []struct {
			command string
			args    object
		}{{"set-action", object{"shutdown": "pause"}}, {"system_reset", object{}}} {
			if err := m.monitor.Execute(soon(t), do.command, do.args, nil); err != nil {
				t.Fatal(err)
			}
		}
		want := vm.Killed
		if tt.reports { // a plugin's report is lost
			want = vm.LabFault
		}
		e := mustEnd(t, m)
		if e.Kind != want || e.Reason != "host-qmp-system-reset" || !strings.Contains(e.Detail, "still there 300ms later") {
			t.Errorf("%+v: ended as %+v, want kind %v", tt, e, want)
		}
	}
}
