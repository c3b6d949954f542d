// SPDX-License-Identifier: Apache-2.0
/*
 * snips: runs patches, as they are made for the kernel, in a program.
 *
 *   snips FILE
 *
 * FILE holds cases: 64-bit words LEN, BACK, PATCH, CELLS (how many words), then
 * all registers, the flags, LEN bytes of code, filled up to whole words, and the
 * cells. The code is put at the start of a page; its point, where control comes
 * in, is at POINT and goes on at BACK. The patch begins at PATCH, and its cells lie
 * one REGION behind that. All of it is at a fixed address, PAGE, as is what patches
 * load with, at LOADS, and what they can load (loads.h), whose k-th byte is 7k + 3. That is
 * also what they find for the task that runs: riscv64 in tp, amd64 by the address at TASK, as
 * a program's gs begins at 0; arm64 has a register for it that a program cannot read.
 *
 * To standard output go the address of the state, which is the stack pointer at
 * each point, and for each case the registers, the flags and the cells that it
 * ended with. A signal ends the program: nothing here may raise one.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <sys/mman.h>

#include "loads.h"
#include "state.h"

#define POINT	64
#define REGION	8192

#define PAGE	0x20000000
#define LOADS	0x20020000
#define TASK	0x20020ff8
#define DONE	0x20021000	/* a copy of what keeps the state, in reach of one jump */
#define ALL_OF	0x22000		/* bytes from PAGE to the end of that page */

static unsigned char *const region = (unsigned char *)PAGE;

struct header {
	uint64_t len, back, patch, cells;
	uint64_t reg[MAX_REGS];
	uint64_t flags;
};

static int get(FILE *f, void *to, size_t n)
{
	return fread(to, 1, n, f) == n;
}

/* Code before the point and behind BACK is ours. */
static int prepare(FILE *f, const struct header *h)
{
	unsigned char first[16];
	size_t n = enter(first), words = (h->len + 7) / 8 * 8;

	if (h->len > REGION || h->back + 16 > h->patch || h->patch + 8 * h->cells > REGION ||
	    !get(f, region, words) || !get(f, region + h->patch + REGION, 8 * h->cells))
		return 0;
	memcpy(region + POINT - n, first, n);
	leave_to(region + h->back, (char *)DONE);
	__builtin___clear_cache((char *)region, (char *)region + REGION);
	return 1;
}

static int map(void)
{
	unsigned char *at = mmap(region, ALL_OF, PROT_READ | PROT_WRITE | PROT_EXEC,
				 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);

	if (at != region)
		return 0;
	for (int k = 0; k < 4096; k++)
		((unsigned char *)LOADABLE)[k] = 7 * k + 3;
	memcpy((void *)LOADS, stand_in, stand_in_end - stand_in);
	*(uint64_t *)TASK = LOADABLE;
	memcpy((void *)DONE, effects_done, effects_end - effects_done);
	__builtin___clear_cache((char *)LOADS, (char *)PAGE + ALL_OF);
	return 1;
}

#ifdef __riscv
/* Nobody looks for what is the thread's meanwhile. */
static void as_task(struct state *s, void *code)
{
	uint64_t own;

	asm volatile("mv %0, tp\n	mv tp, %1" : "=&r" (own) : "r" ((uint64_t)LOADABLE) : "memory");
	effects_run(s, code);
	asm volatile("mv tp, %0" : : "r" (own) : "memory");
}
#else
static void as_task(struct state *s, void *code)
{
	effects_run(s, code);
}
#endif

static void run(const struct header *h)
{
	unsigned char first[16];

	memcpy(area.s.reg, h->reg, sizeof(h->reg));
	area.s.flags = h->flags;
	as_task(&area.s, region + POINT - enter(first));
	area.s.flags &= FLAG_BITS;
}

int main(int argc, char **argv)
{
	struct state *s = &area.s;
	struct header h;
	FILE *f;

	if (argc != 2 || !(f = fopen(argv[1], "r"))) {
		fprintf(stderr, "usage: snips FILE\n");
		return 2;
	}
	if (!map()) {
		perror("snips");
		return 1;
	}
	fwrite(&s, sizeof(s), 1, stdout);
	while (get(f, &h, sizeof(h))) {
		if (!prepare(f, &h)) {
			fprintf(stderr, "snips: a case is cut short or out of bounds\n");
			return 1;
		}
		run(&h);
		fwrite(s->reg, sizeof(s->reg), 1, stdout);
		fwrite(&s->flags, sizeof(s->flags), 1, stdout);
		fwrite(region + h.patch + REGION, 8, h.cells, stdout);
	}
	fclose(f);
	return ferror(stdout) || fflush(stdout) ? 1 : 0;
}
