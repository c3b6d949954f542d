package session

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"kerninst/lab/vm"
)

// deadline is how long a machine may take. Host time in which a CPU of the machine was
// ready and the host ran something else does not count: on a busy host, a guest
// that boots slowly does not hang.
type deadline struct {
	c       <-chan time.Time
	t       *time.Timer
	d       time.Duration
	granted time.Duration // beyond d, so far
	kept    func() time.Duration
	before  time.Duration // what kept said at the beginning
}

// mostGranted bounds what a limit is extended by, as a multiple of it: somebody waits.
const mostGranted = 9

// newDeadline begins now; 0 is none. kept says how long the host has kept the machine
// waiting since it began.
func newDeadline(d time.Duration, kept func() time.Duration) *deadline {
	if d <= 0 {
		return &deadline{}
	}
	t := time.NewTimer(d)
	return &deadline{t: t, c: t.C, d: d, kept: kept, before: kept()}
}

// over reports, when c has fired, whether that was the end. Otherwise c will fire
// again.
func (l *deadline) over() bool {
	waited := min(l.kept()-l.before, mostGranted*l.d)
	more := waited - l.granted
	if more < l.d/100 { // not worth another look
		return true
	}
	l.granted = waited
	l.t.Reset(more)
	return false
}

func (l *deadline) stop() {
	if l.t != nil {
		l.t.Stop()
	}
	l.c = nil
}

// keptWaiting is how long the thread of a machine that waited longest has waited for a
// CPU of this host since it began (the second word of /proc/PID/task/TID/schedstat, ns:
// Documentation/scheduler/sched-stats.rst). Machines that are not processes here, and
// hosts that do not tell, keep nobody waiting.
func keptWaiting(m vm.Machine) (longest time.Duration) {
	p, ok := m.(vm.Process)
	if !ok {
		return 0
	}
	files, _ := filepath.Glob(filepath.Join("/proc", strconv.Itoa(p.Pid()), "task", "*", "schedstat")) // the pattern is right
	for _, file := range files {
		b, _ := os.ReadFile(file) // the thread has ended: it says nothing
		longest = max(longest, waitedFor(string(b)))
	}
	return longest
}

// waitedFor is how long a thread has waited, of its schedstat: the time it ran, the time
// it waited, and how often it ran. What is none says 0.
func waitedFor(schedstat string) time.Duration {
	words := strings.Fields(schedstat)
	if len(words) != 3 {
		return 0
	}
	n, _ := strconv.ParseInt(words[1], 10, 64) // not a number: 0
	return time.Duration(n)
}
