/* SPDX-License-Identifier: GPL-2.0 */
#include <linux/linkage.h>

/* The kernel keeps its stack aligned to 8 bytes, as it is here. */
SYM_FUNC_START(nap)
	push	%rbp
	mov	%rsp, %rbp
	pushf
	push	%rax
	push	%rcx
	push	%rdx
	push	%rsi
	push	%rdi
	push	%r8
	push	%r9
	push	%r10
	push	%r11
	call	nap_until_awake
	pop	%r11
	pop	%r10
	pop	%r9
	pop	%r8
	pop	%rdi
	pop	%rsi
	pop	%rdx
	pop	%rcx
	pop	%rax
	popf
	pop	%rbp
	RET
SYM_FUNC_END(nap)
