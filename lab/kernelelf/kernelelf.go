// Package kernelelf writes a running kernel as an ELF file, so that debuggers and
// disassemblers read it as they read a vmlinux: code, tables and symbols at the
// addresses that one boot gave them.
package kernelelf

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sort"
	"strconv"
	"strings"

	"kerninst/agent/ktext"
)

// machines are the ELF names of the ISAs. The flag of riscv64 says that there are
// compressed instructions (RISC-V ELF psABI, "File Header").
var machines = map[string]struct {
	machine elf.Machine
	flags   uint32
}{
	"amd64":   {machine: elf.EM_X86_64},
	"arm64":   {machine: elf.EM_AARCH64},
	"riscv64": {machine: elf.EM_RISCV, flags: 1},
}

// Section is a stretch of memory.
type Section struct {
	Name string
	Addr uint64
	Code bool
	Data []byte
	Size uint64 // in bytes, if the data are not known: then there are none
}

func (s *Section) size() uint64 { return max(s.Size, uint64(len(s.Data))) }

// Symbol names an address.
type Symbol struct {
	Name string
	Addr uint64
	Code bool
}

// Image is what a file is made of.
type Image struct {
	Arch     string
	Sections []Section
	Symbols  []Symbol
	orc      *orc // of amd64; nil: not known
}

// FromDump makes the image of a kernel out of its dump. slide is added to every
// address of the kernel proper: 0 for the boot that the dump is of, with which
// alone the modules come, as they lie elsewhere in every boot. live, if it is not
// nil, reads the memory of the kernel that the image is to be of; where it fails,
// the dump's bytes are taken. own are the modules of that kernel, in place of the
// dump's; nil: they are the dump's.
func FromDump(d *ktext.Dump, slide uint64, own []*ktext.Functions, live func(addr uint64, n int) ([]byte, error)) (*Image, error) {
	im := &Image{Arch: d.Arch}
	var kallsyms []byte
	modules := slide == 0 && own == nil // the dump's
	for _, p := range d.Parts {
		module := strings.HasPrefix(p.Name, "module ")
		switch {
		case p.Name == "kallsyms":
			kallsyms = p.Data
		case p.Addr == 0 || module && !modules:
		default:
			s := Section{Name: "." + strings.ReplaceAll(strings.TrimPrefix(p.Name, "."), " ", "."), Addr: uint64(p.Addr) + slide,
				Code: strings.Contains(p.Name, "text"), Data: p.Data}
			if live != nil {
				if b, err := live(s.Addr, p.Size); err == nil {
					s.Data = b
				}
			}
			im.Sections = append(im.Sections, s)
		}
	}
	im.addBoot(kallsyms, slide)
	im.addModules(own, live)
	if err := im.addSymbols(kallsyms, slide, modules); err != nil || live == nil || d.Arch != "amd64" {
		return im, err
	}
	// Without it, as when memory cannot be read now, debuggers guess.
	im.orc, _ = readORC(im.Symbols, live)
	return im, nil
}

// addModules adds modules of which the functions' names are known.
func (im *Image) addModules(list []*ktext.Functions, live func(addr uint64, n int) ([]byte, error)) {
	for _, m := range list {
		s := Section{Name: ".module." + m.Module, Addr: uint64(m.Lo), Code: true, Size: uint64(m.Hi - m.Lo)}
		if live != nil {
			if b, err := live(s.Addr, int(s.Size)); err == nil {
				s.Data, s.Size = b, 0
			}
		}
		im.Sections = append(im.Sections, s)
		for k, at := range m.At {
			im.Symbols = append(im.Symbols, Symbol{Name: m.Names[k], Addr: uint64(at), Code: true})
		}
	}
}

// addSymbols reads lines of /proc/kallsyms: address, type, name, and of a module's
// its name in brackets, which are left out unless modules are wanted.
func (im *Image) addSymbols(kallsyms []byte, slide uint64, modules bool) error {
	lo, hi, err := bounds(kallsyms)
	if err != nil {
		return err
	}
	for line := range bytes.Lines(kallsyms) {
		f := strings.Fields(string(line))
		if len(f) < 3 {
			return fmt.Errorf("kallsyms: %q is not an address, a type and a name", line)
		}
		a, err := strconv.ParseUint(f[0], 16, 64)
		if err != nil {
			return fmt.Errorf("kallsyms: %w", err)
		}
		if len(f) > 3 && !modules {
			continue
		}
		if a >= lo && a <= hi { // else a module, or an offset into per-CPU memory
			a += slide
		}
		im.Symbols = append(im.Symbols, Symbol{Name: f[2], Addr: a, Code: strings.ContainsAny(f[1], "tTwW")})
	}
	return nil
}

// bounds of the kernel's image in memory, which move together.
func bounds(kallsyms []byte) (lo, hi uint64, err error) {
	lo, ok1 := mark(kallsyms, "_text")
	hi, ok2 := mark(kallsyms, "_end")
	if !ok1 || !ok2 {
		return 0, 0, errors.New("kallsyms: no _text or no _end: not a kernel's symbols")
	}
	return lo, hi, nil
}

// mark is the address of a symbol of the kernel proper.
func mark(kallsyms []byte, name string) (uint64, bool) {
	at := bytes.Index(kallsyms, []byte(" "+name+"\n"))
	if at < 0 {
		return 0, false
	}
	line := kallsyms[bytes.LastIndexByte(kallsyms[:at], '\n')+1 : at]
	hex, _, _ := bytes.Cut(line, []byte(" "))
	a, err := strconv.ParseUint(string(hex), 16, 64)
	return a, err == nil
}

// addBoot adds the text that runs only at boot, whose bytes no dump has: it is
// freed. Debuggers give an address no name that is in no section.
func (im *Image) addBoot(kallsyms []byte, slide uint64) {
	lo, ok1 := mark(kallsyms, "_sinittext")
	hi, ok2 := mark(kallsyms, "_einittext")
	if ok1 && ok2 && hi > lo {
		im.Sections = append(im.Sections, Section{Name: ".init.text", Addr: lo + slide, Code: true, Size: hi - lo})
	}
}

// Sizes of the ELF structures, in bytes (System V ABI, chapter 4).
const headerSize, sectionSize, symbolSize = 64, 64, 24

// Write writes the file: header, sections' data, frames, symbols, names, section
// table.
func (im *Image) Write(w io.Writer) error {
	m, ok := machines[im.Arch]
	if !ok {
		return fmt.Errorf("ELF: machine %q is unknown here", im.Arch)
	}
	sort.SliceStable(im.Sections, func(i, j int) bool { return im.Sections[i].Addr < im.Sections[j].Addr })
	f := &file{at: headerSize, headers: make([]elf.Section64, 1), names: newNames()}
	for _, s := range im.Sections {
		flags := elf.SHF_ALLOC
		if s.Code {
			flags |= elf.SHF_EXECINSTR
		}
		kind := elf.SHT_PROGBITS
		if s.Size > 0 {
			kind = elf.SHT_NOBITS
		}
		f.add(s.Name, s.Data, elf.Section64{Type: uint32(kind), Flags: uint64(flags), Addr: s.Addr, Size: s.Size, Addralign: 1})
	}
	if frames := im.frames(); frames != nil {
		f.add(".debug_frame", frames, elf.Section64{Type: uint32(elf.SHT_PROGBITS), Addralign: 8})
	}
	symbols, strings := im.symbolTable()
	n := uint32(len(f.headers))
	f.add(".symtab", symbols, elf.Section64{Type: uint32(elf.SHT_SYMTAB), Link: n + 1, Info: 1, Addralign: 8, Entsize: symbolSize})
	f.add(".strtab", strings, elf.Section64{Type: uint32(elf.SHT_STRTAB), Addralign: 1})
	f.headers = append(f.headers, elf.Section64{Name: f.names.add(".shstrtab"), Type: uint32(elf.SHT_STRTAB),
		Off: f.at, Size: uint64(len(f.names.data)), Addralign: 1})
	f.parts = append(f.parts, f.names.data)
	h := elf.Header64{
		Ident: [elf.EI_NIDENT]byte{0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)},
		Type:  uint16(elf.ET_EXEC), Machine: uint16(m.machine), Version: uint32(elf.EV_CURRENT), Flags: m.flags,
		Shoff: f.at + uint64(len(f.names.data)), Ehsize: headerSize, Shentsize: sectionSize,
		Shnum: uint16(len(f.headers)), Shstrndx: uint16(n + 2),
	}
	if len(f.headers) >= int(elf.SHN_LORESERVE) {
		return fmt.Errorf("ELF: %d sections are too many", len(f.headers))
	}
	if err := binary.Write(w, binary.LittleEndian, h); err != nil {
		return err
	}
	for _, p := range f.parts {
		if _, err := w.Write(p); err != nil {
			return err
		}
	}
	return binary.Write(w, binary.LittleEndian, f.headers)
}

// file is a file under construction.
type file struct {
	at      uint64 // where the next part goes
	parts   [][]byte
	headers []elf.Section64
	names   *names
}

func (f *file) add(name string, data []byte, h elf.Section64) {
	h.Name, h.Off = f.names.add(name), f.at
	if h.Size == 0 {
		h.Size = uint64(len(data))
	}
	f.headers = append(f.headers, h)
	f.parts = append(f.parts, data)
	f.at += uint64(len(data))
}

// symbolTable is the table and its names. All symbols are global: nobody links
// with them.
func (im *Image) symbolTable() (table, strings []byte) {
	n := newNames()
	var b bytes.Buffer
	b.Write(make([]byte, symbolSize)) // the first is none
	for _, s := range im.Symbols {
		kind := elf.STT_OBJECT
		if s.Code {
			kind = elf.STT_FUNC
		}
		var e [symbolSize]byte
		binary.LittleEndian.PutUint32(e[0:], n.add(s.Name))
		e[4] = elf.ST_INFO(elf.STB_GLOBAL, kind)
		binary.LittleEndian.PutUint16(e[6:], im.sectionOf(s.Addr))
		binary.LittleEndian.PutUint64(e[8:], s.Addr)
		b.Write(e[:])
	}
	return b.Bytes(), n.data
}

// sectionOf is the number of the section that holds an address, or that for
// symbols of none.
func (im *Image) sectionOf(a uint64) uint16 {
	k := sort.Search(len(im.Sections), func(k int) bool { return im.Sections[k].Addr > a }) - 1
	if k < 0 || a-im.Sections[k].Addr >= im.Sections[k].size() {
		return uint16(elf.SHN_ABS)
	}
	return uint16(k + 1)
}

// names is a string table.
type names struct {
	data []byte
	at   map[string]uint32
}

func newNames() *names { return &names{data: []byte{0}, at: map[string]uint32{}} }

func (n *names) add(s string) uint32 {
	if at, ok := n.at[s]; ok {
		return at
	}
	at := uint32(len(n.data))
	n.at[s] = at
	n.data = append(append(n.data, s...), 0)
	return at
}
