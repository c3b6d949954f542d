package daemon

import (
	"context"
	"testing"
	"time"

	"kerninst/agent/wire"
)

func runShell(t *testing.T, command string, timeoutNS uint64) *wire.RunResult {
	t.Helper()
	var res wire.Result
	d := &Daemon{}
	if err := d.run(context.Background(), &wire.Run{Argv: []string{"/bin/sh", "-c", command}, TimeoutNs: timeoutNS}, nil, &res); err != nil {
		t.Fatal(err)
	}
	return res.Runs[0]
}

func TestRun(t *testing.T) {
	for _, tt := range []struct {
		name, command string
		exit          int32
		stdout        string
	}{
		{"exit status", "echo out; exit 3", 3, "out\n"},
		{"killed by a signal", "kill -9 $$", 137, ""},
	} {
		r := runShell(t, tt.command, 0)
		if r.Exit != tt.exit || string(r.Stdout) != tt.stdout || r.Truncated || r.TimedOut {
			t.Errorf("%s: got %v", tt.name, r)
		}
	}
}

func TestRunBoundsOutput(t *testing.T) {
	r := runShell(t, "head -c 3000000 /dev/zero; echo error >&2", 0)
	if len(r.Stdout) != maxOutput || !r.Truncated || string(r.Stderr) != "error\n" || r.Exit != 0 {
		t.Errorf("%d bytes kept, truncated %v, exit %d", len(r.Stdout), r.Truncated, r.Exit)
	}
}

func TestRunTimesOut(t *testing.T) {
	for _, limit := range []uint64{1, 1e8} { // before it begins; while it runs
		if r := runShell(t, "while :; do :; done", limit); !r.TimedOut || r.Exit != 137 {
			t.Errorf("%d ns: got %v", limit, r)
		}
	}
}

// TestRunIsEnough: who asks may say that it is enough: the program is interrupted, and killed if it
// does not care; without one, that is waited for. It is no timeout.
func TestRunIsEnough(t *testing.T) {
	for _, c := range []struct {
		argv []string
		exit int32
	}{
		{[]string{"/bin/sh", "-c", "while :; do sleep 0.01; done"}, 130},
		{[]string{"/bin/sh", "-c", "trap '' INT; echo on; while :; do sleep 0.01; done"}, 137},
		{nil, 0},
	} {
		enough := make(chan struct{})
		d := &Daemon{enough: enough}
		began := time.Now()
		time.AfterFunc(200*time.Millisecond, func() { close(enough) })
		var res wire.Result
		if err := d.run(t.Context(), &wire.Run{Argv: c.argv, TimeoutNs: 60e9}, nil, &res); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took < 200*time.Millisecond || took > 20*time.Second {
			t.Errorf("%q: ended after %v", c.argv, took)
		}
		if len(res.Runs) != min(1, len(c.argv)) || len(res.Runs) > 0 && (res.Runs[0].Exit != c.exit || res.Runs[0].TimedOut) {
			t.Errorf("%q: %v, want exit status %d", c.argv, res.Runs, c.exit)
		}
	}
	if err := (&Daemon{}).run(t.Context(), &wire.Run{}, nil, &wire.Result{}); err == nil {
		t.Error("no program, and nobody who could say that it is enough: no error")
	}
}

// TestRunStdin: a program reads what it is given, to its end, and nothing if it is given nothing.
func TestRunStdin(t *testing.T) {
	for _, given := range []string{"", "a\nb"} {
		var res wire.Result
		if err := (&Daemon{}).run(t.Context(), &wire.Run{Argv: []string{"cat"}, Stdin: []byte(given)}, nil, &res); err != nil || string(res.Runs[0].Stdout) != given {
			t.Errorf("%q: %v, %v", given, res.Runs, err)
		}
	}
}
