// Package qemu runs machines as QEMU processes on this host.
//
// What differs between ISAs is a row of a table (rows.go); the command line is a
// pure function of that row and the machine's specification (argv.go). A machine
// is started paused, its control connection is made, and only then does it run,
// so that how it ends is always heard.
//
// A machine has few rights (confine.go), and what it writes is not trusted.
// Nothing is left behind: a machine dies with the lab (lab/child), and run
// directories of labs that were killed are swept by the next (rundir.go).
package qemu

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	goqemu "github.com/digitalocean/go-qemu/qmp"
	"golang.org/x/sys/unix"

	"kerninst/lab/child"
	"kerninst/lab/qmp"
	"kerninst/lab/tail"
	"kerninst/lab/vm"
)

var (
	_ vm.Backend   = Backend{}
	_ vm.Machine   = (*machine)(nil)
	_ vm.Inspector = (*machine)(nil)
	_ vm.Process   = (*machine)(nil)
	_ vm.Freezer   = (*machine)(nil)
	_ vm.Lingerer  = (*machine)(nil)
)

const (
	// redial is how soon QEMU's socket is tried again while QEMU starts.
	redial = 5 * time.Millisecond
	// stderrKept is how much of QEMU's own output is kept, in bytes.
	stderrKept = 64 << 10
)

// stuckAfter is how long QEMU may take to end when it has said that it will. Plugins write
// their reports in that time. Tests have less patience.
var stuckAfter = 20 * time.Second

// Backend starts QEMU processes.
type Backend struct{}

// StartError says that QEMU did not come up.
type StartError struct {
	Argv   []string
	Ending vm.Ending
}

func (e *StartError) Error() string { return "QEMU did not start: " + e.Ending.Detail }

// Command is what was run.
func (e *StartError) Command() []string { return e.Argv }

// End is how it ended.
func (e *StartError) End() vm.Ending { return e.Ending }

// Start starts a machine. ctx limits the start, not the machine's life.
func (Backend) Start(ctx context.Context, s vm.Spec) (vm.Machine, error) {
	s, version, err := Prepare(ctx, s)
	if err != nil {
		return nil, err
	}
	argv, err := Argv(s, version)
	if err != nil {
		return nil, err
	}
	return start(ctx, argv, s)
}

// Prepare finds what a machine on this host is made from: its images, whose
// paths become absolute, and the installed QEMU.
func Prepare(ctx context.Context, s vm.Spec) (vm.Spec, Version, error) {
	paths := []*string{&s.Kernel, &s.Initrd}
	if s.Firmware != "" {
		paths = append(paths, &s.Firmware)
	}
	for _, path := range paths {
		if err := readable(path); err != nil {
			return s, Version{}, err
		}
	}
	v, err := FindVersion(ctx, s.Arch)
	return s, v, err
}

// readable makes the path of an image absolute and checks it here, where the
// message can be better than QEMU's.
func readable(path *string) error {
	abs, err := filepath.Abs(*path)
	if err != nil {
		return err
	}
	f, err := os.Open(abs)
	if err != nil {
		return fmt.Errorf("guest image: %w", err)
	}
	*path = abs
	return f.Close()
}

type machine struct {
	arch    string
	exact   bool
	argv    []string
	dir     string
	jail    *jail
	started time.Time
	child   *child.Child
	stderr  *head
	monitor *qmp.Client
	results *tail.Reader
	restore func() // the terminal
	mute    bool   // it powers off without an event

	stuckAfter     time.Duration
	stuck          atomic.Bool // QEMU did not end by itself
	lingers, keeps bool
	reports        bool          // plugins do so when QEMU ends by itself
	halted         chan struct{} // closed when the guest has ended and QEMU stays
	left           chan struct{} // closed by Leave
	leaving        sync.Once
	over           chan struct{} // closed when QEMU has ended or was left

	reason chan string   // takes one value: the first SHUTDOWN's reason, or ""
	ended  chan struct{} // closed when ending is valid
	ending vm.Ending
}

// start runs argv in the run directory and lets the guest go.
func start(ctx context.Context, argv []string, s vm.Spec) (*machine, error) {
	m := &machine{
		arch:       s.Arch,
		exact:      s.Time == vm.Exact,
		argv:       argv,
		dir:        s.Dir,
		mute:       rows[s.Arch].mutePowerOff,
		stderr:     &head{max: stderrKept},
		restore:    func() {},
		reason:     make(chan string, 1),
		ended:      make(chan struct{}),
		stuckAfter: stuckAfter,
		lingers:    s.Linger || s.Keep,
		keeps:      s.Keep,
		reports:    len(s.Plugins) > 0,
		halted:     make(chan struct{}),
		left:       make(chan struct{}),
		over:       make(chan struct{}),
	}
	cmd := exec.Command(argv[0], argv[1:]...)
	var err error
	if m.jail, err = confine(cmd, s); err != nil {
		return nil, err
	}
	defer m.jail.close()
	cmd.Stderr = m.stderr
	cmd.Stdout = m.stderr
	if s.Interactive {
		m.restore = saveTerminal(os.Stdin)
		cmd.Stdin, cmd.Stdout = os.Stdin, os.Stdout
	}
	m.started = time.Now()
	if m.child, err = startChild(cmd, !s.Interactive, !s.Keep, s.KVM); err != nil {
		return nil, fmt.Errorf("start QEMU: %w", err)
	}
	m.results = tail.Follow(filepath.Join(s.Dir, ResultsFile), m.over)
	m.monitor = qmp.New(m.dialer(controlSock), qmp.Options{})
	err = Limited(ctx, StartLimit, func(ctx context.Context) error { return m.release(ctx, s) })
	go m.reap()
	if err == nil {
		return m, nil
	}
	var state *vm.StateError
	if ctx.Err() == nil && errors.As(err, &state) {
		m.Kill()
		<-m.ended
		return nil, err
	}
	if ctx.Err() != nil { // our caller gave up; QEMU is not to blame
		m.Kill()
		<-m.ended
		return nil, ctx.Err()
	}
	// QEMU that dies of a bad argument closes the socket a moment before it is
	// gone; one that hangs has to be killed.
	select {
	case <-m.ended:
	case <-time.After(time.Second):
		m.Kill()
		<-m.ended
	}
	e := m.ending
	if e.Kind != vm.LabFault {
		e.Detail = detail(err.Error(), e.Detail)
	}
	return nil, &StartError{Argv: argv, Ending: e}
}

// release connects to the paused machine, listens for its end, gives it its
// state if it has one, and lets it run.
func (m *machine) release(ctx context.Context, s vm.Spec) error {
	if err := m.monitor.ConnectContext(ctx); err != nil {
		m.reason <- ""
		return err
	}
	events, err := m.monitor.Events(context.Background())
	if err != nil {
		m.reason <- ""
		return err
	}
	if m.lingers {
		// Not an option of its command line: by hand, it shall end with its guest.
		if err := m.monitor.Execute(ctx, "set-action", object{"shutdown": "pause"}, nil); err != nil {
			m.reason <- ""
			return err
		}
	}
	go func() { m.reason <- m.firstShutdown(events) }()
	if s.State != "" {
		if err := m.freezer().Thaw(ctx, s); err != nil {
			return err
		}
	}
	return m.monitor.Execute(ctx, "cont", nil, nil)
}

// firstShutdown reads events to their end and returns the reason of the first
// SHUTDOWN.
func (m *machine) firstShutdown(events <-chan goqemu.Event) string {
	reason := ""
	for e := range events {
		if e.Event != "SHUTDOWN" || reason != "" {
			continue
		}
		reason, _ = e.Data["reason"].(string)
		if !m.lingers || !m.linger(reason) {
			m.killIfStuck()
		}
	}
	return reason
}

// killIfStuck kills a QEMU that has said that it ends and does not. 7.2 does so when a
// command comes while it ends: its monitor_cleanup then polls for ever for that command
// to be done.
func (m *machine) killIfStuck() {
	go func() {
		select {
		case <-m.child.Exited:
		case <-time.After(m.stuckAfter):
			m.stuck.Store(true)
			m.Kill()
		}
	}()
}

// linger decides what becomes of a machine that paused instead of ending, and says
// whether it stays. It is called by the one goroutine that reads events.
func (m *machine) linger(reason string) (stays bool) {
	switch kind := reasons[reason]; {
	case kind == vm.Panicked || kind == vm.Clean && m.keeps && !m.reports:
		m.ending = vm.Ending{Kind: kind, Reason: reason}
		close(m.halted)
		return true
	case kind == vm.Clean:
		// Not killed: plugins write their reports when QEMU ends by itself.
		go m.monitor.Execute(context.Background(), "quit", nil, nil)
	}
	return false
}

// reap waits for the process and works out how the machine ended.
func (m *machine) reap() {
	defer close(m.ended)
	select {
	case <-m.child.Exited:
	case <-m.left:
		close(m.over)
		m.monitor.Disconnect()
		<-m.reason
		select {
		case <-m.halted:
		default:
			m.ending = vm.Ending{Kind: vm.Left, Reason: "left", Detail: "the lab let go of it"}
		}
		return
	}
	close(m.over)
	reason := <-m.reason // the process is gone, so the connection has ended
	m.monitor.Disconnect()
	m.restore()
	m.ending = ending(reason, m.child.Status(), m.stderr.String(), m.mute)
	if !m.stuck.Load() {
		return
	}
	m.ending.Detail = detail(fmt.Sprintf("QEMU said that it ends and was still there %v later: the lab killed it", m.stuckAfter), m.ending.Detail)
	if m.reports { // they were not written, or not to their end
		m.ending.Kind = vm.LabFault
	}
}

// Halted is vm.Lingerer's.
func (m *machine) Halted() <-chan struct{} { return m.halted }

// Leave is vm.Lingerer's.
func (m *machine) Leave() error {
	if !m.keeps {
		return errors.New("a machine that was not started to be kept cannot be left: it dies with the lab")
	}
	m.leaving.Do(func() { close(m.left) })
	return nil
}

// dialer dials one of the machine's sockets.
func (m *machine) dialer(sock string) qmp.Dialer {
	return dialer(m.dir, sock, m.Pid(), m.child.Exited)
}

// dialer dials a socket of the machine with that pid, which exists a moment after
// the process does. The way through /proc keeps the path short however deep the
// run directory lies.
func dialer(dir, sock string, pid int, exited <-chan struct{}) qmp.Dialer {
	return func(ctx context.Context) (net.Conn, error) {
		d, err := os.Open(dir)
		if err != nil {
			return nil, err
		}
		defer d.Close()
		dial := qmp.Unix(fmt.Sprintf("/proc/self/fd/%d/%s", d.Fd(), sock))
		for {
			conn, err := dial(ctx)
			if err == nil {
				return known(conn, pid)
			}
			select {
			case <-time.After(redial):
			case <-exited:
				return nil, errors.New("QEMU has ended")
			case <-ctx.Done():
				return nil, fmt.Errorf("%w: %w", ctx.Err(), err)
			}
		}
	}
}

// known refuses a connection that leads anywhere but to that QEMU, which may
// have put something else in place of its socket; 0 is any.
func known(conn net.Conn, pid int) (net.Conn, error) {
	at, err := peer(conn)
	if err == nil && at != pid && pid != 0 {
		err = fmt.Errorf("process %d listens at QEMU's socket, not QEMU", at)
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	return conn, nil
}

// peer is the process that listens at the other end (unix(7), SO_PEERCRED).
func peer(conn net.Conn) (pid int, err error) {
	local, ok := conn.(*net.UnixConn)
	if !ok {
		return 0, errors.New("not a unix socket")
	}
	raw, err := local.SyscallConn()
	if err != nil {
		return 0, err
	}
	var cred *unix.Ucred
	var failed error
	err = raw.Control(func(fd uintptr) {
		cred, failed = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if err = errors.Join(err, failed); err != nil {
		return 0, err
	}
	return int(cred.Pid), nil
}

func (m *machine) Monitor() goqemu.Monitor { return m.monitor }
func (m *machine) Results() io.Reader      { return m.results }
func (m *machine) Console() string         { return filepath.Join(m.dir, ConsoleFile) }
func (m *machine) Argv() []string          { return append([]string(nil), m.argv...) }
func (m *machine) Started() time.Time      { return m.started }
func (m *machine) Pid() int                { return m.child.Cmd.Process.Pid }
func (m *machine) Kill()                   { m.child.Kill() }

func (m *machine) Wait(ctx context.Context) (vm.Ending, error) {
	select {
	case <-m.ended:
		return m.ending, nil
	case <-ctx.Done():
		return vm.Ending{}, ctx.Err()
	}
}
