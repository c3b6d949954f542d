package cfg

import (
	"encoding/binary"
	"fmt"
	"strings"
	"testing"

	"kerninst/agent/isa"
	"kerninst/agent/isa/all"
	"kerninst/agent/ktext"
)

// words gives instructions as bytes.
func words(list ...uint32) (out []byte) {
	for _, w := range list {
		out = binary.LittleEndian.AppendUint32(out, w)
	}
	return out
}

const (
	ret   = 0xd65f03c0
	nop   = 0xd503201f
	movX9 = 0xaa1e03e9 // mov x9, x30: with the nop behind it, an ftrace site
)

// TestData tells words that are no instructions from those that are.
func TestData(t *testing.T) {
	const base = 0xffffa348bb610000
	for _, c := range []struct {
		name string
		code []byte
		syms string // offset and name of each
		want Stats  // Data, Undecoded, Instructions, Overruns
		data []Pos  // where blocks of data begin
	}{
		{"a pointer in front of an entry", words(ret, nop, 0xb9a00008, 0xffffa348, movX9, nop, ret, nop),
			"0 f, 10 g", Stats{Data: 8, Instructions: 4}, []Pos{8}},
		{"not one: g has no site", words(ret, nop, 0xb9a00008, 0xffffa348, nop, ret, ret, nop),
			"0 f, 10 g", Stats{Undecoded: 1, Instructions: 6}, nil},
		{"not one: instructions", words(ret, nop, nop, ret, movX9, nop, ret, nop),
			"0 f, 10 g", Stats{Instructions: 5}, nil},
		{"a literal behind a return", words(0x58000060 /* ldr x0, +12 */, ret, nop, 0xc0, 0xd0, nop),
			"0 f", Stats{Data: 8, Instructions: 2}, []Pos{12}},
		{"two literals", words(0x58000060 /* ldr x0, +12 */, 0x18000081 /* ldr w1, +16 */, ret, 1, 2, 3),
			"0 f", Stats{Data: 12, Instructions: 3}, []Pos{12, 20}},
		{"a load from code", words(0x58000060 /* ldr x0, +12 */, nop, nop, 0x91000400 /* add x0, x0, #1 */, ret, nop),
			"0 f", Stats{Instructions: 5}, nil},
		{"a table by its name", words(ret, nop, 0xff11d6cc, 0xff11d6d4, ret, nop),
			"0 f, 8 __kvm_nvhe___start___kvm_ex_table, 10 g", Stats{Data: 8, Instructions: 2}, []Pos{8}},
		{"data that code runs into", words(nop, nop, 0xff11d6cc, 0xff11d6d4, ret, nop),
			"0 f, 8 __kvm_nvhe___start___kvm_ex_table, 10 g", Stats{Data: 8, Instructions: 3, Overruns: 1}, nil},
	} {
		g := armGraph(t, base, c.code, c.syms)
		s := g.Stats
		if got := (Stats{Data: s.Data, Undecoded: s.Undecoded, Instructions: s.Instructions, Overruns: s.Overruns}); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
		var data []Pos
		for b := range Block(g.Blocks()) {
			if g.Kind(b) == KindPad && g.Marks(b)&Data != 0 {
				data = append(data, g.start[b])
			}
		}
		if fmt.Sprint(data) != fmt.Sprint(c.data) {
			t.Errorf("%s: data at %v, want %v", c.name, data, c.data)
		}
	}
}

// TestSignature: what ends a static call's trampoline is no instruction; what it may be
// replaced by, and the same bytes elsewhere, are.
func TestSignature(t *testing.T) {
	const jump, returns = "\xe9\x00\x00\x00\x00\x0f\xb9\xcc", "\xc3\xcc\x90\x90\x90\x0f\xb9\xcc"
	for _, c := range []struct {
		name, code, syms string
		data, insns      int
	}{
		{"two that jump", "\xc3" + jump + jump, "0 f, 1 __SCT__a, 9 __SCT__b", 6, 3},
		{"one that returns", "\xc3" + returns + jump, "0 f, 1 __SCT__a, 9 __SCT__b", 6, 3},
		{"no trampoline", "\xc3" + jump + jump, "0 f, 1 g, 9 h", 0, 5},
		{"no signature", "\xc3\xe9\x00\x00\x00\x00\x31\xc0\xc3", "0 f, 1 __SCT__a", 0, 4},
	} {
		s := graphOf(t, "amd64", 0xffffffff81000000, []byte(c.code), c.syms).Stats
		if s.Data != c.data || s.Instructions != c.insns {
			t.Errorf("%s: %d bytes of data and %d instructions, want %d and %d", c.name, s.Data, s.Instructions, c.data, c.insns)
		}
	}
}

// TestHalfAddresses: what an auipc leaves for the next instruction to complete is no address; what
// that makes of it is, and so is what nobody completes, or keeps beside what is made of it.
func TestHalfAddresses(t *testing.T) {
	const base = 0xffffffff80002000
	code := words(
		0x00000013, // f: nop
		0x00000097, // auipc ra, 0
		0x034080e7, // jalr  ra, 0x34(ra): g
		0x00000013, // nop
		0x00000517, // auipc a0, 0
		0x01050513, // addi  a0, a0, 0x10
		0x00000597, // auipc a1, 0
		0x00000013, // nop
		0x00000013, // nop, at what is in a0
		0x00000013, // nop
		0x00000617, // auipc a2, 0
		0x00860693, // addi  a3, a2, 8
		0x00008067, // ret, at what is in a3
		0x00008067, // ret
		0x00000013, // g: nop
		0x00000517, // auipc a0, 0, and g ends
		0x00008067, // h: ret
	)
	g := graphOf(t, "riscv64", base, code, "0 f, 38 g, 40 h")
	for off, want := range map[isa.Addr]bool{
		0: true, 4: false, 0xc: true, 0x10: false, 0x18: true, 0x20: true, 0x28: true, 0x30: true, 0x38: true, 0x3c: true, 0x40: true,
	} {
		if _, begins := g.Begins(base + off); begins != want {
			t.Errorf("a block begins at f+%#x: %v", uint64(off), begins)
		}
	}
}

// armGraph builds and checks the graph of arm64 code at base.
func armGraph(t *testing.T, base isa.Addr, code []byte, syms string) *Graph {
	t.Helper()
	return graphOf(t, "arm64", base, code, syms)
}

func graphOf(t *testing.T, arch string, base isa.Addr, code []byte, syms string) *Graph {
	t.Helper()
	a, err := all.Lookup(arch)
	if err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf("%x T _stext\n%x T _etext\n", uint64(base), uint64(base)+uint64(len(code)))
	for _, s := range strings.Split(syms, ", ") {
		var off uint64
		var name string
		if _, err := fmt.Sscanf(s, "%x %s", &off, &name); err != nil {
			t.Fatal(err)
		}
		text += fmt.Sprintf("%x t %s\n", uint64(base)+off, name)
	}
	x, err := ktext.New(a, strings.NewReader(text), func(at isa.Addr, b []byte) error {
		if at < base || at+isa.Addr(len(b)) > base+isa.Addr(len(code)) {
			return fmt.Errorf("nothing there")
		}
		copy(b, code[at-base:])
		return nil
	}, ktext.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return build(t, x)
}
