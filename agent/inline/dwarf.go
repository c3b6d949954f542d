package inline

import (
	"debug/dwarf"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"sort"
	"strings"
	"sync"

	"kerninst/agent/isa"
)

// maker reads one vmlinux.
type maker struct {
	arch     *isa.Arch
	data     *dwarf.Data
	loclists []byte
	text     Range     // of addresses, not of places
	symbols  []isa.Off // places that have a symbol, in order
	regs     []byte    // the ISA's number of a DWARF register
	opt      Options
}

// The DWARF numbers of general registers: System V ABI for AMD64, figure 3.36; those of the
// AArch64 and RISC-V are the ISA's own.
var amd64Regs = []byte{0, 2, 1, 3, 6, 7, 5, 4, 8, 9, 10, 11, 12, 13, 14, 15}

// machines are the ISAs by their names in ELF files.
var machines = map[elf.Machine]string{elf.EM_X86_64: "amd64", elf.EM_AARCH64: "arm64", elf.EM_RISCV: "riscv64"}

// unit is what one compilation unit has.
type unit struct {
	bodies []Body
	lines  []Line
	stats  Stats
}

// Options are how Make works.
type Options struct {
	Workers  int                 // goroutines; one at least
	Progress func(done, all int) // told of each unit, from one goroutine at a time; may be nil
	Stopped  func() error        // asked before each unit, from any goroutine: an error ends it all; may be nil
}

// Make reads a vmlinux of one of the ISAs with debugging information. Errors say what the file
// lacks.
func Make(file io.ReaderAt, arch *isa.Arch, opt Options) (*Index, error) {
	f, err := opened(file, arch)
	if err != nil {
		return nil, err
	}
	m := &maker{arch: arch, opt: opt, regs: regsOf(arch)}
	if err := m.sections(f); err != nil {
		return nil, err
	}
	return m.index(f)
}

// opened is an ELF file of an ISA.
func opened(file io.ReaderAt, arch *isa.Arch) (*elf.File, error) {
	f, err := elf.NewFile(file)
	if err != nil {
		return nil, fmt.Errorf("no ELF file: %w", err)
	}
	if machines[f.Machine] != arch.Name {
		return nil, fmt.Errorf("it is of %v, not of %s", f.Machine, arch.Name)
	}
	return f, nil
}

// index reads what there is, once the sections are known.
func (m *maker) index(f *elf.File) (*Index, error) {
	units, err := m.units()
	if err != nil {
		return nil, err
	}
	id, err := buildID(f)
	if err != nil {
		return nil, err
	}
	return assemble(m.arch.Name, id, m.text.Hi-m.text.Lo, units)
}

// errStripped says that a file lacks what an index is made of.
var errStripped = errors.New("it has no debugging information of DWARF 5: it has been stripped, or is older")

// sections reads those with debugging information, and where the text is.
func (m *maker) sections(f *elf.File) (err error) {
	if m.data, err = f.DWARF(); err != nil {
		return fmt.Errorf("debugging information: %w", err)
	}
	s := f.Section(".debug_loclists")
	if f.Section(".debug_info") == nil || s == nil {
		return errStripped
	}
	if m.loclists, err = s.Data(); err != nil {
		return fmt.Errorf("%s: %w", s.Name, err)
	}
	symbols, err := f.Symbols()
	if err != nil {
		return fmt.Errorf("symbols: %w", err)
	}
	for _, s := range symbols {
		switch s.Name {
		case "_stext":
			m.text.Lo = isa.Off(s.Value)
		case "_etext":
			m.text.Hi = isa.Off(s.Value)
		}
	}
	if m.text.Lo == 0 || m.text.Hi <= m.text.Lo {
		return errors.New("it has no _stext and _etext: it is no vmlinux")
	}
	m.begin(symbols, func(elf.SectionIndex) (uint64, bool) { return 0, true })
	return nil
}

// begin notes where symbols are; base is what those of a section are from, false: of no interest.
func (m *maker) begin(symbols []elf.Symbol, base func(elf.SectionIndex) (uint64, bool)) {
	for _, s := range symbols {
		from, ok := base(s.Section)
		kind := elf.ST_TYPE(s.Info)
		if !ok || kind != elf.STT_FUNC && kind != elf.STT_NOTYPE || strings.HasPrefix(s.Name, "$") { // which marks code and data
			continue
		}
		m.symbols = append(m.symbols, isa.Off(from+s.Value)-m.text.Lo)
	}
	slices.Sort(m.symbols)
}

// MostFree is how far behind its symbol a function may begin for the compiler, in bytes: behind what is kept
// free there for ftrace, on riscv64.
const MostFree = 8

// left reports whether code has no symbol: what the linker has left of a weak function when another definition took its name.
// Nothing comes there, and what is there would be taken for a part of the function in front.
func (m *maker) left(entry isa.Off) bool {
	k := sort.Search(len(m.symbols), func(k int) bool { return m.symbols[k] > entry })
	return k == 0 || entry-m.symbols[k-1] > MostFree
}

// regsOf are an ISA's numbers of DWARF's registers.
func regsOf(arch *isa.Arch) []byte {
	if arch.Name == "amd64" {
		return amd64Regs
	}
	regs := make([]byte, 32)
	for k := range regs {
		regs[k] = byte(k)
	}
	return regs
}

// buildID is the note that the linker has left (.notes): the kernel at work has the same, in
// /sys/kernel/notes.
func buildID(f *elf.File) ([]byte, error) {
	for _, s := range f.Sections {
		if s.Type != elf.SHT_NOTE {
			continue
		}
		b, err := s.Data()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", s.Name, err)
		}
		if id := buildIDOf(b); id != nil {
			return id, nil
		}
	}
	return nil, errors.New("it has no build ID")
}

// buildIDOf finds the build ID in ELF notes; nil: there is none.
func buildIDOf(notes []byte) []byte {
	const header, gnuBuildID = 12, 3
	for len(notes) >= header {
		name, desc := binary.LittleEndian.Uint32(notes), binary.LittleEndian.Uint32(notes[4:])
		kind := binary.LittleEndian.Uint32(notes[8:])
		at := header + (uint64(name)+3)&^3
		end := at + (uint64(desc)+3)&^3
		if end > uint64(len(notes)) {
			return nil
		}
		if kind == gnuBuildID && name == 4 && string(notes[header:header+4]) == "GNU\x00" {
			return slices.Clone(notes[at : at+uint64(desc)])
		}
		notes = notes[end:]
	}
	return nil
}

// units reads all compilation units.
func (m *maker) units() ([]unit, error) {
	var heads []dwarf.Offset
	r := m.data.Reader()
	for {
		e, err := r.Next()
		if err != nil {
			return nil, fmt.Errorf(".debug_info: %w", err)
		}
		if e == nil {
			break
		}
		if e.Tag == dwarf.TagCompileUnit {
			heads = append(heads, e.Offset)
		}
		r.SkipChildren()
	}
	out, errs := make([]unit, len(heads)), make([]error, len(heads))
	var next, done int
	var lock sync.Mutex
	var wg sync.WaitGroup
	for range max(m.opt.Workers, 1) {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for {
				lock.Lock()
				k := next
				next++
				lock.Unlock()
				if k >= len(heads) {
					return
				}
				if m.opt.Stopped != nil {
					if errs[k] = m.opt.Stopped(); errs[k] != nil {
						return
					}
				}
				out[k], errs[k] = m.unit(heads[k])
				lock.Lock()
				if done++; m.opt.Progress != nil {
					m.opt.Progress(done, len(heads))
				}
				lock.Unlock()
			}
		}()
	}
	wg.Wait()
	return out, errors.Join(errs...)
}

// reading is one unit while it is read.
type reading struct {
	*maker
	r     *dwarf.Reader
	low   uint64 // what the unit's ranges are from
	files []*dwarf.LineFile
	out   unit
	// known are functions and their parameters, by where their entries are; what refers to them
	// may come before them, so that names are filled in at the end.
	known map[dwarf.Offset]Func
	needs []need

	leftover []Range // maker.left
}

// need is where the name of an entry belongs.
type need struct {
	from dwarf.Offset
	body int
	copy int // Outermost: the body's own
	arg  int // -1: the function
}

func (m *maker) unit(head dwarf.Offset) (unit, error) {
	u := &reading{maker: m, r: m.data.Reader(), known: map[dwarf.Offset]Func{}}
	u.r.Seek(head)
	e, err := u.r.Next()
	if err != nil {
		return u.out, fmt.Errorf("the unit at %#x: %w", head, err)
	}
	name, _ := e.Val(dwarf.AttrName).(string)
	u.out.stats.Units = 1
	u.low, _ = e.Val(dwarf.AttrLowpc).(uint64)
	if err := u.lineTable(e); err != nil {
		return u.out, fmt.Errorf("%s: its lines: %w", name, err)
	}
	if e.Children {
		err = u.functions()
	}
	if err == nil {
		err = u.fillIn()
	}
	if err != nil {
		return u.out, fmt.Errorf("%s: %w", name, err)
	}
	u.forget()
	return u.out, nil
}

// forget has no lines be said of what is left over.
func (u *reading) forget() {
	for k := range u.out.lines {
		l := &u.out.lines[k]
		if slices.ContainsFunc(u.leftover, func(r Range) bool { return r.Holds(l.Off) }) {
			*l = Line{Off: l.Off}
		}
	}
}

// functions reads the unit's.
func (u *reading) functions() error {
	for {
		e, err := u.r.Next()
		switch {
		case err != nil:
			return err
		case e == nil || e.Tag == 0:
			return nil
		case e.Tag == dwarf.TagSubprogram:
			if err := u.function(e); err != nil {
				return err
			}
		default:
			u.r.SkipChildren()
		}
	}
}

func (u *reading) function(e *dwarf.Entry) error {
	u.knows(e)
	ranges, err := u.ranges(e)
	if err != nil || !e.Children && len(ranges) == 0 {
		return err
	}
	body := Outermost
	switch {
	case len(ranges) == 0:
	case ranges[0].Hi > u.text.Hi-u.text.Lo:
		u.out.stats.Outside++
	case u.left(ranges[0].Lo):
		u.out.stats.Left++
		u.leftover = append(u.leftover, ranges...)
	default:
		body = len(u.out.bodies)
		u.out.bodies = append(u.out.bodies, Body{Ranges: ranges})
		u.needs = append(u.needs, need{u.origin(e), body, Outermost, -1})
	}
	if !e.Children {
		return nil
	}
	return u.within(body, Outermost, false)
}

// within reads what is in a body, or in one of its copies. Without a body, names alone. given says that
// parameters are that copy's.
func (u *reading) within(body, in int, given bool) error {
	for {
		e, err := u.r.Next()
		if err != nil {
			return err
		}
		if e == nil || e.Tag == 0 {
			return nil
		}
		switch e.Tag {
		case dwarf.TagFormalParameter:
			if u.knows(e); given {
				err = u.argument(e, body, in)
			}
		case dwarf.TagLexDwarfBlock:
			if e.Children {
				if err = u.within(body, in, false); err == nil {
					continue
				}
			}
		case dwarf.TagInlinedSubroutine:
			inner, failed := u.inlined(e, body, in)
			if err = failed; err == nil && e.Children {
				if err = u.within(body, inner, inner != in); err == nil {
					continue
				}
			}
		}
		if err != nil {
			return err
		}
		u.r.SkipChildren()
	}
}

// inlined adds a copy, and returns its number: of one of which no code is left, that of who has
// it, to whom belongs what is nested.
func (u *reading) inlined(e *dwarf.Entry, body, in int) (int, error) {
	if body < 0 {
		return in, nil
	}
	ranges, err := u.ranges(e)
	if err != nil {
		return in, err
	}
	if len(ranges) == 0 {
		u.out.stats.Empty++
		return in, nil
	}
	c := Copy{In: in, Entry: ranges[0].Lo, ranges: ranges}
	switch at := e.Val(dwarf.AttrEntrypc).(type) {
	case uint64:
		c.Entry = isa.Off(at) - u.text.Lo
	case int64: // section 2.18: from the base address
		c.Entry = ranges[0].Lo + isa.Off(at)
	}
	slices.SortFunc(c.ranges, Range.before)
	c.File = u.file(e, dwarf.AttrCallFile)
	line, _ := e.Val(dwarf.AttrCallLine).(int64)
	c.Line = int(line)
	b := &u.out.bodies[body]
	b.copies = append(b.copies, c)
	k := len(b.copies) - 1
	u.needs = append(u.needs, need{u.origin(e), body, k, -1})
	return k, nil
}

func (u *reading) argument(e *dwarf.Entry, body, in int) error {
	c := &u.out.bodies[body].copies[in]
	where, err := u.places(e, c.ranges)
	if err != nil {
		return err
	}
	c.args = append(c.args, Arg{Where: where})
	u.needs = append(u.needs, need{u.origin(e), body, in, len(c.args) - 1})
	for _, r := range c.ranges {
		u.out.stats.Covered += int(r.Hi - r.Lo)
	}
	for _, p := range where {
		if p.Kind != Lost {
			u.out.stats.Located += int(p.Hi - p.Lo)
		}
	}
	return nil
}

// knows notes what an entry says of itself, as far as it has a name.
func (u *reading) knows(e *dwarf.Entry) {
	if name, ok := e.Val(dwarf.AttrName).(string); ok {
		line, _ := e.Val(dwarf.AttrDeclLine).(int64)
		u.known[e.Offset] = Func{name, u.file(e, dwarf.AttrDeclFile), int(line)}
	} else if o := u.origin(e); o != e.Offset {
		if f, ok := u.known[o]; ok {
			u.known[e.Offset] = f
		}
	}
}

// origin is the entry that has an entry's name: its abstract instance, or declaration; or itself.
func (u *reading) origin(e *dwarf.Entry) dwarf.Offset {
	for _, a := range []dwarf.Attr{dwarf.AttrAbstractOrigin, dwarf.AttrSpecification} {
		if o, ok := e.Val(a).(dwarf.Offset); ok {
			return o
		}
	}
	return e.Offset
}

// fillIn writes names to where they are needed. A name that is missing is an error, but of a
// parameter, which need not have one.
func (u *reading) fillIn() error {
	for _, n := range u.needs {
		f, ok := u.known[n.from]
		b := &u.out.bodies[n.body]
		switch {
		case n.arg >= 0:
			b.copies[n.copy].args[n.arg].Name = f.Name
		case !ok:
			return fmt.Errorf("the entry at %#x, of which there is code, has no name", n.from)
		case n.copy >= 0:
			b.copies[n.copy].Func = f
		default:
			b.Func = f
		}
	}
	for _, b := range u.out.bodies {
		u.out.stats.Bodies++
		u.out.stats.Copies += len(b.copies)
		for _, c := range b.copies {
			u.out.stats.Args += len(c.args)
		}
	}
	return nil
}

// ranges are the code of an entry, without what is empty, as places; in the order of the entry.
func (u *reading) ranges(e *dwarf.Entry) (out []Range, err error) {
	if e.Val(dwarf.AttrLowpc) == nil && e.Val(dwarf.AttrRanges) == nil {
		return nil, nil
	}
	list, err := u.data.Ranges(e)
	if err != nil {
		return nil, fmt.Errorf("the entry at %#x: its ranges: %w", e.Offset, err)
	}
	for _, r := range list {
		if r[0] < r[1] {
			out = append(out, Range{isa.Off(r[0]) - u.text.Lo, isa.Off(r[1]) - u.text.Lo})
		}
	}
	return out, nil
}

// lineTable reads which lines code is of.
func (u *reading) lineTable(e *dwarf.Entry) error {
	r, err := u.data.LineReader(e)
	if err != nil || r == nil {
		return err
	}
	u.files = r.Files()
	dir, _ := e.Val(dwarf.AttrCompDir).(string)
	for _, f := range u.files {
		if f != nil {
			f.Name = shorter(dir, f.Name)
		}
	}
	var row dwarf.LineEntry
	for {
		if err := r.Next(&row); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		off := isa.Off(row.Address) - u.text.Lo
		if off > u.text.Hi-u.text.Lo {
			continue
		}
		l := Line{Off: off}
		if !row.EndSequence {
			l.File, l.Line, l.Begins = row.File.Name, row.Line, row.IsStmt
		}
		u.out.lines = append(u.out.lines, l)
	}
}

// shorter is a file's name below the kernel's source.
func shorter(dir, name string) string {
	name = path.Clean(name)
	if dir != "" {
		name = strings.TrimPrefix(name, path.Clean(dir)+"/")
	}
	for strings.HasPrefix(name, "../") {
		name = name[3:]
	}
	return name
}

func (u *reading) file(e *dwarf.Entry, a dwarf.Attr) string {
	if k, ok := e.Val(a).(int64); ok && k >= 0 && int(k) < len(u.files) && u.files[k] != nil {
		return u.files[k].Name
	}
	return ""
}

// inOrder is all rows of a kernel in the order of places. Of rows at one place the last says of which
// line the code is; before it are those alone where other statements begin, of which nothing is
// left there. None says what the one before it does: of a line that goes on there are where it is first
// said, and where its first statement begins.
func inOrder(units []unit) (out []Line) {
	var all []Line
	for _, u := range units {
		all = append(all, u.lines...)
	}
	sort.SliceStable(all, func(i, j int) bool {
		a, b := &all[i], &all[j]
		if a.Off != b.Off {
			return a.Off < b.Off
		}
		return a.File == "" && b.File != "" // an end is before what begins there
	})
	for _, l := range all {
		if n := len(out); n > 0 && out[n-1].Off == l.Off {
			last := out[n-1]
			if same := last.File == l.File && last.Line == l.Line; same || !last.Begins {
				l.Begins = l.Begins || same && last.Begins
				out = out[:n-1]
			}
		}
		if n := len(out); n == 0 || out[n-1].File != l.File || out[n-1].Line != l.Line || l.Begins && !out[n-1].Begins {
			out = append(out, l)
		}
	}
	return out
}
