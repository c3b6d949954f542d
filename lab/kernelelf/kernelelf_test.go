package kernelelf

import (
	"bytes"
	"debug/elf"
	"errors"
	"testing"

	"kerninst/agent/isa"
	"kerninst/agent/ktext"
)

const kallsyms = "0000000000001000 A offset_into_per_cpu\n" +
	"ffffffff80000000 T _text\nffffffff80000100 T f\nffffffff80000100 t alias\nffffffff80001000 D data\n" +
	"ffffffff80001800 T _sinittext\nffffffff80001810 t boots\nffffffff80001900 T _einittext\nffffffff80002000 B _end\n" +
	"ffffffffc0000010 t inside\t[mod]\n"

func dump(arch string) *ktext.Dump {
	return &ktext.Dump{Arch: arch, Parts: []ktext.Part{
		{Name: "kallsyms", Size: len(kallsyms), Data: []byte(kallsyms)},
		{Name: "text", Addr: 0xffffffff80000000, Size: 4, Data: []byte{1, 2, 3, 4}},
		{Name: "rodata", Addr: 0xffffffff80001000, Size: 2, Data: []byte{5, 6}},
		{Name: "module mod .text", Addr: 0xffffffffc0000000, Size: 2, Data: []byte{7, 8}},
	}}
}

// written makes the file and has it read by debug/elf.
func written(t *testing.T, d *ktext.Dump, slide uint64, live func(uint64, int) ([]byte, error), own ...*ktext.Functions) *elf.File {
	t.Helper()
	im, err := FromDump(d, slide, own, live)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := im.Write(&b); err != nil {
		t.Fatal(err)
	}
	f, err := elf.NewFile(bytes.NewReader(b.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func addresses(t *testing.T, f *elf.File) map[string]uint64 {
	t.Helper()
	all, err := f.Symbols()
	if err != nil {
		t.Fatal(err)
	}
	at := map[string]uint64{}
	for _, s := range all {
		at[s.Name] = s.Value
	}
	return at
}

func TestSameBoot(t *testing.T) {
	for arch, machine := range map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64, "riscv64": elf.EM_RISCV} {
		f := written(t, dump(arch), 0, nil)
		if f.Machine != machine || f.Type != elf.ET_EXEC {
			t.Errorf("%s: machine %v, type %v", arch, f.Machine, f.Type)
		}
		at := addresses(t, f)
		for name, want := range map[string]uint64{"offset_into_per_cpu": 0x1000, "f": 0xffffffff80000100, "alias": 0xffffffff80000100, "inside": 0xffffffffc0000010} {
			if at[name] != want {
				t.Errorf("%s: %s at %#x, want %#x", arch, name, at[name], want)
			}
		}
		if s := f.Section(".init.text"); s == nil || s.Type != elf.SHT_NOBITS || s.Addr != 0xffffffff80001800 || s.Size != 0x100 {
			t.Errorf("%s: the text of boot: %+v", arch, s)
		}
		s := f.Section(".module.mod..text")
		if s == nil || s.Addr != 0xffffffffc0000000 || s.Flags&elf.SHF_EXECINSTR == 0 {
			t.Fatalf("%s: the module's text: %+v", arch, s)
		}
		if b, err := s.Data(); err != nil || !bytes.Equal(b, []byte{7, 8}) {
			t.Errorf("%s: its bytes: %v, %v", arch, b, err)
		}
	}
}

// In another boot the kernel has moved, and modules are somewhere else.
func TestOtherBoot(t *testing.T) {
	const slide = 0x200000
	f := written(t, dump("riscv64"), slide, func(addr uint64, n int) ([]byte, error) {
		if addr == 0xffffffff80000000+slide {
			return []byte{9, 9, 9, 9}, nil
		}
		return nil, errors.New("not mapped")
	})
	at := addresses(t, f)
	if at["f"] != 0xffffffff80000100+slide || at["offset_into_per_cpu"] != 0x1000 {
		t.Errorf("symbols %#x", at)
	}
	if _, ok := at["inside"]; ok || f.Section(".module.mod..text") != nil {
		t.Error("a module where it was in another boot")
	}
	for name, want := range map[string][]byte{".text": {9, 9, 9, 9}, ".rodata": {5, 6}} {
		if b, err := f.Section(name).Data(); err != nil || !bytes.Equal(b, want) {
			t.Errorf("%s: %v, %v, want %v", name, b, err, want)
		}
	}
}

func TestRefusals(t *testing.T) {
	im := &Image{Arch: "sparc"}
	if err := im.Write(&bytes.Buffer{}); err == nil {
		t.Error("an unknown machine was written")
	}
	for _, bad := range []string{"", "0000000000001000 T f\n", "x T _text\n0000000000001000 T _end\n",
		"ffffffff80000000 T _text\nffffffff80000000 T _end\nrubbish\n"} {
		d := &ktext.Dump{Arch: "amd64", Parts: []ktext.Part{{Name: "kallsyms", Data: []byte(bad)}}}
		if _, err := FromDump(d, 0, nil, nil); err == nil {
			t.Errorf("%q was taken for the symbols of a kernel", bad)
		}
	}
}

// Modules of the guest itself come in place of the dump's.
func TestOwnModules(t *testing.T) {
	own := []*ktext.Functions{{Module: "null_blk", Lo: 0xffffffffc1000000, Hi: 0xffffffffc1001000, At: []isa.Addr{0xffffffffc1000040}, Names: []string{"null_queue_rq"}}}
	for name, live := range map[string]func(uint64, int) ([]byte, error){
		"live":       func(a uint64, n int) ([]byte, error) { return bytes.Repeat([]byte{9}, n), nil },
		"unreadable": func(uint64, int) ([]byte, error) { return nil, errors.New("not mapped") },
	} {
		f := written(t, dump("arm64"), 0, live, own...)
		at := addresses(t, f)
		if _, dumped := at["inside"]; dumped || at["null_queue_rq"] != 0xffffffffc1000040 || f.Section(".module.mod..text") != nil {
			t.Errorf("%s: symbols %v", name, at)
		}
		s := f.Section(".module.null_blk")
		if s == nil || s.Addr != 0xffffffffc1000000 || s.Size != 0x1000 || (s.Type == elf.SHT_PROGBITS) != (name == "live") {
			t.Errorf("%s: section %+v", name, s)
		}
	}
}
