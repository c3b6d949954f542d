package riscv64

import (
	"fmt"
	"math/bits"

	"kerninst/agent/isa"
)

// Encodings of what looks into tasks and changes records (the unprivileged manual's RV64I
// and M).

// Multiplied and Divided are operations of ALUReg: the low 64 bits of the product, and the
// quotient without a sign.
var (
	Multiplied = ALU{1, 0}
	Divided    = ALU{1, 5}
)

// LoadAt encodes the load of 1, 2, 4 or 8 bytes at off(base), extended to 64 bits.
func LoadAt(rd, base isa.Reg, off int32, bytes int, signed bool) ([]byte, error) {
	if off < -2048 || off > 2047 {
		return nil, fmt.Errorf("load: offset %d", off)
	}
	funct := uint32(bits.Len(uint(bytes)) - 1)
	if !signed && bytes < 8 {
		funct |= 4
	}
	return immediate(off, base, funct, rd, 0x03), general("load", rd, base)
}

// FenceLoads encodes fence r,r: what is read behind it is not read before.
func FenceLoads() []byte { return emit32(0x0220000f) }

// LoadNear encodes auipc rd; l rd, lo(rd), the load of 1, 2, 4 or 8 bytes at to, extended by their sign. It returns
// the number of instructions.
func LoadNear(rd isa.Reg, a, to isa.Addr, bytes int) ([]byte, int, error) {
	hi, lo, err := split("load", a, to)
	if err != nil {
		return nil, 0, err
	}
	load, err := LoadAt(rd, rd, lo, bytes, true)
	return append(auipc(rd, hi), load...), 2, err
}

// ShiftRightLower encodes srliw rd, rs1, n: of the lower half what is left above, the upper half
// is 0 but for n of 0, which is refused.
func ShiftRightLower(rd, rs1 isa.Reg, n uint8) ([]byte, error) {
	if n < 1 || n > 31 {
		return nil, fmt.Errorf("shift of a lower half by %d", n)
	}
	return immediate(int32(n), rs1, 5, rd, 0x1b), general("shift", rd, rs1)
}
