package plan

import (
	"bytes"
	"fmt"
	"slices"

	"kerninst/agent/cfg"
	"kerninst/agent/isa"
)

// The trap, on every ISA the last resort: a breakpoint over the begin of one instruction.
// The kernel's handler sends whoever meets it to the patch (guest/module/trap.c), which
// costs an exception, some 200 instructions. It needs no room and no register: where none is
// free for the way back (riscv64), that is a breakpoint, too, at the end of the patch.

// onTheWay are the functions that a CPU runs from a breakpoint to the look-up of where it
// leads, besides those of text in which nothing is spliced, by ISA. A breakpoint in one
// would be met on the way to itself. The kernel forbids its own probes in most of them.
var onTheWay = map[string][]string{
	"amd64":   {"exc_int3", "do_int3", "kprobe_int3_handler"},
	"arm64":   {"do_el1_brk64", "call_el1_break_hook", "kprobe_brk_handler"},
	"riscv64": {"do_trap_break", "handle_break", "kprobe_single_step_handler", "kprobe_breakpoint_handler"},
}

// hooked is the call by which the kernel's handler asks whose a breakpoint is, by ISA: the module leads
// it to itself while there is a breakpoint of ours (guest/module/trap.c), so nothing else is written over it.
// On amd64 it is in text in which nothing is spliced anyway.
var hooked = map[string]struct{ in, calls string }{
	"arm64":   {"do_el1_brk64", "kprobe_brk_handler"},
	"riscv64": {"handle_break", "kprobe_breakpoint_handler"},
}

// rewrittenForTraps reports whether instruction k is of that call.
func (fn *function) rewrittenForTraps(k int) bool {
	h, ok := hooked[fn.text.Arch.Name]
	if !ok || fn.Module != "" || fn.Name != h.in {
		return false
	}
	to, err := fn.text.Function("", h.calls)
	return err == nil && (fn.calls(k, to.Addr) || fn.has(k+1) && fn.joins(k, k+1, to.Addr))
}

// calls reports whether instruction k calls a function, together with the one before it if it takes two.
func (fn *function) calls(k int, to isa.Addr) bool {
	i := fn.insns[k]
	return i.Flow == isa.FlowCall && i.Target == to || k > 0 && fn.joins(k-1, k, to)
}

// joins reports whether two instructions form an address together.
func (fn *function) joins(first, second int, to isa.Addr) bool {
	op := fn.text.Arch.Op
	if op == nil {
		return false
	}
	a, ok := cfg.JoinedTarget(op(fn.code[fn.off(second):], fn.insns[second].Addr), op(fn.code[fn.off(first):], fn.insns[first].Addr))
	return ok && a == to
}

// unready are the functions that a CPU that comes runs before it knows where the kernel
// handles breakpoints, by ISA (start_secondary() in arch/x86/kernel/smpboot.c): one that it
// met would end it, and the machine. On arm64 such text is reserved, as a CPU has no stack
// there; on riscv64 it is in front of what is spliced at all. The last run as well when the machine
// wakes, before the base of %gs is written (restore_processor_state).
var unready = map[string][]string{
	"amd64": {
		"early_setup_idt", "setup_ghcb", "startup_64_load_idt", "start_secondary", "cr4_init", "cpu_init_exception_handling",
		"native_write_gdt_entry", "native_load_tr_desc", "cr4_set_bits", "cr4_update_irqsoff", "load_current_idt",
		"native_load_idt", "native_write_cr0", "native_write_cr4", "native_write_msr",
	},
}

// untrapped refuses a breakpoint, for good or while a window waits, where CPUs come by that
// do not know it.
func (fn *function) untrapped() *Refusal {
	if fn.Module != "" || !slices.Contains(unready[fn.text.Arch.Name], fn.Name) {
		return nil
	}
	return refuse(Recursion, "%v runs when a CPU comes or wakes, before that can handle breakpoints", fn.Func)
}

// trap replaces one instruction by a breakpoint.
func (fn *function) trap(req Request, at int) (*Plan, *Refusal) {
	i := fn.insns[at]
	if fn.Module == "" && slices.Contains(onTheWay[fn.text.Arch.Name], fn.Name) {
		return nil, refuse(Recursion, "%v handles breakpoints: one in it would be met on the way to itself", fn.Func)
	}
	if r := fn.untrapped(); r != nil {
		return nil, r
	}
	if r := fn.metTracing(req); r != nil {
		return nil, r
	}
	if bytes.HasPrefix(fn.code[fn.off(at):], fn.text.Arch.Break) {
		return nil, refuse(ReservedText, "%s is a breakpoint already", fn.name(at))
	}
	// The breakpoint leads back as long as the point has one: whoever could be in the patch
	// later would meet nothing.
	home := !req.Features.Preempted
	return fn.build(req, window{mechanism: Trap, first: at, count: 1, replaced: i.Len, home: home})
}

// filling is what is written behind a jump or a breakpoint, from an offset to the end of
// what is displaced. Nobody comes there; but the kernel tells where instructions are by
// reading a function from its begin (can_probe() in arch/x86/kernel/kprobes/core.c,
// arch_check_kprobe() in arch/riscv/kernel/probes/kprobes.c), and what is left of a longer
// one may look as if it went on into the next.
func filling(arch *isa.Arch, from, to int) []byte {
	return bytes.Repeat(arch.Break, max(to-from, 0)/len(arch.Break))
}

// checkTrap holds New to be a breakpoint over one instruction that is none.
func (p *Plan) checkTrap(arch *isa.Arch) error {
	switch {
	case len(p.Displaced) != 1 || len(p.Old) != p.Displaced[0].Len || len(p.Old) < len(arch.Break):
		return fmt.Errorf("a breakpoint over %d bytes of %d instructions", len(p.Old), len(p.Displaced))
	case bytes.HasPrefix(p.Old, arch.Break):
		return fmt.Errorf("there is a breakpoint at %v already", p.Point)
	case !bytes.Equal(p.New, filling(arch, 0, len(p.Old))):
		return fmt.Errorf("the bytes %x at %v are no breakpoints", p.New, p.Point)
	}
	return nil
}
