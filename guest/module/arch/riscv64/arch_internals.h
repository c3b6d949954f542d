/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The kernel's walk of a stack ends at what is no text (walk_stackframe() in
 * arch/riscv/kernel/stacktrace.c); and static keys' sites are rewritten only there.
 */
#define KI_ARCH_NAMED IS_ENABLED(CONFIG_BPF_JIT)

struct pt_regs;
void handle_break(struct pt_regs *regs);
void handle_exception(void);
void ret_from_exception_end(void);

/* What handles breakpoints: see trap.c; and where the registers of what was interrupted are on the stack. */
#define KI_ARCH_MAYBE(CODE)			\
	CODE(handle_break)			\
	CODE(kprobe_breakpoint_handler)		\
	CODE(handle_exception)			\
	CODE(ret_from_exception_end)
#define KI_ARCH_CALL_LEN 8u

#define KI_ARCH_INTERNALS(CODE, DATA, MARK)	\
	KI_NAMING(CODE)				\
	KI_SET_ROX(CODE)			\
	CODE(stop_machine_cpuslocked)		\
	CODE(patch_insn_write)			\
	CODE(patch_text_nosync)

/* Four bytes of what ki_arch_fill_traps() fills with, for the assembler. */
#define KI_ARCH_TRAPS "0x90029002"
/* How far code and its cells may be from each other, in bytes. */
#define KI_ARCH_CELL_REACH (1ul << 30)
/* No instruction adds to per-CPU memory in one step. */
#define KI_ARCH_LOCAL false
#define KI_ARCH_LOCAL_REACHES(at) false
/* No register leads to per-CPU memory: rings are in a list, by the number of the CPU. */
#define KI_ARCH_RING_LIST true
#define KI_ARCH_RINGS_FOUND(at) true
#define KI_ARCH_TASK_CPU offsetof(struct task_struct, thread_info.cpu)
/* Bytes of patch memory in the module's text besides the annex: none. */
#define KI_ARCH_ARENA 0
/* Bytes of a static key's site, and of what its address is a multiple. */
#define KI_ARCH_KEY_ALIGN 4u
#define KI_ARCH_KEY_LEN 4u
/* How far below a frame address (s0) the return address and the caller's are kept. */
#define KI_ARCH_RETURN_BELOW (2 * sizeof(long))
/* No handler of a fault looks at where the instruction and its fixup are. */
#define KI_ARCH_FIXUP_IS_NEXT(e) false
