/* SPDX-License-Identifier: GPL-2.0 */
/* Static keys' sites are rewritten only in what is text: kernel_text_address(). */
#define KI_ARCH_NAMED IS_ENABLED(CONFIG_BPF_JIT)

struct pt_regs;
void do_el1_brk64(unsigned long esr, struct pt_regs *regs);
int kprobe_brk_handler(struct pt_regs *regs, unsigned long esr);

/* What handles breakpoints: see trap.c. */
#define KI_ARCH_MAYBE(CODE)			\
	CODE(do_el1_brk64)			\
	CODE(kprobe_brk_handler)
#define KI_ARCH_CALL_LEN 4u
#define KI_ARCH_VENEER_LEN 16u
#define KI_ARCH_CALL_REACH (127ul << 20)	/* less a page, and more */

#define KI_ARCH_INTERNALS(CODE, DATA, MARK)	\
	KI_NAMING(CODE)				\
	KI_SET_ROX(CODE)			\
	CODE(stop_machine_cpuslocked)		\
	KI_INSN_COPY(CODE)			\
	MARK(__entry_text_start)		\
	MARK(__entry_text_end)			\
	CODE(aarch64_insn_patch_text_nosync)

/* Four bytes of what ki_arch_fill_traps() fills with, for the assembler. */
#define KI_ARCH_TRAPS "0xd4202000"
/* How far code and its cells may be from each other, in bytes. */
#define KI_ARCH_CELL_REACH ((1ul << 20) - 2 * KI_ANNEX_LEN)
/* No instruction adds to per-CPU memory in one step. */
#define KI_ARCH_LOCAL false
#define KI_ARCH_LOCAL_REACHES(at) false
/* Rings are found by what is in per-CPU memory; tpidr_el2 says where a host's own is. */
#define KI_ARCH_RING_LIST false
#define KI_ARCH_RINGS_FOUND(at) (!is_kernel_in_hyp_mode())
#define KI_ARCH_TASK_CPU 0
/* Bytes of patch memory in the module's text besides the annex: none. */
#define KI_ARCH_ARENA 0
/* Bytes of a static key's site, and of what its address is a multiple. */
#define KI_ARCH_KEY_ALIGN 4u
#define KI_ARCH_KEY_LEN 4u
/* How far below a frame address the return address and the caller's are kept. */
#define KI_ARCH_RETURN_BELOW 0
/* No handler of a fault looks at where the instruction and its fixup are. */
#define KI_ARCH_FIXUP_IS_NEXT(e) false
