/* SPDX-License-Identifier: GPL-2.0 */
#include <linux/linkage.h>

/* x18 is nobody's: the compiler is told not to use it. */
SYM_FUNC_START(nap)
	stp	x29, x30, [sp, #-176]!
	mov	x29, sp
	stp	x0, x1, [sp, #16]
	stp	x2, x3, [sp, #32]
	stp	x4, x5, [sp, #48]
	stp	x6, x7, [sp, #64]
	stp	x8, x9, [sp, #80]
	stp	x10, x11, [sp, #96]
	stp	x12, x13, [sp, #112]
	stp	x14, x15, [sp, #128]
	stp	x16, x17, [sp, #144]
	mrs	x0, nzcv
	str	x0, [sp, #160]
	bl	nap_until_awake
	ldr	x0, [sp, #160]
	msr	nzcv, x0
	ldp	x0, x1, [sp, #16]
	ldp	x2, x3, [sp, #32]
	ldp	x4, x5, [sp, #48]
	ldp	x6, x7, [sp, #64]
	ldp	x8, x9, [sp, #80]
	ldp	x10, x11, [sp, #96]
	ldp	x12, x13, [sp, #112]
	ldp	x14, x15, [sp, #128]
	ldp	x16, x17, [sp, #144]
	ldp	x29, x30, [sp], #176
	ret
SYM_FUNC_END(nap)
