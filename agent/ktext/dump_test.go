package ktext_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"kerninst/agent/isa"
	"kerninst/agent/isa/all"
	"kerninst/agent/ktext"
	"kerninst/agent/ktext/ktexttest"
)

// dumped writes a recorded kernel, with one module, as a dump.
func dumped(t testing.TB, k *ktexttest.Kernel) []byte {
	x := k.Text(t)
	lo, _ := x.Bounds()
	at := lo + 1<<30
	k.Write(at, make([]byte, 4096))
	mods := ktext.Sections(map[string]map[string]isa.Addr{"mod": {
		".text": at, ".exit.text": at + 0x100, ".data": at + 0x180, "__ex_table": at + 0x200, ".init.text": at - 4096,
	}}, k.Read)
	d := ktext.Dump{Arch: k.Arch.Name, Release: "6.12.0", Version: "#1 \"quoted\"\n", Cmdline: "a=b", CPUs: 2,
		Parts: x.DumpParts([]byte(k.Kallsyms), []byte("0xffff-0x10000\tf\n"), mods)}
	var b bytes.Buffer
	if err := d.Write(&b, k.Read); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestDump(t *testing.T) {
	for _, arch := range ktexttest.Arches {
		k := ktexttest.Load(t, arch)
		live := k.Text(t)
		file := dumped(t, k)
		d, err := ktext.ReadDump(file)
		if err != nil {
			t.Fatal(err)
		}
		var again bytes.Buffer
		if err := d.Write(&again, nil); err != nil || !bytes.Equal(again.Bytes(), file) {
			t.Errorf("%s: a dump that is read and written is another one (%v)", arch, err)
		}
		x, err := d.Text(k.Arch)
		if err != nil {
			t.Fatal(err)
		}
		sites := 0
		live.Functions("", func(f ktext.Func) bool {
			for a := f.Addr; a < f.End(); a += isa.Addr(k.Arch.MinLen) {
				r1, ok1, err1 := live.Reserved(f, a, a+1)
				r2, ok2, err2 := x.Reserved(f, a, a+1)
				if r1 != r2 && r1.Class != ktext.Blacklist || ok1 != ok2 || err1 != nil || err2 != nil {
					t.Fatalf("%s: %v: live %v %v, dumped %v %v", arch, a, r1, err1, r2, err2)
				}
				if ok1 {
					sites++
				}
				if f.Name == "gap" || a > f.Addr+0x4000 { // recorded kernels have long stretches of nothing
					break
				}
			}
			return true
		})
		if sites == 0 {
			t.Errorf("%s: no reserved site was compared", arch)
		}
	}
}

// TestDamagedDump takes a dump apart: every damage is named.
func TestDamagedDump(t *testing.T) {
	k := ktexttest.Load(t, "amd64")
	good := dumped(t, k)
	reseal := func(b []byte) []byte {
		sum := sha256.Sum256(b[:len(b)-sha256.Size])
		return append(b[:len(b)-sha256.Size:len(b)-sha256.Size], sum[:]...)
	}
	edit := func(old, new string) []byte {
		if !bytes.Contains(good, []byte(old)) {
			t.Fatalf("%q is not in the dump", old)
		}
		return reseal(bytes.Replace(bytes.Clone(good), []byte(old), []byte(new), 1))
	}
	flip := func(at int) []byte {
		b := bytes.Clone(good)
		b[at] ^= 1
		return b
	}
	lo, _ := k.Text(t).Bounds()
	for _, c := range []struct {
		what string
		b    []byte
		in   string
	}{
		{"nothing", nil, "does not begin"},
		{"another file", []byte("\x7fELF"), "does not begin"},
		{"another version", edit("kerninst-dump 1", "kerninst-dump 2"), "does not begin"},
		{"cut in the header", good[:40], "no end"},
		{"cut in the data", good[:len(good)/2], "cut off"},
		{"cut by one", good[:len(good)-1], "cut off"},
		{"more than announced", append(bytes.Clone(good), 0), "cut off or damaged"},
		{"a bit in the data", flip(len(good) / 2), "SHA-256"},
		{"a bit in the sum", flip(len(good) - 1), "SHA-256"},
		{"a bit in the header", flip(20), "header: line"},
		{"a part without a name", edit(`part "text"`, `part text`), "header: line"},
		{"a negative size", edit(fmt.Sprintf(`"text" %#x `, uint64(lo)), fmt.Sprintf(`"text" %#x -`, uint64(lo))), "header: line"},
		{"no symbols", edit(`"kallsyms"`, `"kallsymz"`), "no symbols"},
		{"one name twice", edit(`"blacklist"`, `"kallsyms"`), "two parts"},
		{"overlapping parts", edit(fmt.Sprintf(`"kallsyms" %#x`, 0), fmt.Sprintf(`"kallsyms" %#x`, uint64(lo))), "overlap"},
	} {
		d, err := ktext.ReadDump(c.b)
		if err == nil || !strings.Contains(err.Error(), c.in) {
			t.Errorf("%s: %v, want %q", c.what, err, c.in)
			_ = d
		}
	}
	d, err := ktext.ReadDump(good)
	if err != nil {
		t.Fatal(err)
	}
	arm, _ := all.Lookup("arm64")
	if _, err := d.Text(arm); err == nil || !strings.Contains(err.Error(), "of amd64") {
		t.Errorf("taken for another ISA: %v", err)
	}
	if err := d.Read(lo-1, make([]byte, 4)); err == nil {
		t.Error("memory was read that is not in the dump")
	}
}

// TestModule looks up reservations in a module of a dump.
func TestModule(t *testing.T) {
	k := ktexttest.Load(t, "amd64")
	_, hi := k.Text(t).Bounds()
	at := (hi + 1<<30) &^ 4095
	// One exception table entry: a fault at .text+0x20, resumed at .text+0x40.
	table := at + 0x800
	entry := make([]byte, 12)
	isa.ByteOrder.PutUint32(entry, uint32(at+0x20-table))
	isa.ByteOrder.PutUint32(entry[4:], uint32(at+0x40-(table+4)))
	k.Write(at, make([]byte, 4096))
	k.Write(table, entry)
	k.Write(at+0x10, []byte{0xe9, 0x90 - 0x15, 0, 0, 0}) // jmp .text+0x90
	sections := ktext.Sections(map[string]map[string]isa.Addr{"mod": {
		".text": at, ".noinstr.text": at + 0x100, ".exit.text": at + 0x200, "__ex_table": table, ".init.text": at + 0x300,
	}}, k.Read)
	x := k.TextWith(t, k.Read, ktext.Options{Modules: bytes.NewReader(ktext.FormatModules(sections))})
	f := ktext.Func{Module: "mod", Name: "f", Addr: at, Size: 0x100}
	for _, c := range []struct {
		f    ktext.Func
		lo   isa.Addr
		want ktext.Class
	}{
		{f, at, ktext.NotReserved},
		{f, at + 0x20, ktext.Exception},
		{f, at + 0x110, ktext.NoInstr},
		{f, at + 0x210, ktext.Init},
		{f, table, ktext.Outside},
		{ktext.Func{Module: "other", Addr: at}, at, ktext.Outside},
	} {
		r, ok, err := x.Reserved(c.f, c.lo, c.lo+4)
		if err != nil || r.Class != c.want || ok != (c.want != ktext.NotReserved) {
			t.Errorf("%v+%#x: %v, %v, want %v", c.f, c.lo-at, r.Class, err, c.want)
		}
	}
	if r, ok, err := x.Site(at+0x20, at+0x24); err != nil || !ok || r.Class != ktext.Exception {
		t.Errorf("a fault of the module is no site: %v, %v", r.Class, err)
	}
	if _, ok, err := x.Site(at+0x24, at+0x28); err != nil || ok {
		t.Errorf("a site where there is none: %v", err)
	}
	m, err := x.Targets("mod")
	if err != nil {
		t.Fatal(err)
	}
	for a, want := range map[isa.Addr]bool{at + 0x40: true, at + 0x41: false, at + 0x90: true} {
		if _, ok := m.First(a, a+1); ok != want {
			t.Errorf("+%#x is a target: %v, want %v", a-at, ok, want)
		}
	}
	if _, err := x.Targets("other"); err == nil {
		t.Error("targets of a module of which nothing is known")
	}
	if got := x.Sections("mod"); len(got) != 4 || got[3].Name != "__ex_table" || got[3].End() != at+4096 {
		t.Errorf("sections %+v", got)
	}
}

// TestWith: with other modules a kernel is the same, and its own text is not gone through again.
func TestWith(t *testing.T) {
	k := ktexttest.Load(t, "amd64")
	reads := 0
	x := k.TextWith(t, func(a isa.Addr, b []byte) error { reads++; return k.Read(a, b) }, ktext.Options{})
	own, err := x.Targets("")
	if err != nil || reads == 0 {
		t.Fatalf("%d reads, %v", reads, err)
	}
	reads = 0
	for _, c := range []struct {
		modules  string
		sections int
	}{{"mod .text 0xffffffffc0000000 0x1000\n", 1}, {"other .text 0xffffffffc0002000 0x1000\n", 0}, {"", 0}} {
		y, err := x.With(ktext.Options{Modules: strings.NewReader(c.modules), OneCPU: true})
		if err != nil {
			t.Fatal(err)
		}
		again, err := y.Targets("")
		if again != own || err != nil || reads > 0 || len(y.Sections("mod")) != c.sections || !y.OneCPU {
			t.Errorf("modules %q: %d reads, sections %v, %v", c.modules, reads, y.Sections("mod"), err)
		}
		if f, err := y.Function("", "vfs_read"); err != nil {
			t.Errorf("%v, %v", f, err)
		}
		x = y
	}
	if _, err := x.With(ktext.Options{Modules: strings.NewReader("mod .text\n")}); err == nil {
		t.Error("sections without a place")
	}
}

func FuzzDump(f *testing.F) {
	f.Add(dumped(f, ktexttest.Load(f, "riscv64")))
	var small bytes.Buffer
	d := ktext.Dump{Arch: "amd64", Parts: []ktext.Part{{Name: "kallsyms", Size: 1, Data: []byte("x")}, {Name: "text", Addr: 4096, Size: 1, Data: []byte("y")}}}
	if err := d.Write(&small, nil); err != nil {
		f.Fatal(err)
	}
	f.Add(small.Bytes())
	f.Add([]byte("kerninst-dump 1\n\n"))
	f.Add(bytes.Replace(small.Bytes(), []byte("amd64"), []byte("\xe8md64"), 1)) // not as it would be quoted
	f.Fuzz(func(t *testing.T, b []byte) {
		if n := len(b) - sha256.Size; n > 0 { // else no change would ever get past the sum
			sum := sha256.Sum256(b[:n])
			b = append(b[:n:n], sum[:]...)
		}
		d, err := ktext.ReadDump(b)
		if (d == nil) == (err == nil) {
			t.Fatal("a dump and an error, or neither")
		}
		if err != nil {
			return
		}
		var again bytes.Buffer
		if err := d.Write(&again, nil); err != nil || !bytes.Equal(again.Bytes(), b) {
			t.Fatalf("a dump that is read and written is another one (%v)", err)
		}
		for _, p := range d.Parts {
			if p.Addr != 0 && p.Size > 0 && d.Read(p.Addr, make([]byte, p.Size)) != nil {
				t.Fatalf("part %s cannot be read", p.Name)
			}
		}
	})
}

func FuzzModules(f *testing.F) {
	f.Add([]byte("mod .text 0xffffffffc0000000 0x1000\n"))
	f.Add([]byte("mod .text 0xffffffffc0000000 0x1000\nmod .text.b 0xffffffffc0000ff0 0x1000\n"))
	k := ktexttest.Load(f, "amd64")
	f.Fuzz(func(t *testing.T, b []byte) {
		x, err := ktext.New(k.Arch, strings.NewReader(k.Kallsyms), k.Read, ktext.Options{Modules: bytes.NewReader(b)})
		if (x == nil) == (err == nil) {
			t.Fatal("a view and an error, or neither")
		}
	})
}

// Modules that lie side by side end where the next one's pages begin.
func TestSectionsSideBySide(t *testing.T) {
	const at = isa.Addr(0xffffffffc0000000)
	list := ktext.Sections(map[string]map[string]isa.Addr{
		"one": {".text": at, ".exit.text": at + 0x100}, "two": {".text": at + 4096 + 64, ".noinstr.text": at + 4096},
		"three": {".symtab": at + 4096 + 128}, // gone, and two's code is there
	}, func(a isa.Addr, _ []byte) error {
		if a >= at+2*4096 {
			return errors.New("not mapped")
		}
		return nil
	})
	want := []ktext.Section{
		{Module: "one", Name: ".text", Addr: at, Size: 0x100}, {Module: "one", Name: ".exit.text", Addr: at + 0x100, Size: 4096 - 0x100},
		{Module: "two", Name: ".noinstr.text", Addr: at + 4096, Size: 64}, {Module: "two", Name: ".text", Addr: at + 4096 + 64, Size: 4096 - 64},
		{Module: "three", Name: ".symtab", Addr: at + 4096 + 128, Size: 4096 - 128},
	}
	if !slices.Equal(list, want) {
		t.Errorf("%v, want %v", list, want)
	}
}
