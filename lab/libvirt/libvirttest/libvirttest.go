// Package libvirttest starts a libvirtd of a test's own.
//
// It is a session's libvirtd, which keeps to the directories that it is told,
// so it needs no configuration of the host, shares nothing with a libvirtd that
// the host runs, and is gone with the test. Since root's would be the system's,
// under root it runs in a user namespace, as an ordinary user there whose files
// are root's outside.
package libvirttest

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"kerninst/lab/child"
)

// Program is looked for on the PATH and where Debian has it.
const program = "libvirtd"

// qemuConf makes QEMU a plain child: no control groups, labels or helpers, none
// of which an ordinary user has; and with libvirtd's rights.
const qemuConf = `namespaces = []
cgroup_controllers = []
security_driver = "none"
stdio_handler = "file"
clear_emulator_capabilities = 0
`

const daemonConf = `log_outputs = "3:stderr"
auth_unix_rw = "%s"
`

// kind is what a libvirtd is started as.
type kind struct {
	auth   string // of its unix socket
	tls    *PKI   // it listens by TLS, too; nil: it does not
	rights bool   // it may use the files of who runs the test, as one on another machine may not
}

// ordinary is the user and group that root's libvirtd runs as: Debian's daemon,
// which every system has.
const ordinary = 1

const kvm = "/dev/kvm"

// Daemon is a libvirtd that runs.
type Daemon struct {
	URI  string
	Home string // everything that it writes lies below
	Port int    // where it listens by TLS
	kind kind

	*child.Child // nil until it was started
}

// Start starts a libvirtd and returns when it can be connected to. The test
// fails without: `make test` installs what is needed.
func Start(t testing.TB) *Daemon { return startWith(t, kind{auth: "none", rights: true}) }

// StartClosed starts one that wants a name and a password (SASL).
func StartClosed(t testing.TB) *Daemon { return startWith(t, kind{auth: "sasl", rights: true}) }

// StartElsewhere starts one that does not see the files of who runs the test, if root does, and that
// listens by TLS on this machine.
func StartElsewhere(t testing.TB, pki *PKI) *Daemon {
	return startWith(t, kind{auth: "none", tls: pki})
}

func startWith(t testing.TB, k kind) *Daemon {
	t.Helper()
	path, err := exec.LookPath(program)
	if err != nil {
		if path, err = exec.LookPath("/usr/sbin/" + program); err != nil {
			t.Fatal("libvirtd is not installed: run ci/setup.sh, or apt-get install --no-install-recommends libvirt-daemon")
		}
	}
	// The temporary directory of a test is too deep for a socket.
	home, err := os.MkdirTemp("", "libvirt-")
	if err != nil {
		t.Fatal(err)
	}
	d := &Daemon{Home: home, kind: k}
	t.Cleanup(func() {
		d.Kill()
		if k.tls != nil {
			d.reap()
		}
		if err := os.RemoveAll(home); err != nil {
			t.Error(err)
		}
	})
	conf := fmt.Sprintf(daemonConf, k.auth)
	if k.tls != nil {
		d.Port = freePort(t)
		conf += k.tls.listen(t, filepath.Join(home, "pki"), d.Port)
	}
	for file, text := range map[string]string{"config/libvirt/qemu.conf": qemuConf, "libvirtd.conf": conf, "run/x": ""} {
		file = filepath.Join(home, file)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if os.Getuid() == 0 {
		err := filepath.WalkDir(home, func(p string, _ os.DirEntry, err error) error {
			return errors.Join(err, os.Chown(p, ordinary, ordinary))
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	d.start(t, path)
	return d
}

func (d *Daemon) start(t testing.TB, path string) {
	t.Helper()
	var stderr bytes.Buffer
	var err error
	argv := append(asOrdinary(d.Home, d.kind.rights), path, "--config", filepath.Join(d.Home, "libvirtd.conf"), "--pid-file", filepath.Join(d.Home, "pid"))
	if d.kind.tls != nil {
		argv = append(argv, "--listen")
	}
	cmd := exec.Command(argv[0], argv[1:]...)
	// On its PATH there is nothing: it would ask every QEMU there what it can do,
	// which takes half a minute, instead of those that machines name.
	cmd.Env = []string{"PATH=" + filepath.Join(d.Home, "bin"), "HOME=" + d.Home}
	for _, dir := range []string{"CONFIG_HOME", "CACHE_HOME", "DATA_HOME", "STATE_HOME"} {
		cmd.Env = append(cmd.Env, "XDG_"+dir+"="+filepath.Join(d.Home, strings.ToLower(strings.TrimSuffix(dir, "_HOME"))))
	}
	cmd.Env = append(cmd.Env, "XDG_RUNTIME_DIR="+filepath.Join(d.Home, "run"))
	cmd.Stdout, cmd.Stderr = &stderr, &stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	socket := d.Socket()
	d.URI = "qemu+unix:///session?socket=" + socket

	if d.Child, err = child.Start(cmd, nil); err != nil {
		t.Fatalf("start libvirtd: %v", err)
	}
	for deadline := time.Now().Add(time.Minute); ; {
		conn, err := net.Dial("unix", socket)
		if err == nil {
			conn.Close()
			if d.kind.tls == nil || listened(t, d.Port) {
				return
			}
		}
		select {
		case <-d.Exited:
			t.Fatalf("libvirtd ended: %s", &stderr)
		case <-time.After(10 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			t.Fatalf("libvirtd is not reached, or does not listen at port %d: %v", d.Port, err)
		}
	}
}

// Socket is where it listens.
func (d *Daemon) Socket() string { return filepath.Join(d.Home, "run/libvirt/libvirt-sock") }

// asOrdinary is what makes libvirtd an ordinary user's when the tests are root's: as
// root it would be the system's, with its folders in /etc and /var. That user may have
// root's rights to files, and so have its QEMUs, for what they are to open is root's.
// They ask access(2) for firmware, which counts rights of other users than root only
// if no change of user takes any (capabilities(7), SECBIT_NO_SETUID_FIXUP). (A user
// namespace would do too, but there are none in a chroot.)
func asOrdinary(home string, rights bool) []string {
	if os.Getuid() != 0 {
		return nil
	}
	id := strconv.Itoa(ordinary)
	argv := append(withoutKVM(home), "setpriv", "--reuid", id, "--regid", id, "--clear-groups", "--pdeathsig", "KILL")
	if rights {
		const files = "+dac_override,+dac_read_search,+fowner"
		argv = append(argv, "--inh-caps", files, "--ambient-caps", files, "--securebits", "+no_setuid_fixup")
	}
	return argv
}

// withoutKVM lays a file that cannot be written over /dev/kvm, for libvirtd alone.
// One that may open the device, while its QEMU finds no KVM behind it, takes for
// outdated what it knows of the host's own QEMU (virQEMUCapsIsValid) and asks it anew
// before each domain, for 20 s. Where no mount namespace can be had, it is slower.
func withoutKVM(home string) []string {
	if _, err := os.Stat(kvm); err != nil || exec.Command("unshare", "--mount", "true").Run() != nil {
		return nil
	}
	return []string{"unshare", "--mount", "/bin/sh", "-ec",
		`/bin/mount --bind "$0" ` + kvm + `; /bin/mount -o remount,bind,ro ` + kvm + `; exec /usr/bin/"$@"`,
		filepath.Join(home, "libvirtd.conf")}
}

// Signal sends libvirtd a signal.
func (d *Daemon) Signal(s syscall.Signal) { d.Cmd.Process.Signal(s) }

// Kill ends libvirtd at once, and not its QEMUs.
func (d *Daemon) Kill() {
	if d.Child != nil {
		d.Child.Kill()
		<-d.Exited
	}
}

// reap ends the QEMUs of a libvirtd that is gone. A lab reaches none that is on another machine.
func (d *Daemon) reap() {
	all, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, file := range all {
		argv, err := os.ReadFile(file)
		if err != nil || !bytes.HasPrefix(argv, []byte("/usr/bin/qemu-system-")) || !bytes.Contains(argv, []byte(d.Home+"/")) {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file))); err == nil {
			syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}

// Open is how many files and connections libvirtd has open.
func (d *Daemon) Open(t testing.TB) int {
	t.Helper()
	all, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", d.Cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	return len(all)
}
