package qemu

import (
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"time"
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
// before the lab; bound, whether it dies with the lab.
func startChild(cmd *exec.Cmd, own, bound bool) (*child, error) {
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
		err := cmd.Start()
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
