package riscv64

import (
	"testing"

	"kerninst/agent/isa"
)

// TestPair: what forms an address by two instructions is read, and forms the same one elsewhere, doing what it did.
func TestPair(t *testing.T) {
	at, elsewhere := isa.Addr(0xffffffff80010000), isa.Addr(0xffffffff9001fabc)
	auipc := emit32(0x00001797) // a5, 1
	for what, c := range map[string]struct {
		lower uint32
		off   int64
	}{
		"addi a5, a5, -16": {0xff078793, 0x1000 - 16}, "addi a0, a5, 2047": {0x7ff78513, 0x1000 + 2047},
		"ld a4, 8(a5)": {0x0087b703, 0x1000 + 8}, "lbu a5, -1(a5)": {0xfff7c783, 0x1000 - 1},
		"sd a4, -8(a5)": {0xfee7bc23, 0x1000 - 8}, "sb zero, 2047(a5)": {0x7e078fa3, 0x1000 + 2047},
	} {
		lower := emit32(c.lower)
		r, to, ok := Pair(auipc, lower, at)
		if !ok || r != 15 || to != at+isa.Addr(c.off) {
			t.Errorf("%s: by %v, %v, %v", what, r, to, ok)
			continue
		}
		for _, to := range []isa.Addr{to, elsewhere, elsewhere + 0x7ff, elsewhere + 0x800, elsewhere - 0x801, elsewhere - 1<<31 + 0x1000} {
			code, err := PairAt(lower, r, elsewhere, to)
			if err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			if r2, to2, ok := Pair(code[:4], code[4:], elsewhere); !ok || r2 != r || to2 != to {
				t.Errorf("%s, to %v: by %v, %v, %v", what, to, r2, to2, ok)
			}
			before, now := Decode(lower, at+4), Decode(code[4:], elsewhere+4)
			if before.Reads != now.Reads || before.Writes != now.Writes || before.Traits != now.Traits || now.Len != 4 {
				t.Errorf("%s became %s", what, Text(code[4:], elsewhere+4))
			}
			if w := isa.ByteOrder.Uint32(code[4:]); (w^c.lower)&0x707f != 0 {
				t.Errorf("%s became %s", what, Text(code[4:], elsewhere+4))
			}
		}
		if code, err := PairAt(lower, r, elsewhere, elsewhere-1<<31-0x1000); err == nil {
			t.Errorf("%s reaches too far: %x", what, code)
		}
	}
	for what, c := range map[string]struct{ upper, lower []byte }{
		"addi a5, a4, 0":     {auipc, emit32(0x00070793)},
		"slti a5, a5, 1":     {auipc, emit32(0x0017a793)},
		"sd a5, 8(a5)":       {auipc, emit32(0x00f7b423)},
		"jalr ra, (a5)":      {auipc, emit32(0x000780e7)},
		"lui a5, 1, behind":  {emit32(0x000017b7), emit32(0x0087b703)},
		"c.addi a5, 1":       {auipc, emit16(0x0785)},
		"auipc zero, behind": {emit32(0x00001017), emit32(0x00800703)},
	} {
		if r, to, ok := Pair(c.upper, c.lower, at); ok {
			t.Errorf("%s: by %v, %v", what, r, to)
		}
	}
}

func TestIsNop(t *testing.T) {
	for _, code := range [][]byte{emit32(0x13), emit16(1)} {
		if !IsNop(code) {
			t.Errorf("%s is none", Text(code, 0))
		}
	}
	for _, code := range [][]byte{emit32(0x00100013), emit32(0x0100000f), emit16(0x0785), emit16(0x0005), nil} {
		if IsNop(code) {
			t.Errorf("%x is one", code)
		}
	}
}
