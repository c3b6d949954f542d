package ktext

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"kerninst/agent/isa"
)

// Reader fills b with the kernel's bytes from a on, or reports why it cannot.
type Reader func(a isa.Addr, b []byte) error

// Options are what a daemon knows beyond the symbols. All are optional.
type Options struct {
	// Blacklist is /sys/kernel/debug/kprobes/blacklist.
	Blacklist io.Reader
	// Modules lists the sections of loaded modules, as FormatModules does.
	Modules io.Reader
	// OneCPU says that no second CPU can ever come: what the kernel would rewrite then stays.
	OneCPU bool
}

// Text is the view of one kernel.
type Text struct {
	Arch   *isa.Arch
	OneCPU bool // Options.OneCPU

	sym   *symbols
	read  Reader
	traps []span        // of the blacklist
	parts []Reservation // sections that are reserved
	mods  map[string]*module
	codes []Section // of the modules
	lo    isa.Addr
	hi    isa.Addr

	own *own

	// What the last questions were about: whoever asks, asks of one instruction after the
	// other.
	near  atomic.Pointer[nearby]
	named atomic.Pointer[named]
	last  atomic.Pointer[decoded]
}

// own is what is known of the kernel's own text, found when it is first asked for: it is the same
// whichever modules are looked at.
type own struct {
	indexed sync.Once
	tables  once[*tables]
	targets once[*isa.Marks]
	faults  once[[]Fault]
	bugForm once[layout]
}

// once computes a value on first use and keeps it and its error.
type once[T any] struct {
	sync.Once
	value T
	err   error
}

func (o *once[T]) get(f func() (T, error)) (T, error) {
	o.Do(func() { o.value, o.err = f() })
	return o.value, o.err
}

// New reads the symbols of a kernel of the given ISA.
func New(arch *isa.Arch, kallsyms io.Reader, read Reader, opt Options) (*Text, error) {
	sym, err := parseSymbols(kallsyms)
	if err != nil {
		return nil, err
	}
	t := &Text{Arch: arch, sym: sym, read: read, own: &own{}}
	var ok1, ok2 bool
	t.lo, ok1 = sym.markers["_stext"]
	t.hi, ok2 = sym.markers["_etext"]
	if !ok1 || !ok2 || t.lo >= t.hi {
		return nil, fmt.Errorf("kallsyms: no _stext below _etext")
	}
	t.parts = t.reservedSections()
	return t.With(opt)
}

// With is the same kernel with other options. The symbols, those of its modules too, are those that
// were read, and what has been found out of the kernel's own text is not looked for again.
func (t *Text) With(opt Options) (_ *Text, err error) {
	t = &Text{Arch: t.Arch, OneCPU: opt.OneCPU, sym: t.sym, read: t.read, parts: t.parts, lo: t.lo, hi: t.hi, own: t.own}
	if opt.Modules != nil {
		if t.mods, err = parseModules(opt.Modules); err != nil {
			return nil, err
		}
		if t.codes, err = t.sectionsOfCode(); err != nil {
			return nil, err
		}
	}
	if opt.Blacklist != nil {
		if t.traps, err = parseBlacklist(opt.Blacklist); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// Bounds returns the kernel's own text, [_stext, _etext).
func (t *Text) Bounds() (lo, hi isa.Addr) { return t.lo, t.hi }

// Gap is what lies behind the kernel's own text and is mapped like it, but holds
// nothing, zeros; empty where something does. On riscv64 sections begin at multiples of
// 2 MiB (arch/riscv/kernel/vmlinux.lds.S).
func (t *Text) Gap() (lo, hi isa.Addr) {
	init, ok := t.sym.markers["__init_begin"]
	if t.Arch.Name != "riscv64" || !ok || init < t.hi {
		return 0, 0
	}
	return t.hi, init
}

// GapEnd is where the kernel's own text ends, with the gap.
func (t *Text) GapEnd() isa.Addr {
	_, hi := t.Gap()
	return max(t.hi, hi)
}

// Symbol returns the address of a section bound, such as _etext, or of TaintedMask.
func (t *Text) Symbol(name string) (isa.Addr, bool) {
	a, ok := t.sym.markers[name]
	return a, ok
}

// Func is one function: a symbol and the bytes up to the next.
type Func struct {
	Name   string
	Module string // "" for the kernel itself
	Addr   isa.Addr
	Size   isa.Off // 0: its end is not known
	// Nth is which of those of its module that share its name it is, from 1 in order of address,
	// if it was asked for as that; 0: it is the only one, or nobody has looked.
	Nth int
}

// End is the address behind the function.
func (f Func) End() isa.Addr { return f.Addr + isa.Addr(f.Size) }

// String names the function as probes do.
func (f Func) String() string {
	if f.Module != "" {
		return f.Module + ":" + f.Known()
	}
	return f.Known()
}

// Known is the name by which the function is asked for.
func (f Func) Known() string {
	if f.Nth > 0 {
		return fmt.Sprintf("%s#%d", f.Name, f.Nth)
	}
	return f.Name
}

// choices is how one of several functions that share a name is asked for: as name#2, which is the
// second of them in order of address and so the same each time the kernel boots, or as
// name@ADDRESS. No symbol's name has either sign.
const choices = "#@"

// Base is a name without what chooses one of several that share it.
func Base(name string) string {
	if k := strings.LastIndexAny(name, choices); k > 0 {
		return name[:k]
	}
	return name
}

// NotFound says that a name means no function, or more than one.
type NotFound struct {
	Module, Name string
	Same         []isa.Addr // addresses that share the name
	Behind       []string   // what is before each of them, by a name of its own; "": nothing is
	Chosen       string     // what chooses among them, and is none of them: #3, @0x123
	NoModule     bool       // the module is not loaded
	// Elsewhere are the loaded modules that have a function of this name, "" being
	// the kernel itself.
	Elsewhere []string

	suggest func() []string // names of the same module that may be meant, or nil
}

// Near lists names of the same module that may be meant. It compares with all names:
// who only asks whether a function is there does not pay for it.
func (e *NotFound) Near() []string {
	if e.suggest == nil {
		return nil
	}
	return e.suggest()
}

func (e *NotFound) Error() string {
	where, near := e.where(), e.Near()
	switch {
	case e.NoModule:
		return where + " is not loaded" + e.elsewhere()
	case e.Chosen != "" && len(e.Same) == 1:
		return fmt.Sprintf("%s%s: %s has one %[1]s, at %[4]v", e.Name, e.Chosen, where, e.Same[0])
	case len(e.Same) > 0:
		what := ""
		if e.Chosen != "" {
			what = fmt.Sprintf("%s%s is none of them: ", e.Name, e.Chosen)
		}
		return what + e.shared() + ": choose " + e.choices()
	case len(near) > 0:
		return fmt.Sprintf("%s has no function %s; there is %s", where, e.Name, strings.Join(near, ", "))
	}
	return fmt.Sprintf("%s has no function %s", where, e.Name) + e.elsewhere()
}

func (e *NotFound) where() string {
	if e.Module != "" {
		return "module " + e.Module
	}
	return "the kernel"
}

// shared says how many functions have the name.
func (e *NotFound) shared() string {
	return fmt.Sprintf("%d functions of %s are named %s", len(e.Same), e.where(), e.Name)
}

// mostChoices bounds a list of functions that share a name: some are in every driver.
const mostChoices = 16

// choices are the functions that share the name, as they are asked for.
func (e *NotFound) choices() string {
	var list []string
	for k, a := range e.Same {
		if k == mostChoices {
			list = append(list, fmt.Sprintf("and so on to %s#%d", e.Name, len(e.Same)))
			break
		}
		one := fmt.Sprintf("%s#%d or %[1]s@%#[3]x", e.Name, k+1, uint64(a))
		if e.Behind[k] != "" {
			one += " (behind " + e.Behind[k] + ")"
		}
		list = append(list, one)
	}
	return strings.Join(list, ", ")
}

// elsewhere says who has a function of the name.
func (e *NotFound) elsewhere() string {
	var list []string
	for _, m := range e.Elsewhere {
		if m == "" {
			m = "the kernel itself"
		}
		list = append(list, m)
	}
	if list == nil {
		return ""
	}
	return "; " + e.Name + " is in " + strings.Join(list, " and ")
}

// Function finds a function by name, or the one of several that is chosen. The error is a
// *NotFound. Several symbols of one name at one address are one function.
func (t *Text) Function(module, name string) (Func, error) {
	name, chosen := Base(name), strings.TrimPrefix(name, Base(name))
	found, elsewhere := t.sharing(module, name)
	switch {
	case len(found) == 0:
		e := &NotFound{Module: module, Name: name, Elsewhere: elsewhere, NoModule: !slices.Contains(t.sym.modules, module)}
		if len(elsewhere) == 0 {
			e.suggest = func() []string { return t.sym.suggest(module, name) }
		}
		return Func{}, e
	case len(found) == 1 && chosen == "":
		return t.function(found[0]), nil
	}
	e := &NotFound{Module: module, Name: name, Chosen: chosen}
	for n, k := range found {
		a := t.sym.list[k].addr
		if chosen != "" && isChosen(chosen, n+1, a) {
			f := t.function(k)
			if len(found) > 1 {
				f.Nth = n + 1
			}
			return f, nil
		}
		e.Same, e.Behind = append(e.Same, a), append(e.Behind, t.before(k))
	}
	return Func{}, e
}

// isChosen reports whether #3 or @0x123 means the n-th, at an address.
func isChosen(chosen string, n int, a isa.Addr) bool {
	v, err := strconv.ParseUint(chosen[1:], 0, 64)
	return err == nil && (chosen[0] == '#' && v == uint64(n) || chosen[0] == '@' && v == uint64(a))
}

// before is the nearest function in front of symbol k, of the same module, whose name is of one only.
func (t *Text) before(k int) string {
	y := t.sym.list[k]
	for k--; k >= 0; k-- {
		x := t.sym.list[k]
		if x.module != y.module || x.addr == y.addr {
			continue
		}
		if same, _ := t.sharing(t.sym.modules[x.module], t.sym.name(k)); len(same) == 1 {
			return t.sym.name(k)
		}
	}
	return ""
}

// Known is the function with what chooses it, should others of its module have its name.
func (t *Text) Known(f Func) Func {
	f.Nth = 0
	if same, _ := t.sharing(f.Module, f.Name); len(same) > 1 {
		f.Nth = 1 + slices.IndexFunc(same, func(k int) bool { return t.sym.list[k].addr == f.Addr })
	}
	return f
}

// sharing are the functions of a module with this name, as positions in order of address, and
// which other modules have one.
func (t *Text) sharing(module, name string) (found []int, elsewhere []string) {
	t.own.indexed.Do(t.sym.buildIndex)
	for _, k := range t.sym.find(name) {
		y := t.sym.list[k]
		if other := t.sym.modules[y.module]; other != module {
			if !slices.Contains(elsewhere, other) {
				elsewhere = append(elsewhere, other)
			}
			continue
		}
		if len(found) == 0 || t.sym.list[found[len(found)-1]].addr != y.addr {
			found = append(found, k)
		}
	}
	return found, elsewhere
}

// Locate finds the function that holds an address.
func (t *Text) Locate(a isa.Addr) (Func, bool) {
	k := t.sym.at(a)
	if k < 0 {
		return Func{}, false
	}
	for k > 0 && t.sym.list[k-1].addr == t.sym.list[k].addr { // the first alias names it
		k--
	}
	f := t.function(k)
	return f, a < f.End()
}

// Functions calls visit for every distinct function address of a module ("" is
// the kernel), in order, until it returns false.
func (t *Text) Functions(module string, visit func(Func) bool) {
	var last isa.Addr
	for k := range t.sym.list {
		y := t.sym.list[k]
		if t.sym.modules[y.module] != module || y.addr == last {
			continue
		}
		last = y.addr
		if !visit(t.function(k)) {
			return
		}
	}
}

// Named lists the functions of a module ("" is the kernel) of which a name begins with prefix and
// is wanted, in order, by the last such name that each has. Of the others it looks at no more than
// a few bytes: a kernel has more than a hundred thousand names.
func (t *Text) Named(module, prefix string, wanted func(name string) bool) (out []Func) {
	for k := range t.sym.list {
		y := t.sym.list[k]
		if !bytes.HasPrefix(t.sym.names[y.name:][:y.length], []byte(prefix)) || t.sym.modules[y.module] != module || !wanted(t.sym.name(k)) {
			continue
		}
		f := t.function(k)
		if n := len(out); n > 0 && out[n-1].Addr == f.Addr {
			out[n-1] = f
		} else {
			out = append(out, f)
		}
	}
	return out
}

// Aliases lists every name that the function's address has.
func (t *Text) Aliases(f Func) []string {
	var out []string
	for k := t.sym.at(f.Addr); k >= 0 && t.sym.list[k].addr == f.Addr; k-- {
		out = append(out, t.sym.name(k))
	}
	return out
}

// page is the granularity of what a module's last function may reach.
const page = 4096

// function gives symbol k its size: the distance to the next higher symbol of
// the same module. The last of a module ends with its section, or at its page at the
// latest if that is not known; the last of the kernel's text at _etext.
func (t *Text) function(k int) Func {
	y := t.sym.list[k]
	f := Func{Name: t.sym.name(k), Module: t.sym.modules[y.module], Addr: y.addr}
	next := k + 1
	for next < len(t.sym.list) && t.sym.list[next].addr == y.addr {
		next++
	}
	end := isa.Addr(0)
	if next < len(t.sym.list) && t.sym.list[next].module == y.module {
		end = t.sym.list[next].addr
	}
	if f.Module != "" && (end == 0 || end-f.Addr > page) {
		end = min(orMax(end), (f.Addr+page)&^(page-1))
	}
	if s, m := t.code(f.Addr); m != nil && f.Module != "" { // what follows is no code, and in no dump
		end = min(orMax(end), s.End())
	}
	if f.Addr < t.hi && f.Module == "" {
		end = min(orMax(end), t.hi)
	}
	if end > f.Addr {
		f.Size = isa.Off(end - f.Addr)
	}
	return f
}

func orMax(a isa.Addr) isa.Addr {
	if a == 0 {
		return ^isa.Addr(0)
	}
	return a
}

// Read fills b with the bytes at a as they are now.
func (t *Text) Read(a isa.Addr, b []byte) error {
	if err := t.read(a, b); err != nil {
		return fmt.Errorf("reading %d bytes of the kernel at %v: %w", len(b), a, err)
	}
	return nil
}

// Code reads a function's bytes. The word that the next function may keep before its
// entry is left out: FrontWord.
func (t *Text) Code(f Func) ([]byte, error) {
	extra := 0
	if kernelHigh[t.Arch.Name] != nil && f.End()+ftraceSpan <= t.behind(f) {
		extra = ftraceSpan
	}
	b := make([]byte, int(f.Size)+extra)
	if err := t.Read(f.Addr, b); err != nil {
		return nil, err
	}
	code := b[:f.Size]
	if extra > 0 && len(code) >= ftraceSpan && t.FtraceSite(f.End(), b[f.Size:]) != 0 && t.FrontWord(code[len(code)-ftraceSpan:]) {
		code = code[:len(code)-ftraceSpan]
	}
	return code, nil
}

// behind is the end of the code that f is in: where another function may be.
func (t *Text) behind(f Func) isa.Addr {
	if f.Module == "" {
		return t.hi
	}
	s, _ := t.code(f.Addr)
	return s.End() // 0 if it is not known
}
