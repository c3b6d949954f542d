package riscv64

import "kerninst/agent/isa"

// Registers by number. X0 is no register: it is in no set.
const (
	RA isa.Reg = 1
	SP isa.Reg = 2
	GP isa.Reg = 3
	TP isa.Reg = 4
	T0 isa.Reg = 5
	S0 isa.Reg = 8
)

// noFlags is the number of a register that does not exist.
const noFlags isa.Reg = 63

const all = isa.RegSet(1<<32 - 2)

var regNames = [...]string{
	"zero", "ra", "sp", "gp", "tp", "t0", "t1", "t2", "s0", "s1",
	"a0", "a1", "a2", "a3", "a4", "a5", "a6", "a7",
	"s2", "s3", "s4", "s5", "s6", "s7", "s8", "s9", "s10", "s11",
	"t3", "t4", "t5", "t6",
}

// Arch is the descriptor of riscv64. S0 is the frame pointer that the unwinder
// walks, GP the shadow call stack or the global pointer.
var Arch = &isa.Arch{
	Name:     "riscv64",
	MinLen:   2,
	MaxLen:   4,
	Flags:    noFlags,
	All:      all,
	NeverUse: isa.Set(SP, GP, TP, S0),
	SP:       SP,
	FP:       S0,
	Saved:    isa.Range(2, 4) | isa.Range(8, 9) | isa.Range(18, 27),
	Trap:     []byte{0x02, 0x90},
	Break:    []byte{0x02, 0x90},
	RegName:  func(r isa.Reg) string { return regNames[r] },
	Decode:   Decode,
	Move:     Move,
	Call:     CallFor,
	Text:     Text,
	Op:       Op,
	Far:      Far,
	Scan:     Scan,
	ScanTail: scanTail,
}
