package main

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// victim is a system call that nothing else in the guest makes, and what it answers.
type victim struct {
	name   string
	nr     uintptr
	arg    uintptr
	answer uintptr
}

const schedFIFO = 1

// victims are those of the threads.
var victims = [threads]victim{
	{"sched_get_priority_max", unix.SYS_SCHED_GET_PRIORITY_MAX, schedFIFO, 99},
	{"sched_get_priority_min", unix.SYS_SCHED_GET_PRIORITY_MIN, schedFIFO, 1},
	{"getpriority", unix.SYS_GETPRIORITY, unix.PRIO_PROCESS, 20}, // of who has none, as the kernel says it
}

// callers call a victim, one on each CPU.
type callers struct {
	of      *victim
	asked   []chan int // so many calls; 0: until stopped
	done    chan int
	stopped atomic.Bool
	failed  atomic.Pointer[error]
	wait    sync.WaitGroup
}

func startCallers(v *victim, cpus int) (*callers, error) {
	c := &callers{of: v, done: make(chan int)}
	ready := make(chan error)
	for cpu := range cpus {
		ask := make(chan int)
		c.asked = append(c.asked, ask)
		c.wait.Go(func() { c.run(cpu, ask, ready) })
	}
	var err error
	for range cpus {
		if e := <-ready; e != nil {
			err = e
		}
	}
	if err != nil {
		c.end()
		return nil, err
	}
	return c, nil
}

// run is one of them.
func (c *callers) run(cpu int, ask <-chan int, ready chan<- error) {
	runtime.LockOSThread() // and the thread ends with it
	var set unix.CPUSet
	set.Set(cpu)
	ready <- unix.SchedSetaffinity(0, &set)
	for n := range ask {
		made := 0
		for made < n || n == 0 && !c.stopped.Load() {
			if made++; made%16 == 0 {
				runtime.Gosched() // a thread that is always in a call is never taken the CPU away
			}
			got, _, errno := unix.RawSyscall(c.of.nr, c.of.arg, 0, 0)
			if got != c.of.answer || errno != 0 {
				err := fmt.Errorf("%s answered %d, %v", c.of.name, got, errno)
				c.failed.Store(&err)
			}
		}
		c.done <- made
	}
}

// stir has them call until they are to rest.
func (c *callers) stir() {
	c.stopped.Store(false)
	for _, ask := range c.asked {
		ask <- 0
	}
}

// rest says how often they have called since they were stirred.
func (c *callers) rest() (int, error) {
	c.stopped.Store(true)
	return c.all()
}

// call has each call so often, and says how often all did.
func (c *callers) call(each int) (int, error) {
	for _, ask := range c.asked {
		ask <- each
	}
	return c.all()
}

func (c *callers) all() (n int, err error) {
	for range c.asked {
		n += <-c.done
	}
	if failed := c.failed.Load(); failed != nil {
		err = *failed
	}
	return n, err
}

func (c *callers) end() {
	for _, ask := range c.asked {
		close(ask)
	}
	c.wait.Wait()
}
