/* SPDX-License-Identifier: GPL-2.0 */
/*
 * access.h - what a form is run with, for C and for assembly.
 *
 * guest/bench/access.c has struct access, struct access_call and the number of the
 * call once more.
 */
#ifndef ACCESS_H
#define ACCESS_H

#define ACCESS_REGS	32

/* In struct access, bytes. */
#define OFF_REG(n)	(8 * (n))
#define OFF_FLAGS	OFF_REG(ACCESS_REGS)
#define OFF_FAULTED	(OFF_FLAGS + 8)
#define OFF_STACK	(OFF_FAULTED + 8)

#ifndef __ASSEMBLY__
#include <linux/ioctl.h>
#include <linux/types.h>

/*
 * Registers as the ISA numbers them, before and after. The stack pointer, riscv64's
 * gp and tp and what is no register stay 0.
 */
struct access {
	u64 reg[ACCESS_REGS];
	u64 flags;	/* those that conditions are made of */
	u64 faulted;	/* whether control came by the fixup */
	u64 stack;	/* bytes that the stack pointer has moved: 0 */
};

#define ACCESS_TAIL	64	/* bytes, at the end of the kernel's memory */

struct access_call {
	u64 form;			/* which, from 0 */
	struct access s;
	unsigned char tail[ACCESS_TAIL];	/* of the kernel's memory; in and out */
};

#define ACCESS_RUN	_IOWR('k', 1, struct access_call)

/* One form, as the assembly lists it. Sets of registers are masks by number. */
struct form {
	void (*run)(struct access *s);
	const void *at;		/* the instruction */
	const char *name;
	u64 user;		/* hold addresses of a user's memory */
	u64 small;		/* hold 0 to ACCESS_SMALL */
	u64 kernel;		/* hold a distance from the kernel's memory; not written */
};

#define ACCESS_SMALL	40
#define ACCESS_BEYOND	8	/* bytes behind the kernel's page */

extern const struct form access_forms[], access_forms_end[];

/* Of an ISA: those of the flags above. */
extern const u64 access_flags;
#endif
#endif
