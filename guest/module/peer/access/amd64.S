/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The forms that a stock amd64 kernel's exception table has outside system and
 * vector instructions, each with the type of its entries there.
 */
#include <linux/linkage.h>
#include <asm/asm.h>
#include <asm/smap.h>

#include "access.h"

#define RAX	(1 << 0)
#define RCX	(1 << 1)
#define RDX	(1 << 2)
#define RBX	(1 << 3)
#define RBP	(1 << 5)
#define RSI	(1 << 6)
#define RDI	(1 << 7)
#define R8	(1 << 8)
#define R10	(1 << 10)
#define R14	(1 << 14)

#define STATUS	0x8d5		/* CF PF AF ZF SF OF */
#define EFAULT	14
#define FAILS(reg)	(EX_TYPE_EFAULT_REG | EX_DATA_REG(reg))
#define ZEROES(reg)	(EX_TYPE_ZERO_REG | EX_DATA_REG(reg))

/* Registers that a snippet finds free, and the flags, if asked for. */
.macro OVERWRITE free
	.if \free
	xor	%r11d, %r11d
	mov	%r11, %r9
	.endif
.endm

/*
 * access_NAME(struct access *) runs it. The padding's symbol is as objtool names it:
 * short instructions take a springboard there.
 */
.macro ONE name, free, type, user, small, kernel, insn:vararg
	.p2align 4, 0xcc
	.type	__pfx_access_\name, @function
__pfx_access_\name:
	.skip	16, 0x90
	.size	__pfx_access_\name, . - __pfx_access_\name
	.type	access_\name, @function
access_\name:
	ENDBR
	push	%rbx
	push	%rbp
	push	%r12
	push	%r13
	push	%r14
	push	%r15
	push	%rdi
	mov	%rsp, OFF_STACK(%rdi)
	pushf
	pop	%rax
	and	$~STATUS, %rax
	or	OFF_FLAGS(%rdi), %rax
	push	%rax
	popf
	ASM_STAC
	mov	OFF_REG(0)(%rdi), %rax
	mov	OFF_REG(1)(%rdi), %rcx
	mov	OFF_REG(2)(%rdi), %rdx
	mov	OFF_REG(3)(%rdi), %rbx
	mov	OFF_REG(5)(%rdi), %rbp
	mov	OFF_REG(6)(%rdi), %rsi
	mov	OFF_REG(8)(%rdi), %r8
	mov	OFF_REG(9)(%rdi), %r9
	mov	OFF_REG(10)(%rdi), %r10
	mov	OFF_REG(11)(%rdi), %r11
	mov	OFF_REG(12)(%rdi), %r12
	mov	OFF_REG(13)(%rdi), %r13
	mov	OFF_REG(14)(%rdi), %r14
	mov	OFF_REG(15)(%rdi), %r15
	mov	OFF_REG(7)(%rdi), %rdi
	.size	access_\name, . - access_\name
	.type	access_at_\name, @function
access_at_\name:
	\insn
.Lnext_\name:
	OVERWRITE \free
	jmp	access_went_on
.Lfixup_\name:
	OVERWRITE \free
	jmp	access_faulted
	.size	access_at_\name, . - access_at_\name
	/* Of a load that is padded with zeros, the next instruction is the fixup. */
	.if (\type) == EX_TYPE_ZEROPAD
	_ASM_EXTABLE_TYPE(access_at_\name, .Lnext_\name, \type)
	.else
	_ASM_EXTABLE_TYPE(access_at_\name, .Lfixup_\name, \type)
	.endif
	.pushsection .rodata.str, "a"
.Lname_\name:
	.asciz	"\name"
	.popsection
	.pushsection .data.forms, "aw"
	.quad	access_\name, access_at_\name, .Lname_\name, \user, \small, \kernel
	.popsection
.endm

.macro FORM name, type, user, small, kernel, insn:vararg
	ONE \name, 0, \type, \user, \small, \kernel, \insn
	ONE \name\()_free, 1, \type, \user, \small, \kernel, \insn
.endm

	.pushsection .data.forms, "aw"
	.balign	8
	.globl	access_forms
access_forms:
	.popsection
	.pushsection .rodata, "a"
	.balign	8
	.globl	access_flags
access_flags:
	.quad	STATUS
	.popsection

	.text

/* Saves everything, and returns for access_NAME. mov and push leave the flags alone. */
	.p2align 4, 0xcc
access_faulted:
	push	%rax
	mov	8(%rsp), %rax
	movq	$1, OFF_FAULTED(%rax)
	jmp	1f
access_went_on:
	push	%rax
	mov	8(%rsp), %rax
	movq	$0, OFF_FAULTED(%rax)
1:	mov	%rcx, OFF_REG(1)(%rax)
	mov	%rdx, OFF_REG(2)(%rax)
	mov	%rbx, OFF_REG(3)(%rax)
	mov	%rbp, OFF_REG(5)(%rax)
	mov	%rsi, OFF_REG(6)(%rax)
	mov	%rdi, OFF_REG(7)(%rax)
	mov	%r8, OFF_REG(8)(%rax)
	mov	%r9, OFF_REG(9)(%rax)
	mov	%r10, OFF_REG(10)(%rax)
	mov	%r11, OFF_REG(11)(%rax)
	mov	%r12, OFF_REG(12)(%rax)
	mov	%r13, OFF_REG(13)(%rax)
	mov	%r14, OFF_REG(14)(%rax)
	mov	%r15, OFF_REG(15)(%rax)
	pop	%rcx
	mov	%rcx, OFF_REG(0)(%rax)
	pushf
	pop	%rcx
	ASM_CLAC
	and	$STATUS, %ecx
	mov	%rcx, OFF_FLAGS(%rax)
	mov	%rsp, %rcx
	sub	%rcx, OFF_STACK(%rax)
	pop	%rdi
	pop	%r15
	pop	%r14
	pop	%r13
	pop	%r12
	pop	%rbp
	pop	%rbx
	ret	/* RET would want objtool to know of it */
	int3

/* What a form that is a call calls: a function, or objtool refuses the call (Linux 6.16). */
	.type	access_callee, @function
access_callee:
	ret
	int3
	.size	access_callee, . - access_callee

FORM load8,		EX_TYPE_UACCESS, RDI, 0, 0, mov (%rdi), %al
FORM load16,		EX_TYPE_UACCESS, RBP, 0, 0, mov (%rbp), %ax
FORM load32,		EX_TYPE_UACCESS, RCX, 0, 0, mov (%rcx), %esi
FORM load64,		EX_TYPE_UACCESS, RBX, 0, 0, mov (%rbx), %rax
FORM load8_zx,		EX_TYPE_UACCESS, RAX, 0, 0, movzbl (%rax), %edx
FORM load16_zx,		EX_TYPE_UACCESS, RAX, 0, 0, movzwl (%rax), %edx
FORM load32_disp,	EX_TYPE_UACCESS, RAX, 0, 0, mov 4(%rax), %eax
FORM load64_disp,	EX_TYPE_UACCESS, R8, 0, 0, mov 0x28(%r8), %r10
FORM load8_index,	EX_TYPE_UACCESS, RSI, RDX, 0, mov (%rsi,%rdx), %cl
FORM load8_index_disp,	EX_TYPE_UACCESS, RSI, RDX, 0, mov -1(%rsi,%rdx), %al
FORM load64_index,	EX_TYPE_UACCESS, RSI, RDX, 0, mov (%rsi,%rdx), %rdi
FORM load64_index_disp,	EX_TYPE_UACCESS, R8, RCX, 0, mov 8(%r8,%rcx), %rax
FORM store8,		EX_TYPE_UACCESS, RDI, 0, 0, mov %al, (%rdi)
FORM store16,		EX_TYPE_UACCESS, RDI, 0, 0, mov %dx, (%rdi)
FORM store32,		EX_TYPE_UACCESS, RCX, 0, 0, mov %eax, (%rcx)
FORM store64,		EX_TYPE_UACCESS, R14, 0, 0, mov %rax, (%r14)
FORM store8_disp,	EX_TYPE_UACCESS, RSI, 0, 0, mov %cl, 0x12(%rsi)
FORM store16_disp,	EX_TYPE_UACCESS, RBX, 0, 0, mov %ax, 0xc0(%rbx)
FORM store32_disp,	EX_TYPE_UACCESS, RBX, 0, 0, mov %eax, 0x20(%rbx)
FORM store64_disp,	EX_TYPE_UACCESS, RBX, 0, 0, mov %rax, 0x18(%rbx)
FORM store8_index,	EX_TYPE_UACCESS, RSI, R8, 0, mov %cl, -1(%rsi,%r8)
FORM store8_imm,	EX_TYPE_UACCESS, RCX, 0, 0, movb $0x5a, (%rcx)
FORM store8_imm_index,	EX_TYPE_UACCESS, RDI, RCX, 0, movb $0, (%rdi,%rcx)
FORM store16_imm,	EX_TYPE_UACCESS, RBX, 0, 0, movw $0x1234, 0xc2(%rbx)
FORM store32_imm,	EX_TYPE_UACCESS, R14, 0, 0, movl $1, (%r14)
FORM store32_imm_disp,	EX_TYPE_UACCESS, RBX, 0, 0, movl $0, 0xc(%rbx)
FORM store64_imm,	EX_TYPE_UACCESS, RBX, 0, 0, movq $-2, (%rbx)
FORM store64_imm_disp,	EX_TYPE_UACCESS, RBX, 0, 0, movq $-2, 0x10(%rbx)
FORM movnti32,		EX_TYPE_UACCESS, RDI, 0, 0, movnti %eax, (%rdi)
FORM movnti64,		EX_TYPE_UACCESS, RDI, 0, 0, movnti %r8, (%rdi)
FORM movnti64_disp,	EX_TYPE_UACCESS, RDI, 0, 0, movnti %r9, 8(%rdi)
FORM movsb,		EX_TYPE_UACCESS, RSI | RDI, RCX, 0, rep movsb
FORM movsq,		EX_TYPE_UACCESS, RSI | RDI, RCX, 0, rep movsq
FORM stosb,		EX_TYPE_UACCESS, RDI, RCX, 0, rep stosb
FORM stosq,		EX_TYPE_UACCESS, RDI, RCX, 0, rep stosq
FORM load32_efault,	FAILS(2), RDI, 0, 0, mov (%rdi), %eax
FORM load64_index_efault, FAILS(8), RDX, RBX, 0, mov (%rdx,%rbx,8), %rdi
FORM store64_index_efault, FAILS(8), RDX, RBX, 0, mov %rbp, (%rdx,%rbx,8)
FORM xchg_efault,	FAILS(0), RCX, 0, 0, xchg %edx, (%rcx)
FORM xadd_efault,	FAILS(0), RCX, 0, 0, lock xadd %edx, (%rcx)
FORM cmpxchg_efault,	FAILS(2), RSI, 0, 0, lock cmpxchg %ecx, (%rsi)
FORM cmpxchg_zero,	ZEROES(8), RSI, 0, 0, lock cmpxchg %ecx, (%rsi)
FORM load8_machine_check, EX_TYPE_DEFAULT_MCE_SAFE, RSI, 0, 0, mov (%rsi), %al
FORM load64_machine_check, EX_TYPE_DEFAULT_MCE_SAFE, RSI, 0, 0, mov (%rsi), %r8
FORM movsb_machine_check, EX_TYPE_DEFAULT_MCE_SAFE, RSI | RDI, RCX, 0, rep movsb
FORM store8_default,	EX_TYPE_DEFAULT, RDI, 0, 0, mov %al, (%rdi)
FORM store64_default,	EX_TYPE_DEFAULT, RDI, 0, 0, mov %r8, (%rdi)
FORM prefetch,		EX_TYPE_DEFAULT, RDI, 0, 0, prefetcht0 0x140(%rdi)
FORM load64_padded,	EX_TYPE_ZEROPAD, 0, 0, RSI, mov (%rsi), %rdi
FORM load64_padded_index, EX_TYPE_ZEROPAD, 0, RSI, R10, mov (%r10,%rsi), %rax
#ifdef EX_TYPE_COPY	/* up to Linux 6.3: what faulted is in rax */
FORM load8_copy,	EX_TYPE_COPY, RSI, 0, 0, mov (%rsi), %cl
FORM load32_copy,	EX_TYPE_COPY, RSI, 0, 0, mov (%rsi), %r8d
FORM load64_copy,	EX_TYPE_COPY, RSI, 0, 0, mov (%rsi), %r8
FORM load64_disp_copy,	EX_TYPE_COPY, RSI, 0, 0, mov 0x18(%rsi), %r11
FORM store8_copy,	EX_TYPE_COPY, RDI, 0, 0, mov %cl, (%rdi)
FORM store64_copy,	EX_TYPE_COPY, RDI, 0, 0, mov %r8, (%rdi)
FORM store64_disp_copy,	EX_TYPE_COPY, RDI, 0, 0, mov %r9, 8(%rdi)
FORM movnti32_copy,	EX_TYPE_COPY, RDI, 0, 0, movnti %r8d, (%rdi)
FORM movnti64_copy,	EX_TYPE_COPY, RDI, 0, 0, movnti %r8, (%rdi)
FORM movnti64_disp_copy, EX_TYPE_COPY, RDI, 0, 0, movnti %r9, 8(%rdi)
FORM movsb_copy,	EX_TYPE_COPY, RSI | RDI, RCX, 0, rep movsb
FORM movsq_copy,	EX_TYPE_COPY, RSI | RDI, RCX, 0, rep movsq
#endif
FORM call,		EX_TYPE_UACCESS, 0, 0, 0, rex call access_callee	/* without a prefix it would be an ftrace site */

	.pushsection .data.forms, "aw"
	.globl	access_forms_end
access_forms_end:
	.popsection
