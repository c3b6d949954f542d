package sweep

import (
	"bytes"
	"debug/elf"
	"encoding/binary"

	"kerninst/agent/isa"
)

// extensions is what objdump is told that riscv64 code may hold. Without an ELF
// file's word it knows the base set alone.
const extensions = "rv64imafdcvh_zicsr_zifencei_zicbom_zicboz_zicbop_zawrs_zba_zbb_zbs_zbc_zbkb_zvbb_zvbc_zvkned_zvknhb_zvkg_zicond_zacas_zcb_svinval_sstc"

var machines = map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64, "riscv64": elf.EM_RISCV}

// elfFile makes a file that objdump disassembles afresh from each start: one
// section of code at base, and a symbol at every start.
//
//	header | code | symbols | their names | section names | section headers
func elfFile(arch string, base isa.Addr, code []byte, starts []isa.Addr) []byte {
	const textIndex = 1
	names := []byte("\x00f\x00$x" + extensions + "\x00")
	symbols := []elf.Sym64{{}}
	for _, a := range starts {
		symbols = append(symbols, elf.Sym64{
			Name: 1, Info: byte(elf.STB_GLOBAL)<<4 | byte(elf.STT_FUNC), Shndx: textIndex, Value: uint64(a),
		})
	}
	locals := 1
	if arch == "riscv64" { // a mapping symbol says which extensions follow
		mapping := elf.Sym64{Name: 3, Shndx: textIndex, Value: uint64(base)}
		symbols = append(symbols[:1:1], append([]elf.Sym64{mapping}, symbols[1:]...)...)
		locals++
	}
	sectionNames := []byte("\x00.text\x00.symtab\x00.strtab\x00.shstrtab\x00")

	var b bytes.Buffer
	put := func(v any) (at uint64) {
		b.Write(make([]byte, -b.Len()&7))
		at = uint64(b.Len())
		_ = binary.Write(&b, binary.LittleEndian, v) // to memory
		return at
	}
	header := elf.Header64{
		Ident:   [elf.EI_NIDENT]byte{0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)},
		Type:    uint16(elf.ET_EXEC),
		Machine: uint16(machines[arch]), Version: uint32(elf.EV_CURRENT),
		Ehsize: 64, Shentsize: 64, Shnum: 5, Shstrndx: 4,
	}
	put(header)
	section := func(name uint32, kind elf.SectionType, at, size uint64) elf.Section64 {
		return elf.Section64{Name: name, Type: uint32(kind), Off: at, Size: size, Addralign: 1}
	}
	text := section(1, elf.SHT_PROGBITS, put(code), uint64(len(code)))
	text.Flags, text.Addr = uint64(elf.SHF_ALLOC|elf.SHF_EXECINSTR), uint64(base)
	table := section(7, elf.SHT_SYMTAB, put(symbols), uint64(len(symbols)*elf.Sym64Size))
	table.Link, table.Info, table.Entsize = 3, uint32(locals), elf.Sym64Size
	strings := section(15, elf.SHT_STRTAB, put(names), uint64(len(names)))
	titles := section(23, elf.SHT_STRTAB, put(sectionNames), uint64(len(sectionNames)))
	header.Shoff = put([]elf.Section64{{}, text, table, strings, titles})
	out := b.Bytes()
	var h bytes.Buffer
	_ = binary.Write(&h, binary.LittleEndian, header)
	copy(out, h.Bytes())
	return out
}
