package arm64

import (
	"testing"

	"kerninst/agent/isa"
)

// TestMasks: only masks of low bits are told as such; those that repeat themselves are not (Arm ARM, DecodeBitMasks).
func TestMasks(t *testing.T) {
	for name, c := range map[string]struct {
		word uint32
		imm  int64 // 0: no mask
	}{
		"and x0, x1, #0xff":        {0x92401c20, 0xff},
		"and w0, w1, #0xff":        {0x12001c20, 0xff},
		"and x0, x1, #0xffffffff":  {0x92407c20, 0xffffffff},
		"and x0, x1, #0xf0000000f": {0x92000c20, 0},
		"and w0, w1, #0x55555555":  {0x1200f020, 0},
	} {
		op := Arch.Op(isa.ByteOrder.AppendUint32(nil, c.word), 0)
		if (op.Kind == isa.OpAnd) != (c.imm != 0) || op.Imm != c.imm {
			t.Errorf("%s: %+v", name, op)
		}
	}
}
