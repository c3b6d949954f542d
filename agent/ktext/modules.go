package ktext

import (
	"bufio"
	"bytes"
	"cmp"
	"fmt"
	"io"
	"regexp"
	"slices"
	"sort"
	"strconv"
	"strings"

	"kerninst/agent/isa"
)

// Section is a section of a loaded module.
type Section struct {
	Module, Name string
	Addr         isa.Addr
	// Size in bytes: up to the next section, or to the end of the last page that
	// can be read. The kernel clears what it does not use.
	Size isa.Off
}

// End is the address behind the section.
func (s Section) End() isa.Addr { return s.Addr + isa.Addr(s.Size) }

// Text says whether the section holds code that stays: initialisation code is
// freed once it has run.
func (s Section) Text() bool {
	return strings.Contains(s.Name, "text") && !strings.HasPrefix(s.Name, ".init") && !strings.HasPrefix(s.Name, ".rela")
}

// tableSections are the kernel's own tables as modules name them.
var tableSections = map[string]bool{
	jumpTable.name: true, exTable.name: true, bugTable: true, moduleStaticCalls.name: true,
}

// Dumped says whether a dump holds the section: code, its tables, and the
// constants that jump tables are among.
func (s Section) Dumped() bool {
	return s.Text() || tableSections[s.Name] || strings.HasPrefix(s.Name, ".rodata")
}

// Sections gives the sections of loaded modules their sizes. The kernel tells
// the address of each, in /sys/module/NAME/sections, but no size: that is up to
// the module's next section, or to the first page that read cannot read (what no module
// has), or that another module has: since Linux 6.13, amd64's may lie side by side.
func Sections(at map[string]map[string]isa.Addr, read Reader) []Section {
	var out []Section
	for module, sections := range at {
		first := len(out)
		for name, a := range sections {
			if !strings.HasPrefix(name, ".init") && a != 0 {
				out = append(out, Section{Module: module, Name: name, Addr: a})
			}
		}
		for k := range out[first:] {
			s := &out[first+k]
			s.Size = isa.Off(end(s.Addr, out[first:], read) - s.Addr)
		}
	}
	sort.Slice(out, func(i, j int) bool {
		a, b := out[i], out[j]
		if a.Addr != b.Addr {
			return a.Addr < b.Addr
		}
		return a.Module+" "+a.Name < b.Module+" "+b.Name
	})
	apart(out)
	return out
}

// end is where the section at a ends.
func end(a isa.Addr, sections []Section, read Reader) isa.Addr {
	next := ^isa.Addr(0)
	for _, o := range sections {
		if o.Addr > a {
			next = min(next, o.Addr)
		}
	}
	var b [1]byte
	for p := a; p < next; p = (p + page) &^ (page - 1) {
		if read(p, b[:]) != nil {
			return p
		}
	}
	return next
}

// apart ends code, in order of address, where the first page of the next module's code begins. What
// else a module tells of may have been freed with its initialisation, as .symtab and .strtab are,
// and others may be there now.
func apart(list []Section) {
	var last *Section
	for k := range list {
		next := &list[k]
		if !next.Text() {
			continue
		}
		begin := next.Addr &^ (page - 1)
		if last != nil && last.Module != next.Module && last.End() > begin && begin > last.Addr {
			last.Size = isa.Off(begin - last.Addr)
		}
		last = next
	}
}

// FormatModules writes sections as Options.Modules reads them, a line each:
// module, section, address, size.
func FormatModules(list []Section) []byte {
	var b strings.Builder
	for _, s := range list {
		fmt.Fprintf(&b, "%s %s %#x %#x\n", s.Module, s.Name, uint64(s.Addr), uint64(s.Size))
	}
	return []byte(b.String())
}

// module is what is known of one loaded module.
type module struct {
	sections []Section
	tables   once[*tables]
	targets  once[*isa.Marks]
}

// code finds the section of a module's code that holds a.
func (t *Text) code(a isa.Addr) (Section, *module) {
	k := sort.Search(len(t.codes), func(k int) bool { return t.codes[k].End() > a })
	if k == len(t.codes) || a < t.codes[k].Addr {
		return Section{}, nil
	}
	return t.codes[k], t.mods[t.codes[k].Module]
}

// Run is a run of code, [Lo, Hi): the kernel's text, or a section of a module's.
type Run struct {
	Module string // "" for the kernel itself
	Lo, Hi isa.Addr
}

// RunOf finds the run of code that a is in; false if none is known there.
func (t *Text) RunOf(a isa.Addr) (Run, bool) {
	if a >= t.lo && a < t.hi {
		return Run{"", t.lo, t.hi}, true
	}
	s, m := t.code(a)
	return Run{s.Module, s.Addr, s.End()}, m != nil
}

// sectionsOfCode lists the modules' code in order of address.
func (t *Text) sectionsOfCode() (out []Section, err error) {
	for _, m := range t.mods {
		for _, s := range m.sections {
			if s.Text() && s.Size > 0 {
				out = append(out, s)
			}
		}
	}
	slices.SortFunc(out, func(a, b Section) int { return cmp.Compare(a.Addr, b.Addr) })
	for k := 1; k < len(out); k++ {
		if out[k-1].End() > out[k].Addr {
			return nil, fmt.Errorf("modules: %s %s and %s %s overlap", out[k-1].Module, out[k-1].Name, out[k].Module, out[k].Name)
		}
	}
	return out, nil
}

func parseModules(r io.Reader) (map[string]*module, error) {
	out := map[string]*module{}
	sc := bufio.NewScanner(r)
	for n := 1; sc.Scan(); n++ {
		f := strings.Fields(sc.Text())
		if len(f) != 4 {
			return nil, fmt.Errorf("modules line %d: %.80q is not module, section, address, size", n, sc.Text())
		}
		a, err1 := strconv.ParseUint(f[2], 0, 64)
		size, err2 := strconv.ParseUint(f[3], 0, 32)
		if err1 != nil || err2 != nil || a+size < a {
			return nil, fmt.Errorf("modules line %d: %.80q", n, sc.Text())
		}
		m := out[f[0]]
		if m == nil {
			m = &module{}
			out[f[0]] = m
		}
		m.sections = append(m.sections, Section{f[0], f[1], isa.Addr(a), isa.Off(size)})
	}
	if err := sc.Err(); err != nil {
		return nil, fmt.Errorf("modules: %w", err)
	}
	return out, nil
}

// Modules lists the names of the modules whose sections are known.
func (t *Text) Modules() []string {
	var out []string
	for name := range t.mods {
		out = append(out, name)
	}
	sort.Strings(out)
	return out
}

// Sections lists a module's sections in order of address.
func (t *Text) Sections(module string) []Section {
	if m := t.mods[module]; m != nil {
		return m.sections
	}
	return nil
}

// moduleSections lists sections of modules that must not be spliced, by name.
var moduleSections = []struct {
	name  string
	class Class
	why   string
}{
	{".noinstr.text", NoInstr, "runs while RCU and the entry state are not valid"},
	{".cpuidle.text", NoInstr, "runs while RCU does not watch"},
	{".entry.text", Entry, "runs before the kernel's stack and registers are set up"},
	{".irqentry.text", Entry, "exception entry"},
	{".softirqentry.text", Entry, "softirq entry"},
	{".kprobes.text", Blacklist, "part of breakpoint handling"},
	{".static_call.text", StaticCall, "trampolines that the kernel rewrites"},
	{".exit.text", Init, "the module is on its way out when it runs"},
}

// reservedModule is Reserved for a module's function.
func (t *Text) reservedModule(f Func, lo, hi isa.Addr) (Reservation, bool, error) {
	if t.mods[f.Module] == nil {
		return Reservation{Outside, lo, hi, "the sections of the module are not known"}, true, nil
	}
	in, m := t.code(lo)
	if m == nil || in.Module != f.Module || hi > in.End() {
		return Reservation{Outside, lo, hi, "in no section of code of the module that stays"}, true, nil
	}
	for _, s := range moduleSections {
		if in.Name == s.name {
			return Reservation{s.class, in.Addr, in.End(), s.why}, true, nil
		}
	}
	for _, c := range []func(Func, isa.Addr, isa.Addr) (Reservation, bool){t.byBlacklist, t.byName} {
		if r, ok := c(f, lo, hi); ok {
			return r, true, nil
		}
	}
	return t.siteOf(m, lo, hi)
}

// siteOf is Site for the code of a module.
func (t *Text) siteOf(m *module, lo, hi isa.Addr) (Reservation, bool, error) {
	x, err := m.tables.get(func() (*tables, error) { return t.moduleTables(m) })
	if err != nil {
		return Reservation{}, false, err
	}
	r, ok := t.siteIn(x, lo, hi)
	return r, ok, nil
}

// moduleTables reads a module's own tables. Entries that concern no code of the
// module are what lies behind a table's end.
func (t *Text) moduleTables(m *module) (*tables, error) {
	var x tables
	bugs, err := t.bugs()
	if err != nil {
		return nil, err
	}
	for _, s := range m.sections {
		for _, l := range []struct {
			layout
			into *[]isa.Addr
		}{{jumpTable, &x.keys}, {exTable, &x.faults}, {bugs, &x.bugs}, {moduleStaticCalls, &x.calls}} {
			if s.Name != l.name {
				continue
			}
			sites, targets, err := t.entries(l.layout, s.Addr, s.End())
			if err != nil {
				return nil, fmt.Errorf("module %s: %w", s.Module, err)
			}
			*l.into = m.code(sites)
			x.targets = append(x.targets, m.code(targets)...)
		}
	}
	return &x, nil
}

// code drops the addresses that are not in code of the module.
func (m *module) code(list []isa.Addr) []isa.Addr {
	return slices.DeleteFunc(list, func(a isa.Addr) bool {
		return !slices.ContainsFunc(m.sections, func(s Section) bool { return s.Text() && a >= s.Addr && a < s.End() })
	})
}

// ModuleFunctions are the lines of /proc/kallsyms that name functions of modules: those
// with a module's name in brackets behind a tab. The kernel lists its own first.
func ModuleFunctions(kallsyms []byte) []byte {
	first := bytes.IndexByte(kallsyms, '\t')
	if first < 0 {
		return nil
	}
	var out []byte
	for line := range bytes.Lines(kallsyms[bytes.LastIndexByte(kallsyms[:first], '\n')+1:]) {
		f := bytes.Fields(line)
		// $ begins the marks of arm64's and riscv64's ABI; what is built in is no module.
		if len(f) == 4 && (f[1][0] == 't' || f[1][0] == 'T') && f[2][0] != '$' && f[2][0] != '.' && !bytes.HasPrefix(f[3], []byte("[__builtin")) && string(f[3]) != "[bpf]" {
			out = append(out, line...)
		}
	}
	return out
}

// Functions are those of one module, or of another stretch of code, as /proc/kallsyms
// lists them.
type Functions struct {
	Module string
	Lo, Hi isa.Addr   // whole pages, from the first to the last that one begins in
	At     []isa.Addr // where functions begin, in order
	Names  []string   // of each, the first that is listed
}

// mostModules bounds what a list may say of all modules' code, in bytes: a
// distribution's come nowhere near.
const mostModules = 256 << 20

// listed is how names of functions and modules look that do not harm who reads them.
var listed = regexp.MustCompile(`^[A-Za-z0-9_.$]+$`)

// ReadModuleFunctions reads what ModuleFunctions wrote, in a guest that is not trusted.
func ReadModuleFunctions(lines []byte) ([]*Functions, error) {
	type symbol struct {
		at   isa.Addr
		name string
	}
	symbols := map[string][]symbol{}
	for line := range bytes.Lines(lines) {
		f := strings.Fields(string(line))
		if len(f) != 4 {
			return nil, fmt.Errorf("modules: %.80q is not an address, a type, a name and a module", line)
		}
		a, err := strconv.ParseUint(f[0], 16, 64)
		if err != nil {
			return nil, fmt.Errorf("modules: %w", err)
		}
		module := strings.Trim(f[3], "[]")
		if !listed.MatchString(f[2]) || !listed.MatchString(module) {
			return nil, fmt.Errorf("modules: %.80q are no names", line)
		}
		symbols[module] = append(symbols[module], symbol{isa.Addr(a), f[2]})
	}
	var out []*Functions
	all := isa.Addr(0)
	for module, list := range symbols {
		slices.SortStableFunc(list, func(x, y symbol) int { return cmp.Compare(x.at, y.at) })
		first, last := list[0].at, list[len(list)-1].at
		m := &Functions{Module: module, Lo: first &^ (page - 1), Hi: last&^(page-1) + page}
		if all += m.Hi - m.Lo; m.Hi <= m.Lo || m.Hi-m.Lo > mostModules || all > mostModules {
			return nil, fmt.Errorf("modules: %s is said to lie from %v to %v, and all to have %d MiB", module, m.Lo, m.Hi, all>>20)
		}
		for _, s := range list {
			if n := len(m.At); n == 0 || s.at > m.At[n-1] {
				m.At, m.Names = append(m.At, s.at), append(m.Names, s.name)
			}
		}
		out = append(out, m)
	}
	slices.SortFunc(out, func(x, y *Functions) int { return cmp.Compare(x.Module, y.Module) })
	return out, nil
}

// Name is an address as function+offset/size and the module's name, or empty if no
// function holds it. It belongs to the function that holds the address so many bytes
// before it. A size reaches up to the next function.
func (f *Functions) Name(a, before isa.Addr) string {
	k := sort.Search(len(f.At), func(k int) bool { return f.At[k] > a-before }) - 1
	if k < 0 || a-before >= f.Hi {
		return ""
	}
	end := f.Hi
	if k+1 < len(f.At) {
		end = f.At[k+1]
	}
	name := fmt.Sprintf("%s+%#x/%#x", f.Names[k], uint64(a-f.At[k]), uint64(end-f.At[k]))
	if f.Module != "" {
		name += " [" + f.Module + "]"
	}
	return name
}
