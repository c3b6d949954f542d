package gen

import (
	"bytes"
	"fmt"

	"kerninst/agent/isa"
	"kerninst/agent/isa/amd64"
)

// PunLen is how long a punned jump is, behind so many prefixes: of that, an instruction's
// own bytes are written, and those behind it are what they are.
func PunLen(prefixes int) int { return prefixes + amd64.JumpLen }

// PunReach is where the punned jump at from may lead, hi excluded, of which tail are the
// last bytes: the highest of its displacement.
func PunReach(from isa.Addr, prefixes int, tail []byte) (lo, hi isa.Addr) {
	const displacement = 4
	d, free := int32(0), displacement-len(tail)
	for k, b := range tail {
		d |= int32(b) << (8 * (free + k))
	}
	lo = from + isa.Addr(PunLen(prefixes)) + isa.Addr(int64(d))
	return lo, lo + 1<<(8*free)
}

// Pun encodes what is written of the punned jump from a point to a patch.
func Pun(from, to isa.Addr, prefixes int, tail []byte) ([]byte, error) {
	code, err := amd64.PunnedJump(from, to, prefixes)
	if err != nil {
		return nil, reach(err)
	}
	own, ok := bytes.CutSuffix(code, tail)
	if !ok {
		return nil, fmt.Errorf("%w: a jump from %v to %v does not end in %x", ErrReach, from, to, tail)
	}
	return own, nil
}
