// SPDX-License-Identifier: Apache-2.0
/*
 * effects: what single instructions read and write, found by running them.
 *
 *   effects FILE
 *
 * FILE holds records of 16 bytes: the length of an instruction, then its bytes.
 * Each is run from random registers, and again with one register changed at a
 * time. Registers are numbered as the decoders number them, the condition flags
 * behind them (FLAGS), then memory (MEMORY). A line per instruction is printed:
 *
 *   INDEX RUNS FAULTS CHANGED R:OUTPUTS...
 *
 * CHANGED is the set of what differs afterwards from before, and OUTPUTS what
 * comes out different when register R goes in different: hexadecimal masks. Runs
 * that raise a signal count as faults and show nothing.
 *
 * The stack pointer points to the state that the instruction starts from and
 * ends in, so that all other registers are free; instructions that use it, and on
 * riscv64 gp and tp, cannot be run.
 */
#define _GNU_SOURCE
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "state.h"

#define MEMORY		40	/* above every register */
#define STATES		6	/* that an instruction is run from */
#define TRIES		400	/* at most, to find states that do not fault */
#define CODE_SIZE	4096
#define ARENA_SIZE	16384

static unsigned char code[CODE_SIZE] __attribute__((aligned(4096)));
static unsigned char *arena, *pristine;
static sigjmp_buf escape;

static uint64_t seed = 0x9e3779b97f4a7c15ull;

static uint64_t rnd(void)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return seed;
}

/*
 * Any number; a small one, as a count or an index; or an address in the arena's
 * middle, aligned, so that memory can be reached through it.
 */
static uint64_t value(int memory)
{
	switch (rnd() % (memory ? 8 : 4)) {
	case 0:
		return rnd();
	case 1:
		return rnd() % 64;
	case 2:
		return -(rnd() % 64);
	default:
		if (!memory)
			return rnd();
		return (uint64_t)(uintptr_t)arena + ARENA_SIZE / 2 - 1024 + (rnd() % 128) * 16;
	}
}

static void on_signal(int sig)
{
	siglongjmp(escape, sig);
}

/* Runs the code from a state; 0 if it raised no signal. */
static int once(const uint64_t in[], uint64_t flags, struct state *out, int memory)
{
	memcpy(area.s.reg, in, sizeof(area.s.reg));
	area.s.flags = flags;
	if (memory)
		memcpy(arena, pristine, ARENA_SIZE);
	if (sigsetjmp(escape, 1))
		return 1;
	effects_run(&area.s, code);
	memcpy(out, &area.s, sizeof(*out));
	out->flags &= FLAG_BITS;
	return 0;
}

/* Hash of the arena, 0 if nothing was written. */
static uint64_t stored(int memory)
{
	uint64_t h = 1469598103934665603ull;
	size_t k;

	if (!memory || !memcmp(arena, pristine, ARENA_SIZE))
		return 0;
	for (k = 0; k < ARENA_SIZE; k += 8) {
		uint64_t w;

		memcpy(&w, arena + k, 8);
		h = (h ^ w) * 1099511628211ull;
	}
	return h ? h : 1;
}

static uint64_t differences(const uint64_t a[], uint64_t fa, uint64_t ma,
			    const uint64_t b[], uint64_t fb, uint64_t mb)
{
	uint64_t d = 0;
	int r;

	for (r = 0; r < REGS; r++)
		if (!(UNTOUCHED >> r & 1) && a[r] != b[r])
			d |= 1ull << r;
	if (fa != fb)
		d |= 1ull << FLAGS;
	if (ma != mb)
		d |= 1ull << MEMORY;
	return d;
}

static void try(int index, const unsigned char *insn, int len, int memory)
{
	uint64_t in[MAX_REGS] = { 0 }, other[MAX_REGS], changed = 0, depends[64] = { 0 };
	int states = 0, tries, runs = 0, faults = 0, r;
	struct state out, out2;
	size_t n;

	n = enter(code);
	memcpy(code + n, insn, len);
	n += len;
	n += leave(code + n);
	__builtin___clear_cache((char *)code, (char *)code + n);

	for (tries = 0; tries < TRIES && states < STATES; tries++) {
		uint64_t flags = rnd() & FLAG_BITS, mem;

		for (r = 0; r < REGS; r++)
			in[r] = value(memory);
		runs++;
		if (once(in, flags, &out, memory)) {
			faults++;
			continue;
		}
		states++;
		mem = stored(memory);
		changed |= differences(in, flags, 0, out.reg, out.flags, mem);
		for (r = 0; r < REGS; r++) {
			if (UNTOUCHED >> r & 1)
				continue;
			memcpy(other, in, sizeof(other));
			other[r] = value(memory);
			runs++;
			if (once(other, flags, &out2, memory)) {
				faults++;
				continue;
			}
			depends[r] |= differences(out.reg, out.flags, mem, out2.reg, out2.flags, stored(memory));
		}
		if (FLAG_BITS) {
			runs++;
			if (once(in, rnd() & FLAG_BITS, &out2, memory))
				faults++;
			else
				depends[FLAGS] |= differences(out.reg, out.flags, mem, out2.reg, out2.flags, stored(memory));
		}
	}
	printf("%d %d %d %llx", index, runs, faults, (unsigned long long)changed);
	for (r = 0; r < 64; r++)
		if (depends[r])
			printf(" %d:%llx", r, (unsigned long long)depends[r]);
	printf("\n");
}

int main(int argc, char **argv)
{
	static const int signals[] = { SIGSEGV, SIGILL, SIGFPE, SIGBUS, SIGTRAP };
	unsigned char rec[16];
	stack_t alt = { .ss_size = 64 << 10 };
	struct sigaction act = { .sa_handler = on_signal, .sa_flags = SA_ONSTACK };
	size_t k;
	FILE *f;
	int n;

	if (argc != 2 || !(f = fopen(argv[1], "r"))) {
		fprintf(stderr, "usage: effects FILE\n");
		return 2;
	}
	alt.ss_sp = malloc(alt.ss_size);
	arena = mmap(NULL, ARENA_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	pristine = malloc(ARENA_SIZE);
	if (!alt.ss_sp || !pristine || arena == MAP_FAILED || sigaltstack(&alt, NULL) ||
	    mprotect(code, CODE_SIZE, PROT_READ | PROT_WRITE | PROT_EXEC)) {
		perror("effects");
		return 1;
	}
	for (k = 0; k < ARENA_SIZE; k += 8) {
		uint64_t w = rnd();

		memcpy(pristine + k, &w, 8);
	}
	for (k = 0; k < sizeof(signals) / sizeof(signals[0]); k++)
		sigaction(signals[k], &act, NULL);
	for (n = 0; fread(rec, sizeof(rec), 1, f) == 1; n++)
		try(n, rec + 1, rec[0] & 15, rec[0] >> 7);
	fclose(f);
	return 0;
}
