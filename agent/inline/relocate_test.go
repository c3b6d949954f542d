package inline

import (
	"bytes"
	"debug/elf"
	"testing"
)

// TestRelocators: what each kind of relocation makes of bytes, in pairs where these come to a difference.
func TestRelocators(t *testing.T) {
	type step struct {
		kind uint32
		v    uint64
	}
	const far = pseudoText + 0x1234
	for name, tt := range map[string]struct {
		machine elf.Machine
		b       []byte
		steps   []step
		want    []byte // nil: it does not fit
	}{
		"an address":            {elf.EM_X86_64, make([]byte, 9), []step{{uint32(elf.R_X86_64_64), far}}, []byte{0x34, 0x12, 0, 0, 0, 1, 0, 0, 0}},
		"an offset":             {elf.EM_AARCH64, []byte{1, 2, 3, 4, 5}, []step{{uint32(elf.R_AARCH64_ABS32), 0x89abcdef}}, []byte{0xef, 0xcd, 0xab, 0x89, 5}},
		"an address in 32 bits": {elf.EM_X86_64, make([]byte, 8), []step{{uint32(elf.R_X86_64_32), far}}, nil},
		"cut off":               {elf.EM_RISCV, make([]byte, 7), []step{{uint32(elf.R_RISCV_64), 1}}, nil},
		"nothing":               {elf.EM_RISCV, []byte{7}, []step{{uint32(elf.R_RISCV_RELAX), far}}, []byte{7}},
		"16 bits":               {elf.EM_RISCV, make([]byte, 2), []step{{uint32(elf.R_RISCV_ADD16), far}, {uint32(elf.R_RISCV_SUB16), far - 0x102}}, []byte{2, 1}},
		"64 bits":               {elf.EM_RISCV, make([]byte, 8), []step{{uint32(elf.R_RISCV_ADD64), far}, {uint32(elf.R_RISCV_SUB64), pseudoText}}, []byte{0x34, 0x12, 0, 0, 0, 0, 0, 0}},
		"set 8 bits":            {elf.EM_RISCV, []byte{0xff}, []step{{uint32(elf.R_RISCV_SET8), far}, {uint32(elf.R_RISCV_SUB8), far - 5}}, []byte{5}},
		"6 bits":                {elf.EM_RISCV, []byte{0x7f}, []step{{uint32(elf.R_RISCV_SET6), far}, {uint32(elf.R_RISCV_SUB6), far - 5}}, []byte{0x45}},
		"a ULEB128":             {elf.EM_RISCV, []byte{0x80, 0x80, 0x00, 9}, []step{{riscvSetULEB, far}, {riscvSubULEB, far - 0x1ff}}, []byte{0xff, 0x83, 0x00, 9}},
		"a ULEB128 cut off":     {elf.EM_RISCV, []byte{0x80}, []step{{riscvSetULEB, 1}}, nil},
	} {
		b := bytes.Clone(tt.b)
		var err error
		for _, s := range tt.steps {
			do := relocators[tt.machine][s.kind]
			if err == nil && do.how != nothing {
				err = do.change(b, s.v)
			}
		}
		if tt.want == nil && err == nil || tt.want != nil && (err != nil || !bytes.Equal(b, tt.want)) {
			t.Errorf("%s: %x, %v, want %x", name, b, err, tt.want)
		}
	}
}
