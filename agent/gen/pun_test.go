package gen_test

import (
	"bytes"
	"errors"
	"testing"

	"kerninst/agent/gen"
	"kerninst/agent/isa"
	"kerninst/agent/isa/amd64"
)

// TestPuns: from any number of bytes that are given, each end of what a jump reaches is
// where it leads, and one byte farther is out of reach.
func TestPuns(t *testing.T) {
	const at isa.Addr = 0xffffffff9e8321f1
	for prefixes := range 3 {
		for _, tail := range [][]byte{{0x48}, {0x89, 0xe8}, {0xff, 0x7f, 0x10}, {1, 2, 3, 0x40}} {
			lo, hi := gen.PunReach(at, prefixes, tail)
			if size := isa.Addr(1) << (8 * (4 - len(tail))); hi-lo != size {
				t.Errorf("%x: reaches %v to %v", tail, lo, hi)
			}
			for _, to := range []isa.Addr{lo, lo + (hi-lo)/2, hi - 1} {
				code, err := gen.Pun(at, to, prefixes, tail)
				if len(tail) == 4 && to != lo {
					continue
				}
				if err != nil {
					t.Errorf("%x to %v: %v", tail, to, err)
					continue
				}
				i := amd64.Arch.Decode(append(bytes.Clone(code), tail...), at)
				if i.Flow != isa.FlowJump || i.Target != to || i.Len != gen.PunLen(prefixes) || len(code)+len(tail) != i.Len || i.Reads|i.Writes != 0 {
					t.Errorf("%x%x is %+v, to %v is wanted", code, tail, i, to)
				}
			}
			for _, to := range []isa.Addr{lo - 1, hi} {
				if code, err := gen.Pun(at, to, prefixes, tail); !errors.Is(err, gen.ErrReach) {
					t.Errorf("%x to %v: %x, %v", tail, to, code, err)
				}
			}
		}
	}
}
