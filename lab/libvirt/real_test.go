package libvirt

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	golibvirt "github.com/digitalocean/go-libvirt"

	"kerninst/lab/libvirt/libvirttest"
	"kerninst/lab/qemu"
	"kerninst/lab/qemu/qemutest"
	"kerninst/lab/session"
	"kerninst/lab/status"
	"kerninst/lab/vm"
)

// guest is a machine of a few dozen bytes.
func guest(t *testing.T, arch, text string, act qemutest.Act) vm.Spec {
	t.Helper()
	d, err := qemu.NewRunDir()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return vm.Spec{
		Arch: arch, Kernel: qemutest.Kernel(t, arch, text, act), Initrd: qemutest.Initrd(t),
		CPUs: 1, MemMiB: 128, Time: vm.Exact, Seed: 1, Dir: d.Path,
	}
}

func backend(t *testing.T, d *libvirttest.Daemon) Backend {
	t.Helper()
	b, err := Parse(d.URI)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// soon ends what would hang. Where /dev/kvm is there and runs no guest, libvirt 9.0 takes
// 25 s of an idle host for each guest of the host's own ISA, 2 s for others.
func soon(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 4*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func begin(t *testing.T, b Backend, s vm.Spec) *machine {
	t.Helper()
	m, err := b.Start(soon(t), s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		m.Kill()
		m.Wait(context.Background())
	})
	return m.(*machine)
}

func end(t *testing.T, m vm.Machine) vm.Ending {
	t.Helper()
	e, err := m.Wait(soon(t))
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// nothingLeft checks that the QEMU of a machine is gone.
func nothingLeft(t *testing.T, s vm.Spec) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		p := leftProcess(s.Dir, 0)
		if p == nil {
			return
		}
		p.close()
		if time.Now().After(deadline) {
			t.Fatalf("QEMU %d is left", p.pid)
		}
	}
}

const panicText = "[    1.000000] Kernel panic - not syncing: because\n"

// One libvirtd is enough for what leaves it alive: a new one asks each QEMU for
// its capabilities, which takes longer than the tests.
func TestReal(t *testing.T) {
	b := backend(t, libvirttest.Start(t))
	t.Run("sessions", func(t *testing.T) { testSessions(t, b) })
	t.Run("monitor", func(t *testing.T) { testMonitor(t, b) })
	t.Run("dump", func(t *testing.T) { testDump(t, b) })
	t.Run("the lab goes away", func(t *testing.T) { testLabGoesAway(t, b) })
	t.Run("start fails", func(t *testing.T) { testStartFails(t, b) })
}

// All that a session can tell of a local machine it tells of a domain.
func testSessions(t *testing.T, b Backend) {
	if v, err := b.Check(soon(t)); err != nil || strings.Count(v, ".") != 2 {
		t.Fatalf("version %q, %v", v, err)
	}
	for _, arch := range qemu.Arches() {
		for _, tt := range []struct {
			name   string
			each   bool // differs between ISAs
			text   string
			act    qemutest.Act
			do     func(m *machine)
			limit  time.Duration
			status status.Status
			kind   session.Kind
			reason string
		}{
			{name: "panic", each: true, text: panicText, act: qemutest.Reset, status: status.BootFailed, kind: session.Panicked, reason: "guest-reset"},
			{name: "power-off", each: true, text: "bye\n", act: qemutest.PowerOff, status: status.BootFailed, kind: session.PoweredOff},
			{name: "hang", text: "here", act: qemutest.Hang, limit: 500 * time.Millisecond, status: status.BootFailed, kind: session.Hang},
			{name: "SIGTERM", act: qemutest.Hang, do: func(m *machine) { syscall.Kill(m.process.pid, syscall.SIGTERM) },
				status: status.LabFailed, kind: session.QEMUKilled, reason: "host-signal"},
			{name: "SIGKILL", act: qemutest.Hang, do: func(m *machine) { syscall.Kill(m.process.pid, syscall.SIGKILL) },
				status: status.LabFailed, kind: session.QEMUDied},
		} {
			if !tt.each && arch != "riscv64" {
				continue
			}
			t.Run(arch+"/"+tt.name, func(t *testing.T) {
				s := guest(t, arch, tt.text, tt.act)
				o, err := session.Do(soon(t), session.Config{Backend: b, Spec: s, BootTimeout: tt.limit,
					OnStart: func(m vm.Machine) {
						if tt.do != nil {
							tt.do(m.(*machine))
						}
					}})
				if err != nil {
					t.Fatal(err)
				}
				if o.Status != tt.status || o.Kind != tt.kind {
					t.Errorf("%s, %s: %s", o.Status, o.Kind, o.Summary)
				}
				if tt.reason != "" && o.Ending.Reason != tt.reason {
					t.Errorf("ending %+v, want reason %s", o.Ending, tt.reason)
				}
				if tt.name == "hang" && (o.Evidence == nil || len(o.Evidence.CPUs) == 0 || len(o.Evidence.Earlier) == 0) {
					t.Errorf("evidence: %+v", o.Evidence)
				}
				nothingLeft(t, s)
			})
		}
	}
}

// The monitor is a local QEMU's: big answers, refusals with their class, events.
func testMonitor(t *testing.T, b Backend) {
	m := begin(t, b, guest(t, "riscv64", "", qemutest.Hang))
	events, err := m.Monitor().Events(soon(t))
	if err != nil {
		t.Fatal(err)
	}
	if schema, err := m.Monitor().Run([]byte(`{"execute":"query-qmp-schema","id":"mine"}`)); err != nil || len(schema) < 100_000 || !strings.Contains(string(schema), `"id":"mine"`) {
		t.Errorf("schema: %d bytes, %v", len(schema), err)
	}
	_, err = m.Monitor().Run([]byte(`{"execute":"no-such-command"}`))
	if err == nil || !strings.Contains(err.Error(), "CommandNotFound") {
		t.Errorf("err = %v", err)
	}
	go m.bridge.event(golibvirt.DomainEvent{Event: "BLOCK_JOB_READY", Seconds: 7, Details: []byte(`{"len":3}`)})
	if e := <-events; e.Event != "BLOCK_JOB_READY" || e.Timestamp.Seconds != 7 || e.Data["len"] != 3.0 {
		t.Errorf("event %+v", e)
	}
	m.Kill()
	m.Kill()
	if e := end(t, m); e.Kind != vm.Killed {
		t.Errorf("ending %+v", e)
	}
	if rest, err := io.ReadAll(m.Results()); err != nil || len(rest) > 0 {
		t.Errorf("results: %q, %v", rest, err)
	}
	for range events {
		// It ends with the machine.
	}
}

// The guest's memory is had without libvirtd's dying of it.
func testDump(t *testing.T, b Backend) {
	s := guest(t, "riscv64", "", qemutest.Hang)
	m := begin(t, b, s)
	in, err := m.Inspect(soon(t))
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	core := filepath.Join(t.TempDir(), "core")
	if err := in.Dump(soon(t), core); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(core); err != nil || info.Size() < int64(s.MemMiB)<<20 {
		t.Errorf("core: %v, %v", info, err)
	}
	m.Kill()
	if e := end(t, m); e.Kind != vm.Killed {
		t.Errorf("ending %+v", e)
	}
}

// A libvirtd that goes away takes the guest with it, and it is said who did.
func TestLibvirtdGoesAway(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM} {
		t.Run(sig.String(), func(t *testing.T) {
			d := libvirttest.Start(t)
			s := guest(t, "riscv64", "", qemutest.Hang)
			o, err := session.Do(soon(t), session.Config{Backend: backend(t, d), Spec: s,
				OnStart: func(vm.Machine) { d.Signal(sig) }})
			if err != nil {
				t.Fatal(err)
			}
			if o.Status != status.LabFailed || o.Kind != session.HostLost || !strings.Contains(o.Summary, d.URI) {
				t.Errorf("%s, %s: %s", o.Status, o.Kind, o.Summary)
			}
			nothingLeft(t, s)
		})
	}
}

// One that no longer answers is given up, and what it left is ended.
func TestLibvirtdHangs(t *testing.T) {
	d := libvirttest.Start(t)
	s := guest(t, "riscv64", "", qemutest.Hang)
	m := begin(t, backend(t, d), s)
	d.Signal(syscall.SIGSTOP)
	m.Kill()
	if e := end(t, m); e.Kind != vm.HostLost {
		t.Errorf("ending %+v", e)
	}
	nothingLeft(t, s)
}

// One that no longer answers while it makes a domain leaves none.
func TestLibvirtdHangsEarly(t *testing.T) {
	d := libvirttest.Start(t)
	s := guest(t, "riscv64", "", qemutest.Hang)
	ctx, cancel := context.WithCancel(soon(t))
	go func() {
		defer cancel()
		for ctx.Err() == nil {
			if p, err := findProcess(s.Dir); err == nil { // QEMU has begun
				d.Signal(syscall.SIGSTOP)
				p.close()
				return
			}
			time.Sleep(time.Millisecond) // nothing tells when a file is written
		}
	}()
	if m, err := backend(t, d).Start(ctx, s); err == nil {
		m.Kill()
		end(t, m)
		t.Fatal("it was made before libvirtd was stopped")
	}
	nothingLeft(t, s)
}

// One that dies while it makes a domain leaves none, however little of it there is.
func TestLibvirtdDiesEarly(t *testing.T) {
	d := libvirttest.Start(t)
	s := guest(t, "riscv64", "", qemutest.Hang)
	go func() {
		if p := leftProcess(s.Dir, time.Minute); p != nil { // QEMU is about to begin
			d.Signal(syscall.SIGKILL)
			p.close()
		}
	}()
	var failed *StartError
	if _, err := backend(t, d).Start(soon(t), s); !errors.As(err, &failed) || failed.End().Kind != vm.HostLost {
		t.Fatalf("%v, want a host that is lost", err)
	}
	nothingLeft(t, s)
}

// What the lab cannot end because it is dead itself, libvirtd ends.
func testLabGoesAway(t *testing.T, b Backend) {
	s := guest(t, "riscv64", "", qemutest.Hang)
	m := begin(t, b, s)
	m.control.wire.Conn.Close()
	for deadline := time.Now().Add(20 * time.Second); !m.process.gone(0); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("QEMU is left")
		}
	}
	end(t, m)
}

func testStartFails(t *testing.T, b Backend) {
	var failed *StartError
	s := guest(t, "riscv64", "", qemutest.Hang)
	s.Plugins = []vm.Plugin{{Object: "/nowhere.so"}}
	if _, err := b.Start(soon(t), s); !errors.As(err, &failed) || !strings.Contains(err.Error(), "/nowhere.so") || len(failed.Command()) == 0 || failed.End().Kind != vm.LabFault {
		t.Errorf("plugin: %v", err)
	}
	s = guest(t, "riscv64", "", qemutest.Hang)
	s.Kernel = "/nowhere"
	if _, err := b.Start(soon(t), s); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("kernel: %v", err)
	}
	s.Interactive = true
	if _, err := b.Start(soon(t), s); err == nil {
		t.Error("a machine on the terminal was started")
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := b.Start(ctx, guest(t, "riscv64", "", qemutest.Hang)); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

func TestUnreachable(t *testing.T) {
	dir := t.TempDir()
	plain := filepath.Join(dir, "file")
	if err := os.WriteFile(plain, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, sock := range []string{filepath.Join(dir, "none"), plain} {
		b, err := Parse("qemu+unix:///system?socket=" + sock)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := b.Check(soon(t)); err == nil || !strings.Contains(err.Error(), sock) || !strings.Contains(err.Error(), "not reached") {
			t.Errorf("%s: %v", sock, err)
		}
	}
}
