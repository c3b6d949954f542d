package libvirt

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"kerninst/lab/child"
)

const (
	// sshLimit is how long a host may take to let the lab in, in seconds.
	sshLimit = 20
	// sshAlive is how often a host is asked whether it is there, in seconds; of three questions one
	// is to be answered.
	sshAlive = 5
	// socketInterval is how often ssh's socket is looked for.
	socketInterval = 5 * time.Millisecond
	// saidKept is how much of what ssh says is kept, in bytes.
	saidKept = 4 << 10
)

// sshWay leads to a libvirtd's socket on another machine. The user's own ssh leads there, so that
// what it is configured for holds (keys, agents, jumps, known hosts): one process for all
// connections, which forwards a unix socket (ssh(1), -L).
type sshWay struct {
	user, host, port, socket, identity, known string

	mu      sync.Mutex
	forward *forward // nil before the first
	bare    bool     // the host lets in who forwards, but runs nothing for them
}

// forward is an ssh that runs.
type forward struct {
	*child.Child          // nil: somebody else's
	sock         *os.File // its socket, which has no name any more
	said         said
	program      *program // nil if there is none
}

// program runs on the host for as long as the forward does. It is there for sshd alone, which sends
// small packets at once (TCP_NODELAY) as soon as it has a session, and without one holds each back until the one
// before it has been acknowledged, which takes 40 ms: OpenSSH's session.c, ssh_packet_set_interactive.
type program struct {
	input *os.File      // its end ends the program
	began chan struct{} // closed when it has said that
	once  sync.Once
	said  []byte // the last that came, before it began
}

const (
	programBegan = "kerninst: forwarding"
	programLine  = "echo " + programBegan + "; cat" // in whatever shell the user has there
	// programLimit is how long it may take to say that it has begun, once ssh is let in: what runs and says
	// something else is as good.
	programLimit = 2 * time.Second
)

// Write looks for what the program says, behind what a login may say.
func (p *program) Write(b []byte) (int, error) {
	p.said = append(p.said, b...)
	if bytes.Contains(p.said, []byte(programBegan)) {
		p.once.Do(func() { close(p.began) })
	}
	p.said = p.said[max(0, len(p.said)-len(programBegan)):]
	return len(b), nil
}

// gone reports whether it has ended, as far as can be known.
func (f *forward) gone() bool { return f.Child != nil && closed(f.Exited) }

// said is what a program says, in a file without a name: whatever it said before it closed a
// connection is there when the lab sees that end.
type said struct{ *os.File }

// String is the end of it.
func (s said) String() string {
	text := make([]byte, saidKept)
	info, err := s.Stat()
	if err != nil {
		return ""
	}
	n, _ := s.ReadAt(text, max(0, info.Size()-saidKept))
	return strings.TrimSpace(string(text[:n]))
}

func (w *sshWay) key() string {
	return "ssh " + w.user + "@" + net.JoinHostPort(w.host, w.port) + " " + w.socket
}

func (w *sshWay) dial(ctx context.Context) (net.Conn, error) {
	for again := false; ; {
		f, err := w.keep(ctx)
		if err != nil {
			return nil, err
		}
		sock, err := w.connect(ctx, f)
		switch {
		case err == nil:
			return sock, nil
		case f.Child == nil && ctx.Err() == nil:
			w.drop(f)
			continue
		case f.gone() && !again && ctx.Err() == nil: // as with what it ran there
			again = true
			continue
		case !errors.Is(err, syscall.ECONNREFUSED) || f.gone(): // else ssh has made its socket and does not listen yet
			return nil, fmt.Errorf("libvirtd is not reached: %w%s", err, f.also())
		}
		select {
		case <-time.After(socketInterval):
		case <-ctx.Done():
			return nil, fmt.Errorf("libvirtd is not reached: %w%s", err, f.also())
		}
	}
}

// connect connects to a forward's socket, by a descriptor that nobody else closes.
func (w *sshWay) connect(ctx context.Context, f *forward) (net.Conn, error) {
	w.mu.Lock()
	fd, err := unix.FcntlInt(f.sock.Fd(), unix.F_DUPFD_CLOEXEC, 0) // of one that was closed, -1
	w.mu.Unlock()
	if err != nil {
		return nil, fmt.Errorf("ssh's socket: %w", err)
	}
	defer unix.Close(fd)
	var d net.Dialer
	return d.DialContext(ctx, "unix", fmt.Sprintf("/proc/self/fd/%d", fd))
}

// drop gives a forward up that is of no use.
func (w *sshWay) drop(f *forward) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.forward == f {
		w.forward = nil
		f.close()
	}
}

// Share is this process's way to the host, for one that it starts and whose Backend goes Through it: two
// files, which are valid as long as the Backend. It is nil if there is nothing that would be shared.
func (b Backend) Share() []*os.File {
	w, ok := b.way.(*sshWay)
	if !ok {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.forward == nil || w.forward.gone() {
		return nil
	}
	return []*os.File{w.forward.sock, w.forward.said.File}
}

// Through has a Backend that was not used yet go another's way, as long as that leads to the host; then
// it makes its own.
func (b Backend) Through(way []*os.File) {
	if w, ok := b.way.(*sshWay); ok {
		w.forward = &forward{sock: way[0], said: said{way[1]}}
	}
}

// why adds what ssh has said: of a socket that is not there ssh knows only when somebody wants it.
func (w *sshWay) why(err error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err == nil || w.forward == nil {
		return err
	}
	return fmt.Errorf("%w%s", err, w.forward.also())
}

func (f *forward) also() string {
	if text := f.said.String(); text != "" {
		return "; ssh says: " + strings.Join(strings.Fields(text), " ")
	}
	return ""
}

// turnedAway is what ssh says when a server drops it because too many begin at once (sshd_config(5),
// MaxStartups), and attempts how often it is asked, with pauses that grow up to turnedAwayPause.
var turnedAway = []string{"Connection reset", "Connection closed", "kex_exchange_identification"}

const (
	attempts        = 6
	turnedAwayPause = 2 * time.Second
)

// keep has an ssh run.
func (w *sshWay) keep(ctx context.Context) (*forward, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.forward != nil && !w.forward.gone() {
		return w.forward, nil
	}
	if f := w.forward; f != nil {
		const own = 255 // ssh's own errors': the host went away (ssh(1), EXIT STATUS)
		w.bare = w.bare || f.program != nil && f.Status().ExitStatus() != own
		f.close()
		w.forward = nil
	}
	for n := 1; ; n++ {
		f, away, err := w.attempt(ctx)
		if err == nil {
			w.forward = f
			return f, nil
		}
		if errors.Is(err, errNoProgram) && !w.bare {
			w.bare = true
			continue
		}
		if !away || n == attempts {
			return nil, err
		}
		select {
		case <-time.After(rand.N(turnedAwayPause * time.Duration(n) / attempts)):
		case <-ctx.Done():
			return nil, err
		}
	}
}

// attempt starts ssh, and returns when it has been let in; away says that it may be, later.
func (w *sshWay) attempt(ctx context.Context) (f *forward, away bool, err error) {
	// Its socket's name is gone as soon as it is there, so that nothing is left of a lab that was killed.
	dir, err := os.MkdirTemp("", "kerninst-")
	if err != nil {
		return nil, false, err
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "s")
	if len(path) > maxSocket || strings.Contains(path, ":") {
		return nil, false, fmt.Errorf("%s: no place for a socket of ssh's: set TMPDIR to a short path without a colon", path)
	}
	if f, err = w.begin(path); err != nil {
		return nil, false, err
	}
	if err := f.await(ctx, path); err != nil {
		f.Kill()
		<-f.Exited
		said := f.said.String()
		f.close()
		if errors.Is(err, errNoProgram) {
			return nil, false, err
		}
		away := slices.ContainsFunc(turnedAway, func(s string) bool { return strings.Contains(said, s) })
		return nil, away, explainSSH(err, said, w.host)
	}
	return f, false, nil
}

// begin starts ssh.
func (w *sshWay) begin(path string) (*forward, error) {
	program, err := exec.LookPath("ssh")
	if err != nil {
		return nil, errors.New("ssh is not installed: it is in Debian's package openssh-client")
	}
	fd, err := unix.MemfdCreate("ssh", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("a file for what ssh says: %w", err)
	}
	f := &forward{said: said{os.NewFile(uintptr(fd), "what ssh says")}}
	cmd := exec.Command(program, w.args(path)...)
	cmd.Stdout, cmd.Stderr = f.said.File, f.said.File
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	if !w.bare {
		input, err := f.run(cmd)
		if err != nil {
			f.close()
			return nil, err
		}
		defer input.Close()
	}
	if f.Child, err = child.Start(cmd, nil); err != nil {
		f.close()
		return nil, err
	}
	return f, nil
}

// run has ssh have a program run, whose input the caller closes when ssh has it.
func (f *forward) run(cmd *exec.Cmd) (input *os.File, err error) {
	r, w, err := os.Pipe()
	if err == nil {
		f.program = &program{input: w, began: make(chan struct{})}
		cmd.Stdin, cmd.Stdout = r, f.program
	}
	return r, err
}

// args are ssh's. It asks nobody, and shares no connection that others have made, which would
// outlive it.
func (w *sshWay) args(path string) []string {
	args := []string{"-T", "-o", "BatchMode=yes", "-o", "ControlMaster=no", "-o", "ControlPath=none",
		"-o", fmt.Sprintf("ConnectTimeout=%d", sshLimit), "-o", fmt.Sprintf("ServerAliveInterval=%d", sshAlive), "-L", path + ":" + w.socket}
	for _, option := range []struct{ flag, value string }{
		{"-l", w.user}, {"-p", w.port}, {"-i", w.identity}, {"-oUserKnownHostsFile=", w.known},
	} {
		switch {
		case option.value == "":
		case strings.HasSuffix(option.flag, "="):
			args = append(args, option.flag+option.value)
		default:
			args = append(args, option.flag, option.value)
		}
	}
	if w.identity != "" {
		args = append(args, "-o", "IdentitiesOnly=yes")
	}
	if w.bare {
		return append(args, "-N", "--", w.host)
	}
	// What a user's own configuration may say of this host, for when he goes there himself. Clients that do not know of an option
	// have nothing of it.
	args = append(args, "-o", "IgnoreUnknown=RemoteCommand,SessionType,StdinNull", "-o", "RemoteCommand=none", "-o", "SessionType=default", "-o", "StdinNull=no")
	return append(args, "--", w.host, programLine)
}

// close gives up what is left of one that has ended.
func (f *forward) close() {
	f.sock.Close()
	f.said.Close()
	if f.program != nil {
		f.program.input.Close()
	}
}

// errNoProgram is that a host lets in whom it does not let run anything.
var errNoProgram = errors.New("it runs nothing for this user")

// began waits for the program, if there is to be one.
func (f *forward) began(ctx context.Context) error {
	if f.program == nil {
		return nil
	}
	select {
	case <-f.program.began:
	case <-time.After(programLimit):
	case <-f.Exited:
		return errNoProgram
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

// await waits for the socket, which ssh makes once it has been let in, and for the program.
func (f *forward) await(ctx context.Context, path string) error {
	for {
		fd, err := unix.Open(path, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err == nil {
			f.sock = os.NewFile(uintptr(fd), path)
			return f.began(ctx)
		}
		select {
		case <-time.After(socketInterval):
		case <-f.Exited:
			if _, err := os.Lstat(path); err == nil && f.program != nil { // it was let in, and has left its socket
				return errNoProgram
			}
			return errors.New("ssh ended")
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// sshReasons are what ssh says, and what to do about it. The first that fits holds.
var sshReasons = []struct{ said, then string }{
	{"REMOTE HOST IDENTIFICATION HAS CHANGED", "its key has changed, or somebody else answers: if the change is known of, `ssh-keygen -R %s` forgets the old one"},
	{"Host key verification failed", "its key is not known: `ssh %s` shows it"},
	{"not accessible: No such file", "there is no such key"},
	{"Permission denied", "it does not let this user in: the lab has no password to give, so `ssh -o BatchMode=yes %s true` has to work"},
	{"Could not resolve hostname", "there is no such host"},
}

func explainSSH(err error, said, host string) error {
	for _, r := range sshReasons {
		if strings.Contains(said, r.said) {
			what := r.then
			if strings.Contains(what, "%s") {
				what = fmt.Sprintf(what, host)
			}
			return fmt.Errorf("%s (ssh says: %s)", what, lastLine(said))
		}
	}
	if said != "" {
		return fmt.Errorf("it is not reached: %w: %s", err, lastLine(said))
	}
	return fmt.Errorf("it is not reached: %w", err)
}

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.TrimSpace(lines[len(lines)-1])
}
