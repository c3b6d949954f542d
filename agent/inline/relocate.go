package inline

import (
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
)

// relocation is what a file's sections are relocated by.
type relocation struct {
	f       *elf.File
	symbols []elf.Symbol                // without the first, which is none
	at      map[elf.SectionIndex]uint64 // where sections are; others begin at 0
}

// how is what becomes of the bytes that a relocation is of, by S, the symbol's value, and A, the addend.
type how uint8

const (
	nothing how = iota
	whole       // S+A, which has to fit
	put         // S+A, as far as it fits: something is subtracted from it later
	add         // what is there, and S+A
	sub         // what is there, less S+A
	put6        // put and sub of the lower 6 bits of a byte, whose others stay
	sub6
	putULEB // put and sub of a ULEB128, which stays as long as it is
	subULEB
)

// relocator is one kind of relocation.
type relocator struct {
	how   how
	bytes int // of put, add and sub
}

// relocators are those that debugging information has, by the ISA's number: System V ABI for AMD64, table 4.9; ELF
// for the Arm 64-bit architecture, section 5.7; RISC-V ELF psABI, table 3. GNU as for RISC-V leaves differences of labels to
// the linker, which may make code shorter between these, or put nothing else there.
var relocators = map[elf.Machine]map[uint32]relocator{
	elf.EM_X86_64: {
		uint32(elf.R_X86_64_NONE): {}, uint32(elf.R_X86_64_64): {whole, 8}, uint32(elf.R_X86_64_32): {whole, 4},
	},
	elf.EM_AARCH64: {
		uint32(elf.R_AARCH64_NONE): {}, uint32(elf.R_AARCH64_ABS64): {whole, 8}, uint32(elf.R_AARCH64_ABS32): {whole, 4},
	},
	elf.EM_RISCV: {
		uint32(elf.R_RISCV_NONE): {}, uint32(elf.R_RISCV_RELAX): {}, uint32(elf.R_RISCV_64): {whole, 8}, uint32(elf.R_RISCV_32): {whole, 4},
		uint32(elf.R_RISCV_ADD8): {add, 1}, uint32(elf.R_RISCV_ADD16): {add, 2}, uint32(elf.R_RISCV_ADD32): {add, 4}, uint32(elf.R_RISCV_ADD64): {add, 8},
		uint32(elf.R_RISCV_SUB8): {sub, 1}, uint32(elf.R_RISCV_SUB16): {sub, 2}, uint32(elf.R_RISCV_SUB32): {sub, 4}, uint32(elf.R_RISCV_SUB64): {sub, 8},
		uint32(elf.R_RISCV_SET8): {put, 1}, uint32(elf.R_RISCV_SET16): {put, 2}, uint32(elf.R_RISCV_SET32): {put, 4},
		uint32(elf.R_RISCV_SET6): {how: put6}, uint32(elf.R_RISCV_SUB6): {how: sub6},
		riscvSetULEB: {how: putULEB}, riscvSubULEB: {how: subULEB},
	},
}

// Go's debug/elf has no names for these.
const riscvSetULEB, riscvSubULEB = 60, 61

// relaSize is that of an Elf64_Rela, in bytes.
const relaSize = 24

// section is a section with its relocations done.
func (r *relocation) section(k elf.SectionIndex) ([]byte, error) {
	b, err := r.f.Sections[k].Data()
	if err != nil {
		return nil, err
	}
	for _, s := range r.f.Sections {
		if s.Type != elf.SHT_RELA || elf.SectionIndex(s.Info) != k {
			continue
		}
		list, err := s.Data()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", s.Name, err)
		}
		for ; len(list) >= relaSize; list = list[relaSize:] {
			if err := r.one(b, list); err != nil {
				return nil, fmt.Errorf("%s: %w", s.Name, err)
			}
		}
	}
	return b, nil
}

// one does the first relocation of a list.
func (r *relocation) one(b, rela []byte) error {
	at, info := binary.LittleEndian.Uint64(rela), binary.LittleEndian.Uint64(rela[8:])
	kind, symbol := elf.R_TYPE64(info), elf.R_SYM64(info)
	do, known := relocators[r.f.Machine][kind]
	switch {
	case !known:
		return fmt.Errorf("a relocation of kind %d at %#x, which debugging information does not have", kind, at)
	case do.how == nothing:
		return nil
	case symbol == 0 || int(symbol) > len(r.symbols):
		return fmt.Errorf("the relocation at %#x is by symbol %d, and there are %d", at, symbol, len(r.symbols))
	case at > uint64(len(b)):
		return fmt.Errorf("a relocation at %#x, behind the end", at)
	}
	s := r.symbols[symbol-1]
	if err := do.change(b[at:], r.at[s.Section]+s.Value+binary.LittleEndian.Uint64(rela[16:])); err != nil {
		return fmt.Errorf("the relocation at %#x, by %s: %w", at, s.Name, err)
	}
	return nil
}

var (
	errBehind = errors.New("it is cut off")
	errNoFit  = errors.New("the value does not fit")
)

// change does it to the bytes at its place.
func (d relocator) change(b []byte, v uint64) error {
	switch d.how {
	case whole, put, add, sub:
		return d.word(b, v)
	case put6, sub6:
		if len(b) == 0 {
			return errBehind
		}
		if d.how == sub6 {
			v = uint64(b[0]) - v
		}
		b[0] = b[0]&^0x3f | byte(v)&0x3f
		return nil
	}
	old, n := binary.Uvarint(b)
	if n <= 0 {
		return errBehind
	}
	if d.how == subULEB {
		v = old - v
	}
	for k := range n {
		more := b[k] & 0x80
		b[k] = byte(v)&0x7f | more
		v >>= 7
	}
	return nil
}

// word changes one of 1, 2, 4 or 8 bytes.
func (d relocator) word(b []byte, v uint64) error {
	if len(b) < d.bytes {
		return errBehind
	}
	var w [8]byte
	copy(w[:], b[:d.bytes])
	switch old := binary.LittleEndian.Uint64(w[:]); {
	case d.how == add:
		v += old
	case d.how == sub:
		v = old - v
	case d.how == whole && d.bytes < 8 && v>>(8*d.bytes) != 0:
		return errNoFit
	}
	binary.LittleEndian.PutUint64(w[:], v)
	copy(b, w[:d.bytes])
	return nil
}
