package arm64

import (
	"bytes"
	"testing"

	"kerninst/agent/isa"
)

// TestFar reads back each form of a jump through a register, and nothing that differs
// from one in a bit but where it leads.
func TestFar(t *testing.T) {
	const from isa.Addr = 0xffff800080001234
	for _, to := range []isa.Addr{from, from + 1<<20 - 4, from - 1<<20, from&^0xfff + 1<<31, from + 1<<31, from - 1<<32 + 0x1000, from + 1<<32 - 0x1000} {
		for _, r := range []isa.Reg{0, 16, LR} {
			b, n, err := FarJump(r, from, to)
			if err != nil || n != len(b)/4 {
				t.Fatalf("%v: %d instructions in %x, %v", to, n, b, err)
			}
			if got, by, len_, ok := Far(append(bytes.Clone(b), b...), from); !ok || got != to || by != r || len_ != len(b) {
				t.Errorf("to %v by x%d: %x leads to %v by x%d, %d bytes, %v", to, r, b, got, by, len_, ok)
			}
			for bit := range 8 * len(b) {
				spoilt := bytes.Clone(b)
				spoilt[bit/8] ^= 1 << (bit % 8)
				if got, by, len_, ok := Far(spoilt, from); ok && got == to && by == r && len_ == len(b) {
					t.Errorf("to %v by x%d: %x is taken for %x", to, r, spoilt, b)
				}
			}
			for k := range len(b) {
				if _, _, _, ok := Far(b[:k], from); ok {
					t.Errorf("%x is taken for a jump", b[:k])
				}
			}
		}
	}
	for _, to := range []isa.Addr{from + 1<<32 + 1<<12, from - 1<<32 - 1<<12} {
		if b, _, err := FarJump(16, from, to); err == nil {
			t.Errorf("%v: %x", to, b)
		}
	}
	if _, _, err := FarJump(SP, from, from); err == nil {
		t.Error("br sp was encoded")
	}
}
