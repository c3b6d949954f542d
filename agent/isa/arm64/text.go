package arm64

import (
	"fmt"
	"strings"
	"sync"

	"golang.org/x/arch/arm64/arm64asm"

	"kerninst/agent/isa"
)

// mu guards arm64asm.Decode, which writes to a package variable.
var mu sync.Mutex

// hintText names hints that arm64asm v0.30.0 does not know.
var hintText = map[uint32]string{
	25: "paciasp", 27: "pacibsp", 29: "autiasp", 31: "autibsp",
	7: "xpaclri", 20: "csdb", 32: "bti", 34: "bti c", 36: "bti j", 38: "bti jc",
}

// lse names the atomic operations on memory by opc, which arm64asm v0.30.0
// does not know.
var lse = [8]string{"add", "clr", "eor", "set", "smax", "smin", "umax", "umin"}

// Text disassembles one instruction.
func Text(b []byte, a isa.Addr) string {
	if len(b) < 4 {
		return ".inst"
	}
	w := word(isa.ByteOrder.Uint32(b))
	if w&0xfffff01f == 0xd503201f {
		if s, ok := hintText[w.bits(11, 5)]; ok {
			return s
		}
	}
	if s := lseText(w); s != "" {
		return s
	}
	mu.Lock()
	x, err := arm64asm.Decode(b)
	mu.Unlock()
	if err != nil {
		return fmt.Sprintf(".inst %#08x", uint32(w))
	}
	if i := Decode(b, a); i.Target != 0 {
		return branchText(w, i)
	}
	return strings.TrimSuffix(arm64asm.GNUSyntax(x), " ") // of those without operands
}

func lseText(w word) string {
	if w.bits(29, 24) != 0b111000 || !w.bit(21) || w.bits(11, 10) != 0 || w.bits(15, 15) != 0 || w.bits(31, 30) < 2 {
		return ""
	}
	r := "w"
	if w.bits(31, 30) == 3 {
		r = "x"
	}
	order := [4]string{"", "l", "a", "al"}[w.bits(23, 22)]
	base := "sp"
	if n := w.bits(9, 5); n != 31 {
		base = fmt.Sprintf("x%d", n)
	}
	op := lse[w.bits(14, 12)]
	if w.bits(4, 0) == 31 && !w.bit(23) {
		return fmt.Sprintf("st%s%s %s%d, [%s]", op, order, r, w.bits(20, 16), base)
	}
	return fmt.Sprintf("ld%s%s %s%d, %s%d, [%s]", op, order, r, w.bits(20, 16), r, w.bits(4, 0), base)
}

// branchText prints direct branches with the target's address.
func branchText(w word, i isa.Insn) string {
	size := "w"
	if w.bit(31) {
		size = "x"
	}
	switch {
	case i.Flow == isa.FlowJump:
		return fmt.Sprintf("b %v", i.Target)
	case i.Flow == isa.FlowCall:
		return fmt.Sprintf("bl %v", i.Target)
	case w.bits(31, 24) == 0b01010100:
		return fmt.Sprintf("b.%s %v", conds[w.bits(3, 0)], i.Target)
	case w.bits(30, 25) == 0b011010:
		return fmt.Sprintf("cb%s %s%d, %v", zero[w.bits(24, 24)], size, w.bits(4, 0), i.Target)
	}
	n := w.bits(31, 31)<<5 | w.bits(23, 19)
	return fmt.Sprintf("tb%s %s%d, #%d, %v", zero[w.bits(24, 24)], size, w.bits(4, 0), n, i.Target)
}

var (
	zero  = [2]string{"z", "nz"}
	conds = [16]string{"eq", "ne", "cs", "cc", "mi", "pl", "vs", "vc", "hi", "ls", "ge", "lt", "gt", "le", "al", "nv"}
)
