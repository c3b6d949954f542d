package qemu

import (
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// child is a process that dies with the lab, even when the lab is killed with
// SIGKILL, unless it is to outlive it.
//
// The kernel sends the parent-death signal when the *thread* that started the
// child ends, and Go ends and reuses threads as it likes. So one goroutine is
// locked to its thread, starts the child, and stays there until the child has
// ended.
type child struct {
	cmd    *exec.Cmd
	exited chan struct{} // closed when the process has ended and its output is complete
	err    error         // of Wait; valid after exited
}

// startChild starts cmd, whose SysProcAttr is set. own says whether it gets a
// process group of its own, which keeps a Ctrl-C in the terminal from reaching it
// before the lab; bound, whether it dies with the lab; huge, whether it gets huge pages
// when it asks for them.
func startChild(cmd *exec.Cmd, own, bound, huge bool) (*child, error) {
	cmd.SysProcAttr.Setpgid = own
	if bound {
		cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	}
	cmd.WaitDelay = 2 * time.Second
	c := &child{cmd: cmd, exited: make(chan struct{})}
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := startIn(cmd, huge)
		started <- err
		if err != nil {
			return
		}
		c.err = cmd.Wait()
		close(c.exited)
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return c, nil
}

// paging is held while the lab's own word on huge pages is another.
var paging sync.Mutex

// startIn starts cmd. A program has the word on huge pages (PR_SET_THP_DISABLE) of the
// memory that it was started from, and there is no other way to tell QEMU: it asks for
// them for all of a guest's memory.
//
// A state fills that memory here and there, and with huge pages the host provides 2 MiB
// for each page of it. Where the host is a guest itself, whose free memory has been
// taken away, that took anything from 0.4 to 1.2 s.
func startIn(cmd *exec.Cmd, huge bool) error {
	if huge {
		return cmd.Start()
	}
	paging.Lock()
	defer paging.Unlock()
	before, err := unix.PrctlRetInt(unix.PR_GET_THP_DISABLE, 0, 0, 0, 0)
	// A kernel that has no word on it, QEMU starts on as well.
	if err == nil && before == 0 && unix.Prctl(unix.PR_SET_THP_DISABLE, 1, 0, 0, 0) == nil {
		defer unix.Prctl(unix.PR_SET_THP_DISABLE, 0, 0, 0, 0)
	}
	return cmd.Start()
}

// kill ends it now. Killing what has ended does nothing.
func (c *child) kill() { c.cmd.Process.Kill() }

// status is how the process ended. Valid after exited.
func (c *child) status() syscall.WaitStatus {
	if s, ok := c.cmd.ProcessState.Sys().(syscall.WaitStatus); ok {
		return s
	}
	return 0
}

// head keeps the beginning of what is written to it: the first message of a
// program that fails says why, and what follows may be without end.
type head struct {
	mu  sync.Mutex
	buf []byte
	max int
}

func (h *head) Write(p []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.buf = append(h.buf, p[:min(len(p), h.max-len(h.buf))]...)
	return len(p), nil
}

func (h *head) String() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return string(h.buf)
}
