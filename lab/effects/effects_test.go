package effects

import (
	"bytes"
	"context"
	"flag"
	"slices"
	"strings"
	"testing"

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

var full = flag.Bool("full", false, "all forms of the kernel, several instances of each")

const (
	seed = 1
	// slice is of how many functions one gives its instructions when not all do.
	slice = 40
)

// candidates lists the instructions of a kernel that can be run, each once.
func candidates(t *testing.T, arch *isa.Arch, r *runner.Runner) (out []Case) {
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
	seen := map[string]bool{}
	for n, p := range pieces {
		if n%slice != 0 && !*full {
			continue
		}
		for k := 0; k < len(p.Code); {
			i := arch.Decode(p.Code[k:], 0)
			code := p.Code[k:min(k+i.Len, len(p.Code))]
			k += i.Len
			if Runnable(arch, i, code) && !seen[string(code)] {
				seen[string(code)] = true
				out = append(out, Case{Form: Form(arch, arch.Text(code, 0)), Insn: i, Code: code})
			}
		}
	}
	return out
}

// TestEffects runs instructions of the stock kernels in a guest.
func TestEffects(t *testing.T) {
	per := 1
	if *full {
		per = 4
	}
	for _, arch := range all.Arches() {
		t.Run(arch.Name, func(t *testing.T) {
			t.Parallel()
			img, err := images.Ensure(context.Background(), images.Options{Arch: arch.Name, Root: "../..", Progress: t.Logf})
			if err != nil {
				t.Fatal(err)
			}
			r := runner.New(runner.Runner{Image: img, Backend: qemu.Backend{}, Seed: seed, Jobs: 1, Progress: t.Logf})
			cases, forms := Choose(seed, per, candidates(t, arch, r))
			check(t, arch, cases, run(t, r, cases), forms)
		})
	}
}

// run has a guest run the cases, a batch at a time.
func run(t *testing.T, r *runner.Runner, cases []Case) (all []Seen) {
	t.Helper()
	const batch = 4000 // what comes back has a limit
	for part := range slices.Chunk(cases, batch) {
		seen, err := Read(bytes.NewReader(inGuest(t, r, "effects", Encode(part))), len(part))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, seen...)
	}
	return all
}

// inGuest has a guest run one of the programs in guest/bench with a file, and returns
// what it printed.
func inGuest(t *testing.T, r *runner.Runner, program string, data []byte) []byte {
	t.Helper()
	input := "/" + program + ".in"
	job := &wire.Job{Schema: 1, Steps: []*wire.Step{{Name: program,
		Do: &wire.Step_Run{Run: &wire.Run{Argv: []string{"/lib/kerninst/bench/" + program, input}}}}}}
	g := r.Start(context.Background(), runner.Request{Name: program, CPUs: 1, Time: vm.Host, Job: job,
		Files: []images.File{{Path: input, Data: data, Mode: 0o644}}}).Wait()
	if g.Err != nil {
		t.Fatal(g.Err)
	}
	if g.Outcome.Status != status.Passed {
		t.Fatalf("%s: %s", g.Outcome.Status, g.Outcome.Summary)
	}
	for _, rec := range g.Outcome.Records {
		if res := rec.GetResult(); res != nil {
			if out := res.Runs[0]; out.Exit != 0 || out.Truncated {
				t.Fatalf("%s: exit %d, truncated %v: %s", program, out.Exit, out.Truncated, out.Stderr)
			}
			return res.Runs[0].Stdout
		}
	}
	t.Fatalf("%s: no result", program)
	return nil
}

func check(t *testing.T, arch *isa.Arch, cases []Case, seen []Seen, forms int) {
	t.Helper()
	ran, runs := map[string]bool{}, 0
	for k, c := range cases {
		if seen[k].Ran() {
			ran[c.Form] = true
			runs += seen[k].Runs - seen[k].Faults
		}
		for _, what := range seen[k].Contradictions(arch, c.Insn) {
			t.Errorf("%x %s: %s; decoded as reads %s, writes %s, clobbers %s, %v", c.Code, arch.Text(c.Code, 0), what,
				arch.Names(c.Insn.Reads), arch.Names(c.Insn.Writes), arch.Names(c.Insn.Clobbers), c.Insn.Traits)
		}
	}
	t.Logf("proof effects %s %d runs of %d instructions; %d of %d forms", arch.Name, runs, len(cases), len(ran), forms)
	if len(ran) < forms/2 || forms == 0 {
		t.Errorf("%d of %d forms were run", len(ran), forms)
	}
	if *full {
		var never []string
		for _, c := range cases {
			if !ran[c.Form] && !slices.Contains(never, c.Form) {
				never = append(never, c.Form)
			}
		}
		t.Logf("never run to the end: %q", never)
	}
}

// TestContradictions has decoders that say too little.
func TestContradictions(t *testing.T) {
	arch, _ := all.Lookup("amd64")
	add := arch.Decode([]byte("\x48\x01\xd8"), 0) // add %rbx,%rax
	s := Seen{Runs: 1, Changed: isa.Set(0, 16), Outputs: map[isa.Reg]isa.RegSet{0: isa.Set(0, 16), 3: isa.Set(0, 3, 16), 5: isa.Set(5)}}
	if got := s.Contradictions(arch, add); got != nil {
		t.Errorf("the truth contradicts: %q", got)
	}
	for _, c := range []struct {
		in   string
		tell func(i *isa.Insn)
	}{
		{"changes flags", func(i *isa.Insn) { i.Writes = isa.Set(0) }},
		{"changes rax", func(i *isa.Insn) { i.Writes = isa.Set(16) }},
		{"rbx makes a difference to rax,flags", func(i *isa.Insn) { i.Reads = isa.Set(0) }},
		{"rax makes a difference to rax,flags", func(i *isa.Insn) { i.Reads = isa.Set(3) }},
	} {
		i := add
		c.tell(&i)
		if got := s.Contradictions(arch, i); len(got) != 1 || got[0] != c.in {
			t.Errorf("%q, want %q", got, c.in)
		}
	}
	s.Changed = isa.Set(0, memory)
	if got := s.Contradictions(arch, add); len(got) != 1 || got[0] != "changes memory" {
		t.Errorf("a store that was not announced: %q", got)
	}
}

func TestRead(t *testing.T) {
	seen, err := Read(strings.NewReader("0 7 2 10001 0:1 16:10000\n1 3 3 0\n"), 2)
	if err != nil || !seen[0].Ran() || seen[0].Changed != isa.Set(0, 16) || seen[0].Outputs[16] != isa.Set(16) || seen[1].Ran() {
		t.Errorf("%+v, %v", seen, err)
	}
	for _, bad := range []string{"", "0 7\n", "1 7 2 0\n", "0 7 2 0 64:1\n", "0 7 2 x\n", "0 7 2 0 1\n", "0 1 0 0\n1 1 0 0\n"} {
		if _, err := Read(strings.NewReader(bad), 1); err == nil {
			t.Errorf("%q was read", bad)
		}
	}
}

func TestForm(t *testing.T) {
	for _, c := range []struct{ arch, a, b string }{
		{"amd64", "mov %rax,0x10(%rbx)", "mov %r8,-8(%rdi)"},
		{"arm64", "ldr x0, [x1,#8]", "ldr x12, [x30,#120]"},
		{"riscv64", "addi x10,x2,16", "addi x8,x1,5"},
	} {
		arch, _ := all.Lookup(c.arch)
		if x, y := Form(arch, c.a), Form(arch, c.b); x != y && c.arch != "amd64" {
			t.Errorf("%q is %q, %q is %q", c.a, x, c.b, y)
		}
	}
}
