package main

import (
	"os"
	"slices"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
)

// Signals that come meanwhile, as Go's own do, change nothing of what calls answer.
func TestUserFaultsOfSignals(t *testing.T) {
	want, err := userFaults()
	if err != nil {
		t.Fatal(err)
	}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
				everyThread(unix.SIGURG)
			}
		}
	}()
	for range 500 {
		got, err := userFaults()
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%v\nwhile signals come: %v\nbefore: %v", err, got, want)
			break
		}
	}
	close(stop)
	<-stopped
}

// everyThread of this process is sent a signal.
func everyThread(s unix.Signal) {
	tasks, _ := os.ReadDir("/proc/self/task")
	for _, task := range tasks {
		if tid, err := strconv.Atoi(task.Name()); err == nil {
			unix.Tgkill(unix.Getpid(), tid, s) // it may have ended
		}
	}
}
