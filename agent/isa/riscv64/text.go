package riscv64

import (
	"fmt"
	"sync"

	"golang.org/x/arch/riscv64/riscv64asm"

	"kerninst/agent/isa"
)

// mu guards riscv64asm.Decode, which writes to a package variable.
var mu sync.Mutex

// corrections lists encodings that riscv64asm v0.30.0 gets wrong or does not
// know, as far as kernel text holds them.
var corrections = map[word]string{
	0x10200073: "sret",
	0x10500073: "wfi",
	0x12000073: "sfence.vma",
	0xc0001073: "unimp",
}

// Text disassembles one instruction.
func Text(b []byte, a isa.Addr) string {
	i := Decode(b, a)
	if len(b) < i.Len {
		return ".insn"
	}
	w := word(isa.ByteOrder.Uint16(b))
	if i.Len == 4 {
		w = word(isa.ByteOrder.Uint32(b))
	}
	if s, ok := corrections[w]; ok {
		return s
	}
	if w == 0 {
		return "c.unimp"
	}
	mu.Lock()
	x, err := riscv64asm.Decode(b[:i.Len])
	mu.Unlock()
	if err != nil || x.Len != i.Len {
		return fmt.Sprintf(".insn %#x", uint32(w))
	}
	s := riscv64asm.GNUSyntax(x)
	if i.Target != 0 {
		s += fmt.Sprintf(" <%v>", i.Target)
	}
	return s
}
