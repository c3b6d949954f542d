package postmortem

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"kerninst/agent/isa"
	"kerninst/agent/isa/all"
	"kerninst/agent/ktext"
)

// Symbols are a kernel's, from a dump of its text. The dump is of another boot
// of the same kernel: View moves it.
type Symbols struct {
	dump   *ktext.Dump
	text   *ktext.Text
	lo, hi isa.Addr // the kernel's text in the dump
	code   []byte   // of it
	end    isa.Addr // of the kernel's image
	// boot is the kernel's text that runs only at boot. Its bytes are not in a dump: it
	// is freed. Its functions are still on the stack of who booted.
	boot ktext.Functions
}

// textPart is the name of the kernel's own text in a dump.
const textPart = "text"

// NewSymbols reads the symbols of a dump.
func NewSymbols(d *ktext.Dump) (*Symbols, error) {
	arch, err := all.Lookup(d.Arch)
	if err != nil {
		return nil, err
	}
	t, err := d.Text(arch)
	if err != nil {
		return nil, err
	}
	s := &Symbols{dump: d, text: t, code: d.Part(textPart)}
	s.lo, s.hi = t.Bounds()
	s.end = s.hi
	if end, ok := t.Symbol("_end"); ok {
		s.end = end
	}
	s.boot = readBoot(d.Part("kallsyms"))
	if len(s.code) != int(s.hi-s.lo) {
		return nil, fmt.Errorf("dump: %d bytes of text, not the %d between _stext and _etext", len(s.code), s.hi-s.lo)
	}
	return s, nil
}

// readBoot takes the functions of boot from lines of /proc/kallsyms.
func readBoot(kallsyms []byte) (b ktext.Functions) {
	type symbol struct {
		at   isa.Addr
		name string
	}
	var all []symbol
	for line := range bytes.Lines(kallsyms) {
		f := bytes.Fields(line)
		if len(f) != 3 {
			continue // a module's, too
		}
		at, err := strconv.ParseUint(string(f[0]), 16, 64)
		if err != nil {
			continue
		}
		switch name := string(f[2]); {
		case name == "_sinittext":
			b.Lo = isa.Addr(at)
		case name == "_einittext":
			b.Hi = isa.Addr(at)
		case f[1][0] == 't' || f[1][0] == 'T':
			all = append(all, symbol{isa.Addr(at), name})
		}
	}
	slices.SortStableFunc(all, func(x, y symbol) int { return cmp.Compare(x.at, y.at) })
	for _, x := range all {
		if n := len(b.At); x.at >= b.Lo && x.at < b.Hi && (n == 0 || x.at > b.At[n-1]) {
			b.At, b.Names = append(b.At, x.at), append(b.Names, x.name)
		}
	}
	return b
}

// Dump is what the symbols were read from.
func (s *Symbols) Dump() *ktext.Dump { return s.dump }

// View is the symbols where they are in one guest.
type View struct {
	*Symbols
	Slide   isa.Addr // to be added to the dump's addresses; wraps
	Patches []Patch  // in the order in which they were made
	// Modules are the guest's own: they lie elsewhere in every boot.
	Modules []*ktext.Functions
	seen    map[isa.Addr][]byte
}

// Patch is code that was put into the guest's kernel, where no symbol is.
type Patch struct {
	Addr isa.Addr // as the guest has it
	Size int      // bytes
	Of   string   // the instrumentation point, as function+offset
}

// patch is the one that holds an address. Where one was freed there may be another: the
// last counts.
func (v *View) patch(a isa.Addr) (Patch, bool) {
	for _, p := range slices.Backward(v.Patches) {
		if a-p.Addr < isa.Addr(p.Size) {
			return p, true
		}
	}
	return Patch{}, false
}

// kaslrAlign is the granularity in which all three kernels choose their place, in
// bytes: CONFIG_PHYSICAL_ALIGN, MIN_KIMG_ALIGN, PMD_SIZE.
const kaslrAlign = 2 << 20

// ErrNoPlace says that nothing of a guest showed where its kernel lies.
var ErrNoPlace = errors.New("nothing that the CPUs point to is code of this kernel")

// View finds where a guest's kernel lies. textStart is what the guest itself said
// of it, or 0; without it, the code that the CPUs point to says it.
func (s *Symbols) View(e *Evidence, textStart uint64) (*View, error) {
	v := &View{Symbols: s, seen: map[isa.Addr][]byte{}}
	for _, x := range e.Code {
		v.seen[x.Addr] = x.Data
	}
	if textStart != 0 {
		v.Slide = isa.Addr(textStart) - s.lo
		return v, nil
	}
	for _, x := range e.Code {
		if at, ok := s.find(x); ok {
			v.Slide = x.Addr - at
			return v, nil
		}
	}
	return nil, ErrNoPlace
}

// find is where an excerpt lies in the dump, if exactly one place will do.
func (s *Symbols) find(x Excerpt) (at isa.Addr, ok bool) {
	first := (x.Addr - s.lo) % kaslrAlign
	for off := first; int(off)+len(x.Data) <= len(s.code); off += kaslrAlign {
		if !alike(s.code[off:int(off)+len(x.Data)], x.Data) {
			continue
		}
		if ok {
			return 0, false
		}
		at, ok = s.lo+off, true
	}
	return at, ok
}

// alike says whether two pieces of code are the same but for what kernels
// rewrite at boot and at run time: at most a quarter. Filler is like nothing.
func alike(a, b []byte) bool {
	same := 0
	for i := range a {
		if a[i] == b[i] {
			same++
		}
	}
	return 4*same >= 3*len(a) && bytes.Count(b, b[:1]) < len(b)/2
}

// Code says whether an address is in the text of this guest's kernel.
func (v *View) Code(a isa.Addr) bool { return a-v.Slide >= v.lo && a-v.Slide < v.hi }

// Name is an address as function+offset/size, or empty. Functions of modules that the
// guest has not told of are named where the code there is the same as in the dump. Patches come first: some lie in padding, and some in a module.
func (v *View) Name(a isa.Addr) string {
	if p, ok := v.patch(a); ok {
		return fmt.Sprintf("(patch of %s)+%#x/%#x", p.Of, uint64(a-p.Addr), p.Size)
	}
	if v.Code(a) {
		return name(v.text, a-v.Slide)
	}
	if n := v.elsewhere(a, 0); n != "" {
		return n
	}
	was := make([]byte, excerptSize)
	if now, ok := v.seen[a]; ok && v.dump.Read(a, was) == nil && alike(was, now) {
		return name(v.text, a)
	}
	return ""
}

// Caller is Name for a return address: it belongs to the call before it, which
// may be the last instruction of a function.
func (v *View) Caller(a isa.Addr) string {
	if _, ok := v.patch(a); v.Code(a-1) && !ok {
		return nameBehind(v.text, a-v.Slide-1, 1)
	}
	if n := v.elsewhere(a, 1); n != "" {
		return n
	}
	return v.Name(a)
}

// elsewhere names an address of boot's or of a module's code by the function that holds
// the address so many bytes before it.
func (v *View) elsewhere(a, before isa.Addr) string {
	if n := v.boot.Name(a-v.Slide, before); n != "" {
		return n
	}
	for _, m := range v.Modules {
		if n := m.Name(a, before); n != "" {
			return n
		}
	}
	return ""
}

func name(t *ktext.Text, a isa.Addr) string { return nameBehind(t, a, 0) }

// nameBehind names the address that lies more bytes behind a, by the function
// that holds a.
func nameBehind(t *ktext.Text, a, more isa.Addr) string {
	f, ok := t.Locate(a)
	if !ok {
		return ""
	}
	a += more
	n := fmt.Sprintf("%s+%#x/%#x", f.Name, uint64(a-f.Addr), uint64(f.Size))
	if f.Module != "" {
		n += " [" + f.Module + "]"
	}
	return n
}

// function is the name of the function that holds an address, or empty.
func (v *View) function(a isa.Addr) string {
	if p, ok := v.patch(a); ok {
		return "the patch of " + p.Of
	}
	n, _, _ := strings.Cut(v.Name(a), "+")
	return n
}

// idleFunctions are those in which a CPU waits for an interrupt, as far as they
// are not in the section for them.
var idleFunctions = map[string]string{
	"cpu_do_idle":         "arm64, riscv64: wfi",
	"arch_cpu_idle":       "riscv64: wfi, inlined",
	"default_idle_call":   "around it",
	"default_idle":        "amd64",
	"pv_native_safe_halt": "amd64: sti, hlt",
	"acpi_safe_halt":      "amd64",
	"acpi_idle_do_entry":  "amd64",
	"mwait_idle":          "amd64",
	"do_idle":             "kernel/sched/idle.c, with interrupts off, on its way there",
}

// haltFunctions are those in which a kernel leaves a CPU for good, with interrupts off:
// that it halts, or goes round in a circle, makes no difference.
var haltFunctions = map[string]string{
	"stop_this_cpu":       "amd64: hlt",
	"machine_halt":        "arm64: a loop, riscv64: wfi, if the firmware does not power it off",
	"machine_power_off":   "riscv64: likewise",
	"local_cpu_stop":      "arm64: wfe, wfi; for other CPUs",
	"panic_smp_self_stop": "likewise, inlined",
	"ipi_cpu_crash_stop":  "arm64, riscv64: for other CPUs, after a panic",
	"ipi_stop":            "riscv64: wfi; for other CPUs",
}

// Halts says whether a CPU is there for good, if its interrupts are off.
func (v *View) Halts(a isa.Addr) bool {
	return v.Code(a) && haltFunctions[v.function(a)] != ""
}

// Idles says whether a CPU waits there for an interrupt.
func (v *View) Idles(a isa.Addr) bool {
	if !v.Code(a) {
		return false
	}
	lo, ok1 := v.text.Symbol("__cpuidle_text_start")
	hi, ok2 := v.text.Symbol("__cpuidle_text_end")
	if was := a - v.Slide; ok1 && ok2 && was >= lo && was < hi {
		return true
	}
	return idleFunctions[v.function(a)] != ""
}

// returns says whether a word may be a return address: the instruction before it
// is a call. Only for amd64, where a stack without frame pointers is searched.
func (v *View) returns(a isa.Addr) bool {
	if v.boot.Name(a-v.Slide, 1) != "" { // what is before it is not known
		_, begins := slices.BinarySearch(v.boot.At, a-v.Slide)
		return !begins
	}
	if !v.Code(a) || a-v.Slide < v.lo+7 {
		return false
	}
	before := v.code[a-v.Slide-v.lo-7:][:7]
	if before[2] == 0xe8 { // call rel32
		return true
	}
	for _, n := range []int{2, 3, 4, 6, 7} { // call r/m64, SDM 2: FF /2
		if b := before[7-n:]; b[0] == 0xff && b[1]>>3&7 == 2 {
			return true
		}
	}
	return false
}
