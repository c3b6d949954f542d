package gen

import (
	"fmt"

	"kerninst/agent/isa"
	"kerninst/agent/isa/amd64"
)

// hops encode the one short instruction that gets from a point to a springboard.
var hops = map[string]struct {
	n      int // bytes
	lo, hi int // where the springboard may begin, in bytes from the point
	encode func(from, to isa.Addr) ([]byte, error)
}{
	"amd64": {amd64.ShortJumpLen, amd64.ShortJumpLen - 128, amd64.ShortJumpLen + 127, amd64.ShortJump},
}

// Hop encodes the jump from a point to a springboard.
func Hop(arch *isa.Arch, from, to isa.Addr) ([]byte, error) {
	h, ok := hops[arch.Name]
	if !ok {
		return nil, fmt.Errorf("%w: %s has no short jump", ErrReach, arch.Name)
	}
	code, err := h.encode(from, to)
	return code, reach(err)
}

// HopReach is how many bytes a Hop takes at a point, and how far from there the
// springboard may begin, from lo to hi, both included. n is 0 where there is none.
func HopReach(arch *isa.Arch) (n, lo, hi int) {
	h := hops[arch.Name]
	return h.n, h.lo, h.hi
}
