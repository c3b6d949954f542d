/* SPDX-License-Identifier: Apache-2.0 */
/*
 * state.h - runs code from a given state of all registers but the stack pointer,
 * which points to that state, and keeps the one that it ends in.
 *
 * Registers are numbered as the decoders number them. A program has one .c file,
 * so what is here is static or assembly of its own.
 */
#include <stdint.h>
#include <string.h>

#define MAX_REGS	34

/* Offsets in it are known to the assembly below. */
struct state {
	uint64_t reg[MAX_REGS];	/* 0: what the instruction starts from, then ends in */
	uint64_t flags;		/* 272 */
	uint64_t sp;		/* 280: of the program */
	uint64_t saved[16];	/* 288: registers that a callee must keep */
	uint64_t back;		/* 416: where to go on */
};

static struct {
	uint64_t below[64];	/* what is pushed there */
	struct state s;
} area __attribute__((aligned(64)));

/* Runs code from s, through sp. */
extern void effects_run(struct state *s, void *code);
extern char effects_done[], effects_end[];

#if defined(__x86_64__)

#define REGS		16
#define FLAGS		16
#define FLAG_BITS	0x8d5ull
#define UNTOUCHED	(1ull << 4)

asm(".text\n.globl effects_run, effects_done, effects_end\n"
    "effects_run:\n"
    "	mov %rsp, 280(%rdi)\n"
    "	mov %rbx, 288(%rdi)\n	mov %rbp, 296(%rdi)\n	mov %r12, 304(%rdi)\n"
    "	mov %r13, 312(%rdi)\n	mov %r14, 320(%rdi)\n	mov %r15, 328(%rdi)\n"
    "	mov %rsi, 416(%rdi)\n"
    "	mov %rdi, %rsp\n"
    "	pushq 272(%rsp)\n	popfq\n"
    "	mov 0(%rsp), %rax\n	mov 8(%rsp), %rcx\n	mov 16(%rsp), %rdx\n	mov 24(%rsp), %rbx\n"
    "	mov 40(%rsp), %rbp\n	mov 48(%rsp), %rsi\n	mov 56(%rsp), %rdi\n"
    "	mov 64(%rsp), %r8\n	mov 72(%rsp), %r9\n	mov 80(%rsp), %r10\n	mov 88(%rsp), %r11\n"
    "	mov 96(%rsp), %r12\n	mov 104(%rsp), %r13\n	mov 112(%rsp), %r14\n	mov 120(%rsp), %r15\n"
    "	jmp *416(%rsp)\n"
    "effects_done:\n"
    "	mov %rax, 0(%rsp)\n	mov %rcx, 8(%rsp)\n	mov %rdx, 16(%rsp)\n	mov %rbx, 24(%rsp)\n"
    "	mov %rbp, 40(%rsp)\n	mov %rsi, 48(%rsp)\n	mov %rdi, 56(%rsp)\n"
    "	mov %r8, 64(%rsp)\n	mov %r9, 72(%rsp)\n	mov %r10, 80(%rsp)\n	mov %r11, 88(%rsp)\n"
    "	mov %r12, 96(%rsp)\n	mov %r13, 104(%rsp)\n	mov %r14, 112(%rsp)\n	mov %r15, 120(%rsp)\n"
    "	pushfq\n	popq 272(%rsp)\n"
    "	cld\n"
    "	mov 288(%rsp), %rbx\n	mov 296(%rsp), %rbp\n	mov 304(%rsp), %r12\n"
    "	mov 312(%rsp), %r13\n	mov 320(%rsp), %r14\n	mov 328(%rsp), %r15\n"
    "	mov 280(%rsp), %rsp\n"
    "	ret\neffects_end:\n");

/* jmp done */
static size_t leave_to(unsigned char *at, const char *done)
{
	int32_t d = done - (char *)at - 5;

	at[0] = 0xe9;
	memcpy(at + 1, &d, 4);
	return 5;
}

#elif defined(__aarch64__)

#define REGS		31
#define FLAGS		32
#define FLAG_BITS	0xf0000000ull
#define UNTOUCHED	0ull

asm(".text\n.globl effects_run, effects_done, effects_end\n"
    "effects_run:\n"
    "	mov x9, sp\n	str x9, [x0, #280]\n"
    "	stp x19, x20, [x0, #288]\n	stp x21, x22, [x0, #304]\n	stp x23, x24, [x0, #320]\n"
    "	stp x25, x26, [x0, #336]\n	stp x27, x28, [x0, #352]\n	stp x29, x30, [x0, #368]\n"
    "	str x18, [x0, #384]\n	str x1, [x0, #416]\n"
    "	mov sp, x0\n"
    "	ldr x9, [sp, #272]\n	msr nzcv, x9\n"
    "	mov x30, x1\n"
    /* x30 is loaded by the code itself: a branch needs a register. */
    "	ldp x0, x1, [sp, #0]\n	ldp x2, x3, [sp, #16]\n	ldp x4, x5, [sp, #32]\n	ldp x6, x7, [sp, #48]\n"
    "	ldp x8, x9, [sp, #64]\n	ldp x10, x11, [sp, #80]\n	ldp x12, x13, [sp, #96]\n	ldp x14, x15, [sp, #112]\n"
    "	ldp x16, x17, [sp, #128]\n	ldp x18, x19, [sp, #144]\n	ldp x20, x21, [sp, #160]\n	ldp x22, x23, [sp, #176]\n"
    "	ldp x24, x25, [sp, #192]\n	ldp x26, x27, [sp, #208]\n	ldp x28, x29, [sp, #224]\n"
    "	br x30\n"
    "effects_done:\n"
    "	stp x0, x1, [sp, #0]\n	stp x2, x3, [sp, #16]\n	stp x4, x5, [sp, #32]\n	stp x6, x7, [sp, #48]\n"
    "	stp x8, x9, [sp, #64]\n	stp x10, x11, [sp, #80]\n	stp x12, x13, [sp, #96]\n	stp x14, x15, [sp, #112]\n"
    "	stp x16, x17, [sp, #128]\n	stp x18, x19, [sp, #144]\n	stp x20, x21, [sp, #160]\n	stp x22, x23, [sp, #176]\n"
    "	stp x24, x25, [sp, #192]\n	stp x26, x27, [sp, #208]\n	stp x28, x29, [sp, #224]\n	str x30, [sp, #240]\n"
    "	mrs x9, nzcv\n	str x9, [sp, #272]\n"
    "	ldp x19, x20, [sp, #288]\n	ldp x21, x22, [sp, #304]\n	ldp x23, x24, [sp, #320]\n"
    "	ldp x25, x26, [sp, #336]\n	ldp x27, x28, [sp, #352]\n	ldp x29, x30, [sp, #368]\n"
    "	ldr x18, [sp, #384]\n"
    "	ldr x9, [sp, #280]\n	mov sp, x9\n"
    "	ret\neffects_end:\n");

/* b done */
static size_t leave_to(unsigned char *at, const char *done)
{
	uint32_t w = 0x14000000 | (((done - (char *)at) >> 2) & 0x3ffffff);

	memcpy(at, &w, 4);
	return 4;
}

#elif defined(__riscv)

#define REGS		32
#define FLAGS		63	/* there are none */
#define FLAG_BITS	0ull
#define UNTOUCHED	(1ull << 0 | 1ull << 2 | 1ull << 3 | 1ull << 4)

asm(".text\n.option push\n.option norvc\n.globl effects_run, effects_done, effects_end\n"
    "effects_run:\n"
    "	sd sp, 280(a0)\n	sd ra, 288(a0)\n	sd s0, 296(a0)\n	sd s1, 304(a0)\n	sd s2, 312(a0)\n"
    "	sd s3, 320(a0)\n	sd s4, 328(a0)\n	sd s5, 336(a0)\n	sd s6, 344(a0)\n	sd s7, 352(a0)\n"
    "	sd s8, 360(a0)\n	sd s9, 368(a0)\n	sd s10, 376(a0)\n	sd s11, 384(a0)\n"
    "	mv sp, a0\n	mv ra, a1\n"
    /* ra is loaded by the code itself: a jump needs a register. */
    "	ld t0, 40(sp)\n	ld t1, 48(sp)\n	ld t2, 56(sp)\n	ld s0, 64(sp)\n	ld s1, 72(sp)\n"
    "	ld a0, 80(sp)\n	ld a1, 88(sp)\n	ld a2, 96(sp)\n	ld a3, 104(sp)\n	ld a4, 112(sp)\n	ld a5, 120(sp)\n"
    "	ld a6, 128(sp)\n	ld a7, 136(sp)\n	ld s2, 144(sp)\n	ld s3, 152(sp)\n	ld s4, 160(sp)\n	ld s5, 168(sp)\n"
    "	ld s6, 176(sp)\n	ld s7, 184(sp)\n	ld s8, 192(sp)\n	ld s9, 200(sp)\n	ld s10, 208(sp)\n	ld s11, 216(sp)\n"
    "	ld t3, 224(sp)\n	ld t4, 232(sp)\n	ld t5, 240(sp)\n	ld t6, 248(sp)\n"
    "	jr ra\n"
    "effects_done:\n"
    "	sd ra, 8(sp)\n"
    "	sd t0, 40(sp)\n	sd t1, 48(sp)\n	sd t2, 56(sp)\n	sd s0, 64(sp)\n	sd s1, 72(sp)\n"
    "	sd a0, 80(sp)\n	sd a1, 88(sp)\n	sd a2, 96(sp)\n	sd a3, 104(sp)\n	sd a4, 112(sp)\n	sd a5, 120(sp)\n"
    "	sd a6, 128(sp)\n	sd a7, 136(sp)\n	sd s2, 144(sp)\n	sd s3, 152(sp)\n	sd s4, 160(sp)\n	sd s5, 168(sp)\n"
    "	sd s6, 176(sp)\n	sd s7, 184(sp)\n	sd s8, 192(sp)\n	sd s9, 200(sp)\n	sd s10, 208(sp)\n	sd s11, 216(sp)\n"
    "	sd t3, 224(sp)\n	sd t4, 232(sp)\n	sd t5, 240(sp)\n	sd t6, 248(sp)\n"
    "	ld ra, 288(sp)\n	ld s0, 296(sp)\n	ld s1, 304(sp)\n	ld s2, 312(sp)\n"
    "	ld s3, 320(sp)\n	ld s4, 328(sp)\n	ld s5, 336(sp)\n	ld s6, 344(sp)\n	ld s7, 352(sp)\n"
    "	ld s8, 360(sp)\n	ld s9, 368(sp)\n	ld s10, 376(sp)\n	ld s11, 384(sp)\n"
    "	ld sp, 280(sp)\n"
    "	ret\neffects_end:\n.option pop\n");

/* jal x0, done */
static size_t leave_to(unsigned char *at, const char *done)
{
	uint32_t d = done - (char *)at;
	uint32_t w = 0x6f | (d >> 20 & 1) << 31 | (d >> 1 & 0x3ff) << 21 | (d >> 11 & 1) << 20 | (d >> 12 & 0xff) << 12;

	memcpy(at, &w, 4);
	return 4;
}

#endif

/* Most leave for what keeps the state where it is. */
static inline size_t leave(unsigned char *at)
{
	return leave_to(at, effects_done);
}

/* What the code begins with: the one register that was needed to get there. */
static size_t enter(unsigned char *at)
{
#if defined(__aarch64__)
	uint32_t w = 0xf9407bfe;	/* ldr x30, [sp, #240] */
#elif defined(__riscv)
	uint32_t w = 0x00813083;	/* ld ra, 8(sp) */
#endif
#if defined(__x86_64__)
	return 0;
#else
	memcpy(at, &w, 4);
	return 4;
#endif
}
