package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"kerninst/agent/kdev"
)

// kinds are what the load does, once each; what is wrong about what it gets is an error.
var kinds = map[string]func() (once func() error, err error){
	"exec":     func() (func() error, error) { return execs, nil },
	"files":    func() (func() error, error) { return files, nil },
	"pipe":     pipes,
	"loopback": loopback,
	"module":   modules,
}

// load does one of them until standard input ends, and says how often.
func load(kind string) error {
	begin := kinds[kind]
	if begin == nil {
		return fmt.Errorf("unknown load %q", kind)
	}
	once, err := begin()
	if err != nil {
		return err
	}
	var stopped atomic.Bool
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // ends when the other side does
		stopped.Store(true)
	}()
	n := 0
	for !stopped.Load() {
		err := once()
		switch {
		case err == nil:
			n++
		case !errors.Is(err, errNotNow):
			return fmt.Errorf("%s, the %d-th time: %w", kind, n+1, err)
		}
	}
	fmt.Println(n)
	return nil
}

// execs has a shell fork and execute.
func execs() error {
	out, err := exec.Command("/bin/sh", "-c", "/bin/true; (echo a; /bin/cat /proc/self/stat >/dev/null; echo b) | /bin/cat").Output()
	if err == nil && string(out) != "a\nb\n" {
		err = fmt.Errorf("the shell said %q", out)
	}
	return err
}

var pattern = bytes.Repeat([]byte("0123456789abcdef"), 1<<12)

// files writes one, gives it another name, reads it and takes it away.
func files() error {
	dir, err := os.MkdirTemp("", "churn-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	one, two := filepath.Join(dir, "one"), filepath.Join(dir, "two")
	if err := errors.Join(os.WriteFile(one, pattern, 0o600), os.Rename(one, two)); err != nil {
		return err
	}
	got, err := os.ReadFile(two)
	if err == nil && !bytes.Equal(got, pattern) {
		err = fmt.Errorf("%s does not hold what was written", two)
	}
	return err
}

// pipes sends something round, through another thread.
func pipes() (func() error, error) {
	var there, back [2]int
	if err := errors.Join(unix.Pipe2(there[:], unix.O_CLOEXEC), unix.Pipe2(back[:], unix.O_CLOEXEC)); err != nil {
		return nil, err
	}
	go func() {
		b := make([]byte, 512)
		for {
			n, err := unix.Read(there[0], b)
			if err == unix.EINTR {
				continue
			}
			if err != nil || n == 0 {
				return
			}
			_, _ = unix.Write(back[1], b[:n]) // who waits for it sees what is missing
		}
	}()
	b := make([]byte, 512)
	return func() error {
		if _, err := unix.Write(there[1], pattern[:len(b)]); err != nil {
			return err
		}
		n, err := unix.Read(back[0], b)
		for err == unix.EINTR {
			n, err = unix.Read(back[0], b)
		}
		if err == nil && !bytes.Equal(b[:n], pattern[:len(b)]) {
			err = fmt.Errorf("what came back through pipes is not what was sent")
		}
		return err
	}, nil
}

// loopback connects to an echo, and sends something to it.
func loopback() (func() error, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = io.Copy(c, c) // the other side sees what is missing
				c.Close()
			}()
		}
	}()
	return func() error {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			return err
		}
		defer c.Close()
		got := make([]byte, 8<<10)
		for range 8 {
			if _, err := c.Write(pattern[:len(got)]); err != nil {
				return err
			}
			if _, err := io.ReadFull(c, got); err != nil {
				return err
			}
			if !bytes.Equal(got, pattern[:len(got)]) {
				return fmt.Errorf("what came back over loopback is not what was sent")
			}
		}
		return c.(*net.TCPConn).SetLinger(0) // no port waits for stragglers
	}, nil
}

// someModule is one that comes and goes.
const someModule = "binfmt_misc"

// errNotNow: another has what it takes, so nothing was done.
var errNotNow = errors.New("not now")

// modules has a module come and go, unless somebody executes something just then, and asks it.
func modules() (func() error, error) {
	ko, err := os.ReadFile("/lib/modules/" + someModule + ".ko")
	if err != nil {
		return nil, err
	}
	return func() error {
		err := kdev.Unload(someModule)
		if errors.Is(err, unix.EAGAIN) {
			return errNotNow
		}
		if err != nil && !errors.Is(err, unix.ENOENT) {
			return err
		}
		return kdev.Load(ko, "")
	}, nil
}

// loads are those that run.
type loads struct{ all []*running }

type running struct {
	kind string
	cmd  *exec.Cmd
	in   io.Closer
	out  bytes.Buffer
}

func startLoads() (*loads, error) {
	l := &loads{}
	for kind := range kinds {
		r := &running{kind: kind, cmd: exec.Command("/proc/self/exe", "load", kind)}
		r.cmd.Stdout, r.cmd.Stderr = &r.out, os.Stderr
		var err error
		if r.in, err = r.cmd.StdinPipe(); err == nil {
			err = r.cmd.Start()
		}
		if err != nil {
			return nil, errors.Join(err, l.stop(&tally{}))
		}
		l.all = append(l.all, r)
	}
	return l, nil
}

// stop ends them, and adds how often each did its own.
func (l *loads) stop(t *tally) error {
	var errs []error
	for _, r := range l.all {
		errs = append(errs, r.in.Close())
	}
	for _, r := range l.all {
		if err := r.cmd.Wait(); err != nil {
			errs = append(errs, fmt.Errorf("load %s: %w", r.kind, err))
			continue
		}
		n, err := strconv.Atoi(strings.TrimSpace(r.out.String()))
		errs = append(errs, err)
		addTo(&t.loads, map[string]int{r.kind: n})
	}
	return errors.Join(errs...)
}
