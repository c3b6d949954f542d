package analysis

import (
	"testing"

	"kerninst/agent/isa"
	"kerninst/agent/isa/all"
)

// TestJumpsReach encodes each jump that can be encoded at both ends of its reach, and one
// step beyond: the table says neither more nor less than the encoders do.
func TestJumpsReach(t *testing.T) {
	const from = isa.Addr(1 << 40)
	encoded := map[string]int{}
	for _, j := range jumps {
		if j.encode == nil {
			if j.Use != "" {
				t.Errorf("%s %s is used, and nothing encodes it", j.arch, j.Insn)
			}
			continue
		}
		encoded[j.arch]++
		arch, err := all.Lookup(j.arch)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range []int64{j.Lo, j.Hi} {
			to := from + isa.Addr(d)
			code, err := j.encode(from, to)
			if err != nil || len(code) != j.Length {
				t.Errorf("%s %s by %d: %x, %v", j.arch, j.Insn, d, code, err)
				continue
			}
			i := arch.Decode(append(code, make([]byte, arch.MaxLen)...), from)
			target := i.Target
			if j.Instructions > 1 {
				target, _, _ = arch.Far(code, from)
			} else if i.Len != j.Length {
				t.Errorf("%s %s is decoded as %d bytes", j.arch, j.Insn, i.Len)
			}
			if target != to {
				t.Errorf("%s %s by %d leads to %v, not to %v", j.arch, j.Insn, d, target, to)
			}
		}
		for _, d := range []int64{j.Lo - j.step, j.Hi + j.step} {
			if code, err := j.encode(from, from+isa.Addr(d)); err == nil {
				t.Errorf("%s %s by %d, beyond its reach, is %x", j.arch, j.Insn, d, code)
			}
		}
	}
	for _, arch := range []string{"amd64", "arm64", "riscv64"} {
		if encoded[arch] == 0 || len(JumpsOf(arch)) < encoded[arch] {
			t.Errorf("%s: %d jumps are encoded of %d", arch, encoded[arch], len(JumpsOf(arch)))
		}
	}
}

func TestJumpReachInWords(t *testing.T) {
	want := map[string]string{
		"jmp rel32": "± 2 GiB", "jmp rel8": "± 128 bytes", "b": "± 128 MiB", "br reg": "anywhere",
		"jal x0": "± 1 MiB", "c.j": "± 2 KiB", "auipc reg; jalr x0, n(reg)": "± 2 GiB",
	}
	for _, j := range jumps {
		if w, ok := want[j.Insn]; ok && j.reach() != w {
			t.Errorf("%s: %q, want %q", j.Insn, j.reach(), w)
		}
		delete(want, j.Insn)
	}
	if len(want) > 0 {
		t.Errorf("not in the table: %v", want)
	}
}
