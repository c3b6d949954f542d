package effects

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"kerninst/agent/isa"
	"kerninst/agent/isa/all"
	"kerninst/lab/sweep"
)

// candidates lists the instructions of functions that can be run, each once.
func candidates(arch *isa.Arch, functions []sweep.Piece) (out []Case) {
	seen := map[string]bool{}
	for _, p := range functions {
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

// prepareEffects draws instructions of the stock kernels.
func prepareEffects(_ *testing.T, arch *isa.Arch, _ machine, functions []sweep.Piece) (inputs [][]byte, check func(*testing.T, [][]byte)) {
	per := 1
	if *full {
		per = 4
	}
	cases, forms := Choose(seed, per, candidates(arch, functions))
	batches := slices.Collect(slices.Chunk(cases, batch))
	for _, part := range batches {
		inputs = append(inputs, Encode(part))
	}
	return inputs, func(t *testing.T, outputs [][]byte) {
		var all []Seen
		for k, out := range outputs {
			seen, err := Read(bytes.NewReader(out), len(batches[k]))
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, seen...)
		}
		compareEffects(t, arch, cases, all, forms)
	}
}

func compareEffects(t *testing.T, arch *isa.Arch, cases []Case, seen []Seen, forms int) {
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
