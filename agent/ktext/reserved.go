package ktext

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"sort"
	"strconv"
	"strings"

	"kerninst/agent/isa"
)

// Class says why text is reserved.
type Class uint8

const (
	NotReserved Class = iota
	StaticKey
	StaticCall
	Exception // may fault, with a fixup
	Bug
	Ftrace
	Blacklist
	NoInstr
	Entry
	Init
	Hypervisor
	Thunk
	Patching
	Outside
)

// classNames are what people read in refusals.
var classNames = [...]string{
	"", "static key site", "static call site", "exception table entry", "BUG or WARN site",
	"ftrace site", "kprobe blacklist", "noinstr text", "entry text", "init text",
	"hypervisor or identity-mapped text", "thunk", "patching path", "outside known text",
}

func (c Class) String() string { return classNames[c] }

// span is a run of addresses, hi excluded.
type span struct{ lo, hi isa.Addr }

func (s span) holds(a isa.Addr) bool { return s.lo <= a && a < s.hi }

// Reservation is one reserved run and its reason.
type Reservation struct {
	Class  Class
	Lo, Hi isa.Addr
	Why    string
}

// sections lists text between two symbols that must not be spliced.
var sections = []struct {
	lo, hi string
	class  Class
	why    string
}{
	{"__noinstr_text_start", "__noinstr_text_end", NoInstr, "runs while RCU and the entry state are not valid"},
	{"__cpuidle_text_start", "__cpuidle_text_end", NoInstr, "runs while RCU does not watch"},
	{"__entry_text_start", "__entry_text_end", Entry, "runs before the kernel's stack and registers are set up"},
	{"__irqentry_text_start", "__irqentry_text_end", Entry, "exception entry"},
	{"__softirqentry_text_start", "__softirqentry_text_end", Entry, "softirq entry"},
	{"__kprobes_text_start", "__kprobes_text_end", Blacklist, "part of breakpoint handling"},
	{"__static_call_text_start", "__static_call_text_end", StaticCall, "trampolines that the kernel rewrites"},
	{"_sinittext", "_einittext", Init, "freed after boot"},
	{"__init_begin", "__init_end", Init, "freed after boot"},
	{"__hyp_idmap_text_start", "__hyp_idmap_text_end", Hypervisor, "runs at another exception level and address"},
	{"__hyp_text_start", "__hyp_text_end", Hypervisor, "runs at another exception level and address"},
	{"__idmap_text_start", "__idmap_text_end", Hypervisor, "runs with the MMU off"},
	{"__hibernate_exit_text_start", "__hibernate_exit_text_end", Hypervisor, "runs from a copy"},
}

// naming is what the names of functions begin with, and why these are reserved.
type naming struct {
	prefix string
	class  Class
	why    string
}

// parts are of functions that are reserved only from behind the call of one function, or their
// beginning, through the so manyth call of another, or their end.
var parts = map[string]struct {
	after, through string
	nth            int
}{
	"do_suspend_lowlevel":     {after: "x86_acpi_enter_sleep_state"}, // from which it does not return
	"restore_processor_state": {through: "native_write_msr", nth: 2}, // which writes MSR_GS_BASE
	"hibernation_snapshot":    {"swsusp_arch_suspend", "restore_processor_state", 1},
	"create_image":            {"swsusp_arch_suspend", "restore_processor_state", 1},
}

// has reports whether a function of that name is meant.
func (n *naming) has(name string) bool {
	if whole, ok := strings.CutPrefix(n.prefix, "="); ok {
		return name == whole
	}
	return strings.HasPrefix(name, n.prefix)
}

const waking = "runs when the machine wakes, before per-CPU memory is found"

// names lists functions that must not be spliced by the beginning of their
// names ("=" in front: by the whole name).
var names = []naming{
	{"__x86_indirect_", Thunk, "body of a retpoline thunk"},
	{"__x86_return_", Thunk, "body of a return thunk"},
	{"srso_", Thunk, "return thunk"},
	{"retbleed_", Thunk, "return thunk"},
	{"=its_return_thunk", Thunk, "return thunk"},
	{"=call_depth_return_thunk", Thunk, "return thunk"},
	{"__SCT__", StaticCall, "static call trampoline"},
	{"__pfx_", Thunk, "padding before a function"},
	{"__cfi_", Thunk, "padding before a function"},
	{"text_poke", Patching, "writes text"},
	{"__text_poke", Patching, "writes text"},
	{"smp_text_poke", Patching, "writes text"},
	{"do_sync_core", Patching, "serialises other CPUs while text is written"},
	{"poke_int3_handler", Patching, "runs at every transitional breakpoint"},
	{"aarch64_insn_", Patching, "writes text"},
	{"__aarch64_insn_", Patching, "writes text"},
	{"patch_text", Patching, "writes text"},
	{"patch_insn_", Patching, "writes text"},
	{"__patch_insn_", Patching, "writes text"},
	{"=patch_map", Patching, "maps the page that is written"},
	{"=patch_unmap", Patching, "unmaps the page that is written"},
	{"__set_fixmap", Patching, "maps the page that is written"},
	{"caches_clean_inval_pou", Patching, "makes written text visible"},
	{"=flush_icache_all", Patching, "makes written text visible"},
	{"local_flush_icache", Patching, "makes written text visible"},
	{"=copy_to_kernel_nofault", Patching, "writes text"},
	{"=multi_cpu_stop", Patching, "all CPUs wait in it while text is written"},
	{"=stop_machine_yield", Patching, "all CPUs wait in it while text is written"},
	{"=rcu_momentary_eqs", Patching, "all CPUs run it while text is written"},
	{"=touch_nmi_watchdog", Patching, "all CPUs run it while text is written"},
	// What traced functions call, in assembly: entered with registers that no call has,
	// and with labels in it, of which each is a function to who reads symbols.
	{"ftrace_caller", Patching, "copied for each tracer (amd64), found by its labels"},
	{"ftrace_regs_call", Patching, "copied for each tracer (amd64), found by its labels, rewritten"},
	{"=ftrace_call", Patching, "rewritten when tracers change"},
	{"ftrace_graph_call", Patching, "rewritten when tracers change"},
	{"ftrace_stub", Patching, "called from the beginning of any function"},
	{"=ftrace_epilogue", Patching, "left by any traced function's call"},
	{"return_to_handler", Patching, "reached by replaced return addresses"},
	// Whatever runs from one write of an ftrace site to the next, on riscv64 while all CPUs
	// wait. What decides which sites those are, and serves who asks, is like any other code.
	{"ftrace_int3_handler", Patching, "runs at every transitional breakpoint"},
	{"ftrace_make_", Patching, "writes ftrace sites"},
	{"ftrace_init_nop", Patching, "writes ftrace sites"},
	{"ftrace_modify_", Patching, "writes ftrace sites"},
	{"__ftrace_modify_", Patching, "writes ftrace sites, all CPUs run it meanwhile"},
	{"ftrace_replace_code", Patching, "writes ftrace sites"},
	{"__ftrace_replace_code", Patching, "writes ftrace sites"},
	{"ftrace_verify_code", Patching, "reads ftrace sites before they are written"},
	{"=ftrace_update_ftrace_func", Patching, "writes what ftrace sites call"},
	{"=ftrace_enable_ftrace_graph_caller", Patching, "writes what ftrace sites call"},
	{"=ftrace_disable_ftrace_graph_caller", Patching, "writes what ftrace sites call"},
	{"=arch_ftrace_update_code", Patching, "writes ftrace sites"},
	{"=ftrace_run_stop_machine", Patching, "writes ftrace sites"},
	// What a CPU that comes (arch/x86/kernel/head_64.S) runs first: nothing can be pushed
	// there, and memory that is not executable is not yet understood, as counters are.
	{"secondary_startup_64", Entry, "runs before a CPU has a stack"},
	{"=common_startup_64", Entry, "runs before a CPU has a stack"},
	{"=verify_cpu", Entry, "runs before a CPU has the kernel's memory"},
	{"=soft_restart_cpu", Entry, "runs before a CPU has a stack"},
	// Up to Linux 6.2 it clears the base of %gs before it writes that (arch/x86/kernel/cpu/common.c).
	{"=load_percpu_segment", Entry, "runs when a CPU comes, before per-CPU memory is found"},
	// arm64's secondary CPUs come with the MMU on, and no stack (arch/arm64/kernel/head.S).
	{"=__secondary_switched", Entry, "runs before a CPU has a stack"},
	{"=set_cpu_boot_mode_flag", Entry, "runs before a CPU has a stack"},
	{"=finalise_el2", Entry, "runs before a CPU has a stack"},
	// riscv64's kernels that preempt themselves look whether a vector unit is in use, in front
	// of each exception's handler and behind it (arch/riscv/kernel/entry.S): a breakpoint there
	// would be met again, and again.
	{"riscv_v_context_nesting_", Entry, "runs at every exception, in front of its handler"},
	// riscv64's KVM (arch/riscv/kvm/vcpu_switch.S, vcpu_exit.c): exceptions go elsewhere meanwhile, or
	// stack and thread are the guest's.
	{"=__kvm_riscv_switch_to", Entry, "runs while exceptions lead into it, with a guest's registers"},
	{"=__kvm_riscv_unpriv_trap", Entry, "is where exceptions lead while a guest's memory is read"},
	{"=kvm_riscv_vcpu_unpriv_read", Entry, "runs while exceptions lead elsewhere"},
	// arm64's KVM of kernels that run at EL2 (arch/arm64/kvm/hyp/vhe), as far as probes are not barred.
	{"__guest_e", Entry, "runs while exceptions lead to KVM"},
	{"kvm_hyp_handle_", Entry, "runs while exceptions lead to KVM"},
	{"__vgic_v3_", Entry, "runs while exceptions lead to KVM"},
	// What a machine that is woken runs before the per-CPU memory that counters and traps are in is
	// found again. amd64: wakeup_long64 loads %gs with a selector, which clears its base, and
	// restore_processor_state writes that with native_write_msr, behind other registers
	// (arch/x86/kernel/acpi/wakeup_64.S, arch/x86/power/cpu.c). From an image on disk
	// hibernation_snapshot goes on, with the base of the kernel that read it.
	{"=wakeup_long64", Entry, waking},
	{"=do_suspend_lowlevel", Entry, waking},
	{"=restore_processor_state", Entry, waking},
	{"=hibernation_snapshot", Entry, waking},
	{"=create_image", Entry, waking},
	// arm64: cpu_do_resume restores tpidr_el1 (arch/arm64/mm/proc.S); riscv64: tp is restored last,
	// and __cpu_resume_enter begins with the MMU off (arch/riscv/kernel/suspend_entry.S).
	{"=_cpu_resume", Entry, waking},
	{"=cpu_do_resume", Entry, waking},
	{"=__cpu_resume_enter", Entry, waking},
	// What runs with other memory behind its addresses: from a copy, or while the pages that an
	// image on disk has are written, and until the TLB has forgotten those before.
	{"relocate_kernel", Hypervisor, "runs from a copy"},
	{"=identity_mapped", Hypervisor, "runs from a copy"}, // these are behind relocate_kernel, on its page
	{"=virtual_mapped", Hypervisor, "runs from a copy"},
	{"=swap_pages", Hypervisor, "runs from a copy"},
	{"=core_restore_code", Hypervisor, "runs from a copy"},
	{"=trans_pgd_stub_vectors", Hypervisor, "runs from a copy"}, // arm64, at EL2: arch/arm64/mm/trans_pgd-asm.S, with the next two
	{"=el1_sync", Hypervisor, "runs from a copy"},
	{"hyp_stub_", Hypervisor, "runs from a copy"},
	{"=hibernate_core_restore_code", Hypervisor, "runs from a copy"},
	{"=restore_registers", Hypervisor, "runs before the image's memory is"},
	{"=__hibernate_cpu_resume", Hypervisor, "runs before the image's memory is"},
	{"=machine_kexec", Hypervisor, "leaves this kernel"},
	{"=riscv_kexec_norelocate", Hypervisor, "leaves this kernel"},
}

// tables are the kernel's own, sorted by address.
type tables struct {
	keys, calls, faults, bugs []isa.Addr
	targets                   []isa.Addr // of static keys and fixups
}

// layout says how one of the kernel's tables lies in memory. Every entry
// starts with displacements from their own addresses.
type layout struct {
	name   string
	stride int
	target bool // the second word is an address that control may go to
}

// Layouts of 6.1 to 7.2: struct jump_entry, static_call_site and exception_table_entry,
// which has the same 12 bytes on all three ISAs.
var (
	jumpTable   = layout{"__jump_table", 16, true}
	exTable     = layout{"__ex_table", 12, true}
	staticCalls = layout{"static_call_sites", 8, false}
	// The kernel's own are bounded by symbols, __start_ and __stop_ and the name; a
	// module's lie in a section.
	moduleStaticCalls = layout{".static_call_sites", 8, false}
)

// bugTable is the table of BUG and WARN sites; see bugTables.
const bugTable = "__bug_table"

// kernelTable is where a table of the kernel lies; a kernel without it has no such
// symbols. Static calls without a table of their sites are an error: the kernel
// would rewrite code that nobody reserved.
func (t *Text) kernelTable(l layout) (lo, hi isa.Addr, err error) {
	lo, hi = t.sym.markers["__start_"+l.name], t.sym.markers["__stop_"+l.name]
	trampolines := t.sym.markers["__static_call_text_start"] < t.sym.markers["__static_call_text_end"]
	if l == staticCalls && lo == hi && trampolines {
		return 0, 0, fmt.Errorf("the kernel has static calls, but no table %s: its symbols are not known", l.name)
	}
	return lo, hi, nil
}

// load reads one table of the kernel.
func (t *Text) load(l layout) (sites, targets []isa.Addr, err error) {
	lo, hi, err := t.kernelTable(l)
	if err != nil || lo == 0 {
		return nil, nil, err
	}
	if hi < lo || int64(hi-lo)%int64(l.stride) != 0 || hi-lo > 16<<20 {
		return nil, nil, fmt.Errorf("table %s: %v to %v is not a number of %d-byte entries", l.name, lo, hi, l.stride)
	}
	return t.entries(l, lo, hi)
}

// entries reads the table [lo, hi).
func (t *Text) entries(l layout, lo, hi isa.Addr) (sites, targets []isa.Addr, err error) {
	b := make([]byte, (hi-lo)/isa.Addr(l.stride)*isa.Addr(l.stride))
	if err := t.Read(lo, b); err != nil {
		return nil, nil, fmt.Errorf("table %s: %w", l.name, err)
	}
	self := func(k int) isa.Addr {
		return lo + isa.Addr(k) + isa.Addr(int64(int32(isa.ByteOrder.Uint32(b[k:]))))
	}
	sites = make([]isa.Addr, 0, len(b)/l.stride)
	for k := 0; k < len(b); k += l.stride {
		sites = append(sites, self(k))
		if l.target {
			targets = append(targets, self(k+4))
		}
	}
	slices.Sort(sites)
	return sites, targets, nil
}

func (t *Text) loadTables() (*tables, error) {
	var x tables
	bugs, err := t.bugs()
	if err != nil {
		return nil, err
	}
	for _, l := range []struct {
		layout
		into *[]isa.Addr
	}{{jumpTable, &x.keys}, {exTable, &x.faults}, {bugs, &x.bugs}, {staticCalls, &x.calls}} {
		sites, targets, err := t.load(l.layout)
		if err != nil {
			return nil, err
		}
		*l.into = sites
		x.targets = append(x.targets, targets...)
	}
	if err := t.sane(x.keys); err != nil {
		return nil, err
	}
	return &x, nil
}

// sane refuses tables that are not what they should be, by where the sites of
// the kernel's static keys lie: every kernel has some in its text.
func (t *Text) sane(keys []isa.Addr) error {
	if slices.ContainsFunc(keys, func(a isa.Addr) bool { return a >= t.lo && a < t.hi }) {
		return nil
	}
	return fmt.Errorf("table %s: no static key lies in the kernel's text: its tables are not what they should be", jumpTable.name)
}

// siteSize is the least a site of a class covers; what lies there is one
// instruction at least that long, so nothing else can begin inside it.
func (t *Text) siteSize() isa.Addr {
	if t.Arch.Name == "amd64" {
		return 2
	}
	return isa.Addr(t.Arch.MinLen)
}

// within finds the first site in (lo-size, hi).
func within(sites []isa.Addr, lo, hi, size isa.Addr) (isa.Addr, bool) {
	k := sort.Search(len(sites), func(k int) bool { return sites[k]+size > lo })
	if k < len(sites) && sites[k] < hi {
		return sites[k], true
	}
	return 0, false
}

// Reserved reports whether any of [lo, hi) must not be replaced, as part of
// function f. Exception is reported only when nothing else is.
func (t *Text) Reserved(f Func, lo, hi isa.Addr) (Reservation, bool, error) {
	if f.Module != "" {
		return t.reservedModule(f, lo, hi)
	}
	for _, c := range []func(Func, isa.Addr, isa.Addr) (Reservation, bool){t.bySection, t.byBlacklist, t.byName} {
		if r, ok := c(f, lo, hi); ok {
			return r, true, nil
		}
	}
	if lo < t.lo || hi > t.hi {
		return Reservation{Outside, lo, hi, "not between _stext and _etext"}, true, nil
	}
	return t.Site(lo, hi)
}

// Site reports whether any of [lo, hi) is a site of the tables of the kernel, or of
// the module in whose code lo is: the kernel rewrites it, or finds it by its address.
func (t *Text) Site(lo, hi isa.Addr) (Reservation, bool, error) {
	if _, m := t.code(lo); m != nil {
		return t.siteOf(m, lo, hi)
	}
	x, err := t.own.tables.get(t.loadTables)
	if err != nil {
		return Reservation{}, false, err
	}
	n := t.near.Load()
	if n == nil || lo < n.lo || hi > n.hi {
		n = t.around(x, lo, hi)
		t.near.Store(n)
	}
	if n.none {
		return Reservation{}, false, nil
	}
	r, ok := t.siteIn(&n.tables, lo, hi)
	return r, ok, nil
}

// longestRewritten is the longest instruction at a site of a static key or call, in bytes: a conditional jump's.
const longestRewritten = 6

// callSite is how long what is at a static call's is but for that.
const callSite = 5

// Rewrites reports whether the byte at a is of an instruction that the kernel itself rewrites while it runs, at a site of a
// static key or a static call. Code is text from start on, in which a lies, of a moment at which nobody else had written there:
// the tables say where such an instruction begins, and code how long it is.
func (t *Text) Rewrites(a, start isa.Addr, code []byte) (bool, error) {
	for lo := max(start, a-longestRewritten+1); lo <= a; lo++ {
		r, ok, err := t.Site(lo, lo+1)
		if err != nil {
			return false, err
		}
		if !ok || r.Lo != lo || r.Class != StaticKey && r.Class != StaticCall {
			continue
		}
		end := t.Arch.Decode(code[lo-start:], lo).End()
		if r.Class == StaticCall { // of which a return and four traps may be there
			end = max(end, lo+callSite)
		}
		if a < end {
			return true, nil
		}
	}
	return false, nil
}

// nearby is what the kernel's tables have for the text between two addresses.
type nearby struct {
	lo, hi isa.Addr
	tables
	none bool // they have nothing
}

// around looks up what the kernel's tables have for the text on both sides of [lo, hi).
func (t *Text) around(x *tables, lo, hi isa.Addr) *nearby {
	n := &nearby{lo: lo - min(lo, page/4), hi: hi + min(^hi, page)}
	from := n.lo - min(n.lo, widestSite)
	part := func(sites []isa.Addr) []isa.Addr {
		first, _ := slices.BinarySearch(sites, from)
		end, _ := slices.BinarySearch(sites[first:], n.hi)
		return sites[first : first+end]
	}
	n.tables = tables{keys: part(x.keys), calls: part(x.calls), bugs: part(x.bugs), faults: part(x.faults)}
	n.none = len(n.keys)+len(n.calls)+len(n.bugs)+len(n.faults) == 0
	return n
}

// widestSite is the most that a site covers: siteIn, siteSize.
const widestSite = 8

// siteIn looks through one kernel's or module's tables.
func (t *Text) siteIn(x *tables, lo, hi isa.Addr) (Reservation, bool) {
	for _, c := range []struct {
		sites []isa.Addr
		size  isa.Addr
		class Class
		why   string
	}{
		{x.keys, t.siteSize(), StaticKey, "rewritten when the key changes"},
		{x.calls, callSite, StaticCall, "rewritten when the call changes"},
		{x.bugs, t.siteSize(), Bug, "its address identifies the report"},
		{x.faults, 1, Exception, "faults are resolved by its address"},
	} {
		if a, ok := within(c.sites, lo, hi, c.size); ok {
			return Reservation{c.class, a, a + c.size, c.why}, true
		}
	}
	return Reservation{}, false
}

// reservedSections finds the sections that this kernel has.
func (t *Text) reservedSections() []Reservation {
	var out []Reservation
	for _, s := range sections {
		lo, ok1 := t.sym.markers[s.lo]
		hi, ok2 := t.sym.markers[s.hi]
		if ok1 && ok2 && lo < hi {
			out = append(out, Reservation{s.class, lo, hi, s.why})
		}
	}
	return out
}

func (t *Text) bySection(_ Func, lo, hi isa.Addr) (Reservation, bool) {
	for _, r := range t.parts {
		if r.Lo < hi && lo < r.Hi {
			return r, true
		}
	}
	return Reservation{}, false
}

func (t *Text) byBlacklist(_ Func, lo, hi isa.Addr) (Reservation, bool) {
	k := sort.Search(len(t.traps), func(k int) bool { return t.traps[k].hi > lo })
	if k < len(t.traps) && t.traps[k].lo < hi {
		return Reservation{Blacklist, t.traps[k].lo, t.traps[k].hi, "the kernel refuses probes there"}, true
	}
	return Reservation{}, false
}

// named is what the names of a function say, all of which are at its address: of which parts of it.
type named struct {
	at, end isa.Addr
	says    []Reservation
}

func (t *Text) byName(f Func, lo, hi isa.Addr) (Reservation, bool) {
	n := t.named.Load()
	if n == nil || n.at != f.Addr || n.end != f.End() {
		n = &named{f.Addr, f.End(), t.nameOf(f)}
		t.named.Store(n)
	}
	for _, r := range n.says {
		if r.Lo < hi && lo < r.Hi {
			return r, true
		}
	}
	return Reservation{}, false
}

func (t *Text) nameOf(f Func) (says []Reservation) {
	for _, name := range t.Aliases(f) {
		for _, n := range names {
			if !n.has(name) {
				continue
			}
			for _, s := range t.partOf(f, name) {
				says = append(says, Reservation{n.class, s.lo, s.hi, n.why})
			}
			return says
		}
		if t.partOfBlacklist(name) {
			return []Reservation{{Blacklist, f.Addr, f.End(), "the kernel refuses probes in the function that it is a part of"}}
		}
	}
	return nil
}

// partOf is the reserved part of a function of that name: all of it if it is none of those, or if
// its calls are not found, as when a compiler has put what they call into it.
func (t *Text) partOf(f Func, name string) []span {
	all := []span{{f.Addr, f.End()}}
	p, ok := parts[name]
	through, err := t.Function("", p.through)
	after, afterErr := t.Function("", p.after)
	code, codeErr := t.Code(f)
	if !ok || codeErr != nil || err != nil && p.through != "" || afterErr != nil && p.after != "" {
		return all
	}
	lo, found := f.Addr, p.after == ""
	for off := 0; off < len(code); {
		i := t.Arch.Decode(code[off:], f.Addr+isa.Addr(off))
		off += i.Len
		switch {
		case i.Flow != isa.FlowCall:
		case !found && i.Target == after.Addr:
			if lo, found = i.End(), true; p.through == "" {
				return []span{{lo, f.End()}}
			}
		case found && i.Target == through.Addr:
			if p.nth--; p.nth == 0 {
				return t.detours(f, code, span{lo, i.End()})
			}
		}
	}
	return all
}

// detours adds to a part of a function what lies outside it and is jumped to from it, as what is
// seldom done is behind all else, up to where that goes elsewhere.
func (t *Text) detours(f Func, code []byte, part span) []span {
	out := []span{part}
	in := func(a isa.Addr) bool {
		return slices.ContainsFunc(out, func(s span) bool { return s.lo <= a && a < s.hi })
	}
	for k := 0; k < len(out); k++ {
		for a := out[k].lo; a < out[k].hi; {
			i := t.Arch.Decode(code[a-f.Addr:], a)
			a = i.End()
			jumps := i.Flow == isa.FlowJump || i.Flow == isa.FlowCond
			if !jumps || in(i.Target) || i.Target < f.Addr || i.Target >= f.End() {
				continue
			}
			detour := span{i.Target, i.Target}
			for detour.hi < f.Addr+isa.Addr(len(code)) {
				i := t.Arch.Decode(code[detour.hi-f.Addr:], detour.hi)
				if detour.hi = i.End(); i.Flow != isa.FlowNone && i.Flow != isa.FlowCond && i.Flow != isa.FlowCall && i.Flow != isa.FlowIndirectCall {
					break
				}
			}
			out = append(out, detour)
		}
	}
	return out
}

// partOfBlacklist: what is refused of a function is refused of its parts, whose names go on
// behind a dot (kernel/kprobes.c, within_kprobe_blacklist).
func (t *Text) partOfBlacklist(name string) bool {
	whole, _, part := strings.Cut(name, ".")
	if !part || len(t.traps) == 0 {
		return false
	}
	t.own.indexed.Do(t.sym.buildIndex)
	for _, k := range t.sym.find(whole) {
		a := t.sym.list[k].addr
		if _, ok := t.byBlacklist(Func{}, a, a+1); ok {
			return true
		}
	}
	return false
}

// parseBlacklist reads lines of the form "0xlo-0xhi<tab>name".
func parseBlacklist(r io.Reader) ([]span, error) {
	var out []span
	sc := bufio.NewScanner(r)
	for n := 1; sc.Scan(); n++ {
		run, _, _ := strings.Cut(sc.Text(), "\t")
		lo, hi, ok := strings.Cut(run, "-")
		a, err1 := strconv.ParseUint(strings.TrimPrefix(lo, "0x"), 16, 64)
		b, err2 := strconv.ParseUint(strings.TrimPrefix(hi, "0x"), 16, 64)
		if !ok || err1 != nil || err2 != nil {
			return nil, fmt.Errorf("kprobe blacklist line %d: %q is not lo-hi", n, sc.Text())
		}
		out = append(out, span{isa.Addr(a), isa.Addr(b)})
	}
	if err := sc.Err(); err != nil {
		return nil, fmt.Errorf("kprobe blacklist: %w", err)
	}
	return merge(out), nil
}

// merge sorts spans and joins those that overlap.
func merge(in []span) []span {
	sort.Slice(in, func(i, j int) bool { return in[i].lo < in[j].lo })
	var out []span
	for _, s := range in {
		if k := len(out) - 1; k >= 0 && s.lo <= out[k].hi {
			out[k].hi = max(out[k].hi, s.hi)
			continue
		}
		out = append(out, s)
	}
	return out
}
