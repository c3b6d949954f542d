package riscv64

import "kerninst/agent/isa"

// Scan marks whatever the bytes could jump to, reading an instruction at every
// second byte: branches, jal, c.j, c.beqz, c.bnez, and auipc joined with the
// jalr or addi that follows it. It runs over the whole kernel inside an
// emulated guest, so it decodes by hand and only what can have a target.
func Scan(b []byte, a isa.Addr, m *isa.Marks) {
	n := len(b) - scanTail
	for k := 0; k < n; k += 2 {
		h := word(b[k]) | word(b[k+1])<<8
		switch h & 3 {
		case 0, 2:
			continue
		case 1:
			switch h >> 13 {
			case 5:
				m.Add(a + isa.Addr(k) + isa.Addr(h.immCJ()))
			case 6, 7:
				m.Add(a + isa.Addr(k) + isa.Addr(h.immCB()))
			}
			continue
		}
		switch h & 0x7f {
		case 0x63:
			w := word(isa.ByteOrder.Uint32(b[k:]))
			m.Add(a + isa.Addr(k) + isa.Addr(w.immB()))
		case 0x6f:
			w := word(isa.ByteOrder.Uint32(b[k:]))
			m.Add(a + isa.Addr(k) + isa.Addr(w.immJ()))
		case 0x17:
			w := word(isa.ByteOrder.Uint32(b[k:]))
			next := word(isa.ByteOrder.Uint32(b[k+4:]))
			if t, ok := joined(w, next, a+isa.Addr(k)); ok {
				m.Add(t)
			}
		}
	}
}

// joined is the address that auipc w at a and the instruction behind it form:
// a far jump or call, or the address of a label. The addition may also be
// compressed, which can only follow with the same register.
func joined(w, next word, a isa.Addr) (isa.Addr, bool) {
	rd := w.bits(11, 7)
	base := a + isa.Addr(w.immU())
	isJalr := next&0x707f == 0x67
	isAddi := next&0x707f == 0x13
	if (isJalr || isAddi) && next.bits(19, 15) == rd {
		return base + isa.Addr(next.immI()), true
	}
	if next&0xe003 == 0x0001 && next.bits(11, 7) == rd { // c.addi
		return base + isa.Addr(signed(next.at(12, 12, 5)|next.bits(6, 2), 6)), true
	}
	return 0, false
}

// scanTail: auipc and what follows it.
const scanTail = 8

// Far decodes auipc r; jalr x0, lo(r).
func Far(b []byte, a isa.Addr) (to isa.Addr, n int, ok bool) {
	if len(b) < FarJumpLen {
		return 0, 0, false
	}
	w, next := word(isa.ByteOrder.Uint32(b)), word(isa.ByteOrder.Uint32(b[4:]))
	if w&0x7f != 0x17 || w.bits(11, 7) == 0 || next&0x7fff != 0x67 {
		return 0, 0, false
	}
	to, ok = joined(w, next, a)
	return to &^ 1, FarJumpLen, ok
}
