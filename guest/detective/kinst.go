package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"kerninst/agent/ask"
	"kerninst/agent/daemon"
)

// The daemon, and its client.
const (
	daemonFile = "/sbin/kerninstd"
	clientFile = "/bin/kinst"
)

// patience is how long a daemon has until it listens.
const patience = time.Minute

// serve starts a daemon, if none listens, which stop ends.
func serve() (stop func(), err error) {
	listens := func() bool {
		c, err := net.Dial("unix", daemon.Socket)
		if err != nil {
			return false
		}
		return c.Close() == nil
	}
	if listens() {
		return func() {}, nil
	}
	var said bytes.Buffer
	cmd := exec.Command(daemonFile, "-serve")
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	stop = func() {
		cmd.Process.Signal(os.Interrupt)
		<-ended
	}
	for late := time.After(patience); !listens(); {
		select {
		case err := <-ended:
			return nil, fmt.Errorf("%s: %v: %s", daemonFile, err, said.Bytes())
		case <-late:
			stop()
			return nil, fmt.Errorf("%s did not listen within %v: %s", daemonFile, patience, said.Bytes())
		case <-time.After(20 * time.Millisecond):
		}
	}
	return stop, nil
}

// answer is what of kinst's answer is looked at.
type answer struct {
	Status string
	Points []ask.Point
	Times  []ask.Times
}

// kinst asks. Points that are refused are no error: their refusals are in the answer.
func kinst(args ...string) (a answer, err error) {
	var said bytes.Buffer
	begin := time.Now()
	defer func() {
		fmt.Fprintf(os.Stderr, "detective: %d words to kinst, %d points: %v\n", len(args), len(a.Points), time.Since(begin).Round(time.Millisecond))
	}()
	cmd := exec.Command(clientFile, append([]string{"--json", "--skip-refused"}, args...)...)
	cmd.Stderr = &said
	out, err := cmd.Output()
	if e := json.Unmarshal(out, &a); e != nil {
		return a, fmt.Errorf("kinst %q: %w: %v: %s", args, e, err, said.Bytes())
	}
	if a.Status != "passed" {
		return a, fmt.Errorf("kinst %q: %s: %v: %s", args, a.Status, err, said.Bytes())
	}
	return a, nil
}

// names are the kernel's functions by address, as specs name them.
type names map[uint64]string

func readNames() (names, error) {
	f, err := os.Open("/proc/kallsyms")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	out := names{}
	for sc := bufio.NewScanner(f); sc.Scan(); {
		out.add(sc.Text())
	}
	if len(out) == 0 {
		return nil, errors.New("/proc/kallsyms shows no functions")
	}
	return out, nil
}

// add takes a line of /proc/kallsyms. Of several names the first is kept: padding's
// (__pfx_) have addresses of their own.
func (n names) add(line string) {
	first, rest, _ := strings.Cut(line, " ")
	kind, name, _ := strings.Cut(rest, " ")
	if !strings.Contains("tTwW", kind) {
		return
	}
	addr, err := strconv.ParseUint(first, 16, 64)
	if err != nil || addr == 0 || n[addr] != "" {
		return
	}
	if function, module, ok := strings.Cut(name, "\t"); ok {
		name = strings.Trim(module, "[]") + ":" + function
	}
	n[addr] = name
}
