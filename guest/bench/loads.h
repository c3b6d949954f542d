/* SPDX-License-Identifier: Apache-2.0 */
/*
 * loads.h - what stands in for the module's loads (guest/module/uapi/kerninst.h) in a
 * program: the same registers, but what can be loaded is one page, LOADABLE. All that
 * a load may change is changed.
 */
#define LOADABLE	0x20010000
#define LOAD_STRIDE	128
#define STR2(x)		#x
#define STR(x)		STR2(x)

/* Loads of 1, 2, 4 and 8 bytes, one stride apart; may be copied anywhere. */
extern char stand_in[], stand_in_end[];

#define ALL(load)	load(0, 1) load(1, 2) load(2, 4) load(3, 8)
#define PLACE(k)	".org stand_in + " STR(LOAD_STRIDE) " * " #k "\n"

#if defined(__x86_64__)

#define MOV_1	"movzbl (%rax), %eax"
#define MOV_2	"movzwl (%rax), %eax"
#define MOV_4	"movl (%rax), %eax"
#define MOV_8	"movq (%rax), %rax"
#define LOAD(k, n)							\
	PLACE(k)							\
	"	cmp $" STR(LOADABLE) ", %rax\n"				\
	"	jb 1f\n"						\
	"	cmp $" STR(LOADABLE) " + 4096 - " #n ", %rax\n"		\
	"	ja 1f\n"						\
	"	" MOV_##n "\n"						\
	"	cmp %rsp, %rsp\n"	/* no carry; others may be any */	\
	"	ret\n"							\
	"1:	xor %eax, %eax\n"					\
	"	stc\n"							\
	"	ret\n"

#elif defined(__aarch64__)

#define LDR_1	"ldrb w15"
#define LDR_2	"ldrh w15"
#define LDR_4	"ldr w15"
#define LDR_8	"ldr x15"
#define LOAD(k, n)							\
	PLACE(k)							\
	"	mov x14, #" STR(LOADABLE) " >> 16\n"			\
	"	sub x14, x15, x14, lsl #16\n"				\
	"	lsr x16, x14, #12\n"					\
	"	cbnz x16, 1f\n"						\
	"	add x14, x14, #" #n " - 1\n"				\
	"	lsr x16, x14, #12\n"					\
	"	cbnz x16, 1f\n"						\
	"	" LDR_##n ", [x15]\n"					\
	"	mov x14, #-1\n"						\
	"	ret x17\n"						\
	"1:	mov x15, #0\n"						\
	"	mov x16, #1\n"						\
	"	ret x17\n"

#elif defined(__riscv)

#define L_1	"lbu"
#define L_2	"lhu"
#define L_4	"lwu"
#define L_8	"ld"
#define LOAD(k, n)							\
	PLACE(k)							\
	"	li t3, " STR(LOADABLE) "\n"				\
	"	sub t3, t2, t3\n"					\
	"	srli t1, t3, 12\n"					\
	"	bnez t1, 1f\n"						\
	"	addi t3, t3, " #n " - 1\n"				\
	"	srli t1, t3, 12\n"					\
	"	bnez t1, 1f\n"						\
	"	" L_##n " t2, 0(t2)\n"					\
	"	li t3, -1\n"						\
	"	jr t0\n"						\
	"1:	li t2, 0\n"						\
	"	li t1, 1\n"						\
	"	jr t0\n"

#endif

#if defined(__riscv)
#define PLAIN	".option push\n.option norvc\n.option norelax\n"
#define USUAL	".option pop\n"
#else
#define PLAIN	""
#define USUAL	""
#endif

asm(".text\n" PLAIN ".balign 128\n.globl stand_in, stand_in_end\nstand_in:\n" ALL(LOAD) PLACE(4) "stand_in_end:\n" USUAL);
