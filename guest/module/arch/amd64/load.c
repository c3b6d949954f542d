// SPDX-License-Identifier: GPL-2.0
/*
 * amd64: loads that patches call. rax holds the address and then the value, the
 * carry flag says that it could not be loaded. No other register changes.
 *
 * Kernel addresses are the upper half less the vsyscall page, which the kernel
 * takes for the user's: with SMAP, a kernel load of a user address dies before any
 * table is consulted (do_user_addr_fault). The last byte has to lie there, too. What
 * is left faults as #PF on a kernel address or as #GP where it is not canonical;
 * both look the instruction up before they do anything that could sleep.
 *
 * The assembly is in a function for the sake of its constants; nobody calls that.
 */
#include <linux/sched.h>
#include <linux/stringify.h>

#include <asm/asm.h>
#include <asm/ibt.h>
#include <asm/linkage.h>
#include <asm/vsyscall.h>

#include "kerninst_mod.h"

#define FAULTS_OFF(op) op " $" __stringify(KI_LOAD_UNIT) ", %c[disabled](%%rcx)\n\t"

/* n bytes by `mov`, at their place in the table. */
#define LOAD(n, mov)								\
	".org ki_loads + " __stringify(KI_LOAD_STRIDE) " * %c[n" #n "], 0xcc\n\t"	\
	ASM_ENDBR								\
	"test %%rax, %%rax\n\t"							\
	"jns 4f\n\t"								\
	"cmp $-" #n ", %%rax\n\t"						\
	"ja 4f\n\t"								\
	"cmp $%c[vsyscall] - " #n ", %%rax\n\t"					\
	"jbe 1f\n\t"								\
	"cmp $%c[vsyscall] + 4095, %%rax\n\t"					\
	"jbe 4f\n"								\
	"1:\tpush %%rcx\n\t"							\
	"mov %%gs:pcpu_hot + %c[task](%%rip), %%rcx\n\t"			\
	"testl $" __stringify(KI_LOAD_FULL) ", %c[disabled](%%rcx)\n\t"		\
	"jnz 3f\n\t"								\
	FAULTS_OFF("addl")							\
	"2:\t" mov "\n\t"							\
	FAULTS_OFF("subl")							\
	"pop %%rcx\n\t"								\
	"clc\n\t"								\
	ASM_RET									\
	"5:\t" FAULTS_OFF("subl")						\
	"3:\tpop %%rcx\n"							\
	"4:\txor %%eax, %%eax\n\t"						\
	"stc\n\t"								\
	ASM_RET									\
	_ASM_EXTABLE(2b, 5b)

static void __used loads(void)
{
	asm volatile(".pushsection .kprobes.text, \"ax\"\n\t"
		     ".balign " __stringify(KI_LOAD_STRIDE) "\n\t"
		     ".globl ki_loads\n\t"
		     ".type ki_loads, @function\n"
		     "ki_loads:\n\t"
		     LOAD(1, "movzbl (%%rax), %%eax")
		     LOAD(2, "movzwl (%%rax), %%eax")
		     LOAD(4, "movl (%%rax), %%eax")
		     LOAD(8, "movq (%%rax), %%rax")
		     ".org ki_loads + " __stringify(KI_LOAD_STRIDE) " * 4, 0xcc\n\t"
		     ".size ki_loads, . - ki_loads\n\t"
		     ".popsection"
		     : : [n1] "i" (0), [n2] "i" (1), [n4] "i" (2), [n8] "i" (3),
			 [vsyscall] "i" (VSYSCALL_ADDR),
			 [task] "i" (offsetof(struct pcpu_hot, current_task)),
			 [disabled] "i" (offsetof(struct task_struct, pagefault_disabled)));
}
