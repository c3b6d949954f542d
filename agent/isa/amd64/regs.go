package amd64

import "kerninst/agent/isa"

// General registers in their encoding order, then the arithmetic flags (CF,
// PF, AF, ZF, SF, OF) as one unit. DF, IF and AC are not tracked: what changes
// them is privileged.
const (
	RAX isa.Reg = iota
	RCX
	RDX
	RBX
	RSP
	RBP
	RSI
	RDI
	R8
	R9
	R10
	R11
	R12
	R13
	R14
	R15
	Flags
)

var regNames = [...]string{
	"rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi",
	"r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15", "flags",
}

const maxLen = 15

const all = isa.RegSet(1<<(Flags+1) - 1)

// Arch is the descriptor of amd64.
var Arch = &isa.Arch{
	Name:      "amd64",
	MinLen:    1,
	MaxLen:    maxLen,
	Flags:     Flags,
	All:       all,
	NeverUse:  isa.Set(RSP),
	SP:        RSP,
	FP:        RBP,
	Saved:     isa.Set(3, 4, 5) | isa.Set(12, 13, 14, 15), // rbx rsp rbp r12-r15
	Trap:      []byte{0xcc},
	Break:     []byte{0xcc},
	RegName:   func(r isa.Reg) string { return regNames[r] },
	Decode:    Decode,
	Move:      Move,
	Call:      CallFor,
	Text:      Text,
	Scan:      Scan,
	ScanTail:  ScanTail,
	ScanShort: ScanShort,
	Absolute:  Absolute,
}
