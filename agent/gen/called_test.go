package gen

import (
	"encoding/hex"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"kerninst/agent/isa"
	"kerninst/agent/isa/all"
	"kerninst/agent/snippet"
	"kerninst/agent/snippet/snippettest"
)

// jumps leave a function, the last instruction of each.
var jumps = []struct{ arch, name, code string }{
	{"amd64", "jmp", "e900010000"},
	{"amd64", "short jmp", "eb10"},
	{"amd64", "through a register", "41ffe3"},
	{"arm64", "b", "40000014"},
	{"arm64", "through a register", "00021fd6"}, // br x16
	{"riscv64", "j", "6f000010"},
	{"riscv64", "auipc and jr", "1703000067004301"}, // auipc t1, 0; jr 20(t1)
}

// calling is the input of a patch for a jump that is made a call.
func calling(t *testing.T, a *isa.Arch, code string, before, behind isa.RegSet) Input {
	t.Helper()
	b, err := hex.DecodeString(code)
	if err != nil {
		t.Fatal(err)
	}
	in := input(t, a, before)
	in.Called, in.Bytes, in.Displaced, in.Free = true, b, nil, nil
	for n := 0; n < len(b); {
		i := a.Decode(b[n:], in.Patch-16<<20+isa.Addr(n))
		in.Displaced, in.Free = append(in.Displaced, i), append(in.Free, before)
		n += i.Len
	}
	in.Lead, in.Free, in.Back = len(in.Displaced)-1, append(in.Free, behind), in.Displaced[0].Addr+isa.Addr(len(b))
	s, err := snippet.Parse("c0 sum\nv0 u64 = ret\ncount c0 v0")
	if err != nil {
		t.Fatal(err)
	}
	in.Snippet = s
	return in
}

// TestCalled: what is called, with a frame record where stacks are walked by such, then the
// snippet, with what is free behind, then the return.
func TestCalled(t *testing.T) {
	const (
		pushed  = "stp x29, x30, [sp,#-16]!; mov x29, sp; "
		popped  = "; ldp x29, x30, [sp],#16; adr x16, .+0xfff0; stadd x0, [x16]; ret"
		pushedR = "addi x2,x2,-16; sd x8,0(x2); sd x1,8(x2); addi x8,x2,16; "
		poppedR = "; ld x8,0(x2); ld x1,8(x2); addi x2,x2,16; auipc x6,0x10; addi x6,x6,-28; amoadd.d x0,x10,(x6); ret"
	)
	golden := map[string]struct {
		code, states string
		added        int // of which two, three and four are the snippet's, and a return
	}{
		"amd64 jmp":                {"call 0xffffffff9f000145; lock add %rax,0xfff3(%rip); retq", "0: P, sp 0; 5: P, sp 0; 13: P, sp 0", 2},
		"amd64 short jmp":          {"call 0xffffffff9f000052; lock add %rax,0xfff3(%rip); retq", "0: P, sp 0; 5: P, sp 0; 13: P, sp 0", 2},
		"amd64 through a register": {"call *%r11; lock add %rax,0xfff5(%rip); retq", "0: P, sp 0; 3: P, sp 0; 11: P, sp 0", 2},
		"arm64 b":                  {pushed + "bl 0xffff800081000140" + popped, "0: P, sp 0; 4: P, sp 16, x29 x30; 16: P, sp 0; 24: P, sp 0", 6},
		"arm64 through a register": {pushed + "blr x16" + popped, "0: P, sp 0; 4: P, sp 16, x29 x30; 16: P, sp 0; 24: P, sp 0", 6},
		"riscv64 j": {pushedR + "auipc x1,0xff000; jalr x1,244(x1)" + poppedR,
			"0: P, sp 0; 4: P, sp 16; 8: P, sp 16, s0 ra; 28: P, sp 0; 40: P, sp 0", 12},
		"riscv64 auipc and jr": {"auipc x6,0xff000; " + pushedR + "jalr x1,20(x6)" + poppedR,
			"0: P-4, sp 0; 4: P, sp 0; 8: P, sp 16; 12: P, sp 16, s0 ra; 28: P, sp 0; 40: P, sp 0", 11},
	}
	for _, c := range jumps {
		a, err := all.Lookup(c.arch)
		if err != nil {
			t.Fatal(err)
		}
		want := golden[c.arch+" "+c.name]
		in := calling(t, a, c.code, 0, a.All&^Wanted(a))
		out := patched(t, a, in, want.code)
		var states []string
		point := in.Displaced[in.Lead].Addr
		for _, s := range out.States {
			text := strings.TrimPrefix(stateText(a, s), "  at ")
			states = append(states, strings.NewReplacer(point.String(), "P", (point-4).String(), "P-4").Replace(text))
		}
		if got := strings.Join(states, "; "); got != want.states || out.Added != want.added || out.Spilled != 0 {
			t.Errorf("%s %s: %d added, %d saved, states %s; want %d, 0, %s", c.arch, c.name, out.Added, out.Spilled, got, want.added, want.states)
		}
	}
}

// TestCalledSaves: what is not free behind the call is saved there and not around it, though
// all may be free before it.
func TestCalledSaves(t *testing.T) {
	for arch, want := range map[string]string{
		"amd64":   "call 0xffffffff9f000145; pushfq; lock add %rax,0xfff2(%rip); popfq; retq",
		"arm64":   "stp x29, x30, [sp,#-16]!; mov x29, sp; bl 0xffff800081000140; ldp x29, x30, [sp],#16; str x16, [sp,#-16]!; adr x16, .+0xffec; stadd x0, [x16]; ldr x16, [sp],#16; ret",
		"riscv64": "addi x2,x2,-16; sd x8,0(x2); sd x1,8(x2); addi x8,x2,16; auipc x1,0xff000; jalr x1,244(x1); ld x8,0(x2); ld x1,8(x2); addi x2,x2,16; addi x2,x2,-16; sd x6,0(x2); auipc x6,0x10; addi x6,x6,-34; amoadd.d x0,x10,(x6); ld x6,0(x2); addi x2,x2,16; ret",
	} {
		a, err := all.Lookup(arch)
		if err != nil {
			t.Fatal(err)
		}
		code := jumps[slices.IndexFunc(jumps, func(c struct{ arch, name, code string }) bool { return c.arch == arch })].code
		if out := patched(t, a, calling(t, a, code, a.All, 0), want); out.Spilled != 1 {
			t.Errorf("%s: %d saved", arch, out.Spilled)
		}
	}
}

// TestCalledThunk: where the kernel returns by a thunk, so does the patch.
func TestCalledThunk(t *testing.T) {
	a, err := all.Lookup("amd64")
	if err != nil {
		t.Fatal(err)
	}
	in := calling(t, a, "e900010000", 0, a.All&^Wanted(a))
	in.Thunk = in.Displaced[0].Addr + 0x3000
	patched(t, a, in, "call 0xffffffff9f000145; lock add %rax,0xfff3(%rip); jmp 0xffffffff9f003040")
}

// TestCalledRefused: what is no jump that leaves, or is not the last, is not called.
func TestCalledRefused(t *testing.T) {
	for name, c := range map[string]struct{ arch, code string }{
		"a condition":           {"amd64", "0f8400010000"},
		"a return":              {"amd64", "c3"},
		"through the frame":     {"arm64", "a0031fd6"}, // br x29
		"a condition of arm64":  {"arm64", "40020054"},
		"through s0":            {"riscv64", "67000400"}, // jr s0
		"a branch":              {"riscv64", "63845700"},
		"what follows a return": {"riscv64", "8280" + "6f000010"},
	} {
		a, err := all.Lookup(c.arch)
		if err != nil {
			t.Fatal(err)
		}
		in := calling(t, a, c.code, 0, a.All)
		if out, err := Patch(a, in); err == nil {
			t.Errorf("%s: %s", name, listing(a, out.Code, in.Patch))
		}
	}
	a, _ := all.Lookup("amd64")
	in := calling(t, a, "e900010000", 0, a.All)
	in.Near = true
	if out, err := Patch(a, in); err == nil {
		t.Errorf("a copy in padding: %s", listing(a, out.Code, in.Patch))
	}
	a, _ = all.Lookup("riscv64")
	in = calling(t, a, "170300006700430101000100", 0, a.All) // two nops behind it
	in.Lead = 1
	if out, err := Patch(a, in); err == nil {
		t.Errorf("before others: %s", listing(a, out.Code, in.Patch))
	}
}

// TestCalledRandom: whatever the snippet and the free registers, what is overwritten behind
// the call was free there or is on the stack, and the code fits where there is room for it.
func TestCalledRandom(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 0))
	for _, a := range all.Arches() {
		for range 500 {
			code := jumps[r.IntN(len(jumps))]
			if code.arch != a.Name {
				continue
			}
			in := calling(t, a, code.code, a.All, isa.RegSet(r.Uint64())&isa.RegSet(r.Uint64())&a.All&^Wanted(a))
			in.Snippet, _ = snippet.Join(in.Snippet, snippettest.Random(r, []string{a.RegName(1), a.RegName(13)}, []uint64{0x20003000}))
			out, err := Patch(a, in)
			if err != nil {
				t.Fatalf("%s: %v\n%v", a.Name, err, in.Snippet)
			}
			for k, s := range out.States {
				if k > 0 && s.Off <= out.States[k-1].Off {
					t.Errorf("%s: %+v after %+v", a.Name, s, out.States[k-1])
				}
			}
			behind, before := in, out.Begin
			behind.Free = in.Free[len(in.Free)-1:]
			if bad := overwrittenFrom(a, behind, out, before); bad != 0 {
				t.Fatalf("%s: %s overwritten\n%v\n%s", a.Name, a.Names(bad), in.Snippet, listing(a, out.Code, in.Patch))
			}
			if n := len(out.Code); n > Room(a, in.Snippet) {
				t.Fatalf("%s: %d bytes, room for %d\n%v", a.Name, n, Room(a, in.Snippet), in.Snippet)
			}
			call, back, err := Called(a, in, int(in.Displaced[in.Lead].Addr-in.Displaced[0].Addr), out.Start)
			if err != nil || !strings.HasPrefix(string(out.Code[out.Begin-len(call):]), string(call)) || !strings.HasSuffix(string(out.Code), string(back)) {
				t.Fatalf("%s: %x has no call %x and return %x: %v", a.Name, out.Code, call, back, err)
			}
		}
	}
}
