package inlined

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"kerninst/agent/inline"
	"kerninst/agent/isa"
	"kerninst/agent/ktext"
	"kerninst/agent/ktext/ktexttest"
)

// loaded is a kernel of an ISA that has loaded the module of agent/inline's tests: its sections lie apart, the last of the
// file first.
func loaded(t *testing.T, arch string) (*ktext.Text, *inline.Module, map[string]isa.Addr) {
	t.Helper()
	k := ktexttest.Load(t, arch)
	file, err := os.ReadFile("../inline/testdata/" + arch + ".ko")
	if err != nil {
		t.Fatal(err)
	}
	m, err := inline.MakeModule(bytes.NewReader(file), k.Arch, inline.Options{})
	if err != nil {
		t.Fatal(err)
	}
	f, err := elf.NewFile(bytes.NewReader(file))
	if err != nil {
		t.Fatal(err)
	}
	lo, _ := k.Text(t).Bounds()
	at := map[string]isa.Addr{}
	for n, s := range m.Sections {
		at[s.Name] = lo - isa.Addr(n+1)*0x10000
		code, err := f.Section(s.Name).Data()
		if err != nil {
			t.Fatal(err)
		}
		k.Write(at[s.Name], code)
	}
	symbols, err := f.Symbols()
	if err != nil {
		t.Fatal(err)
	}
	for _, y := range symbols {
		if elf.ST_TYPE(y.Info) != elf.STT_FUNC {
			continue
		}
		base, ok := at[f.Sections[y.Section].Name]
		if !ok {
			continue
		}
		k.Kallsyms += fmt.Sprintf("%x t %s\t[%s]\n", uint64(base)+y.Value, y.Name, m.Name)
	}
	return k.Text(t), m, at
}

// TestModule: what is meant of a module lies where the kernel has put each of its sections, and is told of its lines.
func TestModule(t *testing.T) {
	for _, arch := range ktexttest.Arches {
		text, m, at := loaded(t, arch)
		all, err := Join(text, nil, m)
		if err != nil {
			t.Fatal(arch, err)
		}
		c := all.of[0]
		for _, s := range m.Sections {
			for _, o := range []isa.Off{s.Lo, s.Hi - 1} {
				a, ok := c.Addr(o)
				back, known := c.Off(a)
				if want := at[s.Name] + isa.Addr(o-s.Lo); !ok || a != want || !known || back != o {
					t.Errorf("%s: %s: +%#x is at %v, not %v, and that is +%#x", arch, s.Name, uint64(o), a, want, uint64(back))
				}
			}
			if _, ok := c.Off(at[s.Name] + isa.Addr(s.Hi-s.Lo)); ok {
				t.Errorf("%s: what is behind %s is in it", arch, s.Name)
			}
		}
		for spec, want := range map[string]string{
			"kinst:fix_ture:thrice:entry": "kinst:fix_ture:third:", "kinst:fix_ture:both:entry count": "kinst:fix_ture:both:entry count",
			"kinst:module.c:12": "kinst:fix_ture:third:", "kinst:fix_ture:nested:entry": "kinst:fix_ture:first:",
			"kinst:fix_ture:third:4": "kinst:fix_ture:third:4", "kinst:other:thrice:entry": "kinst:other:thrice:entry", "kinst:fix_ture:none:entry": "kinst:fix_ture:none:entry",
		} {
			specs, untold, err := all.Specs(spec)
			if err != nil || len(untold) > 0 || !slices.ContainsFunc(specs, func(s string) bool { return strings.HasPrefix(s, want) }) {
				t.Errorf("%s: %s: %q, %q, %v, want %s", arch, spec, specs, untold, err, want)
			}
		}
		found, err := m.Index.Find("thrice")
		if err != nil || len(found) != 1 {
			t.Fatal(arch, found, err)
		}
		a, _ := c.Addr(found[0].Ranges()[0].Lo)
		f, _ := text.Locate(a)
		place := fmt.Sprintf("third+%#x", uint64(a-f.Addr))
		if got := all.Source("fix_ture:"+place, false); !strings.HasPrefix(got, "module.c:") || !strings.HasSuffix(got, " thrice") {
			t.Errorf("%s: %s is %q", arch, place, got)
		}
		if got, want := SourceIn(m, place, false), all.Source("fix_ture:"+place, false); got != want {
			t.Errorf("%s: %s where it is not loaded is %q, not %q", arch, place, got, want)
		}
		returns := fmt.Sprintf("third+%#x", uint64(a-f.Addr)+1)
		if got := SourceIn(m, returns, true); !strings.HasSuffix(got, " thrice") {
			t.Errorf("%s: the call that returns to %s is %q", arch, returns, got)
		}
		for _, none := range []string{"third", "third+", "third+0x", "nobody+0x1", "third+0xffffffffff", fmt.Sprintf("third+%#x", uint64(f.Size)+0x400)} {
			if got := SourceIn(m, none, false); got != "" {
				t.Errorf("%s: %s is %q", arch, none, got)
			}
		}
		for _, other := range []string{place, "other:" + place, "fix_ture:" + strings.Replace(place, "third", "vfs_read", 1)} {
			if got := all.Source(other, false); got != "" {
				t.Errorf("%s: %s is %q", arch, other, got)
			}
		}
		_, untold, err := all.Specs("kinst:fix_ture:thrice:return")
		if specs, _, _ := all.Specs("kinst:fix_ture:thrice:return"); err != nil || len(specs)+len(untold) == 0 || !strings.Contains(specs[0]+" ", "kinst:fix_ture:") {
			t.Errorf("%s: ways out of thrice: %q, %q, %v", arch, specs, untold, err)
		}
	}
}

// TestWrongModule: what is of another build, or not loaded, is not believed, and who asks is told what to do.
func TestWrongModule(t *testing.T) {
	text, m, _ := loaded(t, "amd64")
	elsewhere := *m
	elsewhere.Sections = slices.Clone(m.Sections)
	first := &elsewhere.Sections[0]
	first.Labels = slices.Clone(first.Labels)
	first.Labels[0].Off++
	shifted := *m
	shifted.Sections = slices.Clone(m.Sections)
	for k := range shifted.Sections { // all labels agree, and no function begins where the index has one
		s := &shifted.Sections[k]
		s.Labels = slices.Clone(s.Labels)
		for n := range s.Labels {
			s.Labels[n].Off += 0x20
		}
	}
	unknown := *m
	unknown.Sections = slices.Clone(m.Sections)
	for k := range unknown.Sections {
		unknown.Sections[k].Labels = nil
	}
	for name, wrong := range map[string]*inline.Module{"one function": &elsewhere, "all of them": &shifted, "none known": &unknown} {
		_, err := Join(text, nil, wrong)
		var other *OtherBuildError
		if !errors.As(err, &other) || other.Module != m.Name || !strings.Contains(err.Error(), "module fix_ture is of another build") {
			t.Errorf("%s elsewhere: %v", name, err)
		}
	}
	none, err := Join(ktexttest.Load(t, "amd64").Text(t), nil, m)
	if err != nil {
		t.Fatal(err)
	}
	for spec, want := range map[string]string{
		"kinst:fix_ture:thrice:entry": "--modprobe fix_ture", "kinst:module.c:12": "fix_ture: not loaded", "kinst::vfs_read:entry": "nothing is known of the kernel's own copies",
	} {
		if _, _, err := none.Specs(spec); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", spec, err, want)
		}
	}
}

// TestPart: what was made for some functions answers for no others, nor for lines, of which it would have some.
func TestPart(t *testing.T) {
	text, m, _ := loaded(t, "riscv64")
	part, err := m.Only("thrice")
	if err != nil {
		t.Fatal(err)
	}
	some, err := Join(text, nil, part)
	if err != nil {
		t.Fatal(err)
	}
	whole, err := Join(text, nil, m)
	if err != nil {
		t.Fatal(err)
	}
	const asked = "kinst:fix_ture:thrice:entry"
	want, _, err := whole.Specs(asked)
	if got, untold, failed := some.Specs(asked); err != nil || failed != nil || len(untold) > 0 || len(want) == 0 || !slices.Equal(got, want) {
		t.Errorf("%q, %q, %v, want %q, %v", got, untold, failed, want, err)
	}
	for _, itself := range []string{"kinst:fix_ture:th*:entry", "kinst:fix_ture:third#1:entry", "kinst:fix_ture:third:4"} {
		if specs, untold, err := some.Specs(itself); err != nil || len(untold) > 0 || len(specs) != 1 || specs[0] != itself {
			t.Errorf("%s: %q, %q, %v", itself, specs, untold, err)
		}
	}
	for spec, why := range map[string]string{
		"kinst:fix_ture:third:entry": "third:entry: what is known was made for thrice, not for third", "kinst:fix_ture:none:return": "not for none",
		"kinst:module.c:12": "module.c:12, in module fix_ture: what is known was made for thrice, not for lines",
	} {
		if specs, untold, err := some.Specs(spec); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%s: %q, %q, %v, want %s", spec, specs, untold, err, why)
		}
	}
	both, err := Join(text, nil, m, part) // as of a kernel and of a module of it
	if err != nil {
		t.Fatal(err)
	}
	want, _, _ = whole.Specs("kinst:module.c:12")
	if specs, untold, err := both.Specs("kinst:module.c:12"); err != nil || !slices.Equal(specs, want) || len(untold) > 0 { // which is compiled there alone
		t.Errorf("%q, %q, %v, want %q", specs, untold, err, want)
	}
	if _, _, err := both.Specs("kinst:module.c:1"); err == nil || !strings.Contains(err.Error(), "the next that has some is") {
		t.Errorf("a line without code, of a file that is known: %v", err)
	}
	none, err := Join(ktexttest.Load(t, "riscv64").Text(t), nil, m)
	if err != nil {
		t.Fatal(err)
	}
	none.of = both.of[1:]
	if _, _, err := none.Specs("kinst:other.h:1"); err == nil || !strings.Contains(err.Error(), "not for lines") || !strings.Contains(err.Error(), "; module fix_ture is not loaded") {
		t.Errorf("a line that may be in what is not loaded: %v", err)
	}
}

// TestNoArgument: an argument that no copy of a function has is said once, with those that there are.
func TestNoArgument(t *testing.T) {
	text, m, _ := loaded(t, "arm64")
	all, err := Join(text, nil, m)
	if err != nil {
		t.Fatal(err)
	}
	for spec, want := range map[string]string{
		`kinst:fix_ture:thrice:entry sum(arg("vv"))`: `thrice:entry: thrice has no argument vv: it has v; did you mean v?`,
		`kinst:module.c:`:    `"" is no line's number`,
		`kinst:module.c:-1`:  `"-1" is no line's number`,
		`kinst:module.c:0`:   `"0" is no line's number`,
		`kinst:module.c:1`:   `the next that has some is`,
		`kinst:module.c:3e3`: `"3e3" is no line's number`,
	} {
		if specs, untold, err := all.Specs(spec); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %q, %q, %v, want %s", spec, specs, untold, err, want)
		}
	}
}

// TestPartOfModule: a section of which no function tells where it is goes without, and that is said.
func TestPartOfModule(t *testing.T) {
	text, m, _ := loaded(t, "arm64")
	part := *m
	part.Sections = slices.Clone(m.Sections)
	part.Sections[len(part.Sections)-1].Labels = nil
	all, err := Join(text, nil, &part)
	if err != nil {
		t.Fatal(err)
	}
	if specs, untold, err := all.Specs("kinst:fix_ture:thrice:entry"); err != nil || len(specs) != 0 || len(untold) != 1 || !strings.Contains(untold[0], "1 more are in sections of fix_ture") {
		t.Errorf("%q, %q, %v", specs, untold, err)
	}
	if _, untold, err := all.Specs("kinst:module.c:12"); err != nil || len(untold) == 0 {
		t.Errorf("%q, %v", untold, err)
	}
	if specs, untold, err := all.Specs("kinst:fix_ture:nested:entry"); err != nil || len(specs) != 1 || len(untold) != 0 {
		t.Errorf("%q, %q, %v", specs, untold, err)
	}
}
