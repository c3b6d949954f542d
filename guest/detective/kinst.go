package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
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
	Reason string
	Points []ask.Point
	Times  []ask.Times
}

// client is a kinst that is asked one question after the other: it reads the kernel's types once, which
// takes it as long as all else.
type client struct {
	cmd       *exec.Cmd
	questions *json.Encoder
	answers   *json.Decoder
	in        io.Closer
	said      bytes.Buffer
}

func newClient() (c *client, err error) {
	c = &client{cmd: exec.Command(clientFile, "--batch")}
	c.cmd.Stderr = &c.said
	in, err := c.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	c.in, c.questions, c.answers = in, json.NewEncoder(in), json.NewDecoder(out)
	return c, c.cmd.Start()
}

// ask asks. Points that are refused are no error: their refusals are in the answer.
func (c *client) ask(args ...string) (a answer, err error) {
	begin := time.Now()
	if err := c.questions.Encode(append([]string{"--json", "--skip-refused"}, args...)); err != nil {
		return a, c.died(args, err)
	}
	if err := c.answers.Decode(&a); err != nil {
		return a, c.died(args, err)
	}
	if a.Status != "passed" {
		return a, fmt.Errorf("kinst %q: %s: %s", args, a.Status, a.Reason)
	}
	fmt.Fprintf(os.Stderr, "detective: %d words to kinst, %d points: %v\n", len(args), len(a.Points), time.Since(begin).Round(time.Millisecond))
	return a, nil
}

// died is why there is no answer.
func (c *client) died(args []string, err error) error {
	ended := c.close() // said is whole then
	return fmt.Errorf("kinst %q: %w: %v: %s", args, err, ended, c.said.Bytes())
}

func (c *client) close() error {
	return errors.Join(c.in.Close(), c.cmd.Wait())
}
