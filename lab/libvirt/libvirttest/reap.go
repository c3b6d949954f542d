package libvirttest

import (
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// Reap has this process reap the QEMUs of libvirtds that it starts from now on, as process 1 of a
// machine does that has systemd. Of others nobody knows when they do: libvirtd, whose QEMUs are not its
// own children, waits for it, and does nothing else for who has asked. QEMUs that this process has
// started itself nobody else may wait for.
func Reap(t testing.TB) {
	t.Helper()
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		t.Fatal(err)
	}
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGCHLD)
	t.Cleanup(func() {
		signal.Stop(ended)
		close(ended)
		unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
	})
	go func() {
		for range ended {
			reapEmulators()
		}
	}()
}

// reapEmulators reaps the QEMUs among this process's children that have ended.
func reapEmulators() {
	all, _ := filepath.Glob("/proc/self/task/*/children")
	for _, file := range all {
		pids, _ := os.ReadFile(file)
		for _, pid := range strings.Fields(string(pids)) {
			stat, _ := os.ReadFile("/proc/" + pid + "/stat") // proc(5): pid (name) state
			n, err := strconv.Atoi(pid)
			if err == nil && strings.Contains(string(stat), " (qemu-system-") && strings.Contains(string(stat), ") Z ") {
				unix.Wait4(n, nil, unix.WNOHANG, nil)
			}
		}
	}
}
