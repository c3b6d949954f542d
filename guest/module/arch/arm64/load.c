// SPDX-License-Identifier: GPL-2.0
/*
 * arm64: loads that patches call. x15 holds the address and then the value, x17 where
 * to go on; x16 becomes 1 if it could not be loaded, else 0. x14 is overwritten, the
 * flags and all others are not.
 *
 * Kernel addresses have their upper twelve bits set, with 48 and with 52 bits of
 * address alike: below a tag, bit 55 alone would say which half it is, and a user
 * address with a tag can be any. The last byte has to lie there, too. What is left
 * faults in do_translation_fault or do_bad_area, which look the instruction up first.
 *
 * `ret` through x17 needs no landing pad in the patch; `br x16` needs one here.
 *
 * Behind them is what gives ki_walk() the registers that it begins with, in the order of
 * struct pt_regs. Of the way back nothing stays on the stack, or it would look as if
 * somebody was in the patch (quiesce.c).
 *
 * The assembly is in a function for the sake of its constants; nobody calls that.
 */
#include <linux/sched.h>
#include <linux/stringify.h>

#include <asm/asm-extable.h>
#include <asm/ptrace.h>

#include "kerninst_mod.h"

/* n bytes by `ldr`, at their place in the table. */
#define LOAD(n, ldr)								\
	".org ki_loads + " __stringify(KI_LOAD_STRIDE) " * %c[n" #n "]\n\t"	\
	"hint #34\n\t"			/* bti c */				\
	"add x16, x15, #" #n " - 1\n\t"						\
	"and x16, x16, x15\n\t"							\
	"asr x16, x16, #52\n\t"							\
	"add x16, x16, #1\n\t"							\
	"cbnz x16, 4f\n\t"							\
	"mrs x14, sp_el0\n\t"							\
	"add x14, x14, %[disabled]\n\t"						\
	"ldr w16, [x14]\n\t"							\
	"tbnz w16, %[full], 4f\n\t"						\
	"add w16, w16, #" __stringify(KI_LOAD_UNIT) "\n\t"			\
	"str w16, [x14]\n"							\
	"2:\t" ldr ", [x15]\n\t"						\
	"sub w16, w16, #" __stringify(KI_LOAD_UNIT) "\n\t"			\
	"str w16, [x14]\n\t"							\
	"mov w16, #0\n\t"							\
	"ret x17\n"								\
	"5:\tsub w16, w16, #" __stringify(KI_LOAD_UNIT) "\n\t"			\
	"str w16, [x14]\n"							\
	"4:\tmov x15, #0\n\t"							\
	"mov w16, #1\n\t"							\
	"ret x17\n\t"								\
	_ASM_EXTABLE_KACCESS_ERR_ZERO(2b, 5b, wzr, wzr)

#define PAIRS(op)								\
	op " x0, x1, [sp]\n\t"							\
	op " x2, x3, [sp, #16]\n\t"						\
	op " x4, x5, [sp, #32]\n\t"						\
	op " x6, x7, [sp, #48]\n\t"						\
	op " x8, x9, [sp, #64]\n\t"						\
	op " x10, x11, [sp, #80]\n\t"						\
	op " x29, x30, [sp, #232]\n\t"

#define WALK									\
	"hint #34\n\t"								\
	"sub sp, sp, #%c[size]\n\t"						\
	PAIRS("stp")								\
	"str x12, [sp, #96]\n\t"						\
	"stp x17, x18, [sp, #136]\n\t"						\
	"lsr x16, x14, #" __stringify(KI_WALK_SHIFT) "\n\t"			\
	"add x16, x16, #%c[size]\n\t"						\
	"add x16, sp, x16\n\t"							\
	"stp x16, x13, [sp, #%c[sp]]\n\t"	/* and pc */			\
	"mrs x16, nzcv\n\t"							\
	"orr x16, x16, #%c[el1]\n\t"						\
	"str x16, [sp, #%c[pstate]]\n\t"					\
	"mov x0, sp\n\t"							\
	"mov x1, x15\n\t"							\
	"and w2, w14, #(1 << " __stringify(KI_WALK_SHIFT) ") - 1\n\t"		\
	"bl ki_walk\n\t"							\
	"mov x15, x0\n\t"							\
	"ldr x16, [sp, #%c[pstate]]\n\t"					\
	"and x16, x16, #0xf0000000\n\t"					\
	"msr nzcv, x16\n\t"							\
	"ldp x17, x18, [sp, #136]\n\t"						\
	"str xzr, [sp, #136]\n\t"						\
	"ldr x12, [sp, #96]\n\t"						\
	PAIRS("ldp")								\
	"add sp, sp, #%c[size]\n\t"						\
	"ret x17\n\t"

static void __used loads(void)
{
	BUILD_BUG_ON(offsetof(struct task_struct, pagefault_disabled) > 4095);
	BUILD_BUG_ON(offsetof(struct pt_regs, regs) || sizeof(struct pt_regs) % 16 ||
		     offsetof(struct pt_regs, pc) != offsetof(struct pt_regs, sp) + 8);
	asm volatile(".pushsection .kprobes.text, \"ax\"\n\t"
		     ".balign " __stringify(KI_LOAD_STRIDE) "\n\t"
		     ".globl ki_loads\n\t"
		     ".type ki_loads, %%function\n"
		     "ki_loads:\n\t"
		     LOAD(1, "ldrb w15")
		     LOAD(2, "ldrh w15")
		     LOAD(4, "ldr w15")
		     LOAD(8, "ldr x15")
		     ".org ki_loads + " __stringify(KI_LOAD_STRIDE) " * 4\n\t"
		     ".size ki_loads, . - ki_loads\n\t"
		     ".type ki_walks, %%function\n"
		     "ki_walks:\n\t"
		     WALK
		     ".size ki_walks, . - ki_walks\n\t"
		     ".popsection"
		     : : [n1] "i" (0), [n2] "i" (1), [n4] "i" (2), [n8] "i" (3),
			 [full] "i" (ilog2(KI_LOAD_FULL)),
			 [disabled] "i" (offsetof(struct task_struct, pagefault_disabled)),
			 [size] "i" (sizeof(struct pt_regs)), [sp] "i" (offsetof(struct pt_regs, sp)),
			 [pstate] "i" (offsetof(struct pt_regs, pstate)), [el1] "i" (PSR_MODE_EL1t));
}
