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

// run starts the copies that a step asks for, waits for all, and reports each.
// Counting stops with the last copy: what is read later is what was there.
func (d *Daemon) run(ctx context.Context, s *wire.Run, out *stream, res *wire.Result) error {
	if len(s.Argv) == 0 {
		return errors.New("no program given")
	}
	if s.TimeoutNs > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(s.TimeoutNs))
		defer cancel()
	}
	programs := make([]*program, max(1, int(s.Copies)))
	for i := range programs {
		p := &program{cmd: exec.CommandContext(ctx, s.Argv[0], s.Argv[1:]...)}
		if s.Copies > 0 { // copy k on CPU k
			p.cmd = exec.CommandContext(ctx, "/bin/taskset", append([]string{"-c", strconv.Itoa(i)}, s.Argv...)...)
		}
		p.cmd.Stdout, p.cmd.Stderr = &p.stdout, &p.stderr
		// A group of its own, so that a timeout ends what it started too.
		p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		p.cmd.Cancel = func() error { return syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL) }
		p.cmd.WaitDelay = time.Second
		programs[i] = p
	}
	var m *meter
	if s.Metered {
		var err error
		if m, err = d.meter(); err != nil {
			return err
		}
		defer m.end()
	}
	last := d.sampling(s, out, res) // the first is of before they start
	for i, p := range programs {
		if err := p.cmd.Start(); err != nil {
			last()
			for _, started := range programs[:i] {
				_ = started.cmd.Cancel()
				_ = started.cmd.Wait()
			}
			return fmt.Errorf("%s: %w", s.Argv[0], err)
		}
	}
	stop, drained := d.covering(), d.tracing(s, out)
	for _, p := range programs {
		err := p.cmd.Wait()
		r := &wire.RunResult{
			Exit: exitStatus(p.cmd, err), TimedOut: ctx.Err() != nil,
			Stdout: p.stdout.kept.Bytes(), Stderr: p.stderr.kept.Bytes(),
			Truncated: p.stdout.truncated || p.stderr.truncated,
		}
		res.Runs = append(res.Runs, r)
	}
	last()
	stop()
	drained()
	if m != nil {
		return m.read(d)
	}
	return d.end()
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
