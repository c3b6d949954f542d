package qemu

import (
	"os/exec"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"kerninst/lab/child"
)

// startChild starts cmd, whose SysProcAttr is set. own says whether it gets a
// process group of its own, which keeps a Ctrl-C in the terminal from reaching it
// before the lab; bound, whether it dies with the lab; huge, whether it gets huge pages
// when it asks for them.
func startChild(cmd *exec.Cmd, own, bound, huge bool) (*child.Child, error) {
	cmd.SysProcAttr.Setpgid = own
	if bound {
		cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	}
	return child.Start(cmd, func(cmd *exec.Cmd) error { return startIn(cmd, huge) })
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
