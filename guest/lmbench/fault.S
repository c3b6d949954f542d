/* SPDX-License-Identifier: Apache-2.0 */
/* A store that faults, and where to go on: see signals.c. */
	.text
	.globl	fault_store
	.globl	fault_stored
fault_store:
#if defined(__x86_64__)
	movb	$1, (%rdi)
#elif defined(__aarch64__)
	strb	wzr, [x0]
#else
	sb	zero, 0(a0)
#endif
fault_stored:
	ret

	.section .note.GNU-stack, "", %progbits
