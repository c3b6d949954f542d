package gen

import (
	"fmt"

	"kerninst/agent/isa"
	"kerninst/agent/isa/amd64"
	"kerninst/agent/isa/riscv64"
)

// hop is one short instruction that gets from a point to a springboard.
type hop struct {
	n      int // bytes
	lo, hi int // where the springboard may begin, in bytes from the point
	encode func(from, to isa.Addr) ([]byte, error)
}

// hops are those of an ISA, the one that reaches farthest first.
var hops = map[string][]hop{
	"amd64": {
		{amd64.ShortJumpLen, amd64.ShortJumpLen - 128, amd64.ShortJumpLen + 127, amd64.ShortJump},
	},
	"riscv64": {
		{riscv64.JumpLen, -riscv64.JumpReach, riscv64.JumpReach - 2, riscv64.Jump},
		{riscv64.ShortJumpLen, -riscv64.ShortJumpReach, riscv64.ShortJumpReach - 2, riscv64.ShortJump},
	},
}

// hopFor is the hop that an instruction of n bytes has room for.
func hopFor(arch *isa.Arch, n int) hop {
	for _, h := range hops[arch.Name] {
		if h.n <= n {
			return h
		}
	}
	return hop{}
}

// farthest is the length of the hop of an ISA that reaches farthest.
func farthest(arch *isa.Arch) int { return hops[arch.Name][0].n }

// Hop encodes the jump from a point, an instruction of n bytes, to a springboard.
func Hop(arch *isa.Arch, n int, from, to isa.Addr) ([]byte, error) {
	h := hopFor(arch, n)
	if h.n == 0 {
		return nil, fmt.Errorf("%w: %s has no jump of %d bytes", ErrReach, arch.Name, n)
	}
	code, err := h.encode(from, to)
	return code, reach(err)
}

// HopReach is how many bytes a Hop takes at an instruction of size bytes, and how far
// from there the springboard may begin, from lo to hi, both included. n is 0 where
// there is none.
func HopReach(arch *isa.Arch, size int) (n, lo, hi int) {
	h := hopFor(arch, size)
	return h.n, h.lo, h.hi
}
