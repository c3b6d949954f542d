/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The forms that a stock arm64 kernel's exception table has outside system
 * instructions, each with the type of its entries there.
 */
#include <linux/linkage.h>
#include <asm/alternative-macros.h>
#include <asm/asm-extable.h>
#include <asm/cpucaps.h>
#include <asm/sysreg.h>

#include "access.h"

#define X(n)	(1 << (n))
#define NZCV	0xf0000000

#define FRAME	112		/* bytes: what is callee-saved, and the struct access */
#define OFF_SELF	96		/* in it */

/* What a fault leaves: -EFAULT in a register, 0 in another; 31 is none. */
#define UACCESS(err, zero)	EX_TYPE_UACCESS_ERR_ZERO, ((err) | (zero) << EX_DATA_REG_ZERO_SHIFT)
#define KACCESS(err, zero)	EX_TYPE_KACCESS_ERR_ZERO, ((err) | (zero) << EX_DATA_REG_ZERO_SHIFT)
#define PADDED(data, addr)	EX_TYPE_LOAD_UNALIGNED_ZEROPAD, ((data) | (addr) << EX_DATA_REG_ADDR_SHIFT)

/* Registers that a snippet finds free, and the flags, if asked for. */
.macro OVERWRITE free
	.if \free
	mov	x16, #0
	mov	x17, #1
	mov	x13, #2
	mov	x14, #3
	cmp	x16, x17
	.endif
.endm

/* access_NAME(struct access *) runs it. */
.macro ONE name, free, type, data, user, small, kernel, insn:vararg
	.balign	16
	.type	access_\name, %function
access_\name:
	hint	#34			/* bti c */
	stp	x29, x30, [sp, #-FRAME]!
	stp	x19, x20, [sp, #16]
	stp	x21, x22, [sp, #32]
	stp	x23, x24, [sp, #48]
	stp	x25, x26, [sp, #64]
	stp	x27, x28, [sp, #80]
	str	x0, [sp, #OFF_SELF]
	mov	x1, sp
	str	x1, [x0, #OFF_STACK]
	ldr	x1, [x0, #OFF_FLAGS]
	msr	nzcv, x1
alternative_if ARM64_HAS_PAN
	SET_PSTATE_PAN(0)
alternative_else_nop_endif
	ldp	x2, x3, [x0, #OFF_REG(2)]
	ldp	x4, x5, [x0, #OFF_REG(4)]
	ldp	x6, x7, [x0, #OFF_REG(6)]
	ldp	x8, x9, [x0, #OFF_REG(8)]
	ldp	x10, x11, [x0, #OFF_REG(10)]
	ldp	x12, x13, [x0, #OFF_REG(12)]
	ldp	x14, x15, [x0, #OFF_REG(14)]
	ldp	x16, x17, [x0, #OFF_REG(16)]
	ldp	x18, x19, [x0, #OFF_REG(18)]
	ldp	x20, x21, [x0, #OFF_REG(20)]
	ldp	x22, x23, [x0, #OFF_REG(22)]
	ldp	x24, x25, [x0, #OFF_REG(24)]
	ldp	x26, x27, [x0, #OFF_REG(26)]
	ldp	x28, x29, [x0, #OFF_REG(28)]
	ldr	x30, [x0, #OFF_REG(30)]
	ldp	x0, x1, [x0, #OFF_REG(0)]
	.size	access_\name, . - access_\name
	.type	access_at_\name, %function
access_at_\name:
	\insn
	OVERWRITE \free
	b	access_went_on
.Lfixup_\name:
	OVERWRITE \free
	b	access_faulted
	.size	access_at_\name, . - access_at_\name
	__ASM_EXTABLE_RAW(access_at_\name, .Lfixup_\name, \type, \data)
	.pushsection .rodata.str, "a"
.Lname_\name:
	.asciz	"\name"
	.popsection
	.pushsection .data.forms, "aw"
	.quad	access_\name, access_at_\name, .Lname_\name, \user, \small, \kernel
	.popsection
.endm

.macro FORM name, type, data, user, small, kernel, insn:vararg
	ONE \name, 0, \type, \data, \user, \small, \kernel, \insn
	ONE \name\()_free, 1, \type, \data, \user, \small, \kernel, \insn
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
	.quad	NZCV
	.popsection

	.text
	.arch_extension lse	/* which guests' CPUs have; the kernel looks before it runs such a form */

/* Saves everything, and returns for access_NAME. Below the stack pointer is nothing. */
	.balign	16
access_faulted:
	stp	x0, x1, [sp, #-16]!
	mov	x1, #1
	b	1f
access_went_on:
	stp	x0, x1, [sp, #-16]!
	mov	x1, #0
1:	ldr	x0, [sp, #OFF_SELF + 16]
	str	x1, [x0, #OFF_FAULTED]
	stp	x2, x3, [x0, #OFF_REG(2)]
	stp	x4, x5, [x0, #OFF_REG(4)]
	stp	x6, x7, [x0, #OFF_REG(6)]
	stp	x8, x9, [x0, #OFF_REG(8)]
	stp	x10, x11, [x0, #OFF_REG(10)]
	stp	x12, x13, [x0, #OFF_REG(12)]
	stp	x14, x15, [x0, #OFF_REG(14)]
	stp	x16, x17, [x0, #OFF_REG(16)]
	stp	x18, x19, [x0, #OFF_REG(18)]
	stp	x20, x21, [x0, #OFF_REG(20)]
	stp	x22, x23, [x0, #OFF_REG(22)]
	stp	x24, x25, [x0, #OFF_REG(24)]
	stp	x26, x27, [x0, #OFF_REG(26)]
	stp	x28, x29, [x0, #OFF_REG(28)]
	str	x30, [x0, #OFF_REG(30)]
	ldp	x2, x3, [sp], #16
	stp	x2, x3, [x0, #OFF_REG(0)]
	mrs	x2, nzcv
	str	x2, [x0, #OFF_FLAGS]
alternative_if ARM64_HAS_PAN
	SET_PSTATE_PAN(1)
alternative_else_nop_endif
	mov	x2, sp
	ldr	x1, [x0, #OFF_STACK]
	sub	x1, x1, x2
	str	x1, [x0, #OFF_STACK]
	ldp	x19, x20, [sp, #16]
	ldp	x21, x22, [sp, #32]
	ldp	x23, x24, [sp, #48]
	ldp	x25, x26, [sp, #64]
	ldp	x27, x28, [sp, #80]
	ldp	x29, x30, [sp], #FRAME
	ret

FORM load32,		UACCESS(5, 3), X(4), 0, 0, ldtr w3, [x4]
FORM load64,		UACCESS(2, 4), X(4), 0, 0, ldtr x4, [x4]
FORM load8,		UACCESS(1, 2), X(0), 0, 0, ldtrb w2, [x0]
FORM load16,		UACCESS(19, 0), X(20), 0, 0, ldtrh w0, [x20]
FORM load64_disp,	UACCESS(31, 31), X(1), 0, 0, ldtr x8, [x1, #8]
FORM load64_disp_most,	UACCESS(31, 31), X(1), 0, 0, ldtr x16, [x1, #248]
FORM load8_sx,		UACCESS(1, 2), X(9), 0, 0, ldtrsb x2, [x9]
FORM load16_sx,		UACCESS(1, 2), X(9), 0, 0, ldtrsh w2, [x9]
FORM load32_sx,		UACCESS(1, 2), X(9), 0, 0, ldtrsw x2, [x9]
FORM store32,		UACCESS(5, 31), X(4), 0, 0, sttr w2, [x4]
FORM store64,		UACCESS(0, 31), X(2), 0, 0, sttr x1, [x2]
FORM store16,		UACCESS(1, 31), X(0), 0, 0, sttrh w4, [x0]
FORM store8,		UACCESS(30, 31), X(29), 0, 0, sttrb w30, [x29]
FORM store32_zero,	UACCESS(0, 31), X(1), 0, 0, sttr wzr, [x1]
FORM store64_zero,	UACCESS(1, 31), X(0), 0, 0, sttr xzr, [x0]
FORM store16_zero,	UACCESS(1, 31), X(0), 0, 0, sttrh wzr, [x0]
FORM store8_zero,	UACCESS(16, 31), X(19), 0, 0, sttrb wzr, [x19]
FORM store64_disp,	UACCESS(31, 31), X(6), 0, 0, sttr x8, [x6, #8]
FORM store64_zero_disp,	UACCESS(31, 31), X(2), 0, 0, sttr xzr, [x2, #-8]
FORM store32_zero_disp,	UACCESS(31, 31), X(2), 0, 0, sttr wzr, [x2, #-4]
FORM store8_zero_disp,	UACCESS(31, 31), X(2), 0, 0, sttrb wzr, [x2, #-1]
FORM kernel_load8,	KACCESS(1, 21), 0, 0, X(20), ldrb w21, [x20]
FORM kernel_load16,	KACCESS(1, 0), 0, 0, X(20), ldrh w0, [x20]
FORM kernel_load32,	KACCESS(1, 0), 0, 0, X(20), ldr w0, [x20]
FORM kernel_load64,	KACCESS(1, 0), 0, 0, X(20), ldr x0, [x20]
FORM kernel_store8,	KACCESS(4, 31), 0, 0, X(0), strb w1, [x0]
FORM kernel_store16,	KACCESS(4, 31), 0, 0, X(0), strh w3, [x0]
FORM kernel_store32,	KACCESS(4, 31), 0, 0, X(0), str w3, [x0]
FORM kernel_store64,	KACCESS(4, 31), 0, 0, X(0), str x3, [x0]
FORM load64_padded,	PADDED(5, 1), 0, 0, X(1), ldr x5, [x1]
FORM pair,		UACCESS(1, 31), X(0), 0, 0, ldp x2, x3, [x0]
FORM pair_store_after,	UACCESS(1, 31), X(0), 0, 0, stp x2, x3, [x0], #16
FORM exclusive_load64,	UACCESS(1, 31), X(22), 0, 0, ldxr x2, [x22]
FORM exclusive_load32,	UACCESS(1, 31), X(22), 0, 0, ldxr w2, [x22]
FORM exclusive_load8,	UACCESS(1, 31), X(22), 0, 0, ldxrb w2, [x22]
FORM compare_swap64,	UACCESS(2, 31), X(19), 0, 0, cas x1, x20, [x19]
FORM exclusive_store32,	UACCESS(5, 31), X(1), 0, 0, stlxr w0, w3, [x1]
FORM exclusive_store32_relaxed, UACCESS(5, 31), X(22), 0, 0, stxr w1, w0, [x22]
FORM exclusive_store8,	UACCESS(5, 31), X(22), 0, 0, stxrb w1, w0, [x22]

	.pushsection .data.forms, "aw"
	.globl	access_forms_end
access_forms_end:
	.popsection
