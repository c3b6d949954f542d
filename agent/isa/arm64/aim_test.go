package arm64

import (
	"testing"

	"kerninst/agent/isa"
)

// TestAim: a branch that is aimed leads where it is to, and is else what it was; out of its reach it is
// refused. So is what is no branch.
func TestAim(t *testing.T) {
	const at = isa.Addr(0xffff800080010000)
	for _, c := range []struct {
		what  string
		w     uint32
		reach int64 // bytes ahead; back, as many
	}{
		{"b.eq", 0x54000040, 1 << 20}, {"cbz x3", 0xb4000043, 1 << 20}, {"cbnz w3", 0x35000043, 1 << 20},
		{"tbz x5, #33", 0xb6080045, 1 << 15}, {"tbnz w5, #3", 0x37180045, 1 << 15},
	} {
		before := Decode(emit(c.w), at)
		for _, d := range []int64{8, -8, 0, c.reach - 4, -c.reach} {
			b, err := Aim(emit(c.w), at, at+isa.Addr(d))
			if err != nil {
				t.Errorf("%s, %d: %v", c.what, d, err)
				continue
			}
			i := Decode(b, at)
			if i.Target != at+isa.Addr(d) || i.Flow != isa.FlowCond || i.Reads != before.Reads {
				t.Errorf("%s, %d: %x leads to %v, and reads %v", c.what, d, b, i.Target, i.Reads)
			}
			if back, err := Aim(b, at, before.Target); err != nil || isa.ByteOrder.Uint32(back) != c.w {
				t.Errorf("%s, %d: aimed back it is %x", c.what, d, back)
			}
		}
		for _, d := range []int64{c.reach, -c.reach - 4, 6} {
			if b, err := Aim(emit(c.w), at, at+isa.Addr(d)); err == nil {
				t.Errorf("%s reaches %d: %x", c.what, d, b)
			}
		}
	}
	if b, err := Aim(emit(0xd503201f), at, at); err == nil {
		t.Errorf("nop is aimed: %x", b)
	}
}

// TestJumpIfBit: as the decoder reads it.
func TestJumpIfBit(t *testing.T) {
	const at = isa.Addr(0xffff800080010000)
	for bit := range uint8(64) {
		for _, set := range []bool{false, true} {
			b, err := JumpIfBit(set, 7, bit, at, at+0x40)
			want := uint32(0x36000207) | uint32(bit&31)<<19 | uint32(bit>>5)<<31
			if set {
				want |= 1 << 24
			}
			if i := Decode(b, at); err != nil || i.Target != at+0x40 || isa.ByteOrder.Uint32(b) != want {
				t.Fatalf("bit %d, %v: %x, to %v: %v", bit, set, b, i.Target, err)
			}
		}
	}
}
