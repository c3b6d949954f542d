package main

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"kerninst/agent/daemon"
)

// tick is the unit of times in /proc/PID/stat: USER_HZ, which is 100 on all ISAs here (proc(5)).
const tick = 10 * time.Millisecond

// onCPU is how long a process had a CPU, in the kernel and outside.
func onCPU(pid int) (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	return parseStat(text)
}

// parseStat takes utime and stime, the 14th and 15th word. The second, a name in brackets, may
// have anything in it.
func parseStat(text []byte) (sum time.Duration, err error) {
	f := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
	if len(f) < 13 {
		return 0, fmt.Errorf("%.80q is no process's state", text)
	}
	for _, word := range f[11:13] {
		n, err := strconv.ParseUint(string(word), 10, 63)
		if err != nil {
			return 0, err
		}
		sum += time.Duration(n) * tick
	}
	return sum, nil
}

// daemonPid is who listens.
func daemonPid() (pid int, err error) {
	c, err := net.Dial("unix", daemon.Socket)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	raw, err := c.(*net.UnixConn).SyscallConn()
	if err != nil {
		return 0, err
	}
	var who *unix.Ucred
	var failed error
	err = raw.Control(func(fd uintptr) { who, failed = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	if err == nil {
		err = failed
	}
	if err != nil {
		return 0, err
	}
	return int(who.Pid), nil
}

// workers are those who do what a detective asks for.
type workers struct {
	since time.Time
	names []string
	pids  []int
	began []time.Duration
}

func newWorkers(client int) (w workers, err error) {
	listens, err := daemonPid()
	if err != nil {
		return w, err
	}
	before, err := onCPU(listens) // of the others it is all for the detective
	return workers{time.Now(), []string{"its own", "kinst's", "kerninstd's"}, []int{os.Getpid(), client, listens}, []time.Duration{0, 0, before}}, err
}

// tell says how much CPU time they took, of which what is looked at had that much less, and in how long.
func (w workers) tell() error {
	var sum time.Duration
	text := ""
	for k, pid := range w.pids {
		t, err := onCPU(pid)
		if err != nil {
			return err
		}
		t -= w.began[k]
		sum += t
		text += fmt.Sprintf(", %.2f s %s", t.Seconds(), w.names[k])
	}
	_, err := fmt.Fprintf(os.Stderr, "detective: %.2f s of CPU in %.1f s%s\n", sum.Seconds(), time.Since(w.since).Seconds(), text)
	return err
}
