package daemon

import (
	"context"
	"testing"

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
	r := runShell(t, "while :; do :; done", 1e8)
	if !r.TimedOut || r.Exit != 137 {
		t.Errorf("got %v", r)
	}
}
