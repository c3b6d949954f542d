package gen

import (
	"fmt"
	"os"
	"path/filepath"
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
	return Input{Clone: c, Patch: 0xffffffff_90000000, Cell: 0xffffffff_90080000, Displaced: []isa.Insn{c.Insns[0].Insn}}
}

// TestCloneGolden shows each of what a clone has beside moved instructions. The file was read by people.
func TestCloneGolden(t *testing.T) {
	a, err := all.Lookup("amd64")
	if err != nil {
		t.Fatal(err)
	}
	const at = isa.Addr(0xffffffff_81000000)
	rax := amd64.RAX
	count := func(word int) []Inserted {
		return []Inserted{{Number: word, Snippet: snippet.Counter(), Word: word, Free: a.All}}
	}
	var b strings.Builder
	for _, c := range []struct {
		what   string
		code   []byte
		change func(k int, x *Cloned)
	}{
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
	} {
		in := made(t, a, c.code, at, c.change)
		out, err := Patch(a, in)
		if err != nil {
			t.Fatalf("%s: %v", c.what, err)
		}
		fmt.Fprintf(&b, "# %s\n  %s\n", c.what, strings.ReplaceAll(listing(a, out.Code, in.Patch), "; ", "\n  "))
		for _, s := range out.Sites {
			fmt.Fprintf(&b, "  at %d: of %v, to %v, entry %v\n", s.Off, s.Orig, s.To, s.Entry)
		}
		for _, s := range out.States {
			fmt.Fprintln(&b, stateText(a, s))
		}
	}
	file := filepath.Join("testdata", "clone-amd64.txt")
	if *update {
		if err := os.WriteFile(file, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if b.String() != string(want) {
		t.Errorf("%s is not what comes out (-update writes it):\n%s", file, b.String())
	}
}
