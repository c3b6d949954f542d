// Package ktexttest is a kernel made of recorded stretches of a stock one, for
// tests: symbols, tables and memory that can be read and written.
//
// testdata/<arch>.txt holds lines "sym address type name" and "mem address
// bytes". Memory between _stext and _etext that is not recorded reads as zero.
package ktexttest

import (
	"bytes"
	"embed"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"kerninst/agent/isa"
	"kerninst/agent/isa/all"
	"kerninst/agent/ktext"
)

//go:embed testdata
var recorded embed.FS

// Kernel is one recorded kernel.
type Kernel struct {
	Arch     *isa.Arch
	Kallsyms string
	lo, hi   isa.Addr
	mem      map[isa.Addr][]byte // by page
}

const page = 4096

// Load reads the recorded kernel of an ISA.
func Load(t testing.TB, arch string) *Kernel {
	t.Helper()
	a, err := all.Lookup(arch)
	if err != nil {
		t.Fatal(err)
	}
	b, err := recorded.ReadFile("testdata/" + arch + ".txt")
	if err != nil {
		t.Fatal(err)
	}
	k := &Kernel{Arch: a, mem: map[isa.Addr][]byte{}}
	var syms strings.Builder
	for n, line := range strings.Split(string(b), "\n") {
		f := strings.Fields(line)
		switch {
		case len(f) == 0 || f[0] == "#":
		case f[0] == "sym" && len(f) == 4:
			fmt.Fprintln(&syms, f[1], f[2], f[3])
			k.bound(f[3], address(t, f[1]))
		case f[0] == "mem" && len(f) == 3:
			code, err := hex.DecodeString(f[2])
			if err != nil {
				t.Fatalf("line %d: %v", n+1, err)
			}
			k.Write(address(t, f[1]), code)
		default:
			t.Fatalf("line %d: %q", n+1, line)
		}
	}
	k.Kallsyms = syms.String()
	return k
}

func address(t testing.TB, s string) isa.Addr {
	v, err := strconv.ParseUint(s, 16, 64)
	if err != nil {
		t.Fatal(err)
	}
	return isa.Addr(v)
}

func (k *Kernel) bound(name string, a isa.Addr) {
	switch name {
	case "_stext":
		k.lo = a
	case "_etext":
		k.hi = a
	}
}

// Read is a ktext.Reader.
func (k *Kernel) Read(a isa.Addr, b []byte) error {
	for n := range b {
		at := a + isa.Addr(n)
		p, ok := k.mem[at/page]
		if !ok && (at < k.lo || at >= k.hi) {
			return fmt.Errorf("%v is not mapped", at)
		}
		b[n] = 0
		if ok {
			b[n] = p[at%page]
		}
	}
	return nil
}

// Write changes memory, and maps it.
func (k *Kernel) Write(a isa.Addr, b []byte) {
	for n, c := range b {
		at := a + isa.Addr(n)
		if k.mem[at/page] == nil {
			k.mem[at/page] = make([]byte, page)
		}
		k.mem[at/page][at%page] = c
	}
}

// Unmap forgets whole pages.
func (k *Kernel) Unmap(a isa.Addr, n int) {
	for p := a / page; p < (a+isa.Addr(n))/page; p++ {
		delete(k.mem, p)
	}
}

// Dump copies all of mapped memory, for comparison.
func (k *Kernel) Dump() map[isa.Addr][]byte {
	out := map[isa.Addr][]byte{}
	for p, b := range k.mem {
		out[p] = bytes.Clone(b)
	}
	return out
}

// Add makes a function of some code, and ends it with a symbol behind it.
func (k *Kernel) Add(name string, a isa.Addr, code []byte) {
	k.Write(a, code)
	k.Kallsyms += fmt.Sprintf("%x t %s\n%x t %s_end\n", uint64(a), name, uint64(a)+uint64(len(code)), name)
}

// Text makes the view of the kernel.
func (k *Kernel) Text(t testing.TB) *ktext.Text { return k.TextWith(t, k.Read, ktext.Options{}) }

// TextWith makes the view through another reader.
func (k *Kernel) TextWith(t testing.TB, read ktext.Reader, opt ktext.Options) *ktext.Text {
	t.Helper()
	x, err := ktext.New(k.Arch, strings.NewReader(k.Kallsyms), read, opt)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// Arches are the ISAs that are recorded.
var Arches = []string{"amd64", "arm64", "riscv64"}
