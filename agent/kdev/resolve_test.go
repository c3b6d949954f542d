package kdev

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"strings"
	"testing"
)

// object makes a relocatable file with the given undefined symbols and the
// given names in the section of internals: the least that the loader reads.
func object(t *testing.T, undefined, internals []string) []byte {
	t.Helper()
	strtab, shstr := []byte{0}, []byte("\x00.symtab\x00.strtab\x00.shstrtab\x00"+internalsSection+"\x00")
	syms := make([]byte, symSize) // the null entry
	for _, n := range undefined {
		e := make([]byte, symSize)
		binary.LittleEndian.PutUint32(e, uint32(len(strtab)))
		e[4] = byte(elf.STB_GLOBAL) << 4
		syms = append(syms, e...)
		strtab = append(append(strtab, n...), 0)
	}
	list := []byte(strings.Join(internals, "\x00") + "\x00\x00")
	type section struct {
		name, kind, link, info uint32
		data                   []byte
		entsize                uint64
	}
	secs := []section{
		{},
		{name: 1, kind: uint32(elf.SHT_SYMTAB), link: 2, info: 1, data: syms, entsize: symSize},
		{name: 9, kind: uint32(elf.SHT_STRTAB), data: strtab},
		{name: 17, kind: uint32(elf.SHT_STRTAB), data: shstr},
		{name: 27, kind: uint32(elf.SHT_PROGBITS), data: list},
	}
	var body bytes.Buffer
	heads := make([]elf.Section64, len(secs))
	const ehsize = 64
	for i, s := range secs {
		heads[i] = elf.Section64{Name: s.name, Type: s.kind, Off: uint64(ehsize + body.Len()),
			Size: uint64(len(s.data)), Link: s.link, Info: s.info, Entsize: s.entsize}
		body.Write(s.data)
	}
	var out bytes.Buffer
	head := elf.Header64{
		Ident: [16]byte{0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)},
		Type:  uint16(elf.ET_REL), Machine: uint16(elf.EM_RISCV), Version: uint32(elf.EV_CURRENT),
		Shoff: uint64(ehsize + body.Len()), Ehsize: ehsize, Shentsize: 64, Shnum: uint16(len(secs)), Shstrndx: 3,
	}
	for _, v := range []any{head, body.Bytes(), heads} {
		if err := binary.Write(&out, binary.LittleEndian, v); err != nil {
			t.Fatal(err)
		}
	}
	return out.Bytes()
}

func symbol(t *testing.T, ko []byte, name string) elf.Symbol {
	t.Helper()
	f, err := elf.NewFile(bytes.NewReader(ko))
	if err != nil {
		t.Fatal(err)
	}
	all, err := f.Symbols()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range all {
		if s.Name == name {
			return s
		}
	}
	t.Fatalf("no symbol %s", name)
	return elf.Symbol{}
}

func TestResolveSetsInternalsOnly(t *testing.T) {
	ko := object(t, []string{"printk", "text_mutex", "get_kprobe"}, []string{"get_kprobe", "text_mutex"})
	before := bytes.Clone(ko)
	out, err := ResolveModule(ko, Symbols{"text_mutex": 0xffffffff81234568, "get_kprobe": 0xffffffff81000010, "printk": 1}.Find)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(ko, before) {
		t.Error("the input was changed")
	}
	for name, want := range map[string]uint64{"text_mutex": 0xffffffff81234568, "get_kprobe": 0xffffffff81000010} {
		if s := symbol(t, out, name); s.Section != elf.SHN_ABS || s.Value != want {
			t.Errorf("%s: section %v, value %#x", name, s.Section, s.Value)
		}
	}
	if s := symbol(t, out, "printk"); s.Section != elf.SHN_UNDEF || s.Value != 0 {
		t.Errorf("an exported symbol was resolved: %v %#x", s.Section, s.Value)
	}
}

func TestResolveRefuses(t *testing.T) {
	for _, c := range []struct {
		name      string
		ko        []byte
		syms      Symbols
		wantInErr string
	}{
		{"missing in the kernel", object(t, []string{"text_mutex"}, []string{"text_mutex"}), nil, "text_mutex"},
		{"missing in the module", object(t, []string{"a"}, []string{"get_kprobe"}), Symbols{"get_kprobe": 1}, "get_kprobe"},
		{"not an object", []byte("#!/bin/sh"), nil, "module"},
		{"cut short", object(t, []string{"a"}, []string{"a"})[:100], Symbols{"a": 1}, "module"},
	} {
		if out, err := ResolveModule(c.ko, c.syms.Find); err == nil || !strings.Contains(err.Error(), c.wantInErr) || out != nil {
			t.Errorf("%s: got %d bytes, error %v; want one with %q", c.name, len(out), err, c.wantInErr)
		}
	}
}

func TestReadKallsyms(t *testing.T) {
	const table = `ffffffff81000000 T _text
ffffffff81000000 T _stext
ffffffff81000040 t twice
ffffffff81000080 t twice
ffffffff810000c0 t alias
ffffffff810000c0 t alias
ffffffffc0000000 t text_mutex	[other]
ffffffff82000000 D text_mutex
0000000000000000 D hidden
`
	for _, c := range []struct {
		names   []string
		want    Symbols
		wantErr string
	}{
		{[]string{"_text", "text_mutex"}, Symbols{"_text": 0xffffffff81000000, "text_mutex": 0xffffffff82000000}, ""},
		{[]string{"alias"}, Symbols{"alias": 0xffffffff810000c0}, ""},
		{[]string{"absent"}, Symbols{}, ""},
		{[]string{"twice"}, nil, "twice"},
		{[]string{"hidden"}, nil, "kptr_restrict"},
	} {
		got, err := ReadKallsyms(strings.NewReader(table), c.names)
		if c.wantErr != "" {
			if err == nil || !strings.Contains(err.Error(), c.wantErr) {
				t.Errorf("%v: error %v, want one with %q", c.names, err, c.wantErr)
			}
			continue
		}
		if err != nil || len(got) != len(c.want) {
			t.Errorf("%v: got %v, %v; want %v", c.names, got, err, c.want)
		}
		for n, a := range c.want {
			if got[n] != a {
				t.Errorf("%s: got %#x, want %#x", n, got[n], a)
			}
		}
	}
}

// FuzzResolve: whatever the file, a result or an error and never both.
func FuzzResolve(f *testing.F) {
	f.Add([]byte("\x7fELF"))
	f.Fuzz(func(t *testing.T, ko []byte) {
		out, err := ResolveModule(ko, func(string) (uint64, bool) { return 1, true })
		if (err == nil) != (out != nil) {
			t.Errorf("%d bytes and error %v", len(out), err)
		}
	})
}
