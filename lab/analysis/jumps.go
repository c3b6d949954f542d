package analysis

import (
	"fmt"
	"math"

	"kerninst/agent/gen"
	"kerninst/agent/isa"
	"kerninst/agent/isa/all"
	"kerninst/agent/isa/amd64"
	"kerninst/agent/isa/arm64"
	"kerninst/agent/isa/riscv64"
)

// Jump is a way to leave a point for a patch, as in figure 8 of the KernInst paper: how
// well it suits splicing of a single instruction. No ISA here has delay slots.
type Jump struct {
	Insn         string `json:"instruction"`
	Instructions int    `json:"instructions"` // more than one is hazardous but for who knows that nobody is between them
	Length       int    `json:"length"`       // bytes
	// Lo and Hi are how far the target may be from the instruction's first byte, in bytes,
	// both included; both 0: anywhere.
	Lo       int64  `json:"lo"`
	Hi       int64  `json:"hi"`
	Register string `json:"register,omitempty"` // that it needs; empty: none
	Effects  string `json:"side_effects,omitempty"`
	Use      string `json:"use,omitempty"` // what kerninst splices with it; empty: nothing

	arch   string
	step   int64 // targets are so many bytes apart
	encode func(from, to isa.Addr) ([]byte, error)
}

// someRegister is any that is not the instruction's own.
const someRegister = "one that is free"

// Intel SDM volume 2 (JMP, CALL), Arm ARM C6.2 (B, BL, BR), RISC-V ISA volume I (JAL,
// JALR, C.J). Reaches are those of the encoders that patches are made with; hop has those
// of short jumps from the generator.
var jumps = []Jump{
	{arch: "amd64", Insn: "jmp rel32", Instructions: 1, Length: amd64.JumpLen, Lo: amd64.JumpLen + math.MinInt32, Hi: amd64.JumpLen + math.MaxInt32,
		Use: "jump, quiesced, from springboards", step: 1, encode: amd64.Jump},
	hop("amd64", "jmp rel8", amd64.ShortJumpLen, 1, "springboard, from copies in padding"),
	{arch: "amd64", Insn: "call rel32", Instructions: 1, Length: amd64.JumpLen, Lo: amd64.JumpLen + math.MinInt32, Hi: amd64.JumpLen + math.MaxInt32,
		Effects: "writes below the stack pointer", step: 1, encode: amd64.Call},
	{arch: "amd64", Insn: "jmp *reg", Instructions: 1, Length: 2, Register: someRegister + " and set before"},
	{arch: "arm64", Insn: "b", Instructions: 1, Length: 4, Lo: -arm64.JumpReach, Hi: arm64.JumpReach - 4, Use: "jump", step: 4, encode: arm64.Jump},
	{arch: "arm64", Insn: "bl", Instructions: 1, Length: 4, Lo: -arm64.JumpReach, Hi: arm64.JumpReach - 4, Effects: "writes x30"},
	{arch: "arm64", Insn: "br reg", Instructions: 1, Length: 4, Register: someRegister + " and set before"},
	hop("riscv64", "jal x0", riscv64.JumpLen, 2, "springboard, from copies of patches"),
	hop("riscv64", "c.j", riscv64.ShortJumpLen, 2, "springboard, of two bytes"),
	{arch: "riscv64", Insn: "jal ra", Instructions: 1, Length: riscv64.JumpLen, Lo: -riscv64.JumpReach, Hi: riscv64.JumpReach - 2, Effects: "writes ra"},
	{arch: "riscv64", Insn: "jalr x0, n(reg)", Instructions: 1, Length: 4, Lo: -riscv64.ShortJumpReach, Hi: riscv64.ShortJumpReach - 1, Register: someRegister + " and set before: the reach is from what it holds"},
	{arch: "riscv64", Insn: "auipc reg; jalr x0, n(reg)", Instructions: 2, Length: riscv64.FarJumpLen, Lo: math.MinInt32 - riscv64.ShortJumpReach, Hi: math.MaxInt32 - riscv64.ShortJumpReach - 1,
		Register: someRegister, Effects: "overwrites it", Use: "quiesced, from springboards", step: 2,
		encode: func(from, to isa.Addr) ([]byte, error) { return riscv64.FarJump(5, from, to) }},
}

// hop is a short jump as the generator has it.
func hop(name, insn string, length int, step int64, use string) Jump {
	arch, err := all.Lookup(name)
	if err != nil {
		panic(err) // the table is wrong
	}
	n, lo, hi := gen.HopReach(arch, length)
	if n != length {
		panic(fmt.Sprintf("%s: no short jump of %d bytes", name, length))
	}
	return Jump{arch: name, Insn: insn, Instructions: 1, Length: n, Lo: int64(lo), Hi: int64(hi), Use: use, step: step,
		encode: func(from, to isa.Addr) ([]byte, error) { return gen.Hop(arch, length, from, to) }}
}

// JumpsOf are the jumps of an ISA.
func JumpsOf(arch string) (out []Jump) {
	for _, j := range jumps {
		if j.arch == arch {
			out = append(out, j)
		}
	}
	return out
}

// reach is how far a jump goes, for people.
func (j Jump) reach() string {
	if j.Lo == 0 && j.Hi == 0 {
		return "anywhere"
	}
	return "± " + size(max(-j.Lo, j.Hi)&^(1<<(bits(max(-j.Lo, j.Hi))-1)-1))
}

// bits is how many a positive number has.
func bits(n int64) (k int) {
	for ; n > 0; n >>= 1 {
		k++
	}
	return k
}

// size writes a power of two of bytes.
func size(n int64) string {
	for _, u := range []struct {
		name  string
		shift int
	}{{"GiB", 30}, {"MiB", 20}, {"KiB", 10}} {
		if n >= 1<<u.shift {
			return fmt.Sprintf("%d %s", n>>u.shift, u.name)
		}
	}
	return fmt.Sprintf("%d bytes", n)
}
