package inline_test

import (
	"bytes"
	"debug/elf"
	"errors"
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

var arches = []string{"amd64", "arm64", "riscv64"}

func made(t testing.TB, arch string) *inline.Index {
	t.Helper()
	a, err := all.Lookup(arch)
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Open("testdata/" + arch + ".elf")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	x, err := inline.Make(f, a, inline.Options{Workers: 2})
	if err != nil {
		t.Fatal(err)
	}
	return x
}

func opened(t testing.TB, x *inline.Index) *inline.Index {
	t.Helper()
	b, err := x.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	y, err := inline.Open(b)
	if err != nil {
		t.Fatal(err)
	}
	again, err := y.Bytes()
	if err != nil || !bytes.Equal(b, again) {
		t.Fatalf("what was read is written otherwise (%v)", err)
	}
	return y
}

// lineOf is the line of fixture.c that ends in a comment.
func lineOf(t testing.TB, comment string) int {
	t.Helper()
	b, err := os.ReadFile("testdata/fixture.c")
	if err != nil {
		t.Fatal(err)
	}
	for n, line := range strings.Split(string(b), "\n") {
		if strings.HasSuffix(line, "/* "+comment+" */") {
			return n + 1
		}
	}
	t.Fatalf("no line is %q", comment)
	return 0
}

// shown is what was found, in words.
func shown(list []inline.Found) (out []string) {
	for _, f := range list {
		s := "body"
		if f.Copy >= 0 {
			c := f.Body.Copy(f.Copy)
			in := f.Body.Func.Name
			if c.In >= 0 {
				in = f.Body.Copy(c.In).Func.Name + " in " + in
			}
			s = fmt.Sprintf("in %s at %s:%d", in, c.File, c.Line)
		}
		out = append(out, s)
	}
	return out
}

// TestCopies: each copy is found, in whom it is and where it is called; what runs at boot is not.
func TestCopies(t *testing.T) {
	for _, arch := range arches {
		x := opened(t, made(t, arch))
		at := func(in, comment string) string { return fmt.Sprintf("in %s at fixture.c:%d", in, lineOf(t, comment)) }
		for name, want := range map[string][]string{
			"twice":  {at("nested in first", "nested: a"), at("nested in first", "nested: b"), at("second", "second: between calls"), at("second", "second: seldom")},
			"nested": {at("first", "first")},
			"both":   {"body", at("second", "second")},
			"second": {"body"},
			"none":   nil,
		} {
			found, err := x.Find(name)
			if got := shown(found); err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("%s: %s: %q, not %q (%v)", arch, name, got, want, err)
			}
		}
		if s := x.Stats; x.Arch != arch || s.Units != 1 || s.Outside != 1 || s.Bodies != 4 || s.Copies != 6 || s.Args != 7 || s.Empty != 1 || len(x.BuildID) != 20 {
			t.Errorf("%s: %s, %+v, build ID %x", arch, x.Arch, s, x.BuildID)
		}
		if f := x.Lookup("twice"); len(f) != 1 || f[0].File != "fixture.c" || f[0].Line != lineOf(t, "twice")-2 {
			t.Errorf("%s: twice is %+v", arch, f)
		}
		if got := x.Names("", 9); !reflect.DeepEqual(got, []string{"both", "callee", "first", "nested", "second", "twice"}) {
			t.Errorf("%s: names are %q", arch, got)
		}
	}
}

// TestPlaces: where copies and their arguments are, by a listing of amd64's file.
func TestPlaces(t *testing.T) {
	x := opened(t, made(t, "amd64"))
	const rax, rdi = 0, 7
	r := func(lo, hi isa.Off) []inline.Range { return []inline.Range{{Lo: lo, Hi: hi}} }
	in := func(lo, hi isa.Off, p inline.Place) []inline.Place { p.Lo, p.Hi = lo, hi; return []inline.Place{p} }
	for name, want := range map[string][]struct {
		entry  isa.Off
		ranges []inline.Range
		args   []inline.Arg
	}{
		"nested": {{0x30, r(0x30, 0x64), []inline.Arg{
			{Name: "a", Where: in(0x30, 0x64, inline.Place{Kind: inline.Register, Reg: rdi})},
			{Name: "b", Where: in(0x30, 0x64, inline.Place{Kind: inline.Constant, Off: 7})}}}},
		"both": {
			{0, r(0, 0xf), nil},
			{0x70, r(0x70, 0x7e), []inline.Arg{{Name: "p", Where: in(0x70, 0x7e, inline.Place{Kind: inline.Register, Reg: rdi})}}}},
	} {
		found, err := x.Find(name)
		if err != nil || len(found) != len(want) {
			t.Fatalf("%s: %v, %v", name, found, err)
		}
		for k, w := range want {
			f := found[k]
			if !reflect.DeepEqual(f.Ranges(), w.ranges) {
				t.Errorf("%s: %x, not %x", name, f.Ranges(), w.ranges)
			}
			if f.Copy < 0 {
				continue
			}
			if c := f.Body.Copy(f.Copy); c.Entry != w.entry || !reflect.DeepEqual(c.Args(), w.args) {
				t.Errorf("%s at %#x: %+v, not %+v", name, uint64(c.Entry), c.Args(), w.args)
			}
		}
	}
	second, err := x.Find("second")
	if want := []inline.Range{{Lo: 0x70, Hi: 0xa7}, {Lo: 0xa7, Hi: 0xc6}}; err != nil || !reflect.DeepEqual(second[0].Ranges(), want) {
		t.Errorf("second is at %x, not %x (%v)", second[0].Ranges(), want, err)
	}
}

// TestAt: the innermost copy at each place is the one whose code it is, and between functions is nothing.
func TestAt(t *testing.T) {
	for _, arch := range arches {
		x := opened(t, made(t, arch))
		seen := map[string]bool{}
		for o := isa.Off(0); o < x.Text+8; o++ {
			f, err := x.At(o)
			if err != nil {
				t.Fatal(err)
			}
			l := x.LineAt(o)
			switch {
			case f.Body == nil:
				seen["nothing"] = true
			case f.Copy < 0:
				seen[f.Body.Func.Name] = true
			default:
				c := f.Body.Copy(f.Copy)
				seen[c.Func.Name] = true
				for _, r := range c.Ranges() {
					if r.Holds(o) && l.File != "fixture.c" {
						t.Errorf("%s: +%#x, of %s, is of line %+v", arch, uint64(o), c.Func.Name, l)
					}
				}
			}
		}
		for _, name := range []string{"nothing", "both", "callee", "first", "second", "nested", "twice"} {
			if !seen[name] {
				t.Errorf("%s: nothing is of %s", arch, name)
			}
		}
	}
}

// TestLeft: of a function whose name is elsewhere, as of a weak one that another has taken the place of, nothing is known: nothing
// comes there, and for the kernel it is a part of the function in front.
func TestLeft(t *testing.T) {
	for _, arch := range arches {
		whole := made(t, arch)
		file, err := os.ReadFile("testdata/" + arch + ".elf")
		if err != nil {
			t.Fatal(err)
		}
		second, err := whole.Find("second")
		if err != nil || len(second) != 1 {
			t.Fatal(arch, second, err)
		}
		moved := elsewhere(t, file, "second")
		a, err := all.Lookup(arch)
		if err != nil {
			t.Fatal(err)
		}
		x, err := inline.Make(bytes.NewReader(moved), a, inline.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if found, err := x.Find("second"); len(found) != 0 || err != nil || x.Stats.Left != 1 || x.Stats.Bodies != whole.Stats.Bodies-1 {
			t.Errorf("%s: %v, %v; %+v", arch, found, err, x.Stats)
		}
		for _, r := range second[0].Ranges() {
			for o := r.Lo; o < r.Hi; o++ {
				f, err := x.At(o)
				if l := x.LineAt(o); err != nil || f.Body != nil || l.File != "" {
					t.Fatalf("%s: at +%#x there is %+v of %+v, %v", arch, uint64(o), f, l, err)
				}
			}
		}
		if offs, _, _, err := x.LinesOf("fixture.c", lineOf(t, "second")); len(offs) > 0 || err != nil {
			t.Errorf("%s: its line begins at %#x, %v", arch, offs, err)
		}
		first, _ := whole.Find("first")
		if f, err := x.Find("first"); err != nil || !reflect.DeepEqual(shown(f), shown(first)) || x.LineAt(first[0].Ranges()[0].Lo) != whole.LineAt(first[0].Ranges()[0].Lo) {
			t.Errorf("%s: another function: %q, %v", arch, shown(f), err)
		}
	}
}

// elsewhere is a file in which a symbol is elsewhere.
func elsewhere(t *testing.T, file []byte, name string) []byte {
	t.Helper()
	f, err := elf.NewFile(bytes.NewReader(file))
	if err != nil {
		t.Fatal(err)
	}
	symbols, err := f.Symbols()
	if err != nil {
		t.Fatal(err)
	}
	k := slices.IndexFunc(symbols, func(s elf.Symbol) bool { return s.Name == name })
	if k < 0 {
		t.Fatal(name)
	}
	out := slices.Clone(file)
	at := f.SectionByType(elf.SHT_SYMTAB).Offset + uint64(k+1)*elf.Sym64Size + 8 // st_value; Symbols leaves out the first
	if f.ByteOrder.Uint64(out[at:]) != symbols[k].Value {
		t.Fatalf("%s is not at %#x", name, at)
	}
	f.ByteOrder.PutUint64(out[at:], symbols[k].Value+1<<20)
	return out
}

// TestLines: where a line's statements begin, and which line an instruction is of; by a listing of amd64's.
func TestLines(t *testing.T) {
	x := opened(t, made(t, "amd64"))
	line := lineOf(t, "twice")
	offs, files, _, _ := x.LinesOf("fixture.c", line)
	for _, o := range []isa.Off{0x36, 0x52, 0x8d, 0xa7} {
		found := false
		for _, a := range offs {
			found = found || a == o
		}
		if l := x.LineAt(o); !found || l.Line != line || l.File != "fixture.c" {
			t.Errorf("+%#x is of %+v; line %d begins at %#x", uint64(o), l, line, offs)
		}
	}
	if !reflect.DeepEqual(files, []string{"fixture.c"}) {
		t.Errorf("files %q", files)
	}
	if offs, _, _, _ := x.LinesOf("fixture.c", lineOf(t, "first")); len(offs) == 0 || offs[0] != 0x30 { // which is nested's code
		t.Errorf("a line of which nothing is left but a call that was inlined begins at %#x, not 0x30", offs)
	}
	offs, _, near, _ := x.LinesOf("fixture.c", lineOf(t, "second")+1) // empty
	if want := lineOf(t, "second: seldom") - 1; len(offs) != 0 || near != want {
		t.Errorf("a line without code: %#x, and then line %d, not %d", offs, near, want)
	}
	if offs, files, _, _ := x.LinesOf("ixture.c", line); offs != nil || files != nil {
		t.Errorf("half a name: %#x, %q", offs, files)
	}
}

// TestDamaged: what is no index, is another version's, or is not as it was written, is an error, and no file a panic.
func TestDamaged(t *testing.T) {
	b, err := made(t, "amd64").Bytes()
	if err != nil {
		t.Fatal(err)
	}
	for k := range b {
		c := bytes.Clone(b)
		c[k] ^= 0x55
		if x, err := inline.Open(c); err == nil { // zstd's frame may have bits that nobody reads
			if again, err := x.Bytes(); err != nil || !bytes.Equal(again, b) {
				t.Errorf("byte %d of %d changed: opened, and another (%v)", k, len(b), err)
			}
		}
		if _, err := inline.Open(b[:k]); err == nil {
			t.Errorf("%d bytes of %d: opened", k, len(b))
		}
	}
	c := bytes.Clone(b)
	c[7]++
	if _, err := inline.Open(c); err == nil || !strings.Contains(err.Error(), "version") {
		t.Errorf("another version: %v", err)
	}
}

// TestNoVmlinux: what Make cannot use it says.
func TestNoVmlinux(t *testing.T) {
	a, err := all.Lookup("arm64")
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile("testdata/amd64.elf")
	if err != nil {
		t.Fatal(err)
	}
	own, err := os.ReadFile("testdata/arm64.elf")
	if err != nil {
		t.Fatal(err)
	}
	stripped := bytes.ReplaceAll(own, []byte(".debug_loclists"), []byte(".other_loclists"))
	unnamed := bytes.ReplaceAll(own, []byte("\x00_stext\x00"), []byte("\x00_btext\x00"))
	for want, file := range map[string][]byte{
		"no ELF file": []byte("#!/bin/sh\n"), "not of arm64": b, "no debugging information": stripped, "no _stext": unnamed, "": own,
	} {
		_, err := inline.Make(bytes.NewReader(file), a, inline.Options{})
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %v", want, err)
		}
	}
}

func BenchmarkOpen(b *testing.B) {
	file, err := made(b, "amd64").Bytes()
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := inline.Open(file); err != nil {
			b.Fatal(err)
		}
	}
}

// TestOnly: a digest says the same of what it has, and nothing of the rest.
func TestOnly(t *testing.T) {
	for _, arch := range arches {
		x := opened(t, made(t, arch))
		only, err := x.Only("nested", "both", "twice") // first has two of these
		if err != nil {
			t.Fatal(err)
		}
		y := opened(t, only)
		if y.Stats.Bodies != 3 || len(y.Entries()) != 3 {
			t.Errorf("%s: %+v, bodies at %x", arch, y.Stats, y.Entries())
		}
		for _, name := range []string{"nested", "both"} {
			a, _ := x.Find(name)
			b, err := y.Find(name)
			if err != nil || !reflect.DeepEqual(shown(a), shown(b)) {
				t.Errorf("%s: %s: %q, not %q (%v)", arch, name, shown(b), shown(a), err)
			}
		}
		if want := []string{"both", "nested", "twice"}; x.Of != nil || !reflect.DeepEqual(y.Of, want) {
			t.Errorf("%s: made for %q, not %q; of which the whole is for %q", arch, y.Of, want, x.Of)
		}
		var part *inline.PartError
		if found, err := y.Find("callee"); !errors.As(err, &part) || part.Asked != "callee" {
			t.Errorf("%s: callee: %v, %v", arch, found, err)
		}
		if _, err := y.Find("twise"); err == nil || !strings.Contains(err.Error(), "for both, nested, twice, not for twise; did you mean twice?") {
			t.Errorf("%s: twise: %v", arch, err)
		}
		if offs, _, _, err := y.LinesOf("fixture.c", lineOf(t, "twice")); !errors.As(err, &part) {
			t.Errorf("%s: lines of a part: %#x, %v", arch, offs, err)
		}
		if _, err := y.Only("both", "callee"); !errors.As(err, &part) {
			t.Errorf("%s: a part of what is none: %v", arch, err)
		}
		if z, err := y.Only("both"); err != nil || len(z.Of) != 1 || z.Has("nested") == nil || z.Has("both") != nil {
			t.Errorf("%s: a part of a part: %v", arch, err)
		}
		for o := isa.Off(0); o < x.Text; o++ {
			a, err := x.At(o)
			b, err2 := y.At(o)
			if err != nil || err2 != nil {
				t.Fatal(err, err2)
			}
			if b.Body == nil {
				continue
			}
			if a.Copy != b.Copy || a.Body.Func != b.Body.Func || x.LineAt(o) != y.LineAt(o) && x.LineAt(o).File != "" {
				t.Errorf("%s: at +%#x: %+v in %v, not %+v in %v", arch, uint64(o), y.LineAt(o), b.Body.Func, x.LineAt(o), a.Body.Func)
			}
			if a.Copy >= 0 && !reflect.DeepEqual(a.Body.Copy(a.Copy).Args(), b.Body.Copy(b.Copy).Args()) {
				t.Errorf("%s: at +%#x: other arguments", arch, uint64(o))
			}
		}
	}
}

// TestStopped: who is told to stop reads no more, and says why.
func TestStopped(t *testing.T) {
	f, err := os.Open("testdata/arm64.elf")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	a, err := all.Lookup("arm64")
	if err != nil {
		t.Fatal(err)
	}
	enough, read := errors.New("enough"), 0
	_, err = inline.Make(f, a, inline.Options{Workers: 2, Stopped: func() error { return enough }, Progress: func(int, int) { read++ }})
	if !errors.Is(err, enough) || read > 0 {
		t.Errorf("%v, %d units read", err, read)
	}
}
