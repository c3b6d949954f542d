package inline_test

import (
	"bytes"
	"debug/elf"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"kerninst/agent/inline"
	"kerninst/agent/isa"
	"kerninst/agent/isa/all"
)

// moduleFile is a module of fixture.c and module.c.
func moduleFile(t testing.TB, arch string) (*isa.Arch, []byte) {
	t.Helper()
	a, err := all.Lookup(arch)
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile("testdata/" + arch + ".ko")
	if err != nil {
		t.Fatal(err)
	}
	return a, b
}

func madeModule(t testing.TB, arch string) *inline.Module {
	t.Helper()
	a, b := moduleFile(t, arch)
	m, err := inline.MakeModule(bytes.NewReader(b), a, inline.Options{Workers: 2})
	if err != nil {
		t.Fatal(err)
	}
	file, err := m.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	back, err := inline.OpenModule(file)
	if err != nil {
		t.Fatal(err)
	}
	again, err := back.Bytes()
	if err != nil || !bytes.Equal(file, again) || !inline.IsModule(file) {
		t.Fatalf("what was read is written otherwise (%v)", err)
	}
	return back
}

// TestModule: sections of a module lie one behind the other, without what runs when it comes or goes, and each knows
// the functions that it is found by.
func TestModule(t *testing.T) {
	for arch, cold := range map[string]bool{"amd64": true, "arm64": false, "riscv64": false} { // where gcc puts what seldom runs
		m := madeModule(t, arch)
		var got []string
		last := isa.Off(0)
		for _, s := range m.Sections {
			var names []string
			for _, l := range s.Labels {
				names = append(names, l.Name)
				if !s.Holds(l.Off) {
					t.Errorf("%s: %s is at %#x, not in %s, %v", arch, l.Name, uint64(l.Off), s.Name, s.Range)
				}
			}
			if s.Lo < last || s.Hi <= s.Lo || s.Lo%2 != 0 && s.Name == ".text.module" { // which wants more than any instruction does
				t.Errorf("%s: %s is at %v, and the one in front ends at %#x", arch, s.Name, s.Range, uint64(last))
			}
			last = s.Hi
			slices.Sort(names)
			got = append(got, s.Name+": "+strings.Join(names, " "))
		}
		want := []string{".text: both first second", ".text.module: third"}
		if cold {
			want = []string{".text: both first second", ".text.unlikely: second.cold", ".text.module: third"}
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %q, not %q", arch, got, want)
		}
		if s := m.Index.Stats; m.Name != "fix_ture" || m.Index.Arch != arch || m.Index.Text != last || len(m.Index.BuildID) != 20 || s.Units != 2 || s.Outside != 2 || s.Bodies != 6 {
			t.Errorf("%s: %s, %s, %d bytes, build ID %x, %+v", arch, m.Name, m.Index.Arch, m.Index.Text, m.Index.BuildID, s)
		}
		found, err := m.Index.Find("third")
		if err != nil || len(found) != 1 || found[0].Body.Ranges[0].Lo != m.Sections[len(m.Sections)-1].Labels[0].Off {
			t.Errorf("%s: third: %v, %v", arch, found, err)
		}
	}
}

// TestModuleAsLinked: what relocations make of a module is what the linker has made of the same code. (On riscv64 it has
// made code of another size.)
func TestModuleAsLinked(t *testing.T) {
	for _, arch := range []string{"amd64", "arm64"} {
		linked, m := opened(t, made(t, arch)), madeModule(t, arch)
		n := 0
		for o := isa.Off(0); o < linked.Text; o++ {
			a, err := linked.At(o)
			b, err2 := m.Index.At(o)
			if err != nil || err2 != nil {
				t.Fatal(err, err2)
			}
			if a.Body == nil {
				continue
			}
			n++
			if b.Body == nil || a.Body.Func != b.Body.Func || a.Copy != b.Copy || !reflect.DeepEqual(a.Ranges(), b.Ranges()) || linked.LineAt(o) != m.Index.LineAt(o) {
				t.Errorf("%s: +%#x: %+v of %+v in the module, %+v of %+v linked", arch, uint64(o), b, m.Index.LineAt(o), a, linked.LineAt(o))
				continue
			}
			if a.Copy < 0 {
				continue
			}
			c, d := a.Body.Copy(a.Copy), b.Body.Copy(b.Copy)
			if c.Entry != d.Entry || !reflect.DeepEqual(c.Args(), d.Args()) {
				t.Errorf("%s: +%#x: %s is entered at %#x with %+v, not at %#x with %+v", arch, uint64(o), c.Func.Name, uint64(d.Entry), d.Args(), uint64(c.Entry), c.Args())
			}
		}
		if n < 100 {
			t.Errorf("%s: %d bytes were compared", arch, n)
		}
	}
}

// TestModuleCopies: each copy is in whom it is and where it is called, on riscv64, too, whose lines and sizes are differences
// of labels.
func TestModuleCopies(t *testing.T) {
	for _, arch := range arches {
		x := madeModule(t, arch).Index
		for _, name := range []string{"twice", "nested", "both", "second"} {
			want, err := made(t, arch).Find(name)
			got, err2 := x.Find(name)
			if err != nil || err2 != nil || !reflect.DeepEqual(shown(got), shown(want)) {
				t.Errorf("%s: %s: %q, not %q (%v, %v)", arch, name, shown(got), shown(want), err, err2)
			}
		}
		found, err := x.Find("thrice")
		if err != nil || len(found) != 1 || found[0].Copy < 0 {
			t.Fatal(arch, found, err)
		}
		b, err := os.ReadFile("testdata/module.c")
		if err != nil {
			t.Fatal(err)
		}
		line := func(mark string) int { return 1 + strings.Count(string(b[:bytes.Index(b, []byte(mark))]), "\n") }
		c := found[0].Body.Copy(found[0].Copy)
		call := fmt.Sprintf("%s:%d of %s", c.File, c.Line, found[0].Body.Func.Name)
		if want := fmt.Sprintf("module.c:%d of third", line("/* third */")); call != want {
			t.Errorf("%s: thrice is called in %s, not %s", arch, call, want)
		}
		if !slices.ContainsFunc(found[0].Ranges(), func(r inline.Range) bool { return x.LineAt(r.Lo).Line == line("/* thrice */") }) {
			t.Errorf("%s: nothing of thrice, at %v, begins with its line", arch, found[0].Ranges())
		}
		if args := c.Args(); len(args) != 1 || len(args[0].Where) == 0 || args[0].Where[0].Kind != inline.Register {
			t.Errorf("%s: arguments of thrice: %+v", arch, args)
		}
		for _, f := range []string{"first", "second", "both"} {
			found, _ := x.Find(f)
			for _, s := range madeModule(t, arch).Sections {
				for _, l := range s.Labels {
					if l.Name == f && found[0].Body.Ranges[0].Lo != l.Off {
						t.Errorf("%s: %s begins at %#x, and its symbol is %#x", arch, f, uint64(found[0].Body.Ranges[0].Lo), uint64(l.Off))
					}
				}
			}
		}
	}
}

// TestModuleOnly: a digest has what it is found by, and the functions that were asked for.
func TestModuleOnly(t *testing.T) {
	m := madeModule(t, "riscv64")
	only, err := m.Only("third")
	if err != nil || only.Name != m.Name || !reflect.DeepEqual(only.Sections, m.Sections) || !reflect.DeepEqual(only.Index.Names("", 9), []string{"third", "thrice"}) {
		t.Errorf("%+v, %v", only, err)
	}
}

// TestNoModule: what MakeModule cannot use it says, and so does OpenModule.
func TestNoModule(t *testing.T) {
	a, own := moduleFile(t, "riscv64")
	_, other := moduleFile(t, "amd64")
	vmlinux, err := os.ReadFile("testdata/riscv64.elf")
	if err != nil {
		t.Fatal(err)
	}
	f, err := elf.NewFile(bytes.NewReader(own))
	if err != nil {
		t.Fatal(err)
	}
	kinds, rela := bytes.Clone(own), f.Section(".rela.debug_line")
	for at := rela.Offset + 8; at < rela.Offset+rela.Size; at += 24 {
		if kinds[at] == byte(elf.R_RISCV_ADD16) {
			kinds[at] = 99
		}
	}
	for want, file := range map[string][]byte{
		"no ELF file": []byte("#!/bin/sh\n"), "not of riscv64": other, "ELF type is ET_EXEC": vmlinux, "a relocation of kind 99": kinds,
		"no debugging information": bytes.ReplaceAll(own, []byte(".debug_loclists"), []byte(".other_loclists")),
		"no .modinfo":              bytes.ReplaceAll(own, []byte(".modinfo"), []byte(".modinfx")),
		"says no name":             bytes.ReplaceAll(own, []byte("name=fix"), []byte("nome=fix")),
		"no code that stays":       bytes.ReplaceAll(own, []byte(".text"), []byte(".exit")),
	} {
		if _, err := inline.MakeModule(bytes.NewReader(file), a, inline.Options{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", want, err)
		}
	}
	x, err := made(t, "amd64").Bytes()
	if err != nil {
		t.Fatal(err)
	}
	b, err := madeModule(t, "amd64").Bytes()
	if err != nil {
		t.Fatal(err)
	}
	newer := bytes.Clone(b)
	newer[7]++
	for want, file := range map[string][]byte{"no index of a module's": x, "damaged": b[:len(b)-1], "this is version": newer} {
		if _, err := inline.OpenModule(file); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", want, err)
		}
	}
	if _, err := inline.Open(b); err == nil || inline.IsModule(x) {
		t.Errorf("a module's taken for a kernel's: %v", err)
	}
}
