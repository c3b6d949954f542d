package runner

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"time"

	"kerninst/agent/ktext"
	"kerninst/agent/wire"
	"kerninst/lab/session"
	"kerninst/lab/status"
	"kerninst/lab/untrusted"
	"kerninst/lab/vm"
)

// markProgram executes the marks that a plugin waits for.
var markProgram = []string{"/lib/kerninst/bench/bench", "null", "1", "1"}

// tracedRate is the least instructions a second of the host that are counted on.
const tracedRate = 200_000

// Trace runs load, a shell script of some so many instructions, in a guest of exact time that the runner's
// plugin watches, and calls check with the guest's memory as it was at the end
// and with what the plugin wrote.
func (r *Runner) Trace(ctx context.Context, load string, insns int, check func(d *ktext.Dump, trace io.Reader) error) error {
	step := func(name string, argv ...string) *wire.Step {
		return &wire.Step{Name: name, Do: &wire.Step_Run{Run: &wire.Run{Argv: argv}}}
	}
	q := Request{Name: "trace", CPUs: 1, Time: vm.Exact,
		RunTimeout: runTimeout + time.Duration(insns/tracedRate)*time.Second,
		Job: &wire.Job{Schema: 1, Steps: []*wire.Step{
			step("mark", markProgram...),
			step("load", "/bin/sh", "-c", load),
			{Name: "dump", Do: &wire.Step_Dump{Dump: &wire.Dump{}}},
		}}}
	q.Plugin = func(file string, o *session.Outcome) error {
		f, err := untrusted.Open(file)
		if err != nil {
			return fmt.Errorf("trace: %w", err)
		}
		defer f.Close()
		d, err := ktext.ReadDump(chunks(o.Records))
		if err != nil {
			return err
		}
		return check(d, f)
	}
	g := r.Start(ctx, q).Wait()
	if g.Err == nil && g.Outcome.Status != status.Passed {
		return fmt.Errorf("trace: %s: %s", g.Outcome.Status, g.Outcome.Summary)
	}
	return g.Err
}

// chunks joins what a guest sent in pieces.
func chunks(records []*wire.Record) []byte {
	var b bytes.Buffer
	for _, rec := range records {
		if c := rec.GetChunk(); c != nil {
			b.Write(c.Data)
		}
	}
	return b.Bytes()
}
