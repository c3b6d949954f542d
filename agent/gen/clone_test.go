package gen

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"kerninst/agent/isa"
	"kerninst/agent/isa/all"
	"kerninst/agent/isa/amd64"
	"kerninst/agent/snippet"
)

// made is a clone of code that lies at an address, an instruction a line, with what change says of each.
func made(t *testing.T, a *isa.Arch, code []byte, at isa.Addr, change func(k int, x *Cloned)) Input {
	t.Helper()
	c := &Clone{Begins: map[isa.Addr]isa.Addr{at: at}}
	for k := 0; len(code) > 0; k++ {
		i := a.Decode(code, at)
		x := Cloned{Insn: i, Bytes: code[:i.Len], Free: a.All &^ a.NeverUse}
		change(k, &x)
		c.Insns = append(c.Insns, x)
		code, at = code[i.Len:], i.End()
	}
	c.Insns[len(c.Insns)-1].Last = true
	patch := isa.Addr(0xffffffff_90000000)
	if a.Name == "arm64" { // in reach
		patch = 0xffffffff_84000000
	}
	return Input{Clone: c, Patch: patch, Cell: patch + 0x80000, Displaced: []isa.Insn{c.Insns[0].Insn}}
}

// cloneCase is one of the things that a clone has beside moved instructions.
type cloneCase struct {
	what   string
	code   []byte
	change func(k int, x *Cloned)
}

// ablated have show the cases that count as they are without some of what the generator knows, after all as they are.
func ablated(cases []cloneCase, show func(c cloneCase, blind, called bool)) {
	for _, c := range cases {
		show(c, false, false)
	}
	for _, c := range cases {
		if strings.HasPrefix(c.what, "counters") {
			what := c.what
			c.what = what + "; nothing is known to be free"
			show(c, true, false)
			c.what = what + "; by calls"
			show(c, false, true)
			c.what = what + "; by calls, and nothing is known to be free"
			show(c, true, true)
		}
	}
}

// clonedAt is where the code of cases lies.
const clonedAt = isa.Addr(0xffffffff_81000000)

// counted is a counter with a word.
func counted(a *isa.Arch, word int) []Inserted {
	return []Inserted{{Number: word, Snippet: snippet.Counter(), Word: word, Free: a.All}}
}

// code is so many instructions of 32 bits.
func code(words ...uint32) (out []byte) {
	for _, w := range words {
		out = isa.ByteOrder.AppendUint32(out, w)
	}
	return out
}

func cloneCasesAmd64(a *isa.Arch) []cloneCase {
	const at = clonedAt
	rax := amd64.RAX
	count := func(word int) []Inserted { return counted(a, word) }
	return []cloneCase{
		{"a static key that is read: it jumps while it is on, and while it is off", []byte{0x66, 0x90, 0x66, 0x90, 0xc3}, func(k int, x *Cloned) {
			if k < 2 {
				x.Key = &Key{Enabled: 0xffffffff_82000000, Target: at + 4, Off: k == 1}
			}
		}},
		{"a static key that is a site, to another function", []byte{0x66, 0x90, 0xc3}, func(k int, x *Cloned) {
			if k == 0 {
				x.Key = &Key{Entry: 0xffffffff_83000000, Enabled: 0xffffffff_82000000, Target: 0xffffffff_81001000}
			}
		}},
		{"a static call, by its trampoline, and one that does not come back and leads nowhere now", []byte{0xe8, 0, 1, 0, 0, 0xc3}, func(k int, x *Cloned) {
			x.Call, x.Tail = 0xffffffff_81002000, k == 1
		}},
		{"a static call that is known to lead into the clone, and notes where else", []byte{0xe8, 0, 1, 0, 0, 0xc3}, func(k int, x *Cloned) {
			if k == 0 {
				x.Call, x.Links, x.Note = 0xffffffff_81002000, []isa.Addr{at}, 1
			}
		}},
		{"a call by a register that led to two functions, of which one is in the clone, and notes where else", []byte{0xff, 0xd0, 0xc3}, func(k int, x *Cloned) {
			if k == 0 {
				x.By, x.Links, x.Note = &rax, []isa.Addr{at, 0xffffffff_81003000}, 1
			}
		}},
		{"a jump by a register, likewise", []byte{0xff, 0xe0}, func(k int, x *Cloned) {
			x.By, x.Links, x.Note = &rax, []isa.Addr{at}, 1
		}},
		{"a call that notes where it led", []byte{0xe8, 0, 1, 0, 0, 0xc3}, func(k int, x *Cloned) {
			if k == 0 {
				x.Note = 1
			}
		}},
		{"counters before, when a jump is taken, and when it is not", []byte{0x74, 1, 0x90, 0xc3}, func(k int, x *Cloned) {
			if k == 0 {
				x.Free &^= isa.Set(a.Flags) // the jump asks for them
				x.Before, x.Behind, x.Taken = count(0), count(1), count(2)
			}
		}},
		{"nops, of which one is led to, and one is a static key's", []byte{0x66, 0x90, 0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0, 0x90, 0x75, 0xfd, 0xf3, 0x90, 0xc3}, func(k int, x *Cloned) {
			if k == 0 {
				x.Key = &Key{Entry: 0xffffffff_83000000, Enabled: 0xffffffff_82000000, Target: at + 17}
			}
		}},
		{"a nop in the shadow of sti", []byte{0xfb, 0x90, 0x90, 0xfa, 0xc3}, func(int, *Cloned) {}},
		{"a jump to what follows nops, and one to a function's begin", []byte{0xeb, 0x01, 0x90, 0x31, 0xc0, 0xeb, 0x00, 0xc3}, func(k int, x *Cloned) {
			if k == 4 {
				x.Gate = &Gate{Function: at - 8, Site: at - 8, Bare: 0x441f0f}
			}
		}},
		{"a trap, and traps behind a return", []byte{0x0f, 0x0b, 0xc3, 0xcc, 0xcc}, func(int, *Cloned) {}},
		{"what may fault, and its fixup", []byte{0x48, 0x8b, 0x00, 0xc3, 0x31, 0xc0, 0xc3}, func(k int, x *Cloned) {
			if k == 0 {
				x.Fixup = at + 4
			}
		}},
		{"a function that is called passes its gate, its entry does not", []byte{0x90, 0xe8, 0xfa, 0xff, 0xff, 0xff, 0xc3}, func(k int, x *Cloned) {
			if k == 0 {
				x.Gate = &Gate{Function: at, Site: at - 5, Bare: 0x00441f0f}
			}
		}},
		{"a function whose end is not one", []byte{0x90}, func(int, *Cloned) {}},
	}
}

func cloneCasesArm64(a *isa.Arch) []cloneCase {
	const (
		at   = clonedAt
		nop  = 0xd503201f
		ret  = 0xd65f03c0
		blr  = 0xd63f0020 // x1
		br   = 0xd61f0020 // x1
		call = 0x94000040 // bl +0x100
	)
	x1 := isa.Reg(1)
	return []cloneCase{
		{"a static key that is read: it jumps while it is on, and while it is off", code(nop, nop, ret), func(k int, x *Cloned) {
			if k < 2 {
				x.Key = &Key{Enabled: 0xffffffff_82000004, Target: at + 8, Off: k == 1}
			}
		}},
		{"a static key that is a site, to another function", code(nop, ret), func(k int, x *Cloned) {
			if k == 0 {
				x.Key = &Key{Entry: 0xffffffff_83000000, Enabled: 0xffffffff_82000000, Target: 0xffffffff_81001000}
			}
		}},
		{"a call by a register that led to two functions, of which one is in the clone, and notes where else", code(blr, ret), func(k int, x *Cloned) {
			if k == 0 {
				x.By, x.Links, x.Note = &x1, []isa.Addr{at, 0xffffffff_81003000}, 1
			}
		}},
		{"a jump by a register, likewise", code(br), func(k int, x *Cloned) {
			x.By, x.Links, x.Note = &x1, []isa.Addr{at}, 1
		}},
		{"a call by a register where no register is free to compare", code(blr, ret), func(k int, x *Cloned) {
			if k == 0 {
				x.By, x.Links, x.Free = &x1, []isa.Addr{at}, isa.Set(1, a.Flags)
			}
		}},
		{"a call that notes where it led, with no register free", code(call, ret), func(k int, x *Cloned) {
			if k == 0 {
				x.Note, x.Free = 1, 0
			}
		}},
		{"a call that notes where it led", code(call, ret), func(k int, x *Cloned) {
			if k == 0 {
				x.Note = 1
			}
		}},
		{"a branch that reaches, and an address", code(0x54000040, 0x90000000, ret), func(int, *Cloned) {}},
		{"counters before, when a branch is taken, and when it is not", code(0xb4000040, nop, ret), func(k int, x *Cloned) {
			if k == 0 {
				x.Before, x.Behind, x.Taken = counted(a, 0), counted(a, 1), counted(a, 2)
			}
		}},
		{"a trap", code(0xd4210000, ret), func(int, *Cloned) {}},
		{"what may fault, and its fixup", code(0xf9400000, ret, 0xd2800000, ret), func(k int, x *Cloned) {
			if k == 0 {
				x.Fixup = at + 8
			}
		}},
		{"a function that is called passes its gate and what signs its return address, its entry does not", code(nop, 0x97ffffff, ret), func(k int, x *Cloned) {
			if k == 0 {
				x.Gate = &Gate{Function: at, Site: at - 8, Bare: 0xaa1e03e9, Lead: code(0xd503233f)}
			}
		}},
		{"a gate whose site is no whole double word", code(nop, 0x97ffffff, ret), func(k int, x *Cloned) {
			if k == 0 {
				x.Gate = &Gate{Function: at, Site: at - 4, Bare: 0xaa1e03e9}
			}
		}},
		{"nops, of which one is a static key's, and what only looks like one", code(nop, nop, 0xd503203f, ret), func(k int, x *Cloned) {
			if k == 0 {
				x.Key = &Key{Entry: 0xffffffff_83000000, Enabled: 0xffffffff_82000000, Target: at + 12}
			}
		}},
		{"an exclusive sequence", code(0xc85f7c20, 0xc8027c20, 0x35ffffc2, ret), func(int, *Cloned) {}},
		{"a function whose end is not one", code(nop), func(int, *Cloned) {}},
	}
}

func cloneCasesRiscv64(a *isa.Arch) []cloneCase {
	const (
		at   = clonedAt
		nop  = 0x00000013
		ret  = 0x00008067
		jalr = 0x000780e7 // ra, (a5)
		jr   = 0x00078067 // a5
		ra   = 0x00000097 // auipc ra, 0
		call = 0x100080e7 // jalr ra, 0x100(ra)
		back = 0x000080e7 // jalr ra, (ra)

		sum, addi   = 0x00001517, 0xff050513 // auipc a0, 1; addi a0, a0, -16
		upper       = 0x00001797             // auipc a5, 1
		load, store = 0x0087b703, 0xfee7bc23 // ld a4, 8(a5); sd a4, -8(a5)
	)
	a5 := isa.Reg(15)
	asking := []Inserted{{Snippet: snippet.Snippet{Cells: []snippet.Cell{{Kind: snippet.Sum}}, Code: []snippet.Insn{
		{Op: snippet.Reg, Dst: 0, Type: snippet.U64, Name: "a5"}, {Op: snippet.Count, A: snippet.V(0)}}}}}
	return []cloneCase{
		{"a static key that is read: it jumps while it is on, and while it is off", code(nop, nop, ret), func(k int, x *Cloned) {
			if k < 2 {
				x.Key = &Key{Enabled: 0xffffffff_82000004, Target: at + 8, Off: k == 1}
			}
		}},
		{"a static key that is a site, which is aligned", append([]byte{1, 0}, code(nop, ret)...), func(k int, x *Cloned) {
			if k == 1 {
				x.Key = &Key{Entry: 0xffffffff_83000000, Enabled: 0xffffffff_82000000, Target: at + 6}
			}
		}},
		{"a call by a register that led to two functions, of which one is in the clone, and notes where else", code(jalr, ret), func(k int, x *Cloned) {
			if k == 0 {
				x.By, x.Links, x.Note = &a5, []isa.Addr{at, 0xffffffff_81003000}, 1
			}
		}},
		{"a jump by a register, likewise, with no register free but one", code(jr), func(k int, x *Cloned) {
			x.By, x.Links, x.Note, x.Free = &a5, []isa.Addr{at}, 1, isa.Set(15, 6)
		}},
		{"a call by two instructions, which notes where it led", code(ra, call, ret), func(k int, x *Cloned) {
			if k == 1 {
				x.To, x.Note = at+0x100, 1
			}
		}},
		{"a jump by two instructions, where a snippet asks for a register", code(0x00000317, 0x10030067), func(k int, x *Cloned) {
			if k == 1 {
				x.To = at + 0x100
			} else {
				x.Before = asking
			}
		}},
		{"a call by two instructions, of the clone", code(ra, back, ret), func(k int, x *Cloned) {
			if k == 1 {
				x.To = at
			}
		}},
		{"a jump by two instructions, of the clone, and out of it", code(0x00000317, 0x00030067, 0x00000317, 0x10030067), func(k int, x *Cloned) {
			if k == 1 {
				x.To = at
			}
			if k == 3 {
				x.To = at + 0x108
			}
		}},
		{"addresses by two instructions: a sum, a load, a store, whose upper parts nobody reads", code(nop, sum, addi, upper, load, upper, store, ret), func(int, *Cloned) {}},
		{"an upper part that is read again, and one behind which somebody comes in", code(nop, upper, load, 0xfe0508e3, sum, addi, 0xfe051ee3, ret), func(k int, x *Cloned) {
			x.Free = isa.Set(6)
		}},
		{"a jump by two instructions to a trap behind a return, and one by a register that is not free where functions begin", code(0x00000317, 0x00c30067, ret, 0x00100073, 0x00001717, 0x00070067), func(k int, x *Cloned) {
			if k == 1 {
				x.To = at + 12
			}
			if k == 5 {
				x.To = at + 0x1010
			}
		}},
		{"upper parts, where a snippet asks for a register", code(nop, sum, addi, upper, load, ret), func(k int, x *Cloned) {
			if k == 5 {
				x.Before = asking
			}
		}},
		{"nops, of which one is led to, and one is a static key's", append([]byte{1, 0}, code(nop, nop, 0xfe051ee3, ret)...), func(k int, x *Cloned) {
			if k == 1 {
				x.Key = &Key{Entry: 0xffffffff_83000000, Enabled: 0xffffffff_82000000, Target: at + 14}
			}
		}},
		{"branches that reach, and an address", append([]byte{0x19, 0xc1}, code(0x00a50463, 0x00001517, ret)...), func(int, *Cloned) {}},
		{"counters before, when a branch is taken, and when it is not", code(0x00050463, nop, ret), func(k int, x *Cloned) {
			if k == 0 {
				x.Before, x.Behind, x.Taken = counted(a, 0), counted(a, 1), counted(a, 2)
			}
		}},
		{"a trap", code(0x00100073, ret), func(int, *Cloned) {}},
		{"what may fault, and its fixup", code(0x00053503, ret, nop, ret), func(k int, x *Cloned) {
			if k == 0 {
				x.Fixup = at + 8
			}
		}},
		{"a function that is called passes its gate, its entry does not", code(nop, 0xffdff0ef, ret), func(k int, x *Cloned) {
			if k == 0 {
				x.Gate = &Gate{Function: at, Site: at - 8, Bare: nop}
			}
		}},
		{"an exclusive sequence", code(0x1005252f, 0x18b525af, 0xfe059ce3, ret), func(int, *Cloned) {}},
		{"a function that ends in a call, and no register is free", code(jalr), func(_ int, x *Cloned) { x.Free = 0 }},
	}
}

// TestCloneGolden shows each of what a clone has beside moved instructions. The files were read by people.
// Nowhere does it take more than is said.
func TestCloneGolden(t *testing.T) {
	for name, cases := range map[string]func(*isa.Arch) []cloneCase{"amd64": cloneCasesAmd64, "arm64": cloneCasesArm64, "riscv64": cloneCasesRiscv64} {
		a, err := all.Lookup(name)
		if err != nil {
			t.Fatal(err)
		}
		var b strings.Builder
		ablated(cases(a), func(c cloneCase, blind, called bool) {
			in := made(t, a, c.code, clonedAt, c.change)
			in.Clone.LSE, in.Clone.Blind, in.Clone.Called = true, blind, called
			showClone(t, &b, a, c.what, in)
			most, err := CloneLen(a, in)
			if err != nil {
				t.Fatalf("%s: %s: %v", name, c.what, err)
			}
			for _, far := range []isa.Addr{1 << 12, 1 << 19, 1 << 21, 1<<26 + 1<<12} {
				in.Patch, in.Cell = clonedAt+far, clonedAt+far+1<<13
				if out, err := Patch(a, in); err != nil || len(out.Code) > most {
					t.Errorf("%s: %s, %v away: %d bytes, %d at the most: %v", name, c.what, far, len(out.Code), most, err)
				}
			}
		})
		isGolden(t, "clone-"+name+".txt", b.String())
	}
}

func showClone(t *testing.T, b *strings.Builder, a *isa.Arch, what string, in Input) {
	t.Helper()
	out, err := Patch(a, in)
	if err != nil {
		t.Fatalf("%s: %s: %v", a.Name, what, err)
	}
	fmt.Fprintf(b, "# %s\n  %s\n", what, strings.ReplaceAll(listing(a, out.Code, in.Patch), "; ", "\n  "))
	for _, s := range out.Sites {
		fmt.Fprintf(b, "  at %d: of %v, to %v, entry %v\n", s.Off, s.Orig, s.To, s.Entry)
	}
	for _, r := range out.Resumes {
		fmt.Fprintf(b, "  who sleeps at %d goes on at %v\n", r.Off, r.To)
	}
	for _, s := range out.States {
		fmt.Fprintln(b, stateText(a, s))
	}
}

// TestResumes: it is said of each call of a clone's functions where in the original who comes back from it goes on, of what may
// fault where it stands there, and of nothing else. Routines that count are called, too, and nobody sleeps in these.
func TestResumes(t *testing.T) {
	for name, cases := range map[string]func(*isa.Arch) []cloneCase{"amd64": cloneCasesAmd64, "arm64": cloneCasesArm64, "riscv64": cloneCasesRiscv64} {
		a, err := all.Lookup(name)
		if err != nil {
			t.Fatal(err)
		}
		calls := 0
		ablated(cases(a), func(c cloneCase, blind, called bool) {
			in := made(t, a, c.code, clonedAt, c.change)
			in.Clone.LSE, in.Clone.Blind, in.Clone.Called = true, blind, called
			out, err := Patch(a, in)
			if err != nil {
				t.Fatalf("%s: %s: %v", name, c.what, err)
			}
			want := resumesOf(a, in, out, !called)
			calls += len(want)
			if !maps.Equal(want, byOff(out.Resumes)) || !slices.IsSortedFunc(out.Resumes, func(r, s Resume) int { return r.Off - s.Off }) {
				t.Errorf("%s: %s: %v, want %v", name, c.what, out.Resumes, want)
			}
			in.Clone.Stay = true
			if out, err := Patch(a, in); err != nil || len(out.Resumes) > 0 {
				t.Errorf("%s: %s: who is to stay goes on at %v: %v", name, c.what, out.Resumes, err)
			}
		})
		if calls < 8 {
			t.Errorf("%s: %d places at which somebody may sleep", name, calls)
		}
	}
}

func byOff(all []Resume) map[int]isa.Addr {
	out := map[int]isa.Addr{}
	for _, r := range all {
		out[r.Off] = r.To
	}
	return out
}

// resumesOf finds what Resumes should say, by decoding the clone: what calls there belongs to the instruction whose code it
// is in or, behind all of these, to the only one that calls.
func resumesOf(a *isa.Arch, in Input, out Output, calls bool) map[int]isa.Addr {
	want := map[int]isa.Addr{}
	for _, s := range out.Sites {
		if s.Entry == 0 {
			want[s.Off] = s.Orig
		}
	}
	inside := func(at int) bool {
		return slices.ContainsFunc(out.Pieces, func(p Piece) bool { return at >= p.Off && at < p.Off+p.Len })
	}
	of := func(at int) (to isa.Addr) {
		k, _ := slices.BinarySearch(out.Offs, at+1) // the last that begins there: of others nothing is emitted
		if k <= len(in.Clone.Insns) {
			return in.Clone.Insns[k-1].Insn.End()
		}
		for _, x := range in.Clone.Insns {
			if f := x.Insn.Flow; f == isa.FlowCall || f == isa.FlowIndirectCall || x.Call != 0 {
				to = x.Insn.End()
			}
		}
		return to
	}
	for at := 0; at < len(out.Code); {
		i := a.Decode(out.Code[at:], in.Patch+isa.Addr(at))
		end := at + i.Len
		if (i.Flow == isa.FlowCall || i.Flow == isa.FlowIndirectCall) && !inside(at) && calls {
			want[end] = of(at)
		}
		at = end
	}
	return want
}

// TestOutOfLine: a routine that counts overwrites nothing of what it returns by, though the function needs that no more.
func TestOutOfLine(t *testing.T) {
	for name, nop := range map[string][]byte{"amd64": {0x90}, "arm64": code(0xd503201f), "riscv64": code(0x13)} {
		a, err := all.Lookup(name)
		if err != nil {
			t.Fatal(err)
		}
		saved := isa.Set(callers[name].saved...)
		in := made(t, a, nop, clonedAt, func(_ int, x *Cloned) {
			x.Free, x.Before = saved|isa.Set(a.Flags), counted(a, 0)
		})
		in.Clone.Called = true
		out, err := Patch(a, in)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		piece := out.Pieces[0]
		for at := piece.Off; at < piece.Off+piece.Len; {
			i := a.Decode(out.Code[at:], in.Patch+isa.Addr(at))
			if i.Writes&saved != 0 {
				t.Errorf("%s: %s", name, listing(a, out.Code[piece.Off:][:piece.Len], in.Patch+isa.Addr(piece.Off)))
			}
			at += i.Len
		}
	}
}

// TestCloneBeginsWithTrap: who calls a function that begins with a trap comes to that, whatever is in front of it.
func TestCloneBeginsWithTrap(t *testing.T) {
	for name, c := range map[string]struct{ ret, trap []byte }{
		"amd64":   {[]byte{0xc3}, []byte{0x0f, 0x0b}},
		"arm64":   {code(0xd65f03c0), code(0xd4210000)},
		"riscv64": {code(0x00008067), code(0x00100073)},
	} {
		a, err := all.Lookup(name)
		if err != nil {
			t.Fatal(err)
		}
		in := made(t, a, append(append([]byte{}, c.ret...), c.trap...), clonedAt, func(int, *Cloned) {})
		without, err := Patch(a, in)
		if err != nil {
			t.Fatal(err)
		}
		trap := clonedAt + isa.Addr(len(c.ret))
		in.Clone.Begins[trap] = trap
		with, err := Patch(a, in)
		if err != nil || len(with.Code) <= len(without.Code) {
			t.Errorf("%s: %s, and without %s: %v", name, listing(a, with.Code, in.Patch), listing(a, without.Code, in.Patch), err)
		}
	}
}
