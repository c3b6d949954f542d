package kdev

import (
	"bufio"
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// internalsSection of the module lists the unexported symbols that it uses.
const internalsSection = ".kerninst.internals"

// optional begins the name of a function that a kernel may not have. The module is told so
// by the address of standIn.
const (
	optional = "?"
	standIn  = "_text"
)

// Internals lists the symbols of the kernel that the module uses and that the
// kernel's own loader would refuse to resolve. A module without the section
// uses none.
func Internals(ko []byte) ([]string, error) {
	f, err := elf.NewFile(bytes.NewReader(ko))
	if err != nil {
		return nil, fmt.Errorf("module: %w", err)
	}
	names, _, err := internals(f)
	return names, err
}

// internals also says which of the names are optional.
func internals(f *elf.File) (names []string, may map[string]bool, err error) {
	s := f.Section(internalsSection)
	if s == nil {
		return nil, nil, nil
	}
	b, err := s.Data()
	if err != nil {
		return nil, nil, fmt.Errorf("module: section %s: %w", internalsSection, err)
	}
	may = map[string]bool{}
	for name := range strings.SplitSeq(strings.TrimRight(string(b), "\x00"), "\x00") {
		name, query := strings.CutPrefix(name, optional)
		names = append(names, name)
		may[name] = query
	}
	return names, may, nil
}

// ResolveModule returns a copy of the module in which each symbol that it lists
// as internal has the absolute address that syms gives, or that of _text where it is one
// that a kernel need not have. All other undefined
// symbols stay so: the kernel resolves them and checks their versions.
//
// The result is for one boot of one kernel only.
func ResolveModule(ko []byte, syms func(name string) (addr uint64, ok bool)) ([]byte, error) {
	f, err := elf.NewFile(bytes.NewReader(ko))
	if err != nil {
		return nil, fmt.Errorf("module: %w", err)
	}
	names, may, err := internals(f)
	if err != nil {
		return nil, err
	}
	want := make(map[string]bool, len(names))
	for _, n := range names {
		want[n] = true
	}
	out := bytes.Clone(ko)
	find := func(name string) (uint64, bool) {
		addr, ok := syms(name)
		if !ok && may[name] {
			return syms(standIn)
		}
		return addr, ok
	}
	if err := setAbsolute(f, out, want, find); err != nil {
		return nil, err
	}
	for n := range want {
		return nil, fmt.Errorf("module: lists %s as internal and has no such undefined symbol; rebuild it", n)
	}
	return out, nil
}

// An Elf64_Sym: name[4] info[1] other[1] shndx[2] value[8] size[8].
const (
	symSize  = 24
	symShndx = 6
	symValue = 8
)

// setAbsolute edits the symbol table in out and removes from want what it set.
func setAbsolute(f *elf.File, out []byte, want map[string]bool, syms func(string) (uint64, bool)) error {
	table := f.SectionByType(elf.SHT_SYMTAB)
	if f.Class != elf.ELFCLASS64 || f.Data != elf.ELFDATA2LSB || table == nil || table.Entsize != symSize {
		return errors.New("module: not a 64-bit little-endian object with a symbol table")
	}
	symbols, err := f.Symbols() // without the null entry
	if err != nil {
		return fmt.Errorf("module: symbols: %w", err)
	}
	if end := table.Offset + uint64(len(symbols)+1)*symSize; end > uint64(len(out)) {
		return fmt.Errorf("module: symbol table ends at %#x, file at %#x", end, len(out))
	}
	for i, s := range symbols {
		if s.Section != elf.SHN_UNDEF || !want[s.Name] {
			continue
		}
		addr, ok := syms(s.Name)
		if !ok {
			return fmt.Errorf("module: this kernel has no symbol %s", s.Name)
		}
		e := out[table.Offset+uint64(i+1)*symSize:]
		binary.LittleEndian.PutUint16(e[symShndx:], uint16(elf.SHN_ABS))
		binary.LittleEndian.PutUint64(e[symValue:], addr)
		delete(want, s.Name)
	}
	return nil
}

// Symbols are addresses of the kernel's own symbols by name.
type Symbols map[string]uint64

// Find is the lookup that ResolveModule wants.
func (s Symbols) Find(name string) (uint64, bool) {
	a, ok := s[name]
	return a, ok
}

// ReadKallsyms picks names out of a /proc/kallsyms. Symbols of modules do not
// count. A name that the kernel has twice, at different addresses, is an error:
// one of them would be called.
func ReadKallsyms(r io.Reader, names []string) (Symbols, error) {
	want := make(map[string]bool, len(names))
	for _, n := range names {
		want[n] = true
	}
	out := make(Symbols, len(names))
	in := bufio.NewReaderSize(r, 1<<16)
	for {
		line, err := in.ReadSlice('\n')
		if err != nil && err != io.EOF {
			return nil, fmt.Errorf("kallsyms: %w", err)
		}
		if name, ok := symbolName(line); ok && want[string(name)] {
			if err := out.add(string(name), line); err != nil {
				return nil, err
			}
		}
		if err == io.EOF {
			return out, nil
		}
	}
}

// symbolName is the name in a line of the kernel itself: "address type name".
// It allocates nothing: there are 200,000 lines, and slow guests.
func symbolName(line []byte) ([]byte, bool) {
	sep := bytes.IndexByte(line, ' ')
	if sep < 0 || len(line) < sep+4 || bytes.IndexByte(line, '\t') >= 0 {
		return nil, false
	}
	return bytes.TrimRight(line[sep+3:], "\n"), true
}

// add takes the address of a line that names a wanted symbol.
func (s Symbols) add(name string, line []byte) error {
	text, _, _ := strings.Cut(string(line), " ")
	addr, err := strconv.ParseUint(text, 16, 64)
	switch old, twice := s[name]; {
	case err != nil:
		return fmt.Errorf("kallsyms: %q: %w", line, err)
	case addr == 0:
		return errors.New("kallsyms: addresses are hidden; run as root with kernel.kptr_restrict below 2")
	case twice && old != addr:
		return fmt.Errorf("kallsyms: %s is at %#x and at %#x; refusing to guess", name, old, addr)
	}
	s[name] = addr
	return nil
}
