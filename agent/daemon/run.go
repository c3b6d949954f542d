package daemon

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"syscall"
	"time"

	"kerninst/agent/wire"
)

// maxOutput is how much of a program's standard output, and of its standard
// error, is kept.
const maxOutput = 1 << 20

// bounded keeps the first maxOutput bytes and forgets the rest, so that a
// program may print without end and neither block nor fill the memory.
//
// The buffer is a field, not embedded: its ReadFrom would be used instead of
// Write, and know no bound.
type bounded struct {
	kept      bytes.Buffer
	truncated bool
}

func (b *bounded) Write(p []byte) (int, error) {
	n := len(p)
	if room := maxOutput - b.kept.Len(); n > room {
		p, b.truncated = p[:room], true
	}
	b.kept.Write(p)
	return n, nil
}

// program is one copy of a workload.
type program struct {
	cmd            *exec.Cmd
	stdout, stderr bounded
}

// run starts the copies that a step asks for, waits for all, and reports each; without a
// program, it waits until it is told that this is enough. Counting stops with the last copy:
// what is read later is what was there.
func (d *Daemon) run(ctx context.Context, s *wire.Run, out *stream, res *wire.Result) error {
	if len(s.Argv) == 0 && d.enough == nil {
		return errors.New("no program given")
	}
	if s.TimeoutNs > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(s.TimeoutNs))
		defer cancel()
	}
	running, kill := context.WithCancel(ctx)
	defer kill()
	programs := programsOf(running, s)
	var m *meter
	if s.Metered {
		var err error
		if m, err = d.meter(); err != nil {
			return err
		}
		defer m.end()
	}
	drained := d.tracing(s, out)
	follow := d.sampling(s, out, res) // the first is of before they start
	for i, p := range programs {
		if err := p.cmd.Start(); err != nil {
			follow.stop()
			drained(false)
			for _, started := range programs[:i] {
				_ = started.cmd.Cancel()
				_ = started.cmd.Wait()
			}
			if ctx.Err() != nil { // exec starts nothing when it is too late
				res.Runs = append(res.Runs, &wire.RunResult{Exit: 128 + int32(syscall.SIGKILL), TimedOut: true})
				return nil
			}
			return fmt.Errorf("%s: %w", s.Argv[0], err)
		}
	}
	stop := d.covering()
	if len(programs) == 0 {
		select {
		case <-d.enough:
		case <-ctx.Done():
		}
	}
	go interrupt(running, d.enough, programs, kill)
	for _, p := range programs {
		err := p.cmd.Wait()
		r := &wire.RunResult{
			Exit: exitStatus(p.cmd, err), TimedOut: ctx.Err() != nil,
			Stdout: p.stdout.kept.Bytes(), Stderr: p.stderr.kept.Bytes(),
			Truncated: p.stdout.truncated || p.stderr.truncated,
		}
		res.Runs = append(res.Runs, r)
	}
	follow.stop()
	stop()
	read := d.end
	if m != nil {
		read = func() error { return m.read(d) }
	}
	err := read()
	drained(err == nil) // who empties rings, and ends now, may come by points
	if err != nil {
		return err
	}
	follow.last()
	return nil
}

// programsOf are the copies that are to run.
func programsOf(ctx context.Context, s *wire.Run) (out []*program) {
	for i := range max(1, int(s.Copies)) {
		if len(s.Argv) == 0 {
			break
		}
		p := &program{cmd: exec.CommandContext(ctx, s.Argv[0], s.Argv[1:]...)}
		if s.Copies > 0 { // copy k on CPU k
			p.cmd = exec.CommandContext(ctx, "/bin/taskset", append([]string{"-c", strconv.Itoa(i)}, s.Argv...)...)
		}
		p.cmd.Stdout, p.cmd.Stderr = &p.stdout, &p.stderr
		if len(s.Stdin) > 0 {
			p.cmd.Stdin = bytes.NewReader(s.Stdin)
		}
		// A group of its own, so that a timeout ends what it started too.
		p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		p.cmd.Cancel = func() error { return syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL) }
		p.cmd.WaitDelay = time.Second
		out = append(out, p)
	}
	return out
}

// grace is how long a program has that is interrupted.
const grace = 3 * time.Second

// interrupt ends programs when that is said to be enough, as Ctrl-C would; those that go on are
// killed. It ends with them.
func interrupt(running context.Context, enough <-chan struct{}, programs []*program, kill func()) {
	select {
	case <-enough:
	case <-running.Done():
		return
	}
	for _, p := range programs {
		_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGINT)
	}
	select {
	case <-time.After(grace):
		kill()
	case <-running.Done():
	}
}

// exitStatus is what a shell would show: 128 + signal for a program that was
// killed by one.
func exitStatus(cmd *exec.Cmd, err error) int32 {
	ws, ok := cmd.ProcessState.Sys().(syscall.WaitStatus)
	switch {
	case err == nil:
		return 0
	case ok && ws.Signaled():
		return 128 + int32(ws.Signal())
	}
	return int32(cmd.ProcessState.ExitCode())
}
