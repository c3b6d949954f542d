package arm64

import (
	"fmt"

	"kerninst/agent/isa"
)

// General registers by number; 31 is SP (the zero register is none), then the
// flags N, Z, C, V as one unit.
const (
	X16   isa.Reg = 16
	X17   isa.Reg = 17
	X18   isa.Reg = 18
	FP    isa.Reg = 29
	LR    isa.Reg = 30
	SP    isa.Reg = 31
	Flags isa.Reg = 32
)

const all = isa.RegSet(1<<(Flags+1) - 1)

// Arch is the descriptor of arm64. X18 belongs to the platform, FP is the
// chain that the unwinder walks.
var Arch = &isa.Arch{
	Name:     "arm64",
	MinLen:   4,
	MaxLen:   4,
	Flags:    Flags,
	All:      all,
	NeverUse: isa.Set(X18, FP, SP),
	SP:       SP,
	FP:       FP,
	Saved:    isa.Range(18, 29) | isa.Set(31),
	Trap:     []byte{0x00, 0x20, 0x20, 0xd4},
	Break:    []byte{0x80, 0x00, 0x20, 0xd4}, // brk #4, as kprobes have it
	RegName:  regName,
	Decode:   Decode,
	Move:     Move,
	Call:     CallFor,
	Text:     Text,
	Op:       Op,
	Scan:     Scan,
	ScanTail: scanTail,
}

func regName(r isa.Reg) string {
	switch r {
	case SP:
		return "sp"
	case Flags:
		return "flags"
	}
	return fmt.Sprintf("x%d", r)
}
