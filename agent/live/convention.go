package live

import (
	"slices"
	"strings"

	"kerninst/agent/isa"
)

// convention is what C code of one ISA expects of a call.
type convention struct {
	args    isa.RegSet // may carry arguments
	results isa.RegSet // may carry results
	scratch isa.RegSet // lost in a call, flags included
	saved   isa.RegSet // kept by a callee: isa.Arch.Saved
}

// conventions by ISA, in the ISA's own numbering: System V AMD64 psABI 3.2,
// AAPCS64 6.1.1, the RISC-V calling convention's integer registers. amd64's rax
// counts as an argument: it carries the number of vector registers of a variadic
// call.
var conventions = map[string]convention{
	"amd64": {
		args:    isa.Set(0, 1, 2, 6, 7, 8, 9, 4),          // rax rcx rdx rsi rdi r8 r9, rsp
		results: isa.Set(0, 2),                            // rax rdx
		scratch: isa.Set(0, 1, 2, 6, 7, 8, 9, 10, 11, 16), // and r10 r11 flags
	},
	"arm64": {
		args:    isa.Range(0, 8) | isa.Set(18, 31, 29, 30), // x8 points to a result
		results: isa.Range(0, 1),
		scratch: isa.Range(0, 17) | isa.Set(30, 32),
	},
	"riscv64": {
		args:    isa.Range(10, 17) | isa.Range(1, 4), // a0-a7, ra sp gp tp
		results: isa.Range(10, 11),
		scratch: isa.Range(10, 17) | isa.Range(5, 7) | isa.Range(28, 31) | isa.Set(1),
	},
}

// conventionOf is that of an ISA, without what is not tracked.
func conventionOf(a *isa.Arch) (convention, bool) {
	c, ok := conventions[a.Name]
	return convention{c.args & a.All, c.results & a.All, c.scratch & a.All, a.Saved & a.All}, ok
}

// keepers lists symbols whose callers, by ways that the graph does not show, keep
// every register across the call. Functions with an ftrace site are C whatever they
// are called.
var keepers = []struct{ arch, prefix, why string }{
	{"amd64", "preempt_schedule", "called from inline assembly that names no register as lost"},
	{"amd64", "__raw_callee_save_", "paravirt's own convention: only the result changes"},
	{"amd64", "ftrace_", "called from the beginning of any function"},
	{"amd64", "__fentry__", "likewise"},
	{"amd64", "return_to_handler", "entered by a return"},
	{"amd64", "arch_rethook_trampoline", "likewise"},
	{"amd64", "__x86_", "its body is not what callers see"},
	{"amd64", "__sev_es_nmi_complete", "called from assembly"},
	{"amd64", "__get_user_", "called from inline assembly, by modules too, that names what is lost"},
	{"amd64", "__put_user_", "likewise"},
	{"amd64", "__sw_hweight", "likewise"},
	{"amd64", "rep_movs_alternative", "likewise"},
	{"amd64", "rep_stos_alternative", "likewise"},
	{"amd64", "clear_page_", "likewise"},
	{"amd64", "this_cpu_cmpxchg16b_emu", "likewise"},
	{"amd64", "clear_bhb_loop", "likewise"},
	{"amd64", "entry_ibpb", "likewise"},
	{"amd64", "warn_thunk_thunk", "likewise"},
	{"arm64", "ftrace_", "called from the beginning of any function"},
	{"arm64", "return_to_handler", "entered by a return"},
	{"arm64", "__kretprobe_trampoline", "likewise"},
	{"riscv64", "ftrace_", "called from the beginning of any function"},
	{"riscv64", "return_to_handler", "entered by a return"},
	{"riscv64", "arch_rethook_trampoline", "likewise"},
}

func keepsAll(arch string, names []string) bool {
	for _, k := range keepers {
		for _, name := range names {
			if k.arch == arch && strings.HasPrefix(name, k.prefix) {
				return true
			}
		}
	}
	return false
}

// asC lists functions that are written in assembly to be called by C, and by nothing else: no
// compiler has seen what they overwrite, so none keeps anything in a register that C says is lost.
var asC = []struct{ arch, name, why string }{
	{"riscv64", "__memcpy", "arch/riscv/lib/memcpy.S, which is also memcpy: string.h"},
	{"riscv64", "__memmove", "arch/riscv/lib/memmove.S: likewise"},
	{"riscv64", "__memset", "arch/riscv/lib/memset.S: likewise"},
	{"riscv64", "strcmp", "arch/riscv/lib/strcmp.S: likewise"},
	{"riscv64", "strlen", "arch/riscv/lib/strlen.S: likewise"},
	{"riscv64", "strncmp", "arch/riscv/lib/strncmp.S: likewise"},
	{"riscv64", "__asm_copy_to_user", "arch/riscv/lib/uaccess.S: asm/uaccess.h"},
	{"riscv64", "fallback_scalar_usercopy", "likewise, and by enter_vector_usercopy"},
	{"riscv64", "__clear_user", "likewise"},
}

// Returned is what may be read behind a return from a function with these names, if it is known to be
// called by C alone.
func Returned(arch *isa.Arch, names []string) (reads isa.RegSet, ok bool) {
	for _, f := range asC {
		if f.arch == arch.Name && slices.Contains(names, f.name) {
			c, _ := conventionOf(arch)
			return c.saved | c.results, true
		}
	}
	return 0, false
}
