package kernelelf

import (
	"bytes"
	"encoding/binary"
	"testing"
)

func words(of ...uint32) (b []byte) {
	for _, w := range of {
		if b = binary.LittleEndian.AppendUint16(b, uint16(w)); w&3 == 3 || w>>16 != 0 {
			b = binary.LittleEndian.AppendUint16(b, uint16(w>>16))
		}
	}
	return b
}

// Where each function is in its frame: offsets at which that changes, beginning
// with "in".
func TestRows(t *testing.T) {
	for _, tt := range []struct {
		arch, name string
		code       []byte
		want       []uint32
	}{
		// paciasp; stp x29, x30, [sp, #-32]!; mov x29, sp; bl; ldp x29, x30, [sp], #32; autiasp; ret; nop; b
		{"arm64", "frame", words(0xd503233f, 0xa9be7bfd, 0x910003fd, 0x94000010, 0xa8c27bfd, 0xd50323bf, 0xd65f03c0, 0xd503201f, 0x17fffffb), []uint32{12, 20, 28}},
		// sub sp, sp, #64; stp x29, x30, [sp, #48]; add x29, sp, #48; ldp x29, x30, [sp, #48]; ret
		{"arm64", "low frame", words(0xd10103ff, 0xa9037bfd, 0x9100c3fd, 0xa9437bfd, 0xd65f03c0), []uint32{12, 16, 20}},
		{"arm64", "leaf", words(0xd503201f, 0xd65f03c0, 0xd503201f), nil},
		// addi sp, sp, -32; sd ra; sd s0; addi s0, sp, 32; ld ra; ld s0; addi sp; ret; nop; j
		{"riscv64", "frame", words(0x1101, 0xec06, 0xe822, 0x1000, 0x60e2, 0x6442, 0x6105, 0x8082, 0x0001, 0xbff5), []uint32{8, 12, 16}},
		// addi sp, sp, -1024; addi s0, sp, 1024; ld s0, 1000(sp); jr ra
		{"riscv64", "large frame", words(0xc0010113, 0x40010413, 0x3e813403, 0x8082, 0x0001, 0x0001), []uint32{8, 12, 14}},
		{"riscv64", "leaf", words(0x0001, 0x8082, 0x0001, 0x0001), nil},
	} {
		u := unwindings[tt.arch]
		var got []uint32
		pc := uint32(0)
		for rows, in := u.rows(tt.code), true; len(rows) > 0; in = !in {
			rule := u.out
			if in {
				rule = u.in
			}
			if rows[0] != cfaAdvance4 || !bytes.HasPrefix(rows[5:], rule) {
				t.Fatalf("%s: %s: % x", tt.arch, tt.name, rows)
			}
			pc += binary.LittleEndian.Uint32(rows[1:])
			got, rows = append(got, pc), rows[5+len(rule):]
		}
		if len(got) != len(tt.want) {
			t.Errorf("%s: %s: %v, want %v", tt.arch, tt.name, got, tt.want)
			continue
		}
		for i := range got {
			if got[i] != tt.want[i] {
				t.Errorf("%s: %s: %v, want %v", tt.arch, tt.name, got, tt.want)
			}
		}
	}
}
