package libvirt

import (
	"context"
	"net"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	golibvirt "github.com/digitalocean/go-libvirt"
	"golang.org/x/sys/unix"

	"kerninst/lab/vm"
)

// zombie is a process that has ended, or will when it is killed, and that nobody has reaped.
func zombie(t *testing.T, argv ...string) *process {
	t.Helper()
	cmd := exec.Command(argv[0], argv[1:]...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	fd, err := unix.PidfdOpen(cmd.Process.Pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	p := &process{cmd.Process.Pid, fd}
	t.Cleanup(p.close)
	return p
}

// TestLeftProcess: what is begun for a run directory is found as soon as it is, before it has written its pid.
func TestLeftProcess(t *testing.T) {
	dir := t.TempDir()
	go func() {
		time.Sleep(50 * time.Millisecond) // so that it is not there yet when it is looked for
		zombie(t, "sh", "-c", "sleep 60; :", "sh", "-pidfile", filepath.Join(dir, pidFile))
	}()
	p := leftProcess(dir, 10*time.Second)
	if p == nil {
		t.Fatal("it is not found")
	}
	defer p.close()
	if said := p.end(lastWords); !strings.Contains(said, "was left and has been killed") {
		t.Error(said)
	}
	if p := leftProcess(t.TempDir(), 0); p != nil {
		t.Errorf("process %d is of no such directory", p.pid)
	}
}

func TestExited(t *testing.T) {
	ended, lives := zombie(t, "true").exited(), zombie(t, "sleep", "60").exited()
	select {
	case <-ended:
	case <-lives:
		t.Error("one that lives counts as ended")
	case <-time.After(10 * time.Second):
		t.Error("one that has ended and is not reaped counts as alive")
	}
	if (*process)(nil).exited() != nil {
		t.Error("a process that is not known has ended")
	}
}

// What a guest did is known when QEMU has said it and is gone, whenever libvirtd sees that; what
// others did to it is for libvirtd to say.
func TestEndsWithQEMU(t *testing.T) {
	for _, tt := range []struct {
		reason string
		argv   []string
		ends   bool
		kind   vm.Kind
	}{
		{"guest-shutdown", []string{"true"}, true, vm.Clean},
		{"guest-reset", []string{"true"}, true, vm.Panicked},
		{"guest-shutdown", []string{"sleep", "60"}, false, vm.Clean},
		{"host-signal", []string{"true"}, false, vm.Killed},
		{"", []string{"true"}, false, vm.Killed},
	} {
		m := &machine{process: zombie(t, tt.argv...), dir: t.TempDir(), reason: make(chan string, 1), killed: make(chan struct{})}
		close(m.killed)
		for _, c := range []**conn{&m.control, &m.events} {
			here, there := net.Pipe()
			t.Cleanup(func() { here.Close(); there.Close() })
			*c = &conn{wire: &watched{Conn: here, lost: make(chan struct{})}}
			(*c).life, (*c).end = context.WithCancel(t.Context())
		}
		if tt.reason != "" {
			m.reason <- tt.reason
		}
		life, end := make(chan golibvirt.DomainEventLifecycleMsg, 1), make(chan vm.Ending, 1)
		go func() { end <- m.end(life) }()
		var got vm.Ending
		select {
		case got = <-end:
			if !tt.ends {
				t.Errorf("%q, %v: it has ended before libvirtd says so", tt.reason, tt.argv)
			}
		case <-time.After(time.Second):
			if tt.ends {
				t.Errorf("%q, %v: it waits for libvirtd", tt.reason, tt.argv)
			}
			select {
			case m.reason <- "host-signal": // libvirtd ends what has ended
				time.Sleep(50 * time.Millisecond) // until it has been looked at
			default:
			}
			life <- golibvirt.DomainEventLifecycleMsg{Event: int32(golibvirt.DomainEventStopped), Detail: int32(golibvirt.DomainEventStoppedDestroyed)}
			got = <-end
		}
		if got.Kind != tt.kind {
			t.Errorf("%q, %v: %+v, want %v", tt.reason, tt.argv, got, tt.kind)
		}
	}
}
