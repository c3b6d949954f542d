package gen

import (
	"encoding/hex"
	"errors"
	"slices"
	"strings"
	"testing"

	"kerninst/agent/isa"
	"kerninst/agent/isa/all"
	"kerninst/agent/snippet"
)

// bases are where the tests' patches lie.
var bases = map[string]isa.Addr{
	"amd64": 0xffffffffa0000040, "arm64": 0xffff800082000040, "riscv64": 0xffffffff02000040,
}

// victims are displaced instructions: amd64 mov $0,(%rsp); arm64 mov x29, sp;
// riscv64 four compressed ones.
var victims = map[string]string{
	"amd64": "48c7042400000000", "arm64": "fd030091", "riscv64": "411122e006e40008",
}

const codeLen = 65536

func input(t *testing.T, a *isa.Arch, free isa.RegSet) Input {
	t.Helper()
	b, err := hex.DecodeString(victims[a.Name])
	if err != nil {
		t.Fatal(err)
	}
	patch := bases[a.Name]
	point := patch - 16<<20
	in := Input{Snippet: snippet.Counter(), Patch: patch, Cell: patch + codeLen, Bytes: b, Features: Features{LSE: true},
		Loads: patch - 1<<24 + 0x880, Task: 0x34a40}
	for n := 0; n < len(b); {
		i := a.Decode(b[n:], point+isa.Addr(n))
		in.Displaced = append(in.Displaced, i)
		n += i.Len
	}
	in.Free = make([]isa.RegSet, len(in.Displaced)+1)
	in.Free[0], in.Free[len(in.Displaced)] = free, isa.Set(6, 10)
	in.Back = point + isa.Addr(len(b))
	return in
}

func listing(a *isa.Arch, code []byte, at isa.Addr) string {
	var out []string
	for n := 0; n < len(code); {
		i := a.Decode(code[n:], at+isa.Addr(n))
		out = append(out, a.Text(code[n:], i.Addr))
		n += i.Len
	}
	return strings.Join(out, "; ")
}

func TestCount(t *testing.T) {
	for _, c := range []struct {
		arch           string
		free           isa.RegSet
		added, spilled int
		want           string
	}{
		{"amd64", isa.Set(16), 2, 0,
			"lock incq 0xfff8(%rip); movq $0x0,(%rsp); jmp 0xffffffff9f000048"},
		{"amd64", 0, 4, 1,
			"pushfq; lock incq 0xfff7(%rip); popfq; movq $0x0,(%rsp); jmp 0xffffffff9f000048"},
		{"arm64", isa.Set(3, 20), 3, 0,
			"adr x3, .+0x10000; stadd x3, [x3]; mov x29, sp; b 0xffff800081000044"},
		{"arm64", 0, 5, 1,
			"str x16, [sp,#-16]!; adr x16, .+0xfffc; stadd x16, [x16]; ldr x16, [sp],#16; mov x29, sp; b 0xffff800081000044"},
		{"riscv64", isa.Set(12, 14), 4, 0,
			"auipc x14,0x10; amoadd.d x0,x14,(x14); addi x2,x2,-16; sd x8,0(x2); sd x1,8(x2); addi x8,x2,16; auipc x6,0xff000; jr -8(x6)"},
	} {
		a, err := all.Lookup(c.arch)
		if err != nil {
			t.Fatal(err)
		}
		in := input(t, a, c.free)
		out := patched(t, a, in, c.want)
		if out.Added != c.added || out.Spilled != c.spilled {
			t.Errorf("%s: %d added, %d spilled; want %d, %d", c.arch, out.Added, out.Spilled, c.added, c.spilled)
		}
		checkStates(t, a, in, out)
	}
}

// patched is what comes out of an input, which has to read as it should.
func patched(t *testing.T, a *isa.Arch, in Input, want string) Output {
	t.Helper()
	out, err := Patch(a, in)
	if err != nil {
		t.Errorf("%s: %v", a.Name, err)
		return out
	}
	if got := listing(a, out.Code, in.Patch); got != want {
		t.Errorf("%s free %s:\n got %s\nwant %s", a.Name, a.Names(in.Free[0]), got, want)
	}
	return out
}

// TestLead: instructions that lead up to the snippet come first; what cannot is said.
func TestLead(t *testing.T) {
	a, err := all.Lookup("riscv64")
	if err != nil {
		t.Fatal(err)
	}
	in := input(t, a, isa.Set(12, 14))
	in.Free[1], in.Lead = in.Free[0], 1
	out, err := Patch(a, in)
	const want = "addi x2,x2,-16; auipc x14,0x10; addi x14,x14,-2; amoadd.d x0,x14,(x14); " +
		"sd x8,0(x2); sd x1,8(x2); addi x8,x2,16; auipc x6,0xff000; jr -12(x6)"
	if got := listing(a, out.Code, in.Patch); err != nil || got != want || out.Begin != 2 || a.Text(out.Code[out.Start:], 0) != "sd x8,0(x2)" {
		t.Errorf("got %s\nwant %s\nthe snippet from %d to %d, %v", got, want, out.Begin, out.Start, err)
	}
	checkStates(t, a, in, out)
	if s := out.States[1]; s.Off != out.Begin || s.Orig != in.Displaced[1].Addr {
		t.Errorf("in the snippet: %+v", s)
	}
	for name, spoil := range map[string]func(*Input){
		"more than there are": func(in *Input) { in.Lead = len(in.Displaced) },
		"fewer than none":     func(in *Input) { in.Lead = -1 },
		"a branch":            func(in *Input) { in.Displaced[0].Flow = isa.FlowCond },
	} {
		in := input(t, a, 0)
		in.Lead = 1
		spoil(&in)
		if out, err := Patch(a, in); err == nil {
			t.Errorf("%s: %x", name, out.Code)
		}
	}
}

// checkStates: the map begins at 0, follows the code, and ends on the way back
// with the stack as the kernel left it.
func checkStates(t *testing.T, a *isa.Arch, in Input, out Output) {
	t.Helper()
	s := out.States
	if s[0].Off != 0 || s[0].Orig != in.Displaced[0].Addr || s[0].SP != 0 {
		t.Errorf("%s: starts with %+v", a.Name, s[0])
	}
	last := s[len(s)-1]
	if last.Orig != in.Back || last.SP != 0 || last.Saved != nil {
		t.Errorf("%s: ends with %+v", a.Name, last)
	}
	for k := 1; k < len(s); k++ {
		if s[k].Off <= s[k-1].Off || s[k].Orig < s[k-1].Orig {
			t.Errorf("%s: %+v after %+v", a.Name, s[k], s[k-1])
		}
	}
	i := a.Decode(out.Code[last.Off:], in.Patch+isa.Addr(last.Off))
	if a.Name != "riscv64" && i.Target != in.Back {
		t.Errorf("%s: the way back goes to %v", a.Name, i.Target)
	}
}

// TestNeverUse claims that everything is free: the registers that must never be
// touched are not, by any instruction of the snippet.
func TestNeverUse(t *testing.T) {
	for _, a := range all.Arches() {
		if bad := isa.Set(generators[a.Name].order...) & a.NeverUse; bad != 0 {
			t.Errorf("%s: %s are offered", a.Name, a.Names(bad))
		}
		in := input(t, a, a.All)
		in.Free[len(in.Free)-1] = a.All
		out, err := Patch(a, in)
		if err != nil {
			t.Fatal(err)
		}
		for n := 0; n < len(out.Code); {
			i := a.Decode(out.Code[n:], in.Patch+isa.Addr(n))
			if own := n < len(out.Code)-len(in.Bytes)-8; own && i.Writes&a.NeverUse != 0 {
				t.Errorf("%s: %s writes %s", a.Name, a.Text(out.Code[n:], i.Addr), a.Names(i.Writes))
			}
			n += i.Len
		}
	}
}

func TestErrors(t *testing.T) {
	for _, c := range []struct {
		arch   string
		change func(*Input)
		want   error
		in     string
	}{
		{"arm64", func(in *Input) { in.Features.LSE, in.Snippet = false, snippet.Poisoned() }, ErrNoAtomics, ""},
		{"arm64", func(in *Input) { in.Cell = in.Patch + 1<<21 }, ErrReach, "adr"},
		{"arm64", func(in *Input) { in.Back += 1 << 28 }, ErrReach, "b:"},
		{"amd64", func(in *Input) { in.Cell -= 1 << 32 }, ErrReach, "lock incq"},
		{"riscv64", func(in *Input) { in.Free[len(in.Free)-1] = 0 }, ErrNoRegister, "way back"},
		{"riscv64", func(in *Input) { in.Free[len(in.Free)-1] = isa.Set(2, 3, 4, 8) }, ErrNoRegister, "way back"},
		{"amd64", func(in *Input) { in.Snippet = together("stack", "argument of 32 bits", "by two keys") }, ErrNoRegister, "than amd64 has registers: do stack, which takes most, at another instruction"},
		{"amd64", func(in *Input) { in.Snippet = snippet.Snippet{} }, nil, "snippet"},
		{"amd64", func(in *Input) { in.Displaced = nil }, nil, "displaced"},
		{"amd64", func(in *Input) { in.Free = in.Free[1:] }, nil, "sets of free registers"},
		{"amd64", func(in *Input) { in.Bytes = in.Bytes[1:] }, nil, "displaced bytes"},
		{"amd64", func(in *Input) { in.Displaced[0].Flow = isa.FlowTrap }, nil, "cannot be moved"},
	} {
		a, err := all.Lookup(c.arch)
		if err != nil {
			t.Fatal(err)
		}
		in := input(t, a, a.All)
		c.change(&in)
		out, err := Patch(a, in)
		if err == nil || c.want != nil && !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.in) {
			t.Errorf("%s: %x, %v; want %v with %q", c.arch, out.Code, err, c.want, c.in)
		}
	}
}

// together are some of the programs as actions of one point.
func together(names ...string) snippet.Snippet {
	var parts []snippet.Snippet
	for _, name := range names {
		k := slices.IndexFunc(programs, func(p struct{ name, text string }) bool { return p.name == name })
		s, err := snippet.Parse(programs[k].text)
		if err != nil {
			panic(err)
		}
		parts = append(parts, s)
	}
	whole, _ := snippet.Join(parts...)
	return whole
}

// TestApart: what is too much for one point is not in two parts, as one is told to do.
func TestApart(t *testing.T) {
	for _, parts := range [][]string{{"stack"}, {"argument of 32 bits", "by two keys"}} {
		in := input(t, all.Arches()[0], 0)
		in.Snippet = together(parts...)
		if _, err := Patch(all.Arches()[0], in); err != nil {
			t.Errorf("%v: %v", parts, err)
		}
	}
}

// TestLongest displaces as much as a splice can and must still fit a slot.
func TestLongest(t *testing.T) {
	for _, a := range all.Arches() {
		in := input(t, a, 0)
		pad := map[string]string{"amd64": "66662e0f1f84000000000066662e0f", "arm64": "1f2003d5", "riscv64": "01000100010013000000"}[a.Name]
		b, _ := hex.DecodeString(pad)
		in.Bytes, in.Displaced = nil, nil
		for n := 0; n < len(b); {
			i := a.Decode(b[n:], in.Back-16+isa.Addr(n))
			if i.Flow != isa.FlowNone {
				break
			}
			in.Displaced = append(in.Displaced, i)
			in.Bytes = append(in.Bytes, b[n:n+i.Len]...)
			n += i.Len
		}
		in.Free = make([]isa.RegSet, len(in.Displaced)+1)
		in.Free[len(in.Displaced)] = isa.Set(6)
		out, err := Patch(a, in)
		if err != nil || len(out.Code) > Room(a, in.Snippet) {
			t.Errorf("%s: %d bytes, %v", a.Name, len(out.Code), err)
		}
	}
}
