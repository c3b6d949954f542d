package replay

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"
	"testing"

	"kerninst/agent/cfg"
	"kerninst/agent/isa"
	"kerninst/agent/isa/all"
	"kerninst/agent/ktext"
	"kerninst/agent/live"
)

// base is where the text made by hand begins.
const base = 0xffffffff81000000

// symbols and text are three functions of amd64's.
const symbols = "ffffffff81000000 T f\nffffffff81000040 T g\nffffffff81000060 T h\nffffffff81000000 T _stext\nffffffff81000080 T _etext\n"

var text = map[isa.Off]string{
	0x00: "\x0f\x1f\x44\x00\x00" + // f: ftrace's site
		"\x48\x85\xff" + // 05: test %rdi,%rdi
		"\x74\x08" + // 08: je 12
		"\xe8\x31\x00\x00\x00" + // 0a: call g
		"\x90" + // 0f: nop
		"\xeb\x05" + // 10: jmp 17
		"\xb8\x01\x00\x00\x00" + // 12: mov $1,%eax
		"\x48\x89\xc2" + // 17: mov %rax,%rdx
		"\xc3", // 1a: ret
	0x40: "\x0f\x1f\x44\x00\x00" + // g: ftrace's site
		"\xb8\x02\x00\x00\x00" + // 45: mov $2,%eax
		"\xc3", // 4a: ret
	0x60: "\x0f\x1f\x44\x00\x00" + // h: ftrace's site
		"\x75\x06" + // 65: jne 6d
		"\xb8\x01\x00\x00\x00" + // 67: mov $1,%eax
		"\xc3" + // 6c: ret
		"\xb8\x02\x00\x00\x00" + // 6d: mov $2,%eax
		"\xc3", // 72: ret
}

func kernel(t *testing.T) (*cfg.Graph, *live.Live, *ktext.Text) {
	t.Helper()
	arch, err := all.Lookup("amd64")
	if err != nil {
		t.Fatal(err)
	}
	code := bytes.Repeat([]byte{0xcc}, 0x80)
	for at, s := range text {
		copy(code[at:], s)
	}
	read := func(a isa.Addr, b []byte) error {
		if clear(b); a < base {
			return fmt.Errorf("nothing at %v", a)
		}
		if n := int(a - base); n < len(code) {
			copy(b, code[n:])
		}
		return nil
	}
	x, err := ktext.New(arch, strings.NewReader(symbols), read, ktext.Options{})
	if err != nil {
		t.Fatal(err)
	}
	g, err := cfg.Build(x, cfg.Options{})
	if err != nil {
		t.Fatal(err)
	}
	l, err := live.Solve(g, x, live.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return g, l, x
}

// ran is a run of n instructions, and stopped the end of a trace.
func ran(at isa.Off, n int) uint64 { return uint64(n)<<48 | (base+uint64(at))&(1<<48-1) }

const stopped = ^uint64(0)

func check(t *testing.T, words ...uint64) (*Report, error) {
	t.Helper()
	g, l, x := kernel(t)
	var trace bytes.Buffer
	for _, w := range words {
		trace.Write(binary.LittleEndian.AppendUint64(nil, w))
	}
	return Check(&trace, g, l, x)
}

// TestContradictions: each is found, and what the graph allows is none.
func TestContradictions(t *testing.T) {
	for _, c := range []struct {
		name  string
		trace []uint64
		want  []string // parts of what is wrong
	}{
		{"call and return", []uint64{ran(0x00, 4), ran(0x40, 3), ran(0x0f, 2), ran(0x17, 2)}, nil},
		{"the other way", []uint64{ran(0x00, 3), ran(0x12, 3)}, nil},
		{"what follows is not known", []uint64{ran(0x00, 2), 0, ran(0x17, 2)}, nil},
		{"a conditional jump to neither", []uint64{ran(0x60, 2), ran(0x17, 2)}, []string{"h+0x5: cond went to f+0x17", "f+0x17: reads rax, which was dead"}},
		{"out of the middle", []uint64{ran(0x00, 2), ran(0x12, 1)}, []string{"f+0x5: control left the middle of a block, to f+0x12"}},
		{"no instruction", []uint64{ran(0x01, 1)}, []string{"f+0x1: an instruction begins here that the graph does not have"}},
		{"another callee", []uint64{ran(0x00, 4), ran(0x60, 1)}, []string{"f+0xa: call went to h+0x0"}},
		{"another's return", []uint64{ran(0x60, 4), ran(0x0f, 1)}, []string{"h+0xc: returned behind the call of g+0x0, which does not lead here"}},
		{"a call that is fallen through", []uint64{ran(0x00, 5)}, []string{"f+0xa: a block that ends in call was fallen through"}},
	} {
		rep, err := check(t, append(c.trace, stopped)...)
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		if len(rep.Wrong) != len(c.want) || (rep.Err() == nil) != (len(c.want) == 0) {
			t.Errorf("%s: %v, not %q", c.name, rep.Err(), c.want)
		}
		for _, w := range c.want {
			if rep.Wrong[w] != 1 {
				t.Errorf("%s: %v, not %q", c.name, rep.Err(), w)
			}
		}
	}
}

// TestCounted: what is outside the text is not among the instructions; a trace without its end
// is none.
func TestCounted(t *testing.T) {
	rep, err := check(t, ran(0x00, 4), ran(0x40, 3), ran(0x0f, 2), ran(0x10000, 60), 0, ran(0x00, 1), stopped)
	if err != nil {
		t.Fatal(err)
	}
	if rep.Instructions != 10 || rep.Executed != 9 || rep.Outside != 1 || rep.Direct != 2 || rep.Returns != 1 || rep.Err() != nil {
		t.Errorf("%+v", rep)
	}
	if _, err := check(t, ran(0x00, 4)); err == nil || !strings.Contains(err.Error(), "no end") {
		t.Errorf("without an end: %v", err)
	}
}
