package check

import (
	"bytes"
	"errors"
	"regexp"

	"golang.org/x/sys/unix"
)

// amiss are lines of the kernel's log that nothing may cause.
var amiss = regexp.MustCompile(`WARNING:|BUG:|Oops|Internal error|Unable to handle|general protection|stall|soft lockup|LOCKUP|blocked for more than|double fault|rcu: INFO|kerninst: .* stay`)

// Log is the kernel's, from a moment on.
type Log struct {
	fd    int
	lines int
	bad   []string
	err   error
	ended chan struct{}
}

// WatchLog reads the kernel's log from now on.
func WatchLog() (*Log, error) {
	l := &Log{ended: make(chan struct{})}
	var err error
	if l.fd, err = unix.Open("/dev/kmsg", unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0); err != nil {
		return nil, err
	}
	if _, err = unix.Seek(l.fd, 0, unix.SEEK_END); err != nil {
		return nil, err
	}
	go l.read()
	return l, nil
}

// mark is what is written last, so that the log is not empty, and read to its end.
const mark = "kerninst check: the log is read up to here"

func (l *Log) read() {
	defer close(l.ended)
	b := make([]byte, 16<<10)
	for {
		n, err := unix.Read(l.fd, b)
		switch {
		case err == nil:
			l.lines++
			if amiss.Match(b[:n]) {
				l.bad = append(l.bad, string(b[:n]))
			}
			if bytes.Contains(b[:n], []byte(mark)) {
				return
			}
		case errors.Is(err, unix.EAGAIN):
			_, _ = unix.Poll([]unix.PollFd{{Fd: int32(l.fd), Events: unix.POLLIN}}, -1)
		case errors.Is(err, unix.EINTR):
		default: // EPIPE: some of it was overwritten, and who knows what it said
			l.err = err
			return
		}
	}
}

// End is how many lines came, and those in which something is amiss.
func (l *Log) End() (lines int, bad []string, err error) {
	if _, err := unix.Write(l.fd, []byte(mark)); err != nil {
		return 0, nil, err
	}
	<-l.ended
	return l.lines, l.bad, l.err
}
