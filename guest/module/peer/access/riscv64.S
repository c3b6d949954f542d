/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The forms that a stock riscv64 kernel's exception table has outside exclusive
 * sequences and vector instructions, each with the type of its entries there, in
 * both lengths where an instruction has two.
 */
#include <linux/linkage.h>
#include <asm/asm-extable.h>
#include <asm/csr.h>

#include "access.h"

#define X(n)	(1 << (n))

#define FRAME	128		/* bytes: what is callee-saved, and the struct access */
#define OFF_SELF	104		/* in it */

/* What a fault leaves: -EFAULT in a register, 0 in another; 0 is none. */
#define UACCESS(err, zero)	EX_TYPE_UACCESS_ERR_ZERO, ((err) | (zero) << 5)
#define COPY		EX_TYPE_FIXUP, 0

#define ALIVE	0	/* every register is read behind it */
#define FREE	1	/* one is overwritten, and a window has room */
#define TIGHT	2	/* likewise, but what follows must stay: there is no window */

.macro FOLLOWED how
	.if \how == TIGHT
	csrr	zero, CSR_SCRATCH
	.endif
	.if \how != ALIVE
	li	t6, 0
	li	t5, 1
	nop
	.endif
.endm

/* access_NAME(struct access *) runs it. gp and tp stay the kernel's. */
.macro ONE name, how, type, data, user, small, kernel, insn:vararg
	.balign	16
	.type	access_\name, @function
access_\name:
	addi	sp, sp, -FRAME
	sd	ra, 0(sp)
	sd	s0, 8(sp)
	sd	s1, 16(sp)
	sd	s2, 24(sp)
	sd	s3, 32(sp)
	sd	s4, 40(sp)
	sd	s5, 48(sp)
	sd	s6, 56(sp)
	sd	s7, 64(sp)
	sd	s8, 72(sp)
	sd	s9, 80(sp)
	sd	s10, 88(sp)
	sd	s11, 96(sp)
	sd	a0, OFF_SELF(sp)
	sd	sp, OFF_STACK(a0)
	li	t0, SR_SUM
	csrs	CSR_STATUS, t0
	ld	x1, OFF_REG(1)(a0)
	ld	x5, OFF_REG(5)(a0)
	ld	x6, OFF_REG(6)(a0)
	ld	x7, OFF_REG(7)(a0)
	ld	x8, OFF_REG(8)(a0)
	ld	x9, OFF_REG(9)(a0)
	ld	x11, OFF_REG(11)(a0)
	ld	x12, OFF_REG(12)(a0)
	ld	x13, OFF_REG(13)(a0)
	ld	x14, OFF_REG(14)(a0)
	ld	x15, OFF_REG(15)(a0)
	ld	x16, OFF_REG(16)(a0)
	ld	x17, OFF_REG(17)(a0)
	ld	x18, OFF_REG(18)(a0)
	ld	x19, OFF_REG(19)(a0)
	ld	x20, OFF_REG(20)(a0)
	ld	x21, OFF_REG(21)(a0)
	ld	x22, OFF_REG(22)(a0)
	ld	x23, OFF_REG(23)(a0)
	ld	x24, OFF_REG(24)(a0)
	ld	x25, OFF_REG(25)(a0)
	ld	x26, OFF_REG(26)(a0)
	ld	x27, OFF_REG(27)(a0)
	ld	x28, OFF_REG(28)(a0)
	ld	x29, OFF_REG(29)(a0)
	ld	x30, OFF_REG(30)(a0)
	ld	x31, OFF_REG(31)(a0)
	ld	x10, OFF_REG(10)(a0)
	.size	access_\name, . - access_\name
	.type	access_at_\name, @function
access_at_\name:
	\insn
	FOLLOWED \how
	j	access_went_on
.Lfixup_\name:
	FOLLOWED \how
	j	access_faulted
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
	ONE \name, ALIVE, \type, \data, \user, \small, \kernel, \insn
	ONE \name\()_free, FREE, \type, \data, \user, \small, \kernel, \insn
	ONE \name\()_tight, TIGHT, \type, \data, \user, \small, \kernel, \insn
.endm

/* Two bytes: a jump from there reaches a springboard by chance alone. */
.macro SHORT name, type, data, user, small, kernel, insn:vararg
	ONE \name, ALIVE, \type, \data, \user, \small, \kernel, \insn
	ONE \name\()_free, FREE, \type, \data, \user, \small, \kernel, \insn
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
	.quad	0
	.popsection

	.text

/* Saves everything, and returns for access_NAME. */
	.balign	16
access_faulted:
	addi	sp, sp, -16
	sd	x10, 0(sp)
	sd	x11, 8(sp)
	li	x11, 1
	j	1f
access_went_on:
	addi	sp, sp, -16
	sd	x10, 0(sp)
	sd	x11, 8(sp)
	li	x11, 0
1:	ld	x10, OFF_SELF + 16(sp)
	sd	x11, OFF_FAULTED(x10)
	ld	x11, 8(sp)
	sd	x1, OFF_REG(1)(x10)
	sd	x5, OFF_REG(5)(x10)
	sd	x6, OFF_REG(6)(x10)
	sd	x7, OFF_REG(7)(x10)
	sd	x8, OFF_REG(8)(x10)
	sd	x9, OFF_REG(9)(x10)
	sd	x11, OFF_REG(11)(x10)
	sd	x12, OFF_REG(12)(x10)
	sd	x13, OFF_REG(13)(x10)
	sd	x14, OFF_REG(14)(x10)
	sd	x15, OFF_REG(15)(x10)
	sd	x16, OFF_REG(16)(x10)
	sd	x17, OFF_REG(17)(x10)
	sd	x18, OFF_REG(18)(x10)
	sd	x19, OFF_REG(19)(x10)
	sd	x20, OFF_REG(20)(x10)
	sd	x21, OFF_REG(21)(x10)
	sd	x22, OFF_REG(22)(x10)
	sd	x23, OFF_REG(23)(x10)
	sd	x24, OFF_REG(24)(x10)
	sd	x25, OFF_REG(25)(x10)
	sd	x26, OFF_REG(26)(x10)
	sd	x27, OFF_REG(27)(x10)
	sd	x28, OFF_REG(28)(x10)
	sd	x29, OFF_REG(29)(x10)
	sd	x30, OFF_REG(30)(x10)
	sd	x31, OFF_REG(31)(x10)
	ld	x11, 0(sp)
	sd	x11, OFF_REG(10)(x10)
	addi	sp, sp, 16
	li	t0, SR_SUM
	csrc	CSR_STATUS, t0
	ld	x11, OFF_STACK(x10)
	sub	x11, x11, sp
	sd	x11, OFF_STACK(x10)
	ld	ra, 0(sp)
	ld	s0, 8(sp)
	ld	s1, 16(sp)
	ld	s2, 24(sp)
	ld	s3, 32(sp)
	ld	s4, 40(sp)
	ld	s5, 48(sp)
	ld	s6, 56(sp)
	ld	s7, 64(sp)
	ld	s8, 72(sp)
	ld	s9, 80(sp)
	ld	s10, 88(sp)
	ld	s11, 96(sp)
	addi	sp, sp, FRAME
	ret

	.option push
	.option norvc
FORM load8,		UACCESS(10, 11), X(14), 0, 0, lb x11, 0(x14)
FORM load16,		UACCESS(10, 14), X(11), 0, 0, lh x14, 0(x11)
FORM load32,		UACCESS(10, 14), X(9), 0, 0, lw x14, 1076(x9)
FORM load32_back,	UACCESS(10, 11), X(14), 0, 0, lw x11, -4(x14)
FORM load64,		UACCESS(10, 24), X(20), 0, 0, ld x24, 48(x20)
FORM load8_zx,		UACCESS(10, 11), X(14), 0, 0, lbu x11, 0(x14)
FORM load16_zx,		UACCESS(10, 11), X(14), 0, 0, lhu x11, 0(x14)
FORM load32_zx,		UACCESS(10, 11), X(14), 0, 0, lwu x11, 0(x14)
FORM store8,		UACCESS(10, 0), X(19), 0, 0, sb x12, 0(x19)
FORM store8_back,	UACCESS(10, 0), X(22), 0, 0, sb x21, -1(x22)
FORM store16,		UACCESS(11, 0), X(10), 0, 0, sh x14, 0(x10)
FORM store32,		UACCESS(10, 0), X(19), 0, 0, sw x0, 1076(x19)
FORM store64,		UACCESS(10, 0), X(9), 0, 0, sd x14, 0(x9)
FORM copy_load8,	COPY, X(11), 0, 0, lb x15, 0(x11)
FORM copy_load64,	COPY, X(11), 0, 0, ld x14, 0(x11)
FORM copy_store8,	COPY, X(10), 0, 0, sb x15, 0(x10)
FORM copy_store64,	COPY, X(10), 0, 0, sd x14, 0(x10)
FORM add,		UACCESS(10, 0), X(22), 0, 0, amoadd.w.aqrl x12, x13, (x22)
FORM and,		UACCESS(10, 0), X(22), 0, 0, amoand.w.aqrl x13, x15, (x22)
FORM or,		UACCESS(10, 0), X(22), 0, 0, amoor.w.aqrl x12, x13, (x22)
FORM xor,		UACCESS(10, 0), X(22), 0, 0, amoxor.w.aqrl x12, x13, (x22)
FORM swap,		UACCESS(10, 0), X(22), 0, 0, amoswap.w.aqrl x12, x13, (x22)
FORM exclusive_load,	UACCESS(17, 0), X(11), 0, 0, lr.w.aqrl x17, (x11)
FORM exclusive_store,	UACCESS(17, 0), X(11), 0, 0, sc.w.aqrl x10, x13, (x11)
	.option pop
SHORT short_load32,	UACCESS(10, 14), X(9), 0, 0, c.lw x14, 4(x9)
SHORT short_load64,	UACCESS(10, 14), X(9), 0, 0, c.ld x14, 8(x9)
SHORT short_store32,	UACCESS(10, 0), X(15), 0, 0, c.sw x14, 4(x15)
SHORT short_store64,	UACCESS(10, 0), X(15), 0, 0, c.sd x14, 8(x15)
SHORT copy_short_load64,	COPY, X(11), 0, 0, c.ld x14, 8(x11)
SHORT copy_short_store64, COPY, X(10), 0, 0, c.sd x14, 8(x10)

	.pushsection .data.forms, "aw"
	.globl	access_forms_end
access_forms_end:
	.popsection
