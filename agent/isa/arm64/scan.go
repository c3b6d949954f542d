package arm64

import "kerninst/agent/isa"

// Scan marks whatever the bytes could jump to, or form the address of in one place:
//
//	000101, 100101 | imm26      b, bl
//	0101010 | imm19             b.cond, bc.cond
//	x011010 | imm19             cbz, cbnz
//	x011011 | b40 | imm14       tbz, tbnz
//	0 | lo | 10000 | hi         adr
//	1 | lo | 10000 | hi, add    adrp with the addition behind it, of the same register
//
// (Arm ARM, C4.1, branches, and data processing with an immediate.) It runs over the
// whole kernel inside an emulated guest, so it decodes by hand.
func Scan(b []byte, a isa.Addr, m *isa.Marks) {
	n := len(b) - scanTail
	for k := 0; k < n; k += 4 {
		w, at := isa.ByteOrder.Uint32(b[k:]), a+isa.Addr(k)
		switch {
		case w&0x7c000000 == 0x14000000:
			m.Add(at + field(w, 0, 26)<<2)
		case w&0xfe000000 == 0x54000000, w&0x7e000000 == 0x34000000:
			m.Add(at + field(w, 5, 19)<<2)
		case w&0x7e000000 == 0x36000000:
			m.Add(at + field(w, 5, 14)<<2)
		case w&0x1f000000 == 0x10000000:
			d := field(w, 5, 19)<<2 | isa.Addr(w>>29&3)
			next := isa.ByteOrder.Uint32(b[k+4:])
			switch {
			case w>>31 == 0:
				m.Add(at + d)
			case next&0xffc00000 == 0x91000000 && next>>5&31 == w&31: // add, 64 bits, not shifted
				m.Add(at&^4095 + d<<12 + isa.Addr(next>>10&0xfff))
			}
		}
	}
}

// field is a number of so many bits, with its sign, from a bit of a word on.
func field(w uint32, from, bits uint) isa.Addr {
	return isa.Addr(int64(uint64(w)<<(64-from-bits)) >> (64 - bits))
}

// scanTail: an instruction behind the last, for adrp.
const scanTail = 4
