package ktext_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"kerninst/agent/isa"
	"kerninst/agent/ktext"
	"kerninst/agent/ktext/ktexttest"
)

// turning is a kernel with one static key and one static call in a function of its own, by tables of its own.
type turning struct {
	*ktexttest.Kernel
	text                   *ktext.Text
	site, target           isa.Addr // of the key
	key                    isa.Addr
	call, callKey, callees isa.Addr
	entry                  isa.Addr // the word of the call's that says which key, and whether it comes back
}

func turn(t *testing.T, arch string, off bool) *turning {
	k := &turning{Kernel: ktexttest.Load(t, arch)}
	x := k.Kernel.Text(t)
	f, err := x.Function("", "ksys_read")
	if err != nil {
		t.Fatal(err)
	}
	jumps, ok := x.Symbol("__start___jump_table")
	if !ok {
		t.Fatal("no table of keys")
	}
	k.site, k.target, k.call, k.callees = f.Addr+0x10, f.Addr+0x40, f.Addr+0x20, f.Addr
	k.key, k.callKey = jumps+0x800, jumps+0x900
	calls := jumps + 0x700
	word := func(at, to isa.Addr) { k.Write(at, isa.ByteOrder.AppendUint32(nil, uint32(to-at))) }
	word(jumps, k.site)
	word(jumps+4, k.target)
	flags := uint64(0)
	if off {
		flags = 1
	}
	k.Write(jumps+8, isa.ByteOrder.AppendUint64(nil, uint64(k.key-(jumps+8))|flags))
	word(calls, k.call)
	k.entry = calls + 4
	word(k.entry, k.callKey)
	syms := strings.Builder{}
	for line := range strings.Lines(k.Kallsyms) {
		if !strings.Contains(line, "_jump_table") {
			syms.WriteString(line)
		}
	}
	fmt.Fprintf(&syms, "%x D __start___jump_table\n%x D __stop___jump_table\n", uint64(jumps), uint64(jumps)+16)
	if arch == "amd64" {
		fmt.Fprintf(&syms, "%x D __start_static_call_sites\n%x D __stop_static_call_sites\n", uint64(calls), uint64(calls)+8)
	}
	if k.text, err = ktext.New(k.Arch, strings.NewReader(syms.String()), k.Read, ktext.Options{}); err != nil {
		t.Fatal(err)
	}
	return k
}

// jump is a jump from the key's site to its target, and none a nop, as the kernel has them.
func (k *turning) jump(to isa.Addr) []byte {
	d := uint32(to - k.site)
	switch k.Arch.Name {
	case "amd64":
		return []byte{0xeb, byte(d - 2)}
	case "arm64":
		return isa.ByteOrder.AppendUint32(nil, 0x14000000|d>>2&0x3ffffff)
	}
	return isa.ByteOrder.AppendUint32(nil, 0x6f|d>>20&1<<31|d>>1&0x3ff<<21|d>>11&1<<20|d>>12&0xff<<12)
}

func (k *turning) none() []byte {
	return map[string][]byte{"amd64": {0x66, 0x90}, "arm64": {0x1f, 0x20, 0x03, 0xd5}, "riscv64": {0x13, 0, 0, 0}}[k.Arch.Name]
}

func (k *turning) wrong(t *testing.T) []isa.Addr {
	t.Helper()
	wrong, err := k.text.Unsettled(func() {})
	if err != nil {
		t.Fatal(err)
	}
	return wrong
}

// TestUnsettledKeys: a site is as its key demands, whichever way it leads by itself, or it is named.
func TestUnsettledKeys(t *testing.T) {
	for _, arch := range ktexttest.Arches {
		for _, off := range []bool{false, true} {
			k := turn(t, arch, off)
			k.Write(k.callKey, make([]byte, 8))
			for name, tt := range map[string]struct {
				on   uint32
				code []byte
				ok   bool
			}{
				"on, jumps":            {1, k.jump(k.target), !off},
				"on twice, jumps":      {2, k.jump(k.target), !off},
				"on, falls through":    {1, k.none(), off},
				"off, falls through":   {0, k.none(), !off},
				"off, jumps":           {0, k.jump(k.target), off},
				"on, jumps elsewhere":  {1, k.jump(k.target + 8), false},
				"off, something else":  {0, []byte{0xcc, 0xcc, 0xcc, 0xcc}, false},
				"off, jumps elsewhere": {0, k.jump(k.target + 8), false},
			} {
				k.Write(k.key, isa.ByteOrder.AppendUint32(nil, tt.on))
				k.Write(k.site, tt.code)
				if wrong := k.wrong(t); slices.Contains(wrong, k.site) == tt.ok {
					t.Errorf("%s, %s, off %v: %v are wrong", arch, name, off, wrong)
				}
			}
		}
	}
}

// TestUnsettledCalls: the site of a static call calls what its key has.
func TestUnsettledCalls(t *testing.T) {
	k := turn(t, "amd64", false)
	k.Write(k.key, make([]byte, 4))
	k.Write(k.site, k.none())
	call := func(op byte, to isa.Addr) []byte {
		return isa.ByteOrder.AppendUint32([]byte{op}, uint32(to-k.call-5))
	}
	nop, ret := []byte{0x0f, 0x1f, 0x44, 0, 0}, []byte{0xc3, 0xcc, 0xcc, 0xcc, 0xcc}
	jcc := isa.ByteOrder.AppendUint32([]byte{0x0f, 0x84}, uint32(k.callees-k.call-6))
	for name, tt := range map[string]struct {
		tail bool
		to   isa.Addr
		code []byte
		ok   bool
	}{
		"calls it":                {false, k.callees, call(0xe8, k.callees), true},
		"calls it, and is a tail": {true, k.callees, call(0xe8, k.callees), false},
		"ends in it":              {true, k.callees, call(0xe9, k.callees), true},
		"ends in it, and is none": {false, k.callees, call(0xe9, k.callees), false},
		"ends in it now and then": {true, k.callees, jcc, true},
		"calls another":           {false, k.callees, call(0xe8, k.callees+16), false},
		"calls nothing":           {false, k.callees, nop, false},
		"warns":                   {false, k.callees, []byte{0x67, 0x48, 0x0f, 0xb9, 0x3a}, false},
		"clears a register":       {false, k.callees, []byte{0x2e, 0x2e, 0x2e, 0x31, 0xc0}, false},
		"nothing, returns":        {true, 0, ret, true},
		"nothing, returns early":  {false, 0, ret, false},
		"nothing, is a nop":       {false, 0, nop, true},
		"nothing, goes on":        {true, 0, nop, false},
		"nothing, a trap":         {false, 0, []byte{0xcc, 0xcc, 0xcc, 0xcc, 0xcc}, false},
		"nothing, calls":          {false, 0, call(0xe8, k.callees), false},
		"nothing, ends in it":     {true, 0, call(0xe9, k.callees), false},
	} {
		flags := isa.Addr(0)
		if tt.tail {
			flags = 1
		}
		k.Write(k.entry, isa.ByteOrder.AppendUint32(nil, uint32(k.callKey+flags-k.entry)))
		k.Write(k.callKey, isa.ByteOrder.AppendUint64(nil, uint64(tt.to)))
		k.Write(k.call, tt.code)
		if wrong := k.wrong(t); slices.Contains(wrong, k.call) == tt.ok {
			t.Errorf("%s: %v are wrong", name, wrong)
		}
	}
}
