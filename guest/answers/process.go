package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// child is what a process of ours does instead of asking.
func child(args []string) {
	switch args[0] {
	case "exit":
		n := 0
		fmt.Sscan(args[1], &n)
		os.Exit(n)
	case "say":
		fmt.Println(strings.Join(args[1:], ","), os.Getenv("ANSWER"), len(os.Environ()))
		os.Exit(0)
	case "die":
		unix.Kill(unix.Getpid(), unix.SIGKILL)
		select {}
	}
	os.Exit(99)
}

// ended is how a process ended, and what it said.
func ended(cmd *exec.Cmd) string {
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return word(err)
	}
	s := cmd.ProcessState.Sys().(syscall.WaitStatus)
	return fmt.Sprintf("exit %d, signal %d, said %s", s.ExitStatus(), s.Signal(), strings.ReplaceAll(strings.TrimSpace(string(out)), "\n", "|"))
}

func processes(a *asker) {
	self := "/proc/self/exe"
	for _, n := range []string{"0", "1", "255", "256"} {
		a.says("ForkExit", "exit "+n, ended(exec.Command(self, "exit", n)))
	}
	a.says("ForkExit", "killed", ended(exec.Command(self, "die")))
	fork := exec.Command(self, "exit", "5")
	fork.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
	a.says("ForkExit", "in a session of its own", ended(fork))
	var status unix.WaitStatus
	a.says("ForkExit", "wait for nobody", result(unix.Wait4(-1, &status, unix.WNOHANG, nil)), result(unix.Wait4(1<<30, &status, 0, nil)), result(call(unix.SYS_WAIT4, ^uintptr(0), 0, 1<<20, 0)))
	a.says("ForkExit", "clones that cannot be", result(call(unix.SYS_CLONE, unix.CLONE_THREAD, 0, 0, 0, 0)), result(call(unix.SYS_CLONE3, nowhere, 64)), result(call(unix.SYS_CLONE3, nowhere, 1)))

	say := exec.Command(self, "say", "a", "", "b c")
	say.Env = []string{"ANSWER=42", "X=1"}
	a.says("ForkExec", "arguments and environment", ended(say))
	must(0, os.WriteFile(a.path("garbage"), text(3000), 0o755))
	must(0, os.WriteFile(a.path("plain"), text(3000), 0o644))
	must(0, os.WriteFile(a.path("empty"), nil, 0o755))
	must(0, os.WriteFile(a.path("script"), []byte("#!/bin/sh\necho $0 $# $2 | sed 's,.*/,,'; exit 9\n"), 0o755))
	must(0, os.WriteFile(a.path("lost"), []byte("#!/no/such/shell x\n"), 0o755))
	must(0, os.WriteFile(a.path("cut"), must(os.ReadFile(must(os.Readlink(self))))[:100], 0o755))
	for _, name := range []string{"garbage", "plain", "empty", "script", "lost", "cut", "no", "d"} {
		cmd := &exec.Cmd{Path: a.path(name), Args: []string{name, "one", "two"}}
		a.says("ForkExec", name, ended(cmd))
	}
	a.says("ForkExec", "with more than there may be", ended(exec.Command(self, "say", strings.Repeat("x", 200000))))
	a.says("ForkExec", "names that are nowhere", result(call(unix.SYS_EXECVE, nowhere, 0, 0)), result(call(unix.SYS_EXECVEAT, 9999, nowhere, 0, 0, 0)))

	for _, line := range []string{"exit 7", "(exit 5); echo $?", "echo a | cat | cat", "kill -9 $$", "cd /; pwd; umask", "for i in 1 2 3; do (echo $i) & wait; done", "no-such-program", "cat </no/such/file", "ulimit -f 1; trap '' XFSZ; head -c 4096 /dev/zero >" + a.path("limited") + "; wc -c <" + a.path("limited")} {
		question := strings.ReplaceAll(line, a.dir, "")
		cmd := exec.Command("/bin/sh", "-c", line)
		cmd.Env = []string{"PATH=/bin:/usr/bin"}
		a.says("ForkSh", question, strings.ReplaceAll(ended(cmd), a.dir, ""))
	}
}
