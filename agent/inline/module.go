package inline

import (
	"bytes"
	"cmp"
	"debug/dwarf"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"kerninst/agent/isa"
)

// Module is what is known of the code of a module. Places in its Index are of a text in which the sections of
// its code lie one behind the other; where a kernel has put each, the names of its functions tell.
type Module struct {
	Name     string // as the kernel lists it
	Index    *Index
	Sections []Section // in order of places
}

// Section is one with code that stays while the module is loaded.
type Section struct {
	Name string
	Range
	Labels []Label // functions whose names nothing else in the module's code has, in order of places
}

// Label is where a function begins.
type Label struct {
	Name string
	Off  isa.Off
}

// pseudoText is where the text is while a module's file is read: behind whatever is an offset in a section that is
// not part of it, so that code there is seen to be outside.
const pseudoText = 1 << 40

// MakeModule is Make for a module's debug file: a NAME.ko with DWARF 5, before the kernel has placed it. What
// runs when the module comes or goes (.init.text, .exit.text) is left out. Errors say what the file lacks.
func MakeModule(file io.ReaderAt, arch *isa.Arch, opt Options) (*Module, error) {
	f, err := opened(file, arch)
	if err != nil {
		return nil, err
	}
	if f.Type != elf.ET_REL {
		return nil, fmt.Errorf("it is no module: its ELF type is %v, not %v", f.Type, elf.ET_REL)
	}
	out := &Module{}
	if out.Name, err = moduleName(f); err != nil {
		return nil, err
	}
	symbols, err := f.Symbols()
	if err != nil {
		return nil, fmt.Errorf("symbols: %w", err)
	}
	var at map[elf.SectionIndex]uint64
	if out.Sections, at = layOut(f); len(out.Sections) == 0 {
		return nil, errors.New("it has no code that stays")
	}
	out.name(symbols, at)
	m := &maker{arch: arch, opt: opt, regs: regsOf(arch), text: Range{pseudoText, pseudoText + out.Sections[len(out.Sections)-1].Hi}}
	m.begin(symbols, func(k elf.SectionIndex) (uint64, bool) { base, ok := at[k]; return base, ok })
	if err := m.relocated(&relocation{f, symbols, at}); err != nil {
		return nil, err
	}
	out.Index, err = m.index(f)
	return out, err
}

// moduleName is what the module calls itself.
func moduleName(f *elf.File) (string, error) {
	s := f.Section(".modinfo")
	if s == nil || s.Type == elf.SHT_NOBITS {
		return "", errors.New("it has no .modinfo: it is no module")
	}
	b, err := s.Data()
	if err != nil {
		return "", fmt.Errorf("%s: %w", s.Name, err)
	}
	for _, word := range bytes.Split(b, []byte{0}) {
		if name, ok := bytes.CutPrefix(word, []byte("name=")); ok {
			return string(name), nil
		}
	}
	return "", errors.New("its .modinfo says no name: it is no module")
}

// layOut puts the sections with code that stays behind each other. at is where each is, as an address.
func layOut(f *elf.File) (out []Section, at map[elf.SectionIndex]uint64) {
	at = map[elf.SectionIndex]uint64{}
	end := isa.Off(0)
	for k, s := range f.Sections {
		const code = elf.SHF_ALLOC | elf.SHF_EXECINSTR
		if s.Flags&code != code || s.Size == 0 || strings.HasPrefix(s.Name, ".init") || strings.HasPrefix(s.Name, ".exit") {
			continue
		}
		align := isa.Off(max(s.Addralign, 1))
		lo := (end + align - 1) / align * align
		end = lo + isa.Off(s.Size)
		out = append(out, Section{Name: s.Name, Range: Range{lo, end}})
		at[elf.SectionIndex(k)] = pseudoText + uint64(lo)
	}
	return out, at
}

// name notes the functions that are told by their names.
func (m *Module) name(symbols []elf.Symbol, at map[elf.SectionIndex]uint64) {
	times := map[string]int{}
	for _, s := range symbols {
		if s.Section != elf.SHN_UNDEF && elf.ST_TYPE(s.Info) != elf.STT_SECTION {
			times[s.Name]++
		}
	}
	for _, s := range symbols {
		base, stays := at[s.Section]
		if !stays || elf.ST_TYPE(s.Info) != elf.STT_FUNC || times[s.Name] > 1 {
			continue
		}
		o := isa.Off(base + s.Value - pseudoText)
		k := slices.IndexFunc(m.Sections, func(x Section) bool { return x.Holds(o) })
		if k >= 0 {
			m.Sections[k].Labels = append(m.Sections[k].Labels, Label{s.Name, o})
		}
	}
	for k := range m.Sections {
		slices.SortFunc(m.Sections[k].Labels, func(a, b Label) int { return cmp.Or(cmp.Compare(a.Off, b.Off), cmp.Compare(a.Name, b.Name)) })
	}
}

// debugSections are those of DWARF 5 that are read, and whether a module has to have them.
var debugSections = map[string]bool{
	".debug_abbrev": true, ".debug_info": true, ".debug_line": true, ".debug_loclists": true, ".debug_rnglists": true,
	".debug_str": false, ".debug_line_str": false, ".debug_str_offsets": false, ".debug_addr": false,
}

// relocated reads a module's debugging information.
func (m *maker) relocated(r *relocation) (err error) {
	has := map[string][]byte{}
	for k, s := range r.f.Sections {
		if _, read := debugSections[s.Name]; !read {
			continue
		}
		if has[s.Name], err = r.section(elf.SectionIndex(k)); err != nil {
			return fmt.Errorf("%s: %w", s.Name, err)
		}
	}
	for name, needed := range debugSections {
		if needed && has[name] == nil {
			return errStripped
		}
	}
	m.loclists = has[".debug_loclists"]
	m.data, err = dwarf.New(has[".debug_abbrev"], nil, nil, has[".debug_info"], has[".debug_line"], nil, nil, has[".debug_str"])
	for _, name := range []string{".debug_addr", ".debug_line_str", ".debug_str_offsets", ".debug_rnglists", ".debug_loclists"} {
		if err == nil && has[name] != nil {
			err = m.data.AddSection(name, has[name])
		}
	}
	if err != nil {
		return fmt.Errorf("debugging information: %w", err)
	}
	return nil
}

// Only is a module of those functions alone that Index.Only would keep.
func (m *Module) Only(names ...string) (*Module, error) {
	x, err := m.Index.Only(names...)
	if err != nil {
		return nil, err
	}
	return &Module{m.Name, x, m.Sections}, nil
}
