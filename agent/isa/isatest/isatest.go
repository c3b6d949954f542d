// Package isatest holds the questions that every decoder is asked, so that the
// three ISAs cannot drift apart in what their answers mean. For tests only.
package isatest

import (
	"encoding/hex"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"kerninst/agent/isa"
)

var update = flag.Bool("update", false, "rewrite the golden files from what the decoder says now")

// at is where golden instructions lie; targets are absolute.
const at isa.Addr = 0xffffffff81000000

// line is one instruction as the golden files have it: bytes, length, flow,
// target, reads, writes, clobbers, traits, text.
func line(arch *isa.Arch, b []byte) string {
	i := arch.Decode(b, at)
	target := ""
	if i.Target != 0 {
		target = fmt.Sprintf("%+d", int64(i.Target-at))
	}
	return fmt.Sprintf("%x | %d | %v | %s | %s | %s | %s | %v | %s", b, i.Len, i.Flow, target,
		arch.Names(i.Reads), arch.Names(i.Writes), arch.Names(i.Clobbers), i.Traits, arch.Text(b, at))
}

// Golden decodes the first column of a file and compares the rest.
func Golden(t *testing.T, arch *isa.Arch, file string) {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	for n, want := range strings.Split(strings.TrimRight(string(b), "\n"), "\n") {
		if strings.HasPrefix(want, "#") {
			fmt.Fprintln(&out, want)
			continue
		}
		bytes, err := hex.DecodeString(strings.TrimSpace(strings.SplitN(want, "|", 2)[0]))
		if err != nil {
			t.Fatalf("%s:%d: %v", file, n+1, err)
		}
		got := line(arch, bytes)
		fmt.Fprintln(&out, got)
		if got != want && !*update {
			t.Errorf("%s:%d:\n got %s\nwant %s", file, n+1, got, want)
		}
	}
	if *update {
		if err := os.WriteFile(file, []byte(out.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// Contract checks what Decode promises for any bytes.
func Contract(t *testing.T, arch *isa.Arch, b []byte) {
	t.Helper()
	i := arch.Decode(b, at)
	switch {
	case i.Len < arch.MinLen || i.Len > arch.MaxLen:
		t.Errorf("%x: length %d", b, i.Len)
	case i.Addr != at:
		t.Errorf("%x: decoded at %v", b, i.Addr)
	case i.Flow == isa.FlowUnknown && i.Reads != arch.All:
		t.Errorf("%x: unknown, but does not read everything", b)
	case i.Flow != isa.FlowUnknown && i.Len > len(b):
		t.Errorf("%x: %d bytes were enough for %d", b, len(b), i.Len)
	case (i.Reads|i.Writes|i.Clobbers)&^arch.All != 0:
		t.Errorf("%x: registers outside All", b)
	}
	direct := i.Flow == isa.FlowJump || i.Flow == isa.FlowCond || i.Flow == isa.FlowCall
	if direct != (i.Target != 0) && i.Target != 0 {
		t.Errorf("%x: %v with target %v", b, i.Flow, i.Target)
	}
	if direct && i.Traits&isa.PCRel == 0 {
		t.Errorf("%x: a direct %v that does not depend on its address", b, i.Flow)
	}
	if i.Flow != isa.FlowUnknown {
		more := append(append([]byte(nil), b[:i.Len]...), 0x5a, 0xa5, 0x5a, 0xa5)
		if j := arch.Decode(more, at); j != i {
			t.Errorf("%x: what follows changes %+v into %+v", b[:i.Len], i, j)
		}
	}
	if len(b) > 0 {
		arch.Text(b, at)
	}
}

// Hand checks a table made by hand from the manual: lines of bytes, flow, reads,
// writes, clobbers, traits and a remark, separated by bars. What is unknown
// reads everything.
func Hand(t *testing.T, arch *isa.Arch, table string) {
	t.Helper()
	for _, want := range strings.Split(strings.TrimSpace(table), "\n") {
		f := strings.Split(want, "|")
		for k := range f {
			f[k] = strings.TrimSpace(f[k])
		}
		b, err := hex.DecodeString(f[0])
		if err != nil || len(f) < 6 {
			t.Fatalf("%q: %v", want, err)
		}
		i := arch.Decode(b, at)
		if i.Flow == isa.FlowUnknown {
			f[2] = arch.Names(arch.All)
		}
		got := []string{f[0], i.Flow.String(), arch.Names(i.Reads), arch.Names(i.Writes), arch.Names(i.Clobbers), i.Traits.String()}
		if !slices.Equal(got, f[:6]) {
			t.Errorf("%s (%s):\n got %q\nwant %q", f[0], arch.Text(b, at), got, f[:6])
		}
		if i.Len != len(b) && i.Traits&isa.Lost == 0 {
			t.Errorf("%s: length %d, want %d", f[0], i.Len, len(b))
		}
	}
}
