package riscv64

import (
	"testing"

	"kerninst/agent/isa"
)

// TestAim: a branch that is aimed leads where it is to, in four bytes, and compares what it did; out of its
// reach it is refused. A near call links ra.
func TestAim(t *testing.T) {
	const at = isa.Addr(0xffffffff80010000)
	for what, code := range map[string][]byte{
		"c.beqz a0": {0x19, 0xc1}, "c.bnez s1": {0x99, 0xe0}, "beq a0, a1": emit32(0x00b50463), "bltu s2, t3": emit32(0x01c96463), "bge zero, a5": emit32(0x00f05463),
	} {
		before := Decode(code, at)
		for _, d := range []int64{8, -8, 0, 4094, -4096} {
			b, err := Aim(code, at, at+isa.Addr(d))
			if err != nil {
				t.Errorf("%s, %d: %v", what, d, err)
				continue
			}
			if i := Decode(b, at); i.Target != at+isa.Addr(d) || i.Flow != isa.FlowCond || i.Reads != before.Reads || i.Len != 4 {
				t.Errorf("%s, %d: %s", what, d, Text(b, at))
			}
			if op, was := Op(b, at), Op(code, at); op.Kind != was.Kind && before.Len == 4 {
				t.Errorf("%s, %d: %s", what, d, Text(b, at))
			}
		}
		for _, d := range []int64{4096, -4098, 7} {
			if b, err := Aim(code, at, at+isa.Addr(d)); err == nil {
				t.Errorf("%s reaches %d: %x", what, d, b)
			}
		}
	}
	// Whether it is taken on zero, or on what is not, stays.
	for want, code := range map[uint32][]byte{Equal: {0x19, 0xc1}, NotEqual: {0x99, 0xe0}} {
		if b, err := Aim(code, at, at+8); err != nil || isa.ByteOrder.Uint32(b)>>12&7 != want {
			t.Errorf("%x is aimed by %x: %v", code, b, err)
		}
	}
	b, err := NearCall(at, at-0x1000)
	if i := Decode(b, at); err != nil || i.Flow != isa.FlowCall || i.Target != at-0x1000 || i.Writes != isa.Set(RA) {
		t.Errorf("%s: %v", Text(b, at), err)
	}
	if b, err := NearCall(at, at+JumpReach); err == nil {
		t.Errorf("a call too far: %x", b)
	}
}
