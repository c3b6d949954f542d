package pad_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"kerninst/agent/isa"
	"kerninst/agent/ktext"
	"kerninst/agent/ktext/ktexttest"
	"kerninst/agent/pad"
)

// The padding of ksys_write, and functions around it, of the recorded kernel.
const padding = "__pfx_ksys_write"

func find(t *testing.T, x *ktext.Text, name string) ktext.Func {
	t.Helper()
	f, err := x.Function("", name)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestNear(t *testing.T) {
	x := ktexttest.Load(t, "amd64").Text(t)
	p := find(t, x, padding)
	for _, c := range []struct {
		lo, hi isa.Addr
		want   int
	}{
		{p.Addr, p.End(), 1}, {p.Addr + 15, p.Addr + 16, 1}, {p.Addr - 8, p.Addr, 0}, {p.End(), p.End() + 8, 0},
		{p.Addr, p.Addr + 0x161, 3}, // with those of __ia32_sys_write and ksys_pread64
	} {
		got, err := pad.New(x).Near(p.Addr, c.lo, c.hi)
		if err != nil || len(got) != c.want || c.want > 0 && got[0] != (pad.Gap{Lo: p.Addr, Hi: p.End()}) {
			t.Errorf("[%v, %v): %v, %v; want %d", c.lo, c.hi, got, err, c.want)
		}
	}
	for _, arch := range []string{"arm64", "riscv64"} {
		x := ktexttest.Load(t, arch).Text(t)
		lo, hi := x.Bounds()
		if got, err := pad.New(x).Near(lo, lo, hi); err != nil || got != nil {
			t.Errorf("%s: %v, %v", arch, got, err)
		}
	}
}

// TestNotDead changes one thing about padding that is fine, or near it.
func TestNotDead(t *testing.T) {
	rel32 := func(op string, end, to isa.Addr) string {
		return op + string(isa.ByteOrder.AppendUint32(nil, uint32(to-end)))
	}
	for _, c := range []struct {
		name string
		at   func(p, owner, far ktext.Func) isa.Addr
		code func(a, to isa.Addr) string
	}{
		{"first byte written", func(p, _, _ ktext.Func) isa.Addr { return p.Addr },
			func(isa.Addr, isa.Addr) string { return "\xcc" }},
		{"last byte written", func(p, _, _ ktext.Func) isa.Addr { return p.End() - 1 },
			func(isa.Addr, isa.Addr) string { return "\x00" }},
		{"the function before falls into it", func(p, _, _ ktext.Func) isa.Addr { return p.Addr - 16 },
			func(isa.Addr, isa.Addr) string {
				return "\x31\xc0\x90\x90\x90\x90\x90\x90\x90\x90\x90\x90\x90\x90\x90\x90"
			}},
		{"it ends in a call", func(p, _, _ ktext.Func) isa.Addr { return p.Addr - 5 },
			func(isa.Addr, isa.Addr) string { return "\xe8\x00\x00\x00\x00" }},
		{"a short jump back", func(_, o, _ ktext.Func) isa.Addr { return o.Addr + 11 },
			func(a, to isa.Addr) string { return "\xeb" + string([]byte{byte(to - a - 2)}) }},
		{"a short condition", func(_, o, _ ktext.Func) isa.Addr { return o.Addr + 11 },
			func(a, to isa.Addr) string { return "\x74" + string([]byte{byte(to - a - 2)}) }},
		{"what it belongs to is not understood", func(_, o, _ ktext.Func) isa.Addr { return o.Addr + 11 },
			func(isa.Addr, isa.Addr) string { return "\x06" }},
		{"a call from afar", func(_, _, f ktext.Func) isa.Addr { return f.Addr + 0x21 },
			func(a, to isa.Addr) string { return rel32("\xe8", a+5, to) }},
		{"a jump from afar", func(_, _, f ktext.Func) isa.Addr { return f.Addr + 0x21 },
			func(a, to isa.Addr) string { return rel32("\xe9", a+5, to) }},
		{"a condition from afar", func(_, _, f ktext.Func) isa.Addr { return f.Addr + 0x21 },
			func(a, to isa.Addr) string { return rel32("\x0f\x8f", a+6, to) }},
		{"its address formed", func(_, _, f ktext.Func) isa.Addr { return f.Addr + 0x21 },
			func(a, to isa.Addr) string { return rel32("\x48\x8d\x3d", a+7, to) }},
	} {
		for off := isa.Addr(0); off < 16; off += 15 {
			k := ktexttest.Load(t, "amd64")
			x := k.Text(t)
			p := find(t, x, padding)
			at := c.at(p, find(t, x, "ksys_write"), find(t, x, "__kernel_write"))
			k.Write(at, []byte(c.code(at, p.Addr+off)))
			if got, err := pad.New(k.Text(t)).Near(p.Addr, p.Addr, p.End()); err != nil || got != nil {
				t.Errorf("%s: %v, %v", c.name, got, err)
			}
		}
	}
}

// TestBarred: padding that the kernel bars to probes.
func TestBarred(t *testing.T) {
	k := ktexttest.Load(t, "amd64")
	p := find(t, k.Text(t), padding)
	for name, r := range map[string][2]isa.Addr{"all": {p.Addr, p.End()}, "its last byte": {p.End() - 1, p.End() + 9}} {
		x := k.TextWith(t, k.Read, ktext.Options{Blacklist: strings.NewReader(fmt.Sprintf("%v-%v\tsomething\n", r[0], r[1]))})
		if got, err := pad.New(x).Near(p.Addr, p.Addr, p.End()); err != nil || got != nil {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}

// TestRemembers: what code shows is looked at once, the padding each time.
func TestRemembers(t *testing.T) {
	k := ktexttest.Load(t, "amd64")
	x := k.Text(t)
	p := find(t, x, padding)
	f := pad.New(x)
	for _, c := range []struct {
		b    byte
		want int
	}{{0x90, 1}, {0xe9, 0}, {0x90, 1}} {
		k.Write(p.Addr, []byte{c.b})
		if got, err := f.Near(p.Addr, p.Addr, p.End()); err != nil || len(got) != c.want {
			t.Errorf("with %#x: %v, %v", c.b, got, err)
		}
	}
}

// TestUnreadable: what cannot be read is an error, not padding or none.
func TestUnreadable(t *testing.T) {
	k := ktexttest.Load(t, "amd64")
	p := find(t, k.Text(t), padding)
	bad := errors.New("bad memory")
	for name, from := range map[string]isa.Addr{"the padding": p.Addr, "the function behind it": p.End() + 8} {
		x := k.TextWith(t, func(a isa.Addr, b []byte) error {
			if a <= from && from < a+isa.Addr(len(b)) && len(b) < 1<<12 {
				return bad
			}
			return k.Read(a, b)
		}, ktext.Options{})
		if got, err := pad.New(x).Near(p.Addr, p.Addr, p.End()); !errors.Is(err, bad) {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}

// TestCallBefore: behind a call, control goes on, unless it is to the function that
// ends the kernel.
func TestCallBefore(t *testing.T) {
	k := ktexttest.Load(t, "amd64")
	x := k.Text(t)
	p, before := find(t, x, "__pfx_ksys_read"), find(t, x, "vfs_write")
	if got, err := pad.New(x).Near(p.Addr, p.Addr, p.End()); err != nil || got != nil {
		t.Errorf("behind a call: %v, %v", got, err)
	}
	code, err := x.Code(before)
	if err != nil {
		t.Fatal(err)
	}
	var last isa.Insn
	for n := 0; n < len(code); {
		i := x.Arch.Decode(code[n:], before.Addr+isa.Addr(n))
		if i.Flow == isa.FlowCall {
			last = i
		}
		n += i.Len
	}
	syms := k.Kallsyms
	for name, want := range map[string]int{"__stack_chk_fail": 1, "schedule": 0} {
		k.Kallsyms = syms + fmt.Sprintf("%016x T %s\n%016x T more\n", uint64(last.Target), name, uint64(last.Target)+64)
		if got, err := pad.New(k.Text(t)).Near(p.Addr, p.Addr, p.End()); err != nil || len(got) != want {
			t.Errorf("behind a call of %s: %v, %v", name, got, err)
		}
	}
}
