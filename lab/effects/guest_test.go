package effects

import (
	"context"
	"flag"
	"fmt"
	"testing"
	"time"

	"kerninst/agent/isa"
	"kerninst/agent/isa/all"
	"kerninst/agent/wire"
	"kerninst/images"
	"kerninst/lab/qemu"
	"kerninst/lab/runner"
	"kerninst/lab/status"
	"kerninst/lab/sweep"
	"kerninst/lab/vm"
)

var (
	full  = flag.Bool("full", false, "all forms of the kernel, several instances of each")
	drawn = flag.Uint64("seed", seed, "draws snippets, and the instructions that are spliced")
)

const (
	seed = 1
	// slice is of how many functions one gives its instructions when not all do.
	slice = 40
	// batch is of how many instructions a program runs at once: what comes back has a
	// limit.
	batch = 4000
)

// trial is a test whose code runs in a guest, by one of the programs in guest/bench.
type trial struct {
	name, program string
	// prepare makes the program's inputs from a kernel's functions, and returns what
	// checks the outputs, one for each.
	prepare func(t *testing.T, arch *isa.Arch, functions []sweep.Piece) (inputs [][]byte, check func(t *testing.T, outputs [][]byte))
}

var trials = []trial{
	{"effects", "effects", prepareEffects},
	{"snippets", "snips", prepareSnippets},
	{"equivalence", "equiv", prepareEquivalence},
}

// TestInGuest runs the trials: slices of all in one guest for each ISA, or each whole.
func TestInGuest(t *testing.T) {
	for _, arch := range all.Arches() {
		t.Run(arch.Name, func(t *testing.T) {
			t.Parallel()
			img, err := images.Ensure(context.Background(), images.Options{Arch: arch.Name, Root: "../..", Progress: t.Logf})
			if err != nil {
				t.Fatal(err)
			}
			r := runner.New(runner.Runner{Image: img, Backend: qemu.Backend{}, Seed: seed, Jobs: 1, Progress: t.Logf})
			if *full {
				for _, x := range trials {
					t.Run(x.name, func(t *testing.T) { try(t, arch, r, x)[0](t) })
				}
				return
			}
			for k, check := range try(t, arch, r, trials...) {
				t.Run(trials[k].name, check)
			}
		})
	}
}

// try has one guest run trials, and returns what checks each.
func try(t *testing.T, arch *isa.Arch, r *runner.Runner, list ...trial) (checks []func(*testing.T)) {
	t.Helper()
	pieces := functions(t, arch, r)
	job, files := &wire.Job{Schema: 1}, []images.File(nil)
	outputs := map[string][]byte{}
	for _, x := range list {
		inputs, check := x.prepare(t, arch, pieces)
		var steps []string
		for k, data := range inputs {
			step := fmt.Sprintf("%s-%d", x.name, k)
			steps = append(steps, step)
			files = append(files, images.File{Path: "/" + step, Data: data, Mode: 0o644})
			job.Steps = append(job.Steps, &wire.Step{Name: step,
				Do: &wire.Step_Run{Run: &wire.Run{Argv: []string{"/lib/kerninst/bench/" + x.program, "/" + step}}}})
		}
		checks = append(checks, func(t *testing.T) {
			var mine [][]byte
			for _, s := range steps {
				mine = append(mine, outputs[s])
			}
			check(t, mine)
		})
	}
	q := runner.Request{Name: "instructions", CPUs: 1, Time: vm.Host, Job: job, Files: files}
	if *full {
		q.RunTimeout = time.Hour // a minute on an idle machine
	}
	g := r.Start(context.Background(), q).Wait()
	if g.Err != nil {
		t.Fatal(g.Err)
	}
	if g.Outcome.Status != status.Passed {
		t.Fatalf("%s: %s", g.Outcome.Status, g.Outcome.Summary)
	}
	for _, rec := range g.Outcome.Records {
		res := rec.GetResult()
		if res == nil {
			continue
		}
		if out := res.Runs[0]; out.Exit != 0 || out.Truncated {
			t.Fatalf("%s: exit %d, truncated %v: %s", res.Step, out.Exit, out.Truncated, out.Stderr)
		}
		outputs[res.Step] = res.Runs[0].Stdout
	}
	return checks
}

// functions are those of the stock kernel; not all unless asked to.
func functions(t *testing.T, arch *isa.Arch, r *runner.Runner) (out []sweep.Piece) {
	t.Helper()
	d, err := r.Dump(context.Background(), "")
	if err != nil {
		t.Fatal(err)
	}
	text, err := d.Text(arch)
	if err != nil {
		t.Fatal(err)
	}
	pieces, err := sweep.Kernel(text)
	if err != nil {
		t.Fatal(err)
	}
	for n, p := range pieces {
		if n%slice == 0 || *full {
			out = append(out, p)
		}
	}
	return out
}
