package check

import (
	"errors"
	"regexp"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"kerninst/agent/klog"
)

// stay is in what the module says of what it cannot take back.
var stay = regexp.MustCompile(`;kerninst: .* stay`)

// behind is how many lines are kept behind one in which something is amiss: the kernel says in them of whom that is, and
// what he was doing, in words that the console may be spared.
const behind = 60

// Log is the kernel's, from a moment on.
type Log struct {
	fd    int
	lines int
	bad   []string
	stays bool // what the module says to stay is amiss
	more  int  // so many lines are kept
	err   error
	ended chan struct{}

	ending atomic.Bool // all that is there is read, and no more is waited for
}

// WatchLog reads the kernel's log from now on: for what is amiss, and for what the module says to stay.
func WatchLog() (*Log, error) { return watchLog(true) }

// WatchKernel reads it for what is amiss alone: where an undo finds no memory, something stays until there is some.
func WatchKernel() (*Log, error) { return watchLog(false) }

func watchLog(stays bool) (*Log, error) {
	l := &Log{stays: stays, ended: make(chan struct{})}
	var err error
	if l.fd, err = unix.Open(klog.Path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0); err != nil {
		return nil, err
	}
	if _, err = unix.Seek(l.fd, 0, unix.SEEK_END); err != nil {
		return nil, err
	}
	go l.read()
	return l, nil
}

// looks is how long the log is left alone when there is nothing new in it.
const looks = 200 * time.Millisecond

func (l *Log) read() {
	defer close(l.ended)
	b := make([]byte, 16<<10)
	for {
		last := l.ending.Load()
		n, err := unix.Read(l.fd, b)
		switch {
		case err == nil:
			l.lines++
			l.keep(string(b[:n]))
		case errors.Is(err, unix.EAGAIN):
			if last {
				return
			}
			time.Sleep(looks) // nobody waits for a line: all that came is read at the end
		case errors.Is(err, unix.EINTR):
		default: // EPIPE: some of it was overwritten, and who knows what it said
			l.err = err
			return
		}
	}
}

func (l *Log) keep(line string) {
	_, amiss := klog.Complaint(line)
	switch {
	case amiss || l.stays && stay.MatchString(line):
		l.more = behind
	case l.more > 0:
		l.more--
	default:
		return
	}
	l.bad = append(l.bad, line)
}

// End is how many lines came, and those in which something is amiss, with what follows them.
func (l *Log) End() (lines int, bad []string, err error) {
	l.ending.Store(true)
	<-l.ended
	return l.lines, l.bad, l.err
}
