/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Marks: places whose execution tells an observer outside the guest something.
 *
 * The section is linked at one fixed address (MARK_BASE, see mark.h) in every
 * program of this folder, whatever the ISA. An emulator plugin that watches
 * these addresses learns when a measurement begins and ends, and, by a sequence
 * of nibbles followed by `point`, a 64-bit kernel address. Nothing is passed in
 * registers or memory, so the observer needs only the program counter.
 * `ret` is spelled alike on all three ISAs.
 */
	.section .kimark, "ax", %progbits
	.globl	ki_mark_begin
	.globl	ki_mark_end
	.globl	ki_mark_point
	.globl	ki_mark_reset
	.globl	ki_mark_report
	.globl	ki_mark_nibble
	.globl	ki_mark_calls
ki_mark_begin:
	ret
	.org	0x40
ki_mark_end:
	ret
	.org	0x80
ki_mark_point:
	ret
	.org	0xc0
ki_mark_reset:
	ret
	.org	0xe0
ki_mark_report:
	ret
	.org	0x100
ki_mark_nibble:			/* sixteen of them, 16 bytes apart */
	.rept	16
	ret
	.balign	16
	.endr
	.org	0x200
ki_mark_calls:			/* seven of them, likewise, in the order of mark.h */
	.rept	7
	ret
	.balign	16
	.endr

	.section .note.GNU-stack, "", %progbits
