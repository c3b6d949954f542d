// Init is process 1 of a guest: it mounts what the kernel offers, runs the
// daemon on the job that came with the initramfs, or a shell on the console,
// and powers off.
//
// The kernel's command line decides: lab.mode=job (the default), lab.mode=mailbox
// (the job comes by mail, at one time of the guest's clock), lab.mode=polled (it comes by
// mail at any time) or lab.mode=shell. Whatever goes wrong is said on the console, and the guest
// powers off: a process 1 that dies is a kernel panic, which the lab would take
// for a crash of the kernel under test.
package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	daemon = "/sbin/kerninstd"
	job    = "/job"
	// moduleList names the modules to load before anything else is started.
	moduleList = "/lib/modules/load"
	// portName is what the lab calls the virtio-serial port for results.
	portName = "org.kerninst.results"
)

// environment of everything that init starts.
var environment = []string{
	"PATH=/sbin:/bin:/usr/sbin:/usr/bin", "HOME=/root", "TERM=vt100", "PS1=guest# ",
}

func main() {
	defer powerOff()
	defer func() {
		if r := recover(); r != nil {
			say("panic: %v", r)
		}
	}()
	if err := run(); err != nil {
		say("%v", err)
	}
}

// say prints one line on the console. A fresh line: the kernel may be in the
// middle of one.
func say(format string, args ...any) {
	fmt.Printf("kerninst-init: "+format+"\n", args...)
}

func powerOff() {
	unix.Sync()
	if err := unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF); err != nil {
		say("power off: %v", err)
	}
	// Process 1 must not return.
	for {
		unix.Pause()
	}
}

func run() error {
	if err := mountAll(); err != nil {
		return err
	}
	if err := settle(); err != nil {
		return err
	}
	if err := loadModules(moduleList); err != nil {
		return err
	}
	text, err := os.ReadFile("/proc/cmdline")
	if err != nil {
		return err
	}
	switch mode := parameter(string(text), "lab.mode"); mode {
	case "", "job":
		return runJob("-job", job)
	case "mailbox":
		return runJob("-mailbox")
	case "polled":
		return runJob("-mailbox", "-poll")
	case "shell":
		return runShell()
	default:
		return fmt.Errorf("lab.mode=%s on the kernel's command line: want job, mailbox, polled or shell", mode)
	}
}

// mounts are made in this order.
var mounts = []struct {
	kind, at, options string
	flags             uintptr
	optional          bool // a kernel may be built without it
}{
	{kind: "proc", at: "/proc", flags: unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC},
	{kind: "sysfs", at: "/sys", flags: unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC},
	{kind: "devtmpfs", at: "/dev", options: "mode=0755", flags: unix.MS_NOSUID},
	{kind: "devpts", at: "/dev/pts", options: "mode=0620,ptmxmode=0666", flags: unix.MS_NOSUID | unix.MS_NOEXEC, optional: true},
	{kind: "tmpfs", at: "/dev/shm", options: "mode=1777", flags: unix.MS_NOSUID | unix.MS_NODEV, optional: true},
	{kind: "debugfs", at: "/sys/kernel/debug", optional: true},
	{kind: "tracefs", at: "/sys/kernel/tracing", optional: true},
	{kind: "tmpfs", at: "/tmp", options: "mode=1777", flags: unix.MS_NOSUID | unix.MS_NODEV},
	{kind: "tmpfs", at: "/run", options: "mode=0755", flags: unix.MS_NOSUID | unix.MS_NODEV},
}

func mountAll() error {
	for _, m := range mounts {
		err := os.MkdirAll(m.at, 0o755)
		if err == nil {
			err = unix.Mount(m.kind, m.at, m.kind, m.flags, m.options)
		}
		// EBUSY: the kernel has mounted it already.
		if err != nil && !errors.Is(err, unix.EBUSY) && !m.optional {
			return fmt.Errorf("mount %s on %s: %w", m.kind, m.at, err)
		}
	}
	return nil
}

// settle brings the loopback interface up and keeps chatter off the console:
// warnings and worse are shown (level 5), the rest stays in the kernel's log.
func settle() error {
	if err := os.WriteFile("/proc/sys/kernel/printk", []byte("5 4 1 7\n"), 0o644); err != nil {
		return fmt.Errorf("console log level: %w", err)
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EAFNOSUPPORT) { // a kernel may be built without
		return nil
	} else if err != nil {
		return fmt.Errorf("loopback: %w", err)
	}
	defer unix.Close(fd)
	lo, err := unix.NewIfreq("lo")
	if err != nil {
		return fmt.Errorf("loopback: %w", err)
	}
	lo.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, lo); err != nil {
		return fmt.Errorf("loopback: %w", err)
	}
	return nil
}

// loadModules loads the modules that the guest was told to, in the order of the
// list, one path a line.
func loadModules(list string) error {
	names, err := os.ReadFile(list)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	for _, name := range strings.Fields(string(names)) {
		ko, err := os.ReadFile(name)
		if err == nil {
			err = unix.InitModule(ko, "")
		}
		if err != nil && !errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("module %s cannot be loaded: %w", filepath.Base(name), err)
		}
	}
	return nil
}

// parameter is the last value of name=value on a kernel command line.
func parameter(cmdline, name string) (value string) {
	for _, word := range strings.Fields(cmdline) {
		if v, ok := strings.CutPrefix(word, name+"="); ok {
			value = v
		}
	}
	return value
}

// runJob runs the daemon to its end; source says where the job comes from.
func runJob(source ...string) error {
	port, err := findPort("/sys/class/virtio-ports", 10*time.Second)
	if err != nil {
		return err
	}
	pid, err := syscall.ForkExec(daemon, append([]string{daemon, "-port", port}, source...),
		&syscall.ProcAttr{Env: environment, Files: []uintptr{0, 1, 2}})
	if err != nil {
		return fmt.Errorf("%s: %w", daemon, err)
	}
	status, err := reapUntil(pid)
	if err != nil {
		return err
	}
	say("daemon %s", ending(status))
	return nil
}

// findPort waits for the results port: the host's word on what a port is
// called arrives some time after the port itself.
func findPort(class string, patience time.Duration) (string, error) {
	// It comes as an event only to who has udev, or a netlink socket for this one file.
	for end := time.Now().Add(patience); ; time.Sleep(2 * time.Millisecond) {
		names, _ := filepath.Glob(filepath.Join(class, "*", "name"))
		for _, name := range names {
			b, err := os.ReadFile(name)
			if err == nil && strings.TrimSpace(string(b)) == portName {
				return "/dev/" + filepath.Base(filepath.Dir(name)), nil
			}
		}
		if time.Now().After(end) {
			return "", fmt.Errorf("no virtio-serial port is called %s: is it in the emulator's command?", portName)
		}
	}
}

// reapUntil waits for every child, also for orphans that became ours, until
// pid has ended.
func reapUntil(pid int) (unix.WaitStatus, error) {
	for {
		var status unix.WaitStatus
		got, err := unix.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return 0, fmt.Errorf("wait for process %d: %w", pid, err)
		case got == pid && (status.Exited() || status.Signaled()):
			return status, nil
		}
	}
}

func ending(s unix.WaitStatus) string {
	if s.Signaled() {
		return fmt.Sprintf("killed by signal %d (%v)", int(s.Signal()), s.Signal())
	}
	return fmt.Sprintf("exited: status %d", s.ExitStatus())
}

// runShell gives the console to a person, with a daemon to talk to.
func runShell() error {
	if _, err := syscall.ForkExec(daemon, []string{daemon, "-serve"},
		&syscall.ProcAttr{Env: environment, Files: []uintptr{0, 1, 2}}); err != nil {
		say("%s: %v; kinst will not work", daemon, err)
	}
	tty, err := openConsole()
	if err != nil {
		return err
	}
	say("kinst is on the PATH; \"exit\" powers the guest off")
	const shell = "/bin/sh"
	pid, err := syscall.ForkExec(shell, []string{"-sh"}, &syscall.ProcAttr{
		Dir: "/root", Env: environment, Files: []uintptr{tty, tty, tty},
		// A session with a controlling terminal: job control and Ctrl-C work.
		Sys: &syscall.SysProcAttr{Setsid: true, Setctty: true, Ctty: 0},
	})
	if err != nil {
		return fmt.Errorf("%s: %w", shell, err)
	}
	_, err = reapUntil(pid)
	return err
}

// openConsole opens the terminal behind /dev/console, which itself can control
// no session. The kernel lists the one in use last.
func openConsole() (uintptr, error) {
	b, err := os.ReadFile("/sys/class/tty/console/active")
	if err != nil {
		return 0, fmt.Errorf("console: %w", err)
	}
	names := strings.Fields(string(b))
	if len(names) == 0 {
		return 0, errors.New("console: the kernel has none")
	}
	name := "/dev/" + names[len(names)-1]
	fd, err := unix.Open(name, unix.O_RDWR, 0)
	if err != nil {
		return 0, fmt.Errorf("console %s: %w", name, err)
	}
	return uintptr(fd), nil
}
