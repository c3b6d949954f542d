package qemu

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Run directories of one user lie together in a folder that only this user can
// enter:
//
//	$XDG_RUNTIME_DIR/kerninst/   or   $TMPDIR/kerninst-UID/
//	    lock      held while run directories are made, removed or swept
//	    r…/       one run directory
//	        lock  held by the lab that owns it, until that lab ends
//	    k…/       what the lab keeps about the machine in r…, if it outlives the lab
//
// The locks are flocks: the kernel drops them with the process, however it
// ends. So a run directory whose lock can be had belongs to a dead lab.
const (
	lockName     = "lock"
	runPrefix    = "r"
	besidePrefix = "k"
)

// RunDir is a private directory for one machine.
type RunDir struct {
	Path string // absolute
	lock *os.File
	kept bool // by Keep
}

// NewRunDir makes a run directory.
func NewRunDir() (*RunDir, error) {
	return newRunDir(base())
}

// Close removes the directory, unless its machine was kept. It is called after the
// machine has ended, and may be called many times.
func (d *RunDir) Close() error {
	if d.kept {
		return nil
	}
	// A sweep that sees the directory half removed would help removing it.
	if unlock, err := lockBase(filepath.Dir(d.Path)); err == nil {
		defer unlock()
	}
	err := removeRun(d.Path)
	d.lock.Close()
	return err
}

// Sweep removes what labs left behind that were killed: it kills their QEMUs
// and removes their run directories. Labs that are alive, machines that were kept,
// and other users are not touched.
func Sweep() error {
	var errs []error
	for _, b := range bases() {
		errs = append(errs, sweep(b))
	}
	return errors.Join(errs...)
}

// base is where new run directories go.
func base() string { return bases()[0] }

// bases are all places where run directories may be: a lab may have been
// started with XDG_RUNTIME_DIR and the next one without.
func bases() []string {
	temp := filepath.Join(os.TempDir(), "kerninst-"+strconv.Itoa(os.Getuid()))
	if x := os.Getenv("XDG_RUNTIME_DIR"); filepath.IsAbs(x) {
		return []string{filepath.Join(x, "kerninst"), temp}
	}
	return []string{temp}
}

func newRunDir(base string) (*RunDir, error) {
	if err := os.Mkdir(base, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("run directory: %w", err)
	}
	unlock, err := lockBase(base)
	if err != nil {
		return nil, fmt.Errorf("run directory: %w", err)
	}
	defer unlock()
	path, err := os.MkdirTemp(base, runPrefix)
	if err != nil {
		return nil, fmt.Errorf("run directory: %w", err)
	}
	lock, err := flock(filepath.Join(path, lockName), unix.LOCK_EX|unix.LOCK_NB)
	if err != nil {
		os.RemoveAll(path)
		return nil, fmt.Errorf("run directory: %w", err)
	}
	return &RunDir{Path: path, lock: lock}, nil
}

// lockBase checks that base is a folder of ours alone and locks it. In a shared
// /tmp somebody else may have made it, or a link in its place.
func lockBase(base string) (unlock func(), err error) {
	if err := private(base); err != nil {
		return nil, err
	}
	f, err := flock(filepath.Join(base, lockName), unix.LOCK_EX)
	if err != nil {
		return nil, err
	}
	return func() { f.Close() }, nil
}

// private says what is wrong with a folder that only this user should enter.
func private(base string) error {
	st, err := os.Lstat(base)
	if err != nil {
		return err
	}
	sys, ok := st.Sys().(*syscall.Stat_t)
	if !st.IsDir() || !ok || int(sys.Uid) != os.Getuid() || st.Mode().Perm()&0o077 != 0 {
		return fmt.Errorf("%s is not a private folder of this user: remove it, or set XDG_RUNTIME_DIR", base)
	}
	return nil
}

// flock opens and locks a file. The descriptor is close-on-exec: a QEMU that
// outlives its lab must not hold the lab's lock.
func flock(path string, how int) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		err = unix.Flock(int(f.Fd()), how)
		if err != unix.EINTR {
			break
		}
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return f, nil
}

func sweep(base string) error {
	if _, err := os.Lstat(base); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	unlock, err := lockBase(base)
	if err != nil {
		return fmt.Errorf("sweep: %w", err)
	}
	defer unlock()
	entries, err := os.ReadDir(base)
	if err != nil {
		return fmt.Errorf("sweep: %w", err)
	}
	var errs []error
	for _, e := range entries {
		path := filepath.Join(base, e.Name())
		switch {
		case !e.IsDir():
		case strings.HasPrefix(e.Name(), runPrefix):
			errs = append(errs, sweepOne(path))
		case strings.HasPrefix(e.Name(), besidePrefix):
			errs = append(errs, sweepBeside(path))
		}
	}
	return errors.Join(errs...)
}

// sweepOne removes a run directory whose owner is dead, unless its machine was
// kept and is still there.
func sweepOne(dir string) error {
	lock, err := flock(filepath.Join(dir, lockName), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil // its lab is alive
	}
	if err != nil {
		return fmt.Errorf("sweep: %w", err)
	}
	defer lock.Close()
	if _, err := FindKept(dir); err == nil {
		return nil
	}
	if err := killThoseIn(dir); err != nil {
		return fmt.Errorf("sweep: %w", err)
	}
	if err := removeRun(dir); err != nil {
		return fmt.Errorf("sweep: %w", err)
	}
	return nil
}

// sweepBeside removes what a lab kept beside a run directory that is gone.
func sweepBeside(dir string) error {
	run := filepath.Join(filepath.Dir(dir), runPrefix+strings.TrimPrefix(filepath.Base(dir), besidePrefix))
	if _, err := os.Lstat(run); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("sweep: %w", err)
	}
	return nil
}

// killThoseIn kills every QEMU that works in a run directory. A pid alone says
// nothing, since pids are used again: a handle on the process is opened first,
// then the process is looked at, then the handle gets the signal.
func killThoseIn(dir string) error {
	procs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return err
	}
	for _, proc := range procs {
		pid, err := strconv.Atoi(filepath.Base(proc))
		if err != nil || !worksIn(proc, dir) {
			continue
		}
		handle, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			continue // it has just ended
		}
		if worksIn(proc, dir) {
			err = unix.PidfdSendSignal(handle, unix.SIGKILL, nil, 0)
		}
		unix.Close(handle)
		if err != nil && err != unix.ESRCH {
			return fmt.Errorf("kill QEMU %d left in %s: %w", pid, dir, err)
		}
	}
	return nil
}

// worksIn says whether a process is a QEMU whose working directory is dir.
func worksIn(proc, dir string) bool {
	cwd, err := os.Readlink(proc + "/cwd")
	if err != nil || cwd != dir {
		return false
	}
	exe, err := os.Readlink(proc + "/exe")
	return err == nil && strings.HasPrefix(filepath.Base(exe), "qemu-system-")
}
