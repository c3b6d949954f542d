package main

import (
	"os"
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"kerninst/agent/isa"
	"kerninst/agent/kdev"
	"kerninst/guest/check"
)

const (
	waitPeriod = time.Millisecond
	waitLong   = 900 * time.Millisecond // the most is a second
	waitShort  = 100 * time.Millisecond
	ringLen    = 1 << 16
)

// rings are those of a test, each empty, and what is asked of them.
func (e *env) rings() (*kdev.Rings, []kdev.Watched, error) {
	r, err := e.dev.AllocRings(ringLen, e.info.CPUs)
	if err != nil {
		return nil, nil, err
	}
	var all []kdev.Watched
	for cpu := range r.CPUs {
		fill(r, cpu, 0)
		all = append(all, kdev.Watched{At: r.At + isa.Addr(cpu*r.Len), Room: ringLen / 2})
	}
	return r, all, nil
}

// fill has so many bytes of a ring taken: its state says how many are left.
func fill(r *kdev.Rings, cpu, bytes int) {
	atomic.StoreUint64(&r.CPUs[cpu][0], uint64(uint32(bytes-ringLen))<<32)
}

// interrupt sends each thread of this program what Go's runtime sends those that are to give way.
func interrupt() {
	tasks, err := os.ReadDir("/proc/self/task")
	check.Report("threads that signals are sent to", len(tasks), err == nil && len(tasks) > 1, "%v", err)
	for _, t := range tasks {
		if tid, err := strconv.Atoi(t.Name()); err == nil {
			_ = unix.Tgkill(unix.Getpid(), tid, unix.SIGURG) // a thread may have ended
		}
	}
}

// waits: who waits for rings goes on when one is as full as he says, whichever it is, or when
// he is woken, or when it is long enough, and nobody waits for him.
func (e *env) waits() error {
	r, all, err := e.rings()
	if err != nil {
		return err
	}
	last := len(all) - 1
	after := func(do func()) (took time.Duration, err error) {
		began := time.Now()
		if do != nil {
			done := make(chan struct{})
			t := time.AfterFunc(waitShort, func() { defer close(done); do() })
			defer func() {
				if !t.Stop() { // what comes late would otherwise come into the next wait
					<-done
				}
			}()
		}
		err = e.dev.Wait(all, waitPeriod, waitLong)
		return time.Since(began), err
	}
	for _, x := range []struct {
		what string
		do   func()
		long bool
	}{
		{"wait for rings that stay empty", nil, true},
		{"wait for a ring that is nearly half full", func() { fill(r, last, ringLen/2) }, true},
		{"wait for a ring that is half full", func() { fill(r, last, ringLen/2+8) }, false},
		{"wait for a ring that has been asked for more than it has", func() { fill(r, last, 2*ringLen) }, false},
		{"wait that signals come to", interrupt, true},
		{"wait until woken", func() { _ = e.dev.Wake() }, false},
		{"wait, while others ask", func() {
			if _, err := e.dev.Stats(); err == nil {
				_ = e.dev.Wake()
			}
		}, false},
	} {
		least, most, times := waitShort, waitLong-waitShort, 3
		if x.long {
			least, most, times = waitLong, time.Minute, 1
		}
		// A host that is busy may keep one from going on for as long as nobody wakes him, but hardly
		// each time.
		took := time.Hour
		for ; err == nil && times > 0; times-- {
			fill(r, last, 0)
			var one time.Duration
			one, err = after(x.do)
			took = min(took, one)
		}
		check.Report(x.what, 1, err == nil && took >= least && took <= most, "%v: the shortest took %v, want %v to %v", err, took, least, most)
		if err != nil {
			return err
		}
	}
	fill(r, last, 0)
	began := time.Now()
	err = e.dev.Wake()
	if err == nil {
		err = e.dev.Wait(all, waitPeriod, waitLong)
	}
	took := time.Since(began)
	check.Report("wait, after somebody was woken who did not wait", 1, err == nil && took < waitLong, "%v: it took %v", err, took)
	return nil
}

// watched asks for a wait with something wrong about it.
func watched(spoil func(all []kdev.Watched) []kdev.Watched, period, most time.Duration) func(*env) error {
	return func(e *env) error {
		_, all, err := e.rings()
		if err != nil {
			return err
		}
		return e.dev.Wait(spoil(all), period, most)
	}
}

var waitsRefused = []refusal{
	{"wait for memory of others", unix.ERANGE, func(e *env) error {
		return e.dev.Wait([]kdev.Watched{{At: e.area.Cells(), Room: 8}}, waitPeriod, waitLong)
	}},
	{"wait for a part of a word", unix.ERANGE, watched(func(w []kdev.Watched) []kdev.Watched { w[0].At += 4; return w }, waitPeriod, waitLong)},
	{"wait for more room than there is", unix.EINVAL, watched(func(w []kdev.Watched) []kdev.Watched { w[0].Room = 1 << 31; return w }, waitPeriod, waitLong)},
	{"wait for too many rings", unix.EINVAL, watched(func(w []kdev.Watched) []kdev.Watched { return make([]kdev.Watched, kdev.MaxWatched+1) }, waitPeriod, waitLong)},
	{"wait, looking all the time", unix.EINVAL, watched(func(w []kdev.Watched) []kdev.Watched { return w }, time.Microsecond, waitLong)},
	{"wait for no time", unix.EINVAL, watched(func(w []kdev.Watched) []kdev.Watched { return w }, waitPeriod, 0)},
	{"wait for longer than a second", unix.EINVAL, watched(func(w []kdev.Watched) []kdev.Watched { return w }, waitPeriod, 2*time.Second)},
}
