package gen

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"kerninst/agent/isa"
	"kerninst/agent/isa/all"
	"kerninst/agent/isa/amd64"
	"kerninst/agent/snippet"
	"kerninst/agent/snippet/snippettest"
)

var update = flag.Bool("update", false, "write the golden files anew")

// programs are what golden files show, each with everything and with nothing free.
var programs = []struct{ name, text string }{
	{"counter", "c0 sum\ncount c0 1"},
	{"two counters", "c0 sum\nc1 sum\ncount c0 1\ncount c1 1"},
	{"predicated counter", "c0 sum\nv0 u64 = arg 0\nif v0 ne 3 goto 3\ncount c0 1\n3:"},
	{"argument of 32 bits", "c0 sum\nv0 u64 = arg 1\nv1 s64 = extend 4 v0\nif v1 ge 0 goto 4\ncount c0 1\n4:"},
	{"smallest and largest", "c0 min u64\nc1 max s64\nv0 u64 = arg 2\nlower c0 v0\nv1 s64 = extend 8 v0\nraise c1 v1"},
	{"sum with arithmetic", "c0 sum\nv0 u64 = arg 0\nv1 u64 = arg 1\nv2 u64 = sub v0 v1\nv3 u64 = shl v2 3\nv4 u64 = add v3 0x123456789\ncount c0 v4"},
	{"record", "c0 ring 32768 2\nv0 u64 = arg 0\nv1 u64 = arg 1\nappend c0 v0 v1"},
	{"record without a time", "c0 ring 65536 0\nappend c0"},
	{"record without a time, of a small ring", "c0 ring 512 0\nappend c0"},
	{"loads", "c0 sum\nc1 faults\nv0 u64 = arg 0\nv1 u64 = load 8 v0 16 c1\nv2 s64 = load 2 v1 -0x12345 c1\nv3 u64 = extend 8 v2\ncount c0 v3"},
	{"stack", "c0 stacks 64 15\nstack c0"},
	{"of one process", "c0 sum\nv0 u64 = task 4 2468\nif v0 ne 42 goto 3\ncount c0 1\n3:"},
	{"the task that runs", "c0 max u64\nv0 u64 = current\nraise c0 v0"},
	{"histogram", "c0 array 65\nv0 u64 = arg 2\nv1 u64 = bits v0\nv2 u64 = index c0 0 0 64 v1\ntally c0 v2 0 1"},
	{"linear histogram", "c0 array 12\nv0 u64 = arg 2\nv1 u64 = div v0 100\nv2 u64 = index c0 0 1 10 v1\ntally c0 v2 0 1"},
	{"by two keys", "c0 map 64 2\nv0 u64 = task 8 2992\nv1 u64 = task 8 3000\nv2 u64 = slot c0 v0 v1\nif v2 eq 0 goto 7\nv3 u64 = arg 2\ntally c0 v2 0 1\ntop c0 v2 1 v3\n7:"},
	{"a task's clock", "c0 clocks 32768\nc1 sum\nv0 u64 = clock c0 2468\ncount c1 v0"},
	{"a switch of tasks", "c0 clocks 32768\nv0 u64 = arg 0\nswitch c0 v0 2468"},
	{"poison", "c0 sum\ncount c0 1\npoison"},
}

func name(a *isa.Arch, r isa.Reg) string { return a.RegName(r) }

func stateText(a *isa.Arch, s State) string {
	var saved []string
	for _, r := range s.Saved {
		saved = append(saved, name(a, r))
	}
	text := fmt.Sprintf("  at %d: %v, sp %d", s.Off, s.Orig, s.SP)
	if len(saved) > 0 {
		text += ", " + strings.Join(saved, " ")
	}
	if s.Kept != nil {
		text += ", flags in " + name(a, *s.Kept)
	}
	return text
}

func golden(t *testing.T, a *isa.Arch) string {
	var b strings.Builder
	shown := func(what string, change func(*Input)) {
		fmt.Fprintf(&b, "# %s\n", what)
		for _, free := range []isa.RegSet{a.All, 0} {
			in := input(t, a, free)
			change(&in)
			out, err := Patch(a, in)
			if err != nil {
				t.Fatalf("%s, %s: %v", a.Name, what, err)
			}
			fmt.Fprintf(&b, "- %d free: %d added, %d saved, %d bytes\n", free.Len(), out.Added, out.Spilled, len(out.Code))
			fmt.Fprintln(&b, "  "+strings.ReplaceAll(listing(a, out.Code[:out.Start], in.Patch), "; ", "\n  "))
			for _, st := range out.States {
				fmt.Fprintln(&b, stateText(a, st))
			}
		}
	}
	for _, p := range programs {
		s, err := snippet.Parse(p.text)
		if err != nil {
			t.Fatal(err)
		}
		for k := range s.Cells {
			if s.Cells[k].Kind == snippet.InRing {
				s.Cells[k].Ring = snippet.Ring{At: 0x1f010, Each: true, Tag: 0x1234, CPU: 32}
			}
		}
		shown(p.name+"\n"+strings.TrimSuffix(s.String(), "\n"), func(in *Input) { in.Snippet = s })
		if Locals(a) && strings.Contains(p.text, "count c0") {
			shown(p.name+", per CPU", func(in *Input) {
				in.Snippet, in.Locals = s, make([]isa.Addr, len(s.Cells))
				in.Locals[0] = 0x1f008
			})
		}
	}
	one := snippet.Snippet{Cells: []snippet.Cell{{Kind: snippet.InRing, Records: 64, Fields: 3, Ring: snippet.Ring{At: 0xffffffff_c1000000, Tag: 7}}},
		Code: []snippet.Insn{{Op: snippet.Append, Fields: []snippet.Operand{snippet.C(1), snippet.C(2), snippet.C(1 << 40)}}}}
	shown("record of constants, one ring for all CPUs", func(in *Input) { in.Snippet = one })
	bare := snippet.Snippet{Cells: []snippet.Cell{{Kind: snippet.InRing, Records: 65536, Ring: one.Cells[0].Ring}}, Code: []snippet.Insn{{Op: snippet.Append}}}
	shown("record without a time, one ring for all CPUs", func(in *Input) { in.Snippet = bare })
	shown("a task's clock, where the kernel preempts itself", func(in *Input) {
		in.Features.Preempted = true
		in.Snippet = snippet.Snippet{Cells: []snippet.Cell{{Kind: snippet.Clocks, Records: 1 << 20}, {Kind: snippet.Sum}},
			Code: []snippet.Insn{{Op: snippet.Clock, Type: snippet.U64, Off: 16}, {Op: snippet.Count, A: snippet.V(0), Cell: 1}}}
	})
	if a.Name == "arm64" {
		shown("counter without LSE", func(in *Input) { in.Features.LSE = false })
	}
	return b.String()
}

// isGolden holds a text against a file, which people have read.
func isGolden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s is not what is generated now; look at the difference after -update", file)
	}
}

func TestGolden(t *testing.T) {
	for _, a := range all.Arches() {
		isGolden(t, a.Name+".txt", golden(t, a))
	}
}

var stacks = snippet.Snippet{Cells: []snippet.Cell{{Kind: snippet.Stacks, Records: 4, Fields: 15}}, Code: []snippet.Insn{{Op: snippet.Stack}}}

// TestRandomStates: whatever the snippet and the free registers, the state map is
// in order, all that is saved is taken back, what is overwritten was free or is on
// the stack, and the code fits where there is room for it.
func TestRandomStates(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 0))
	for _, a := range all.Arches() {
		spRegs := map[string]string{"amd64": "rsp", "arm64": "sp", "riscv64": "sp"}
		for range 1500 {
			in := input(t, a, isa.RegSet(r.Uint64())&isa.RegSet(r.Uint64())&a.All)
			in.Snippet = snippettest.Random(r, []string{spRegs[a.Name], a.RegName(1), a.RegName(13)}, []uint64{0x20003000})
			if r.IntN(4) == 0 {
				in.Snippet, _ = snippet.Join(in.Snippet, stacks)
			}
			out, err := Patch(a, in)
			if in.Snippet.Walks() && errors.Is(err, ErrNoRegister) {
				continue // so many values at once leave none
			}
			if err != nil {
				t.Fatalf("%s: %v\n%v", a.Name, err, in.Snippet)
			}
			checkStates(t, a, in, out)
			if bad := overwritten(a, in, out); bad != 0 {
				t.Fatalf("%s: %s overwritten\n%v\n%s", a.Name, a.Names(bad), in.Snippet, listing(a, out.Code, in.Patch))
			}
			if n := len(out.Code); n > Room(a, in.Snippet) || Slot(a, in.Snippet, n) < n {
				t.Fatalf("%s: %d bytes, room for %d\n%v", a.Name, n, Room(a, in.Snippet), in.Snippet)
			}
		}
	}
}

// changedByLoads is what kerninst.h lists.
var changedByLoads = map[string]isa.RegSet{
	"amd64": isa.Set(0, amd64.Flags), "arm64": isa.Set(14, 15, 16, 17), "riscv64": isa.Set(5, 6, 7, 28),
}

// changedByWalks likewise.
var changedByWalks = map[string]isa.RegSet{
	"amd64": isa.Set(0, 1, 6, amd64.Flags), "arm64": isa.Set(13, 14, 15, 16, 17), "riscv64": isa.Set(5, 6, 7, 28),
}

// loadCall is the length of the call of what the module loads or walks with, if one is
// there, and what that changes.
func loadCall(a *isa.Arch, in Input, code []byte, at int) (n int, changes isa.RegSet) {
	for _, size := range LoadSizes {
		call, _, err := LoadCall(a, in.Patch+isa.Addr(at), in.Loads, size)
		if err == nil && bytes.HasPrefix(code, call) {
			return len(call), changedByLoads[a.Name]
		}
	}
	if call, _, err := WalkCall(a, in.Patch+isa.Addr(at), in.Loads); err == nil && bytes.HasPrefix(code, call) {
		return len(call), changedByWalks[a.Name]
	}
	return 0, 0
}

// overwritten lists what the snippet's instructions write and is neither free nor
// said to be kept elsewhere when they do.
func overwritten(a *isa.Arch, in Input, out Output) (bad isa.RegSet) {
	return overwrittenFrom(a, in, out, 0)
}

// overwrittenFrom is overwritten of the instructions from an offset on.
func overwrittenFrom(a *isa.Arch, in Input, out Output, from int) (bad isa.RegSet) {
	k := 0
	sp := isa.Set(map[string]isa.Reg{"amd64": 4, "arm64": 31, "riscv64": 2}[a.Name])
	for n := from; n < out.Start; {
		for k+1 < len(out.States) && out.States[k+1].Off <= n {
			k++
		}
		s := out.States[k]
		may := in.Free[0] | sp | isa.Set(s.Saved...)
		if s.Kept != nil {
			may |= isa.Set(a.Flags)
		}
		i := a.Decode(out.Code[n:], in.Patch+isa.Addr(n))
		if call, changes := loadCall(a, in, out.Code[n:out.Start], n); call > 0 {
			bad |= changes &^ may
			n += call
			continue
		}
		bad |= (i.Writes | i.Clobbers) &^ may & a.All
		n += i.Len
	}
	return bad
}
