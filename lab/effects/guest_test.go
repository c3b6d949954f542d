package effects

import (
	"bytes"
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
	// prepare makes the program's inputs from a kernel's functions, for a machine, and
	// returns what checks the outputs, one for each.
	prepare func(t *testing.T, arch *isa.Arch, m machine, functions []sweep.Piece) (inputs [][]byte, check func(t *testing.T, outputs [][]byte))
}

// machine is a guest: the usual one, or one that shows what that hides.
type machine struct {
	name, append, cpu string
	holds             string // a command of the guest's that succeeds if it is what it should be
	noLSE             bool   // arm64's CPU has no atomics of one instruction
}

var (
	usual = machine{name: "instructions", holds: "true"}
)

// nokaslr is one whose kernel lies where it was linked.
func nokaslr(at string) machine {
	return machine{name: "nokaslr", append: "nokaslr", holds: "grep -q '^" + at + " . _text$' /proc/kallsyms"}
}

// machines are the unusual ones. Only amd64's kernel can preempt itself, and riscv64's always lies where it was linked.
var machines = map[string][]machine{
	"amd64": {nokaslr("ffffffff81000000"),
		{name: "preempt", append: "preempt=full", holds: "grep -qF '(full)' /sys/kernel/debug/sched/preempt"},
		{name: "pti", append: "pti=on", holds: "dmesg | grep -q 'page tables isolation: enabled'"}},
	"arm64":   {nokaslr("ffff800080000000"), {name: "cortex-a72", cpu: "cortex-a72", holds: "! grep -qw atomics /proc/cpuinfo", noLSE: true}},
	"riscv64": {{name: "sifive-u54", cpu: "sifive-u54", holds: "grep -q '^isa.*: rv64' /proc/cpuinfo && ! grep -q -e sstc -e zb /proc/cpuinfo"}},
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
					t.Run(x.name, func(t *testing.T) { try(t, arch, r, usual, x)[0](t) })
				}
				return
			}
			for k, check := range try(t, arch, r, usual, trials...) {
				t.Run(trials[k].name, check)
			}
		})
	}
}

// TestVariants runs a trial in the unusual guests, each with the instructions of the
// kernel as it is there; without -full, in the one whose CPU is another.
func TestVariants(t *testing.T) {
	same := trial{"equivalence-variants", "equiv", prepareVariant}
	for _, arch := range all.Arches() {
		for _, m := range machines[arch.Name] {
			if m.cpu == "" && !*full {
				continue
			}
			t.Run(arch.Name+"/"+m.name, func(t *testing.T) {
				img, err := images.Ensure(context.Background(), images.Options{Arch: arch.Name, Root: "../..", Progress: t.Logf})
				if err != nil {
					t.Fatal(err)
				}
				r := runner.New(runner.Runner{Image: img, Backend: qemu.Backend{}, Seed: seed, Jobs: 1, Progress: t.Logf})
				try(t, arch, r, m, same)[0](t)
			})
		}
	}
}

// try has one guest run trials, and returns what checks each.
func try(t *testing.T, arch *isa.Arch, r *runner.Runner, m machine, list ...trial) (checks []func(*testing.T)) {
	t.Helper()
	pieces := functions(t, arch, r, m)
	job, files := &wire.Job{Schema: 1, Steps: []*wire.Step{{Name: "holds",
		Do: &wire.Step_Run{Run: &wire.Run{Argv: []string{"/bin/sh", "-c", m.holds}}}}}}, []images.File(nil)
	outputs := map[string][]byte{}
	for _, x := range list {
		inputs, check := x.prepare(t, arch, m, pieces)
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
	q := runner.Request{Name: m.name, CPUs: 1, CPU: m.cpu, Append: m.append, Time: vm.Host, Job: job, Files: files}
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
			t.Fatalf("%s: exit %d after case %d, truncated %v: %s", res.Step, out.Exit, bytes.Count(out.Stdout, []byte("\n"))-1, out.Truncated, out.Stderr)
		}
		outputs[res.Step] = res.Runs[0].Stdout
	}
	return checks
}

// functions are those of the stock kernel; not all unless asked to.
func functions(t *testing.T, arch *isa.Arch, r *runner.Runner, m machine) (out []sweep.Piece) {
	t.Helper()
	d, err := r.Dump(context.Background(), m.append)
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
