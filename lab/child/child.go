// Package child runs programs that die with the lab, even when the lab is killed with
// SIGKILL.
package child

import (
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// outputLimit is how long output may still come of a program that has ended, from others that it
// has started.
const outputLimit = 2 * time.Second

// Child is a program that was started.
//
// The kernel sends the parent-death signal when the *thread* that started the
// child ends, and Go ends and reuses threads as it likes. So one goroutine is
// locked to its thread, starts the child, and stays there until the child has
// ended.
type Child struct {
	Cmd    *exec.Cmd
	Exited chan struct{} // closed when the process has ended and its output is complete
	Err    error         // of Wait; valid after Exited
}

// Start starts cmd by begin, which is Cmd.Start with what has to be done on the same thread;
// nil: nothing. Cmd's SysProcAttr says, by Pdeathsig, by what it dies with the lab, if it does.
func Start(cmd *exec.Cmd, begin func(*exec.Cmd) error) (*Child, error) {
	if begin == nil {
		begin = (*exec.Cmd).Start
	}
	cmd.WaitDelay = outputLimit
	c := &Child{Cmd: cmd, Exited: make(chan struct{})}
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := begin(cmd)
		started <- err
		if err != nil {
			return
		}
		c.Err = cmd.Wait()
		close(c.Exited)
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return c, nil
}

// Kill ends it now. Killing what has ended does nothing.
func (c *Child) Kill() { c.Cmd.Process.Kill() }

// Status is how the process ended. Valid after Exited.
func (c *Child) Status() syscall.WaitStatus {
	if s, ok := c.Cmd.ProcessState.Sys().(syscall.WaitStatus); ok {
		return s
	}
	return 0
}
