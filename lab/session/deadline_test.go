package session

import (
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"testing"
	"time"

	"kerninst/lab/vm"
)

// TestDeadline: what the host kept the machine waiting is granted once, up to a bound.
func TestDeadline(t *testing.T) {
	kept := 5 * time.Second
	l := newDeadline(time.Millisecond, func() time.Duration { return kept })
	<-l.c
	kept += 4 * time.Millisecond
	if l.over() {
		t.Error("over, though the host kept the machine waiting")
	}
	<-l.c
	if !l.over() {
		t.Error("the same wait was granted twice")
	}
	kept += time.Hour
	if l.over() || l.granted != mostGranted*time.Millisecond {
		t.Errorf("%v granted, the most is %v", l.granted, mostGranted*time.Millisecond)
	}
	<-l.c
	if kept += time.Hour; !l.over() {
		t.Error("more granted than the most")
	}
	if none := newDeadline(0, nil); none.c != nil {
		t.Error("no limit fires")
	} else {
		none.stop()
	}
}

// process is a machine of which only the process matters.
type process struct {
	vm.Machine
	pid int
}

func (p process) Pid() int { return p.pid }

// TestWaitedFor: a thread's own running is no waiting.
func TestWaitedFor(t *testing.T) {
	for line, want := range map[string]time.Duration{
		"5000000000 7 300\n": 7, "": 0, "5 7\n": 0, "5 x 300\n": 0, "no such\n": 0,
	} {
		if got := waitedFor(line); got != want {
			t.Errorf("%q: %v, want %v", line, got, want)
		}
	}
}

// TestKeptWaiting: a process that shares one CPU with others is kept waiting for it.
func TestKeptWaiting(t *testing.T) {
	if _, err := os.Stat("/proc/self/schedstat"); err != nil {
		t.Logf("this host does not tell: %v", err)
		return
	}
	const busy = "while :; do :; done"
	var pids []int
	for range 3 * runtime.NumCPU() {
		cmd := exec.Command("sh", "-c", busy)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		defer func() {
			_ = cmd.Process.Kill() // it runs for ever
			_ = cmd.Wait()
		}()
		pids = append(pids, cmd.Process.Pid)
	}
	for end := time.Now().Add(20 * time.Second); keptWaiting(process{nil, pids[0]}) < 20*time.Millisecond; {
		if time.Now().After(end) {
			t.Fatal("three busy processes for each CPU, and the first never waited")
		}
		time.Sleep(10 * time.Millisecond) // they have to run for a while
	}
	if w := keptWaiting(process{nil, 1 << 30}); w != 0 {
		t.Errorf("process %s waited %v", strconv.Itoa(1<<30), w)
	}
	if w := keptWaiting(nil); w != 0 {
		t.Errorf("no process waited %v", w)
	}
}
