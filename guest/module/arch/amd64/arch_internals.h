/* SPDX-License-Identifier: GPL-2.0 */
#include <linux/static_call_types.h>
#include <asm/extable_fixup_types.h>
#include <asm/orc_types.h>

extern struct static_call_site __start_static_call_sites[], __stop_static_call_sites[];
/* The kernel's tables for walks up a stack: addresses, relative, and what is said of them. */
extern int __start_orc_unwind_ip[], __stop_orc_unwind_ip[];
extern struct orc_entry __start_orc_unwind[], __stop_orc_unwind[];

void exc_int3(struct pt_regs *regs);
extern bool kprobes_allow_optimization;

/* What handles breakpoints: see trap.c. What makes jumps of kprobes: see arch.c. */
#define KI_ARCH_MAYBE(CODE)			\
	CODE(exc_int3)				\
	CODE(kprobe_int3_handler)		\
	CODE(kprobes_allow_optimization)	\
	CODE(wait_for_kprobe_optimizer)
#define KI_ARCH_CALL_LEN 5u

#define KI_ARCH_INTERNALS(CODE, DATA, MARK)	\
	MARK(__start_static_call_sites)		\
	MARK(__stop_static_call_sites)		\
	MARK(__start_orc_unwind_ip)		\
	MARK(__stop_orc_unwind_ip)		\
	MARK(__start_orc_unwind)		\
	MARK(__stop_orc_unwind)			\
	KI_SET_ROX(CODE)			\
	CODE(static_call_text_reserved)		\
	CODE(text_poke)				\
	CODE(text_poke_copy)			\
	CODE(text_poke_finish)			\
	CODE(text_poke_queue)			\
	CODE(text_poke_sync)

/* Four bytes of what ki_arch_fill_traps() fills with, for the assembler. */
#define KI_ARCH_TRAPS "0xcccccccc"
/* How far code and its cells may be from each other, in bytes. */
#define KI_ARCH_CELL_REACH (1ul << 30)
/*
 * What %gs:disp32 reaches of per-CPU memory: a displacement has a sign. Addresses there begin
 * at 0, and since 6.15 in the image.
 */
#define KI_ARCH_LOCAL true
#define KI_ARCH_LOCAL_REACHES(at) ((long)(at) == (int)(at))
/* Rings are found by what is at an address in per-CPU memory, if that is in reach. */
#define KI_ARCH_RING_LIST false
#define KI_ARCH_RINGS_FOUND(at) KI_ARCH_LOCAL_REACHES(at)
#define KI_ARCH_TASK_CPU 0
/* Bytes of patch memory in the module's text besides the annex. A number: it is in asm. */
#define KI_ARCH_ARENA 0x100000
/* Code elsewhere is no text. */
#define KI_ARCH_NAMED 0
/* Bytes of a static key's site, and of what its address is a multiple. */
#define KI_ARCH_KEY_ALIGN 1u
#define KI_ARCH_KEY_LEN 5u
/* How far below a frame address the return address and the caller's are kept. */
#define KI_ARCH_RETURN_BELOW 0
/*
 * Whether a fault is handled only if the fixup is the instruction behind the one that
 * faulted: a load that is padded with zeros is decoded up to there.
 */
#define KI_ARCH_FIXUP_IS_NEXT(e) (((e)->data & EX_DATA_TYPE_MASK) == EX_TYPE_ZEROPAD)
