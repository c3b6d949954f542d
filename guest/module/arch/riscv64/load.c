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
 * Behind them is what gives ki_walk() the registers that it begins with. Of the way back
 * nothing stays on the stack, or it would look as if somebody was in the patch (quiesce.c).
 *
 * The assembly is in a function for the sake of its constants; nobody calls that.
 */
#include <linux/sched.h>
#include <linux/stringify.h>

#include <asm/asm-extable.h>
#include <asm/csr.h>
#include <asm/ptrace.h>

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

#define KEEP(reg)	"sd " #reg ", %[" #reg "](sp)\n\t"
#define BACK(reg)	"ld " #reg ", %[" #reg "](sp)\n\t"
#define AT(reg)		[reg] "i" (offsetof(struct pt_regs, reg))

#define WALK									\
	"addi sp, sp, -%[size]\n\t"						\
	KEEP(ra) KEEP(s0) KEEP(t0) KEEP(t4) KEEP(t5) KEEP(t6)			\
	KEEP(a0) KEEP(a1) KEEP(a2) KEEP(a3) KEEP(a4) KEEP(a5) KEEP(a6) KEEP(a7)	\
	"sd t3, %[epc](sp)\n\t"						\
	"srli t3, t1, " __stringify(KI_WALK_SHIFT) "\n\t"			\
	"addi t3, t3, %[size]\n\t"						\
	"add t3, t3, sp\n\t"							\
	"sd t3, %[sp](sp)\n\t"							\
	"li t3, %[kernel]\n\t"							\
	"sd t3, %[status](sp)\n\t"						\
	"mv a0, sp\n\t"								\
	"mv a1, t2\n\t"								\
	"andi a2, t1, (1 << " __stringify(KI_WALK_SHIFT) ") - 1\n\t"		\
	"call ki_walk\n\t"							\
	"mv t2, a0\n\t"								\
	BACK(t0)								\
	"sd zero, %[t0](sp)\n\t"							\
	BACK(ra) BACK(t4) BACK(t5) BACK(t6)				\
	BACK(a0) BACK(a1) BACK(a2) BACK(a3) BACK(a4) BACK(a5) BACK(a6) BACK(a7)	\
	"addi sp, sp, %[size]\n\t"						\
	"jr t0\n\t"

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
		     ".type ki_walks, %%function\n"
		     "ki_walks:\n\t"
		     WALK
		     ".size ki_walks, . - ki_walks\n\t"
		     ".option pop\n\t"
		     ".popsection"
		     : : [n1] "i" (0), [n2] "i" (1), [n4] "i" (2), [n8] "i" (3),
			 [disabled] "i" (offsetof(struct task_struct, pagefault_disabled)),
			 [size] "i" (ALIGN(sizeof(struct pt_regs), 16)), [kernel] "i" (SR_PP),
			 AT(epc), AT(status), AT(sp), AT(ra), AT(s0), AT(t0), AT(t4), AT(t5), AT(t6),
			 AT(a0), AT(a1), AT(a2), AT(a3), AT(a4), AT(a5), AT(a6), AT(a7));
}
