package libvirt

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"kerninst/lab/untrusted"
)

// process is a handle on the QEMU of a domain. It is for the case that libvirtd
// is gone and QEMU is not.
type process struct {
	pid int
	fd  int // a pidfd: unlike the pid it cannot come to mean another process
}

// findProcess opens the QEMU that works for a run directory.
func findProcess(dir string) (*process, error) {
	text, err := untrusted.Read(filepath.Join(dir, pidFile), 32)
	if err != nil {
		return nil, err
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", pidFile, err)
	}
	return openProcess(pid, dir)
}

// openProcess opens a process that is the QEMU of a run directory, by its arguments.
func openProcess(pid int, dir string) (*process, error) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return nil, fmt.Errorf("QEMU %d: %w", pid, err)
	}
	// Only now: before, the pid could come to mean another process.
	if !worksFor(pid, dir) {
		unix.Close(fd)
		return nil, fmt.Errorf("process %d is not the QEMU of %s", pid, dir)
	}
	return &process{pid, fd}, nil
}

// worksFor reports whether a process has been told to write its pid into a run directory.
func worksFor(pid int, dir string) bool {
	argv, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return err == nil && bytes.Contains(argv, []byte("\x00"+filepath.Join(dir, pidFile)+"\x00"))
}

// leftProcess finds the QEMU that a libvirtd had begun when it was lost: one that has not written its pid yet, or is
// about to be QEMU, within the limit; nil if there is none.
func leftProcess(dir string, limit time.Duration) *process {
	const again = 10 * time.Millisecond
	for end := time.Now().Add(limit); ; time.Sleep(again) { // nothing tells when a process becomes another program
		all, _ := filepath.Glob("/proc/[0-9]*")
		for _, path := range all {
			pid, err := strconv.Atoi(filepath.Base(path))
			if err != nil || !worksFor(pid, dir) {
				continue
			}
			if p, err := openProcess(pid, dir); err == nil {
				return p
			}
		}
		if time.Now().After(end) {
			return nil
		}
	}
}

// end kills the process if it is still there, and says what became of it.
func (p *process) end(limit time.Duration) string {
	if p == nil {
		return "its QEMU is not known"
	}
	if p.gone(0) {
		return fmt.Sprintf("its QEMU, process %d, is gone", p.pid)
	}
	if err := unix.PidfdSendSignal(p.fd, unix.SIGKILL, nil, 0); err != nil && err != unix.ESRCH {
		return fmt.Sprintf("its QEMU, process %d, is left and cannot be killed: %v", p.pid, err)
	}
	if !p.gone(limit) {
		return fmt.Sprintf("its QEMU, process %d, was killed and has not ended yet", p.pid)
	}
	return fmt.Sprintf("its QEMU, process %d, was left and has been killed", p.pid)
}

// gone waits for the process to end.
func (p *process) gone(limit time.Duration) bool {
	for deadline := time.Now().Add(limit); ; {
		left := max(0, time.Until(deadline))
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(p.fd), Events: unix.POLLIN}}, int(left.Milliseconds()))
		if err != unix.EINTR {
			return n > 0
		}
	}
}

// exited is closed when the process has ended: as a zombie, too. Nobody closes that of a process
// which is not known.
func (p *process) exited() <-chan struct{} {
	if p == nil {
		return nil
	}
	fd, err := unix.FcntlInt(uintptr(p.fd), unix.F_DUPFD_CLOEXEC, 0) // p may be closed before it ends
	if err != nil {
		return nil
	}
	c := make(chan struct{})
	go func() {
		own := process{p.pid, fd}
		defer own.close()
		for !own.gone(time.Hour) {
		}
		close(c)
	}()
	return c
}

func (p *process) close() {
	if p != nil {
		unix.Close(p.fd)
	}
}
