package libvirt

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"kerninst/lab/libvirt/libvirttest"
	"kerninst/lab/qemu"
	"kerninst/lab/qemu/qemutest"
	"kerninst/lab/session"
	"kerninst/lab/status"
	"kerninst/lab/vm"
)

// elsewhere is a libvirtd with a pool that does not see the lab's files, and the ways to it.
func elsewhere(t *testing.T) (d *libvirttest.Daemon, pool string, ways map[string]string) {
	t.Helper()
	pki := libvirttest.NewPKI(t)
	d = libvirttest.StartElsewhere(t, pki)
	return d, d.Pool(t, defaultPool), map[string]string{
		"tls":  d.TLS(pki.Client(t)),
		"ssh":  libvirttest.StartSSH(t).URI(d),
		"unix": d.URI + "&pool=" + defaultPool,
	}
}

func reach(t *testing.T, uri string) Backend {
	t.Helper()
	b, err := Parse(uri)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// What is in a pool besides what machines start from.
func others(t *testing.T, pool string) (names []string) {
	t.Helper()
	all, err := os.ReadDir(pool)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range all {
		if !strings.HasPrefix(f.Name(), contentPrefix) {
			names = append(names, f.Name())
		}
	}
	return names
}

// Machines on another host end as local ones, their console comes here, and they leave nothing but
// what the next will start from.
func TestElsewhere(t *testing.T) {
	t.Parallel()
	_, pool, ways := elsewhere(t)
	for name, uri := range ways {
		b := reach(t, uri)
		for _, tt := range []struct {
			name   string
			arch   string
			text   string
			act    qemutest.Act
			status status.Status
			kind   session.Kind
		}{
			{"panic", "arm64", panicText, qemutest.Reset, status.BootFailed, session.Panicked},
			{"power-off", "amd64", "bye\n", qemutest.PowerOff, status.BootFailed, session.PoweredOff},
			{"power-off", "riscv64", "bye\n", qemutest.PowerOff, status.BootFailed, session.PoweredOff},
		} {
			t.Run(name+"/"+tt.arch+"/"+tt.name, func(t *testing.T) {
				s := guest(t, tt.arch, tt.text, tt.act)
				o, err := session.Do(soon(t), session.Config{Backend: b, Spec: s})
				if err != nil {
					t.Fatal(err)
				}
				if o.Status != tt.status || o.Kind != tt.kind {
					t.Errorf("%s, %s: %s", o.Status, o.Kind, o.Summary)
				}
				if console, err := os.ReadFile(filepath.Join(s.Dir, "console.log")); err != nil || !strings.Contains(string(console), strings.TrimSpace(tt.text)) {
					t.Errorf("console %q, %v", console, err)
				}
				if left := others(t, pool); len(left) > 0 {
					t.Errorf("the pool has %q", left)
				}
			})
		}
	}
	images, err := filepath.Glob(filepath.Join(pool, contentPrefix+"*"+wholeSuffix))
	if err != nil || len(images) != 4 { // three kernels, one initramfs
		t.Errorf("images %q, %v", images, err)
	}
}

// What is read of a machine on another host is what is there.
func TestInsideElsewhere(t *testing.T) {
	t.Parallel()
	_, pool, ways := elsewhere(t)
	s := guest(t, "riscv64", "here", qemutest.Hang)
	m := begin(t, reach(t, ways["ssh"]), s)
	in, err := m.Inspect(soon(t))
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	var other *OtherEmulatorError
	if err := m.same(soon(t), qemu.Version{Number: "7.1.0"}); !errors.As(err, &other) || other.Here != "7.1.0" {
		t.Errorf("another QEMU: %v", err)
	}
	if regs, err := in.Registers(soon(t)); err != nil || !strings.Contains(regs, "CPU#0") {
		t.Errorf("registers %.80q, %v", regs, err)
	}
	kernel, err := os.ReadFile(s.Kernel)
	if err != nil {
		t.Fatal(err)
	}
	const loaded = 0x80200000
	if b, err := in.Read(soon(t), 0, loaded, 64); err != nil || !bytes.Equal(b, kernel[:64]) {
		t.Errorf("memory %x, %v, want %x", b, err, kernel[:64])
	}
	core := filepath.Join(t.TempDir(), "core")
	if err := in.Dump(soon(t), core); err != nil {
		t.Error(err)
	} else if info, err := os.Stat(core); err != nil || info.Size() < int64(s.MemMiB)<<20 {
		t.Errorf("core: %v, %v", info, err)
	}
	if _, err := in.ServeGDB(soon(t)); err == nil {
		t.Error("gdb is served on another host")
	}
	m.Kill()
	if e := end(t, m); e.Kind != vm.Killed {
		t.Errorf("ending %+v", e)
	}
	if rest, err := io.ReadAll(m.Results()); err != nil || len(rest) > 0 {
		t.Errorf("results: %q, %v", rest, err)
	}
	if left := others(t, pool); len(left) > 0 {
		t.Errorf("the pool has %q", left)
	}
}

// A state goes to the host once, with the timers of its CPUs, and the mail reaches the guest.
func TestStateElsewhere(t *testing.T) {
	t.Parallel()
	_, pool, ways := elsewhere(t)
	for name, uri := range ways {
		t.Run(name, func(t *testing.T) {
			b := reach(t, uri)
			s := guest(t, "riscv64", "here", qemutest.Hang)
			s.Mailbox = true
			m := begin(t, b, s)
			if err := m.monitor.Execute(soon(t), "stop", nil, nil); err != nil {
				t.Fatal(err)
			}
			state := filepath.Join(t.TempDir(), "state")
			if err := m.freezer().Save(soon(t), state); err != nil {
				t.Fatal(err)
			}
			m.Kill()
			end(t, m)
			s2 := guest(t, "riscv64", "here", qemutest.Hang)
			s2.Mailbox, s2.State, s2.Mail = true, state, []byte("mail")
			console := filepath.Join(s2.Dir, "console.log") // the boot's, which the guest's goes on from
			if err := os.WriteFile(console, []byte("boot\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			m = begin(t, b, s2)
			box, err := m.files.Read(soon(t), "mailbox", 0, 5)
			if err != nil || string(box) != "mail\x00" {
				t.Errorf("mailbox %q, %v", box, err)
			}
			var is struct{ Running bool }
			if err := m.monitor.Execute(soon(t), "query-status", nil, &is); err != nil || !is.Running {
				t.Errorf("running: %v, %v", is.Running, err)
			}
			m.Kill()
			end(t, m)
			if text, err := os.ReadFile(console); err != nil || !strings.HasPrefix(string(text), "boot\n") {
				t.Errorf("console %q, %v", text, err)
			}
			if left := others(t, pool); len(left) > 0 {
				t.Errorf("the pool has %q", left)
			}
		})
	}
}

// A host that is lost in the middle is one that is lost, whichever way led to it.
func TestElsewhereGoesAway(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"tls", "ssh"} {
		t.Run(name, func(t *testing.T) {
			d, _, ways := elsewhere(t)
			s := guest(t, "riscv64", "", qemutest.Hang)
			o, err := session.Do(soon(t), session.Config{Backend: reach(t, ways[name]), Spec: s,
				OnStart: func(vm.Machine) { d.Signal(syscall.SIGKILL) }})
			if err != nil {
				t.Fatal(err)
			}
			if o.Status != status.LabFailed || o.Kind != session.HostLost {
				t.Errorf("%s, %s: %s", o.Status, o.Kind, o.Summary)
			}
		})
	}
}

// One that says nothing any more is lost as well: its files are asked for all the time.
func TestElsewhereHangs(t *testing.T) {
	t.Parallel()
	d, _, ways := elsewhere(t)
	m := begin(t, reach(t, ways["tls"]), guest(t, "riscv64", "", qemutest.Hang))
	d.Signal(syscall.SIGSTOP)
	if e := end(t, m); e.Kind != vm.HostLost || !strings.Contains(e.Detail, "no answer") {
		t.Errorf("ending %+v", e)
	}
	d.Signal(syscall.SIGCONT)
}

// Who cannot go there is told why.
func TestElsewhereUnreachable(t *testing.T) {
	t.Parallel()
	pki := libvirttest.NewPKI(t)
	d := libvirttest.StartElsewhere(t, pki)
	server := libvirttest.StartSSH(t)
	key := filepath.Join(t.TempDir(), "key")
	libvirttest.WriteKey(t, key)
	empty := t.TempDir()
	mine, theirs := pki.Client(t), libvirttest.NewPKI(t).Client(t)
	mixed := pki.Client(t) // trusts the host, which does not know whom it shows
	for _, f := range []string{"clientcert.pem", "clientkey.pem"} {
		b, err := os.ReadFile(filepath.Join(theirs, f))
		if err = errors.Join(err, os.WriteFile(filepath.Join(mixed, f), b, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	ssh := server.URI(d)
	for _, tt := range []struct{ name, uri, want string }{
		{"pool missing", d.TLS(mine), "no storage pool kerninst"},
		{"no certificate", d.TLS(empty), "no certificate to show"},
		{"certificate of another host", d.TLS(theirs), "not that of the host"},
		{"wrong certificate", d.TLS(mixed), "does not take this certificate"},
		{"nobody listens", "qemu+tls://127.0.0.1:1/session?pkipath=" + mine, "not reached"},
		{"wrong key", strings.Replace(ssh, "keyfile="+server.Key, "keyfile="+key, 1), "does not let this user in"},
		{"no key", strings.Replace(ssh, "keyfile="+server.Key, "keyfile="+empty+"/none", 1), "there is no such key"},
		{"no host key", strings.Replace(ssh, "known_hosts="+server.Known, "known_hosts="+empty+"/none", 1), "its key is not known"},
		{"no socket", strings.Replace(ssh, d.Socket(), "/nowhere", 1), "ssh says: "},
		{"no host", "qemu+ssh://nowhere.invalid/system", "no such host"},
		{"nobody listens to ssh", "qemu+ssh://127.0.0.1:1/system", "Connection refused"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := reach(t, tt.uri).Survey(soon(t), nil)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v, want %q", err, tt.want)
			}
		})
	}
	server.Knows(libvirttest.AnotherKey(t))
	if _, err := reach(t, ssh).Survey(soon(t), nil); err == nil || !strings.Contains(err.Error(), "its key has changed") {
		t.Errorf("host key changed: %v", err)
	}
}

// A host's sshd has a program to run, so that it does not hold small packets back; one that runs nothing is asked a second time, and
// from then on not for that.
func TestForwardsProgram(t *testing.T) {
	t.Parallel()
	pki := libvirttest.NewPKI(t)
	d := libvirttest.StartElsewhere(t, pki)
	for _, only := range []bool{false, true} {
		server := libvirttest.StartSSH(t)
		server.OnlyForwards.Store(only)
		b := reach(t, server.URI(d))
		for range 2 {
			if _, err := b.Check(soon(t)); err != nil {
				t.Fatal(err)
			}
		}
		programs, connections := int32(1), int32(1)
		if only {
			programs, connections = 0, 2
		}
		if n, m := server.Running.Load(), server.Connections.Load(); n != programs || m != connections {
			t.Errorf("it only forwards: %v; %d programs run, want %d; it was connected to %d times, want %d", only, n, programs, m, connections)
		}
		way := b.way.(*sshWay)
		way.drop(way.forward)
		for deadline := time.Now().Add(20 * time.Second); server.Running.Load() > 0; time.Sleep(10 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatal("the program runs when nobody forwards any more")
			}
		}
	}
}

// A transfer that takes long, of a state or of memory, keeps nothing waiting by which a host is taken for lost.
func TestMirrorsOwnConnection(t *testing.T) {
	t.Parallel()
	_, _, ways := elsewhere(t)
	m := begin(t, reach(t, ways["unix"]), guest(t, "riscv64", "", qemutest.Hang))
	if m.mirror.files == m.remote {
		t.Error("the mirror waits for the machine's other files")
	}
	m.Kill()
	end(t, m)
}

// A start that fails late leaves no connection.
func TestBadStateElsewhere(t *testing.T) {
	t.Parallel()
	d, pool, ways := elsewhere(t)
	b := reach(t, ways["unix"])
	const besides = 2 // the connection that listens for all machines, and what libvirtd has open for itself since
	before := d.Open(t)
	for range 5 {
		s := guest(t, "riscv64", "", qemutest.Hang)
		s.Mailbox, s.Mail, s.State = true, []byte("mail"), fileOf(t, 2<<20, 9)
		var bad *vm.StateError
		if _, err := b.Start(soon(t), s); !errors.As(err, &bad) {
			t.Fatalf("%v, want a state that is of no use", err)
		}
	}
	for deadline := time.Now().Add(20 * time.Second); d.Open(t) > before+besides; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("libvirtd has %d files open, %d before", d.Open(t), before)
		}
	}
	if left := others(t, pool); len(left) > 0 {
		t.Errorf("the pool has %q", left)
	}
}

// Who is given another's way goes that, and his own when it leads nowhere any more.
func TestShare(t *testing.T) {
	t.Parallel()
	_, _, ways := elsewhere(t)
	first := reach(t, ways["ssh"])
	if first.Share() != nil {
		t.Error("there is something to share before anybody went there")
	}
	if _, err := first.Check(soon(t)); err != nil {
		t.Fatal(err)
	}
	give := func(uri string) Backend {
		var way []*os.File
		for _, f := range first.Share() { // as a program has it that is started
			fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
			if err != nil {
				t.Fatal(err)
			}
			way = append(way, os.NewFile(uintptr(fd), "way"))
		}
		b := reach(t, uri)
		b.Through(way)
		return b
	}
	// With a key that nobody takes there is no way but the other's.
	key := filepath.Join(t.TempDir(), "key")
	libvirttest.WriteKey(t, key)
	keyless := regexp.MustCompile(`keyfile=[^&]*`).ReplaceAllString(ways["ssh"], "keyfile="+key)
	shares, falls := give(keyless), give(ways["ssh"])
	if _, err := shares.Check(soon(t)); err != nil {
		t.Errorf("by another's way: %v", err)
	}
	ssh := first.way.(*sshWay).forward
	ssh.Kill()
	<-ssh.Exited
	if first.Share() != nil {
		t.Error("a way is shared that is gone")
	}
	if _, err := shares.Check(soon(t)); err == nil || !strings.Contains(err.Error(), "does not let this user in") {
		t.Errorf("when that is gone: %v", err)
	}
	if _, err := falls.Check(soon(t)); err != nil {
		t.Errorf("when that is gone, by his own: %v", err)
	}
	if reach(t, ways["unix"]).Share() != nil {
		t.Error("a socket of this machine is shared")
	}
}
