package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"
)

// interruptedProgram is set for a process that does nothing but wait for signals, deaf to
// the first: a lab that cleans up for ever.
const interruptedProgram = "LAB_TEST_INTERRUPTED"

func waitForSignals() {
	ctx, stop := interruptible()
	defer stop()
	fmt.Println("ready")
	<-ctx.Done()
	fmt.Println("asked to end")
	time.Sleep(time.Minute) // that nothing but a signal ends
}

// What the keyboard and the lab together send a part of it, and what timeout(1) sends twice, is one
// wish to end, which gives it time to clean up; an interrupt more is another.
func TestInterruptedAgain(t *testing.T) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), interruptedProgram+"=1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	said := bufio.NewScanner(out)
	expect := func(want string) {
		t.Helper()
		if !said.Scan() || said.Text() != want {
			t.Fatalf("it said %q (%v), want %q", said.Text(), said.Err(), want)
		}
	}
	expect("ready")
	send := func(s syscall.Signal) {
		t.Helper()
		if err := cmd.Process.Signal(s); err != nil {
			t.Fatal(err)
		}
	}
	send(syscall.SIGINT)
	expect("asked to end")
	send(syscall.SIGTERM)
	send(syscall.SIGINT)
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case err := <-ended:
		t.Fatalf("it did not survive what the lab passes on: %v", err)
	case <-time.After(200 * time.Millisecond): // in which it would have died of it
	}
	send(syscall.SIGINT) // later than twice
	var e *exec.ExitError
	if err := <-ended; !errors.As(err, &e) || e.Sys().(syscall.WaitStatus).Signal() != syscall.SIGINT {
		t.Errorf("a second interrupt ended it with %v", err)
	}
}
