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
 * Behind them is what gives ki_walk() the registers that it begins with, and a stack as
 * compiled code wants it. An interrupted string copy of the kernel's may go downwards
 * (std); compiled code takes it that none does.
 *
 * The assembly is in a function for the sake of its constants; nobody calls that. Each
 * load is a function by itself, too: what is none has no entry in the unwinder's tables.
 */
#include <linux/sched.h>
#include <linux/stringify.h>

#include <asm/asm.h>
#include <asm/ibt.h>
#include <asm/linkage.h>
#include <asm/ptrace.h>
#include <asm/segment.h>
#include <asm/vsyscall.h>

#include "compat.h"
#include "kerninst_mod.h"

#define FAULTS_OFF(op) op " $" __stringify(KI_LOAD_UNIT) ", %c[disabled](%%rcx)\n\t"

/* n bytes by `mov`, at their place in the table. */
#define LOAD(n, mov)								\
	".org ki_loads + " __stringify(KI_LOAD_STRIDE) " * %c[n" #n "], 0xcc\n\t"	\
	".type ki_load" #n ", @function\n"					\
	"ki_load" #n ":\n\t"							\
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
	"mov %%gs:" KI_TASK_SYMBOL " + %c[task](%%rip), %%rcx\n\t"			\
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
	".size ki_load" #n ", . - ki_load" #n "\n\t"				\
	_ASM_EXTABLE(2b, 5b)

#define KEEP(reg)	"mov %%" #reg ", %c[" #reg "](%%rsp)\n\t"
#define BACK(reg)	"mov %c[" #reg "](%%rsp), %%" #reg "\n\t"

#define WALK									\
	ASM_ENDBR								\
	"push %%rbp\n\t"							\
	"mov %%rsp, %%rbp\n\t"							\
	"sub $%c[size], %%rsp\n\t"						\
	"pushfq\n\t"								\
	"popq %c[flags](%%rsp)\n\t"						\
	"cld\n\t"								\
	KEEP(rdi) KEEP(rdx) KEEP(r8) KEEP(r9) KEEP(r10) KEEP(r11) KEEP(r13)		\
	"mov (%%rbp), %%rdi\n\t"						\
	"mov %%rdi, %c[bp](%%rsp)\n\t"						\
	"movzbl %%cl, %%edx\n\t"						\
	"shr $" __stringify(KI_WALK_SHIFT) ", %%rcx\n\t"			\
	"lea 16(%%rbp, %%rcx), %%rcx\n\t"					\
	"mov %%rcx, %c[sp](%%rsp)\n\t"						\
	"mov %%rsi, %c[ip](%%rsp)\n\t"						\
	"movq $%c[code], %c[cs](%%rsp)\n\t"					\
	"movq $%c[data], %c[ss](%%rsp)\n\t"					\
	"mov %%rax, %%rsi\n\t"							\
	"mov %%rsp, %%rdi\n\t"							\
	"and $-16, %%rsp\n\t"							\
	"call ki_walk\n\t"							\
	"lea -%c[size](%%rbp), %%rsp\n\t"					\
	BACK(rdi) BACK(rdx) BACK(r8) BACK(r9) BACK(r10) BACK(r11)			\
	"pushq %c[flags](%%rsp)\n\t"						\
	"popfq\n\t"								\
	"leave\n\t"								\
	ASM_RET

static void __used loads(void)
{
	asm volatile(".pushsection .kprobes.text, \"ax\"\n\t"
		     ".balign " __stringify(KI_LOAD_STRIDE) "\n\t"
		     ".globl ki_loads\n"
		     "ki_loads:\n\t"
		     LOAD(1, "movzbl (%%rax), %%eax")
		     LOAD(2, "movzwl (%%rax), %%eax")
		     LOAD(4, "movl (%%rax), %%eax")
		     LOAD(8, "movq (%%rax), %%rax")
		     ".org ki_loads + " __stringify(KI_LOAD_STRIDE) " * 4, 0xcc\n\t"
		     ".type ki_walks, @function\n"
		     "ki_walks:\n\t"
		     WALK
		     ".size ki_walks, . - ki_walks\n\t"
		     ".popsection"
		     : : [n1] "i" (0), [n2] "i" (1), [n4] "i" (2), [n8] "i" (3),
			 [vsyscall] "i" (VSYSCALL_ADDR),
			 [task] "i" (KI_TASK_OFFSET),
			 [disabled] "i" (offsetof(struct task_struct, pagefault_disabled)),
			 [size] "i" (sizeof(struct pt_regs)),
			 [code] "i" (__KERNEL_CS), [data] "i" (__KERNEL_DS),
			 [rdi] "i" (offsetof(struct pt_regs, di)), [rdx] "i" (offsetof(struct pt_regs, dx)),
			 [r8] "i" (offsetof(struct pt_regs, r8)), [r9] "i" (offsetof(struct pt_regs, r9)),
			 [r10] "i" (offsetof(struct pt_regs, r10)), [r11] "i" (offsetof(struct pt_regs, r11)),
			 [r13] "i" (offsetof(struct pt_regs, r13)), [bp] "i" (offsetof(struct pt_regs, bp)),
			 [sp] "i" (offsetof(struct pt_regs, sp)), [ip] "i" (offsetof(struct pt_regs, ip)),
			 [cs] "i" (offsetof(struct pt_regs, cs)), [ss] "i" (offsetof(struct pt_regs, ss)),
			 [flags] "i" (offsetof(struct pt_regs, flags)));
}
