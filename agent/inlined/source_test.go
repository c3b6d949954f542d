package inlined

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"kerninst/agent/inline"
	"kerninst/agent/isa"
	"kerninst/agent/ktext/ktexttest"
)

// TestSource: an instruction is of its own line, and who will return to one is in the call in front of it, also where
// that ends the function in front.
func TestSource(t *testing.T) {
	x, f := someCopy(t)
	of := func(o isa.Off) string {
		l := x.LineAt(o)
		return fmt.Sprintf("%s:%d", l.File, l.Line)
	}
	o := f.Ranges()[0].Lo // in front of it begins nothing of the copy's
	if of(o) == of(o-1) {
		t.Fatalf("%#x and what is in front of it are of one line, %s", o, of(o))
	}
	text := ktexttest.Load(t, "amd64").Text(t)
	fn, err := text.Function("", "vfs_read")
	if err != nil {
		t.Fatal(err)
	}
	c := Copies{x: x, text: text, parts: []part{{inline.Range{Hi: x.Text}, fn.Addr - isa.Addr(o)}}} // as if it began there
	for returned, at := range map[bool]isa.Off{false: o, true: o - 1} {
		line, in, _ := strings.Cut(c.Source("vfs_read+0x0", returned), " ")
		if line != of(at) || strings.Contains(in, "file_start_write") == returned {
			t.Errorf("returned %v: %s in %q, want %s", returned, line, in, of(at))
		}
	}
	for _, place := range []string{"vfs_read", "vfs_raed+0x1", "vfs_read+x", ""} {
		if got := c.Source(place, false); got != "" {
			t.Errorf("%q: %s", place, got)
		}
	}
}

// TestSourceIn: of a module that was compiled as Debian does, too, whose functions have room in front on riscv64.
func TestSourceIn(t *testing.T) {
	for _, arch := range ktexttest.Arches {
		b, err := os.ReadFile("../../ci/e2e/testdata/" + arch + ".binfmt_misc.copies")
		if err != nil {
			t.Fatal(err)
		}
		m, err := inline.OpenModule(b)
		if err != nil {
			t.Fatal(err)
		}
		found, err := m.Index.Find("get_binfmt_handler")
		if err != nil || len(found) == 0 || found[0].Copy < 0 {
			t.Fatal(arch, found, err)
		}
		told := 0
		for _, s := range m.Sections {
			for _, l := range s.Labels {
				if l.Name != "load_misc_binary" {
					continue
				}
				place := fmt.Sprintf("%s+%#x", l.Name, uint64(found[0].Ranges()[0].Lo-l.Off))
				if got := SourceIn(m, place, false); !strings.HasSuffix(got, "get_binfmt_handler") {
					t.Errorf("%s: %s: %q", arch, place, got)
				}
				told++
			}
		}
		if told != 1 {
			t.Errorf("%s: %d functions", arch, told)
		}
	}
}
