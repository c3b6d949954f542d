package amd64

import "kerninst/agent/isa"

// Scan marks whatever the bytes could jump to, call, or form the address of with
// a distance of four bytes, reading an instruction at every byte:
//
//	e8, e9 | rel32           call, jmp
//	0f | 80 to 8f | rel32    jcc
//	8d | mod 00, rm 101 | disp32   lea, rip-relative
//
// Jumps with a distance of one byte are left out: at every alignment, they would
// mark a tenth of all addresses. Who asks for targets decodes what lies within
// 128 bytes. It runs over the whole kernel inside an emulated guest, so it decodes
// by hand.
func Scan(b []byte, a isa.Addr, m *isa.Marks) {
	n := len(b) - ScanTail
	for k := 0; k < n; k++ {
		at := k + 2
		switch c := b[k]; {
		case c != 0xe8 && c != 0xe9 && c != 0x0f && c != 0x8d:
			continue
		case c == 0x0f && b[k+1]&0xf0 != 0x80, c == 0x8d && b[k+1]&0xc7 != 0x05:
			continue
		case c&0xfe == 0xe8:
			at = k + 1
		}
		d := int64(int32(isa.ByteOrder.Uint32(b[at:])))
		m.Add(a + isa.Addr(at+4) + isa.Addr(d))
	}
}

// ScanTail: an opcode of two bytes and a distance, less the byte it begins at.
const ScanTail = 5

// ScanShort marks whatever the bytes could jump to with a distance of one byte:
//
//	70 to 7f, e0 to e3, eb | rel8    jcc, loop and jrcxz, jmp
func ScanShort(b []byte, a isa.Addr, m *isa.Marks) {
	for k := range len(b) - 1 {
		if c := b[k]; c&0xf0 == 0x70 || c&0xfc == 0xe0 || c == 0xeb {
			m.Add(a + isa.Addr(k+2) + isa.Addr(int64(int8(b[k+1]))))
		}
	}
}
