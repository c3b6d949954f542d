package analysis_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"kerninst/agent/index"
	"kerninst/agent/ktext"
	"kerninst/lab/analysis"
)

// TestBadInput takes dumps of kernels that are not as they should be through all
// steps: either there is an error that names what is wrong, or what is odd is
// counted and the index can be used.
func TestBadInput(t *testing.T) {
	for _, arch := range []string{"amd64", "riscv64"} {
		good := analyse(t, arch)
		same := func(x analysis.Totals) string {
			x.Seconds = good.Totals.Seconds
			if x != good.Totals {
				return fmt.Sprintf("not %+v", good.Totals)
			}
			return ""
		}
		more := func(n func(analysis.Totals) int) func(analysis.Totals) string {
			return func(x analysis.Totals) string {
				if n(x) <= n(good.Totals) {
					return fmt.Sprintf("not more than in %+v", good.Totals)
				}
				return ""
			}
		}
		read, err := good.Function("ksys_read")
		if err != nil {
			t.Fatal(err)
		}
		lo, hi := good.Text.Bounds()
		for _, c := range []struct {
			what   string
			damage func(d *ktext.Dump)
			err    string // in the error; "": there is none
			totals func(analysis.Totals) string
		}{
			{"unknown ISA", func(d *ktext.Dump) { d.Arch = "sparc" }, `"sparc"`, nil},
			{"no text", func(d *ktext.Dump) { drop(d, "text") }, "not in the dump", nil},
			{"half of the text", func(d *ktext.Dump) { cut(d, "text") }, "not in the dump", nil},
			{"half a table", func(d *ktext.Dump) { cut(d, "__jump_table") }, "not in the dump", nil},
			{"a table of noise", noise("__jump_table", 0, 0), "no static key", nil},
			{"no bounds", func(d *ktext.Dump) { rename(d, "_etext", "_xtext") }, "_etext", nil},
			{"symbols backwards", backwards, "", same},
			{"a symbol below the text", symbols("%016x t low\n", 0x1000), "", same},
			{"a symbol behind the text", symbols("%016x t behind\n", uint64(hi)+0x100000), "", same},
			{"a symbol without size", symbols("%016x t none\n", uint64(hi)), "", same},
			{"overlapping symbols", symbols("%016x t odd\n", uint64(read.Addr)+1), "",
				more(func(x analysis.Totals) int { return x.Overruns + x.OddSymbols })},
			{"code that is none", noise("text", int(read.Addr-lo), int(read.Size)), "",
				more(func(x analysis.Totals) int { return x.Undecoded })},
		} {
			d := recorded(t, arch)
			c.damage(d)
			k, err := analysis.Analyse(d)
			if err != nil || c.err != "" {
				if c.err == "" || err == nil || !strings.Contains(err.Error(), c.err) {
					t.Errorf("%s, %s: %v, want %q", arch, c.what, err, c.err)
				}
				continue
			}
			if odd := c.totals(k.Totals); odd != "" {
				t.Errorf("%s, %s: %+v: %s", arch, c.what, k.Totals, odd)
			}
			if err := usable(k); err != nil {
				t.Errorf("%s, %s: %v", arch, c.what, err)
			}
		}
	}
}

// usable checks an analysed kernel, makes its index, and looks everything up.
func usable(k *analysis.Kernel) error {
	if err := k.Graph.Check(); err != nil {
		return err
	}
	if err := k.Live.Check(); err != nil {
		return err
	}
	b, err := k.MakeIndex()
	if err != nil {
		return err
	}
	x, err := index.Open(b)
	if err != nil {
		return err
	}
	if err := x.Verify(); err != nil {
		return err
	}
	v, err := index.NewView(x, k.Text)
	if err != nil {
		return err
	}
	lo, hi := k.Text.Bounds()
	k.Text.Functions("", func(f ktext.Func) bool {
		fn, e := v.Function(f)
		switch {
		case f.Addr < lo || f.Addr >= hi: // of a text that the dump does not have
		case e != nil:
			err = e
		case fn.How == index.Differs:
			err = fmt.Errorf("%v differs from the text that it was read from", f)
		}
		return err == nil
	})
	return err
}

// part finds a part of a dump.
func part(d *ktext.Dump, name string) *ktext.Part {
	k := slices.IndexFunc(d.Parts, func(p ktext.Part) bool { return p.Name == name })
	if k < 0 {
		panic("no part " + name)
	}
	return &d.Parts[k]
}

func drop(d *ktext.Dump, name string) {
	d.Parts = slices.DeleteFunc(d.Parts, func(p ktext.Part) bool { return p.Name == name })
}

func cut(d *ktext.Dump, name string) {
	p := part(d, name)
	p.Size /= 2
	p.Data = p.Data[:p.Size]
}

// noise overwrites n bytes of a part, from at on; all of it if n is 0.
func noise(name string, at, n int) func(*ktext.Dump) {
	return func(d *ktext.Dump) {
		p := part(d, name)
		p.Data = slices.Clone(p.Data)
		if n == 0 {
			n = p.Size
		}
		copy(p.Data[at:], slices.Repeat([]byte{0xff}, n))
	}
}

// symbols adds a line to a dump's symbols.
func symbols(format string, args ...any) func(*ktext.Dump) {
	return func(d *ktext.Dump) { setSymbols(d, string(d.Part("kallsyms"))+fmt.Sprintf(format, args...)) }
}

func rename(d *ktext.Dump, from, to string) {
	setSymbols(d, strings.Replace(string(d.Part("kallsyms")), from+"\n", to+"\n", 1))
}

func backwards(d *ktext.Dump) {
	lines := strings.SplitAfter(string(d.Part("kallsyms")), "\n")
	slices.Reverse(lines)
	setSymbols(d, strings.Join(lines, ""))
}

func setSymbols(d *ktext.Dump, text string) {
	p := part(d, "kallsyms")
	p.Data, p.Size = []byte(text), len(text)
}
