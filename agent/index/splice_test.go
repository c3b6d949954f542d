package index_test

import (
	"errors"
	"slices"
	"testing"

	"kerninst/agent/index"
	"kerninst/agent/isa"
)

// caller is amd64 code that calls g, which reads none of its arguments: mov
// $1,%esi at 5, the call at 10. A static key's site is at keyAt.
func caller(site []byte) []byte {
	const keyAt = 0x40
	code := join(site, 0xbe, le32(1), 0xe8, le32(gAt-15), 0xc3)
	code = append(code, slices.Repeat([]byte{0xcc}, keyAt-len(code))...)
	return append(code, nop5...)
}

var nop5 = []byte{0x0f, 0x1f, 0x44, 0x00, 0x00} // an ftrace site, where it begins a function

// TestForSplice: what may be overwritten by who relies on it.
func TestForSplice(t *testing.T) {
	const rsi, key = isa.Reg(6), 0x40
	noFtrace := []byte{0x48, 0x8d, 0x40, 0x00, 0x90} // lea 0(%rax),%rax; nop
	g := join(nop5, 0x31, 0xc0, 0xc3)                // xor %eax,%eax; ret
	other := join(nop5, 0x89, 0xf0, 0xc3)            // mov %esi,%eax; ret
	for _, c := range []struct {
		name   string
		f, now []byte // of f, and of g as it is when it is asked for
		how    index.How
		free   bool // rsi is, before it is written; by itself f shows as much
		err    bool
	}{
		{"as it was", caller(nop5), g, index.Indexed, true, false},
		{"no compiled code", caller(noFtrace), g, index.ByItself, true, false},
		{"the callee is another", caller(nop5), other, 0, false, true},
	} {
		x := indexOf(t, small(t, "amd64", oneBase, c.f, g, key))
		text := small(t, "amd64", otherBase, c.f, c.now, key)
		v, err := index.NewView(x, text)
		if err != nil {
			t.Fatal(err)
		}
		f, err := text.Function("", "f")
		if err != nil {
			t.Fatal(err)
		}
		fn, err := v.ForSplice(f)
		var changed *index.Changed
		if c.err {
			if !errors.As(err, &changed) || changed.Func != "g" {
				t.Errorf("%s: %v", c.name, err)
			}
			continue
		}
		if err != nil || fn.How != c.how || fn.Free(f.Addr+5).Has(rsi) != c.free {
			t.Errorf("%s: %v, %v, free %s", c.name, err, fn.How, text.Arch.Names(fn.Free(f.Addr+5)))
			continue
		}
		if fn.Free(f.Addr + 10).Has(rsi) {
			t.Errorf("%s: an argument of a call is free", c.name)
		}
		const flags = isa.Reg(16)
		if got := fn.Free(f.Addr + 10).Has(flags); got != (c.how == index.Indexed) {
			t.Errorf("%s: the flags, which the callee overwrites, are free: %v", c.name, got)
		}
	}
}
