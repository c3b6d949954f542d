// SPDX-License-Identifier: GPL-2.0
/*
 * riscv64: loads that patches call. t2 holds the address and then the value, t0 where
 * to go on; t1 becomes 1 if it could not be loaded, else 0. t3 is overwritten, all
 * others are not.
 *
 * Kernel addresses are the upper half, and the last byte has to lie there, too. What
 * is left faults as a page fault, also where it is not canonical, or as an access
 * fault where the firmware keeps memory to itself. For a page fault that is known not
 * to be a user's the kernel still takes the process's mmap lock (handle_page_fault),
 * which may sleep, and never ends where the lock is held already: unless page faults
 * are disabled. Then the instruction is looked up first.
 *
 * The assembly is in a function for the sake of its constants; nobody calls that.
 */
#include <linux/sched.h>
#include <linux/stringify.h>

#include <asm/asm-extable.h>

#include "kerninst_mod.h"

/* n bytes by `load`, at their place in the table. */
#define LOAD(n, load)								\
	".org ki_loads + " __stringify(KI_LOAD_STRIDE) " * %c[n" #n "]\n\t"	\
	"addi t1, t2, " #n " - 1\n\t"						\
	"and t1, t1, t2\n\t"							\
	"bgez t1, 4f\n\t"							\
	"li t3, %[disabled]\n\t"						\
	"add t3, t3, tp\n\t"							\
	"lw t1, 0(t3)\n\t"							\
	"andi t1, t1, " __stringify(KI_LOAD_FULL) "\n\t"			\
	"bnez t1, 4f\n\t"							\
	"lw t1, 0(t3)\n\t"							\
	"addi t1, t1, " __stringify(KI_LOAD_UNIT) "\n\t"			\
	"sw t1, 0(t3)\n"							\
	"2:\t" load " t2, 0(t2)\n\t"						\
	"addi t1, t1, -" __stringify(KI_LOAD_UNIT) "\n\t"			\
	"sw t1, 0(t3)\n\t"							\
	"li t1, 0\n\t"								\
	"jr t0\n"								\
	"5:\taddi t1, t1, -" __stringify(KI_LOAD_UNIT) "\n\t"			\
	"sw t1, 0(t3)\n"							\
	"4:\tli t2, 0\n\t"							\
	"li t1, 1\n\t"								\
	"jr t0\n\t"								\
	_ASM_EXTABLE(2b, 5b)

static void __used loads(void)
{
	asm volatile(".pushsection .kprobes.text, \"ax\"\n\t"
		     ".option push\n\t"
		     ".option norelax\n\t"
		     ".option norvc\n\t"
		     ".balign " __stringify(KI_LOAD_STRIDE) "\n\t"
		     ".globl ki_loads\n\t"
		     ".type ki_loads, %%function\n"
		     "ki_loads:\n\t"
		     LOAD(1, "lbu")
		     LOAD(2, "lhu")
		     LOAD(4, "lwu")
		     LOAD(8, "ld")
		     ".org ki_loads + " __stringify(KI_LOAD_STRIDE) " * 4\n\t"
		     ".size ki_loads, . - ki_loads\n\t"
		     ".option pop\n\t"
		     ".popsection"
		     : : [n1] "i" (0), [n2] "i" (1), [n4] "i" (2), [n8] "i" (3),
			 [disabled] "i" (offsetof(struct task_struct, pagefault_disabled)));
}
