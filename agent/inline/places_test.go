package inline

import (
	"bytes"
	"os"
	"testing"

	"kerninst/agent/isa"
	"kerninst/agent/isa/all"
)

// TestExpressions: what is one register, one and an offset, or known before is told; what is
// computed in other ways, lies in parts, or is cut off is lost.
func TestExpressions(t *testing.T) {
	u := &reading{maker: &maker{regs: amd64Regs, text: Range{0xffffffff81000000, 0xffffffff82000000}}}
	const rdi = isa.Reg(7)
	for expr, want := range map[string]Place{
		"":                         {},
		"\x55":                     {Kind: Register, Reg: rdi},
		"\x55\x93\x04":             {}, // a part of it
		"\x55\x9f":                 {}, // no such thing
		"\x75\x10":                 {Kind: Memory, Reg: rdi, Off: 16},
		"\x75\x70\x9f":             {Kind: Sum, Reg: rdi, Off: -16},
		"\x75\x80\x7f":             {Kind: Memory, Reg: rdi, Off: -128},
		"\x75\x10\x06":             {}, // what that is a pointer to
		"\x75":                     {},
		"\x91\x78":                 {Kind: Frame, Off: -8},
		"\x91\x78\x9f":             {}, // the address on the stack itself
		"\x37\x9f":                 {Kind: Constant, Off: 7},
		"\x37":                     {}, // memory at 7
		"\x08\xff\x9f":             {Kind: Constant, Off: 255},
		"\x09\xff\x9f":             {Kind: Constant, Off: -1},
		"\x0b\x00\x80\x9f":         {Kind: Constant, Off: -32768},
		"\x0c\x00\x00\x00\x80\x9f": {Kind: Constant, Off: 1 << 31},
		"\x10\x80\x01\x9f":         {Kind: Constant, Off: 128},
		"\x11\x7f\x9f":             {Kind: Constant, Off: -1},
		"\x9e\x02\x34\x12":         {Kind: Constant, Off: 0x1234},
		"\x9e\x10\x34\x12":         {},
		"\xa3\x01\x55\x9f":         {}, // what rdi was at the function's entry
		"\x03\x10\x00\x00\x81\xff\xff\xff\xff\x9f": {Kind: Symbol, Off: 0x10},
		"\x03\x10\x00\x00\x81\xff\xff\xff\xff":     {},
		"\x6f":                                     {}, // xmm14
	} {
		if got := u.place([]byte(expr)); got != want {
			t.Errorf("%x: %+v, not %+v", expr, got, want)
		}
	}
}

// FuzzRead: whatever is in a file whose sum is right, to read it and to ask is no panic.
func FuzzRead(f *testing.F) {
	for _, arch := range []string{"amd64", "riscv64"} {
		a, err := all.Lookup(arch)
		if err != nil {
			f.Fatal(err)
		}
		file, err := os.ReadFile("testdata/" + arch + ".elf")
		if err != nil {
			f.Fatal(err)
		}
		x, err := Make(bytes.NewReader(file), a, Options{})
		if err != nil {
			f.Fatal(err)
		}
		packed, err := x.Bytes()
		if err != nil {
			f.Fatal(err)
		}
		b, err := unpack(magic, "index", packed)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		x, err := read(b)
		if err != nil {
			return
		}
		for _, name := range x.Names("", 10) {
			found, err := x.Find(name)
			for _, c := range found {
				if err == nil && c.Copy >= 0 {
					c.Body.Copy(c.Copy).Args()
				}
				c.Ranges()
			}
		}
		for _, o := range append(x.Entries(), 0, x.Text) {
			x.LineAt(o)
			x.At(o)
		}
		x.LinesOf("fixture.c", 10)
	})
}

// TestOnlyAlike: of functions that begin at one place, as those with two names do, a part has each that it is made for.
func TestOnlyAlike(t *testing.T) {
	body := func(name string) Body { return Body{Func: Func{name, "a.c", 1}, Ranges: []Range{{8, 16}}} }
	x, err := assemble("amd64", []byte{1}, 64, []unit{{bodies: []Body{body("one"), body("other"), body("third")}}})
	if err != nil {
		t.Fatal(err)
	}
	y, err := x.Only("third", "one")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"one", "third"} {
		if found, err := y.Find(name); len(found) != 1 || err != nil || len(y.Lookup(name)) != 1 {
			t.Errorf("%s: %v, %v", name, found, err)
		}
	}
	if names := y.Names("", 9); len(names) != 2 {
		t.Errorf("made for two: %q", names)
	}
}
