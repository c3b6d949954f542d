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
 * The assembly is in a function for the sake of its constants; nobody calls that.
 */
#include <linux/sched.h>
#include <linux/stringify.h>

#include <asm/asm-extable.h>

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

static void __used loads(void)
{
	BUILD_BUG_ON(offsetof(struct task_struct, pagefault_disabled) > 4095);
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
		     ".popsection"
		     : : [n1] "i" (0), [n2] "i" (1), [n4] "i" (2), [n8] "i" (3),
			 [full] "i" (ilog2(KI_LOAD_FULL)),
			 [disabled] "i" (offsetof(struct task_struct, pagefault_disabled)));
}
