package daemon

import (
	"bytes"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"kerninst/agent/ktext"
	"kerninst/agent/ktext/ktexttest"
	"kerninst/agent/snippet"
	"kerninst/agent/wire"
)

func TestDifferences(t *testing.T) {
	flip := func(at ...int) []byte {
		b := make([]byte, 3*page+100)
		for _, i := range at {
			b[i] ^= 1
		}
		return b
	}
	for _, tt := range []struct {
		name string
		b    []byte
		want []span
	}{
		{"equal", flip(), nil},
		{"first and last", flip(0, 3*page+99), []span{{0, 1}, {3*page + 99, 3*page + 100}}},
		{"near ones are one", flip(10, 13, 20), []span{{10, 21}}},
		{"far ones are two", flip(10, 40), []span{{10, 11}, {40, 41}}},
		{"across pages", flip(page-1, page), []span{{page - 1, page + 1}}},
	} {
		var got []span
		for k := range differences(flip(), tt.b) {
			got = extended(got, k)
		}
		if !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%s: got %v, want %v", tt.name, got, tt.want)
		}
	}
}

// TestSymbol: a symbol is found by its whole name, whosever it is, unless several have it.
func TestSymbol(t *testing.T) {
	d := &Daemon{kallsyms: []byte("ffffffff81000000 T _stext\nffffffff82000010 D jiffies\nffffffff82000010 D jiffies_64\nffffffff82000020 d twice\n" +
		"ffffffffc0000000 d other\t[m]\nffffffffc0000020 d twice\t[m]\n0000000000000000 A zero\n")}
	for name, want := range map[string]string{
		"jiffies": "0xffffffff82000010", "other": "0xffffffffc0000000", "_stext": "0xffffffff81000000",
		"jiff": "no symbol", "iffies": "no symbol", "twice": "several", "zero": "does not say",
		"jiffiez": "did you mean jiffies?", "_stxet": "did you mean _stext?", "othr": "of that name", "nothing_like_it": "of that name",
	} {
		a, err := d.symbol(name)
		if got := fmt.Sprintf("%#x", a); err == nil && got != want || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %s, %v; want %s", name, got, err, want)
		}
	}
	for _, name := range []string{"othr", "nothing_like_it"} { // what a module has is nobody's to mean
		if _, err := d.symbol(name); err == nil || !strings.HasSuffix(err.Error(), "of that name") {
			t.Errorf("%s: %v", name, err)
		}
	}
	s, err := snippet.Parse("c0 sum\nv0 u64 = const &jiffies\ncount c0 v0")
	if err != nil || s.Resolve(d.symbol) != nil || s.Code[0].A != snippet.C(0xffffffff82000010) || s.Code[0].Name != "" {
		t.Errorf("%v, %v", s, err)
	}
}

// TestCompare: what the kernel rewrites itself is no difference, and excuses nothing beside it.
func TestCompare(t *testing.T) {
	for _, arch := range ktexttest.Arches {
		x := ktexttest.Load(t, arch).Text(t)
		before, lo, hi := keyed(t, x)
		for name, tt := range map[string]struct {
			flipped      []int
			ranges, keys int
		}{
			"nothing":             {nil, 0, 0},
			"all of the key":      {[]int{lo, hi - 1}, 0, 2},
			"on both sides of it": {[]int{lo - 1, hi}, 1, 0},
			"before it":           {[]int{lo - 1, lo}, 1, 1},
			"behind it":           {[]int{lo, hi}, 1, 1},
		} {
			now, out := stretch{before.at, bytes.Clone(before.text)}, &wire.TextDiff{}
			for _, k := range tt.flipped {
				now.text[k] ^= 0xff
			}
			d := &Daemon{text: x}
			if err := d.compare(before, now, out); err != nil || len(out.Differing) != tt.ranges || out.RuntimeBytes != uint64(tt.keys) {
				t.Errorf("%s, %s: %v, %v; want %d ranges, %d bytes of keys", arch, name, out, err, tt.ranges, tt.keys)
			}
		}
	}
}

// keyed is a function in which a static key lies, and where in it, with another instruction on each side.
func keyed(t *testing.T, x *ktext.Text) (of stretch, lo, hi int) {
	x.Functions("", func(f ktext.Func) bool {
		code, err := x.Code(f)
		for a := f.Addr + 8; err == nil && a < f.End()-8 && hi == 0; a++ {
			if r, ok, err := x.Site(a, a+1); err == nil && ok && r.Class == ktext.StaticKey && r.Lo == a {
				lo = int(a - f.Addr)
				of, hi = stretch{f.Addr, code}, lo+x.Arch.Decode(code[lo:], a).Len
			}
		}
		return hi == 0
	})
	if hi == 0 {
		t.Fatalf("%s: no function has a static key", x.Arch.Name)
	}
	return of, lo, hi
}
