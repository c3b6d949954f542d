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

// orders are what an atomic operation is called behind its name: by whether it releases, and whether it acquires.
var orders = [4]string{"", "l", "a", "al"}

// lseText is that of FEAT_LSE's loads and stores of one register (Arm ARM C4.1.94: atomic memory
// operations, and compare and swap).
func lseText(w word) string {
	size := w.bits(31, 30)
	r, suffix := "w", [4]string{"b", "h"}[size]
	if size == 3 {
		r = "x"
	}
	base := "sp"
	if n := w.bits(9, 5); n != 31 {
		base = fmt.Sprintf("x%d", n)
	}
	gpr := func(n uint32) string {
		if n == 31 {
			return r + "zr"
		}
		return fmt.Sprintf("%s%d", r, n)
	}
	s, t := gpr(w.bits(20, 16)), gpr(w.bits(4, 0))
	order := orders[w.bits(23, 22)] + suffix
	switch {
	case w.bits(29, 23) == 0b0010001 && w.bit(21) && w.bits(14, 10) == 0b11111:
		return fmt.Sprintf("cas%s%s %s, %s, [%s]", orders[w.bits(22, 22)<<1|w.bits(15, 15)], suffix, s, t, base)
	case w.bits(29, 24) != 0b111000 || !w.bit(21) || w.bits(11, 10) != 0:
		return ""
	case w.bits(15, 12) == 0b1000:
		return fmt.Sprintf("swp%s %s, %s, [%s]", order, s, t, base)
	case w.bit(15):
		return ""
	case w.bits(4, 0) == 31 && !w.bit(23):
		return fmt.Sprintf("st%s%s %s, [%s]", lse[w.bits(14, 12)], order, s, base)
	}
	return fmt.Sprintf("ld%s%s %s, %s, [%s]", lse[w.bits(14, 12)], order, s, t, base)
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
