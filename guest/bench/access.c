// SPDX-License-Identifier: Apache-2.0
/*
 * access: runs instructions whose faults have a fixup, one by one, in the kernel.
 *
 *   access SEED RUNS KEPT
 *
 * Each form that /dev/access lists (guest/module/peer/access) is run RUNS times, from
 * registers, flags and memory drawn by SEED. Registers that hold addresses point to
 * memory of this program where pages of each kind meet: with something, with nothing,
 * not there yet, read only, and out of bounds; or to a page of the kernel's with nothing
 * behind it. A line for each form is printed:
 *
 *   NAME TYPE RUNS FAULTS BROUGHT DIGEST [what differs]
 *
 * TYPE is that of the entry in the exception table, FAULTS how many runs ended at the
 * fixup, BROUGHT in how many the kernel brought a page and the instruction went on;
 * DIGEST is of all that there was after each run: registers, flags, the way that control
 * took, how far the stack pointer has moved, and the memory of both. The first call
 * writes all of it to KEPT; those that find it compare with what it has, run by run.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

/* As guest/module/peer/access/access.h has it. */
struct access { uint64_t reg[32], flags, faulted, stack; };
struct access_call { uint64_t form; struct access s; unsigned char tail[64]; };
#define ACCESS_RUN	_IOWR('k', 1, struct access_call)
#define ACCESS_SMALL	40
#define ACCESS_BEYOND	8	/* bytes behind the kernel's page */

#if defined(__x86_64__)
#define FLAG_BITS	0x8d5ull
#define UNUSED		(1ull << 4)
#define REGS		16
#elif defined(__aarch64__)
#define FLAG_BITS	0xf0000000ull
#define UNUSED		(1ull << 31)
#define REGS		31
#else
#define FLAG_BITS	0ull
#define UNUSED		(1ull << 0 | 1ull << 2 | 1ull << 3 | 1ull << 4)
#define REGS		32
#endif

#define MAX_FORMS	256
#define PAGE		4096ul
#define WORDS		(PAGE / 8)
#define ARENA		0x49000000ul

/* Pages from ARENA on. */
enum kind { HOLE, RW, RO, NONE, LATER };
static const enum kind pages[] = { HOLE, RW, HOLE, RW, RO, RW, NONE, LATER, LATER, RW, LATER, HOLE };
#define PAGES		((int)(sizeof(pages) / sizeof(*pages)))

struct form {
	char name[64];
	int type, pads;	/* pads: a load that is padded with zeros; by its name, for its type's number varies */
	unsigned long long user, small, kernel;
};

/* What there is after a run. */
struct record {
	struct access s;
	unsigned char tail[64];
	uint64_t memory;	/* a sum of it */
};

static struct form forms[MAX_FORMS];
static int form_count;
static uint64_t pristine[sizeof(pages) / sizeof(*pages)][WORDS];
static uint64_t state;

static void die(const char *what)
{
	fprintf(stderr, "access: %s: %s\n", what, strerror(errno));
	exit(1);
}

static uint64_t rnd(void)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state;
}

static unsigned long number(const char *s)
{
	char *rest;
	unsigned long n = strtoul(s, &rest, 10);

	if (*rest || rest == s || n < 1 || n > 1000000) {
		fprintf(stderr, "access: %s is not a number from 1 to 1000000\n", s);
		exit(2);
	}
	return n;
}

static void read_forms(int fd)
{
	static char text[64 * MAX_FORMS];
	size_t n = 0;
	ssize_t got;
	char *line;

	while ((got = read(fd, text + n, sizeof(text) - 1 - n)) > 0)
		n += got;
	for (line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
		struct form *f = &forms[form_count];

		if (form_count++ == MAX_FORMS ||
		    sscanf(line, "%63s %d %llx %llx %llx", f->name, &f->type, &f->user, &f->small, &f->kernel) != 5)
			die(line);
		f->pads = !!strstr(f->name, "_padded");
	}
	if (got < 0 || !form_count)
		die("/dev/access");
}

static uint64_t *page(int p) { return (uint64_t *)(ARENA + p * PAGE); }

static void map_pages(void)
{
	int p, k;

	for (p = 0; p < PAGES; p++) {
		if (pages[p] == HOLE)
			continue;
		if (mmap(page(p), PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) != page(p))
			die("mmap");
		/* Numbers of which some are equal to what registers hold. */
		for (k = 0; k < (int)WORDS && pages[p] != LATER; k++)
			page(p)[k] = pristine[p][k] = rnd() % 4 ? rnd() : 0;
		if (pages[p] == RO && mprotect(page(p), PAGE, PROT_READ))
			die("mprotect");
		if (pages[p] == NONE && mprotect(page(p), PAGE, PROT_NONE))
			die("mprotect");
	}
}

static void reset_pages(void)
{
	int p, k;

	for (p = 0; p < PAGES; p++) {
		for (k = 0; k < (int)WORDS && pages[p] == RW; k++)
			page(p)[k] = pristine[p][k];
		if (pages[p] == LATER && madvise(page(p), PAGE, MADV_DONTNEED))
			die("madvise");
	}
}

static uint64_t mix(uint64_t sum, uint64_t v)
{
	sum = (sum ^ v) * 0x9e3779b97f4a7c15ull;
	return sum ^ sum >> 29;
}

static uint64_t sum_pages(void)
{
	uint64_t sum = 0;
	int p, k;

	for (p = 0; p < PAGES; p++)
		for (k = 0; k < (int)WORDS && (pages[p] == RW || pages[p] == RO || pages[p] == LATER); k++)
			sum = mix(sum, page(p)[k]);
	return sum;
}

/* Any number; one of few bits of either sign, or what compares equal to memory often. */
static uint64_t value(void)
{
	switch (rnd() % 4) {
	case 0:
		return 0;
	case 1:
		return rnd() % 64;
	case 2:
		return -(rnd() % 64);
	default:
		return rnd();
	}
}

/* Within a page, or around where two meet. */
static uint64_t address(void)
{
	uint64_t a = ARENA + (1 + rnd() % (PAGES - 1)) * PAGE;

	return rnd() % 2 ? a + 1024 + rnd() % 512 : a - 32 + rnd() % 48;
}

/* 0 to ACCESS_SMALL, which ends of what there is depend on. */
static uint64_t small(void)
{
	return rnd() % 3 ? rnd() % (ACCESS_SMALL + 1) : ACCESS_SMALL;
}

/* A distance in the kernel's page; what is padded must begin in it. */
static uint64_t distance(const struct form *f)
{
	if (!f->pads)
		return PAGE - 64 + rnd() % (64 + ACCESS_BEYOND);
	return PAGE - 1 - (f->small ? ACCESS_SMALL : 0) - rnd() % (rnd() % 2 ? 7 : 24);
}

/* Every so many runs end at the fixup for certain, whatever the seed is. */
#define CERTAIN	4

static void choose(const struct form *f, struct access_call *c, int certain)
{
	int r;

	memset(&c->s, 0, sizeof(c->s));
	for (r = 0; r < REGS; r++)
		if (f->user >> r & 1)
			c->s.reg[r] = certain ? ARENA + 2 * PAGE + 1024 : address();
		else if (f->small >> r & 1)
			c->s.reg[r] = certain ? ACCESS_SMALL : small();
		else if (f->kernel >> r & 1)
			c->s.reg[r] = !certain ? distance(f) : !f->pads ? PAGE : PAGE - 1 - (f->small ? ACCESS_SMALL : 0);
		else if (!(UNUSED >> r & 1))
			c->s.reg[r] = value();
	c->s.flags = rnd() & FLAG_BITS;
	for (r = 0; r < (int)sizeof(c->tail); r++)
		c->tail[r] = rnd();
}

/* A padded load goes on behind itself: that it faulted is known by where it was from. */
static int padded(const struct form *f, const struct access *s)
{
	uint64_t a = 0;
	int r;

	for (r = 0; r < REGS && f->pads; r++)
		if ((f->kernel | f->small) >> r & 1)
			a += s->reg[r];
	return a > PAGE - 8;
}

static long faults(void)
{
	struct rusage u;

	if (getrusage(RUSAGE_SELF, &u))
		die("getrusage");
	return u.ru_minflt;
}

static void differ(const struct record *was, const struct record *is, int first, int all)
{
	int r;

	printf(" differs in %d, first in %d:", all, first);
	for (r = 0; r < 32; r++)
		if (was->s.reg[r] != is->s.reg[r])
			printf(" register %d was %llx is %llx;", r, (unsigned long long)was->s.reg[r], (unsigned long long)is->s.reg[r]);
	printf(" flags %llx %llx, by the fixup %d %d, stack %lld %lld%s%s", (unsigned long long)was->s.flags, (unsigned long long)is->s.flags,
	       (int)was->s.faulted, (int)is->s.faulted, (long long)was->s.stack, (long long)is->s.stack,
	       was->memory != is->memory ? ", the user's memory" : "", memcmp(was->tail, is->tail, sizeof(is->tail)) ? ", the kernel's memory" : "");
}

/* Prints the form's line. */
static void run_form(int fd, int n, unsigned long seed, int runs, FILE *kept, int compare)
{
	const struct form *f = &forms[n];
	int k, fixed = 0, brought = 0, differs = 0, first = 0;
	struct record first_was, first_is;
	uint64_t digest = 0;
	size_t w;

	state = mix(seed, n) | 1;
	for (k = 0; k < runs; k++) {
		struct access_call c = { .form = n };
		struct record is, was;
		int pads;
		long before;

		choose(f, &c, k % CERTAIN == 0);
		pads = padded(f, &c.s);
		reset_pages();
		before = faults();
		if (ioctl(fd, ACCESS_RUN, &c))
			die(f->name);
		brought += faults() != before;
		fixed += c.s.faulted || pads;
		memset(&is, 0, sizeof(is));
		is.s = c.s;
		memcpy(is.tail, c.tail, sizeof(is.tail));
		is.memory = sum_pages();
		for (w = 0; w < sizeof(is) / 8; w++)
			digest = mix(digest, ((uint64_t *)&is)[w]);
		if (!compare && fwrite(&is, sizeof(is), 1, kept) != 1)
			die("what is kept");
		if (compare && fread(&was, sizeof(was), 1, kept) != 1)
			die("what was kept");
		if (compare && memcmp(&was, &is, sizeof(is)) && !differs++) {
			first = k;
			first_was = was;
			first_is = is;
		}
	}
	printf("%s %d %d %d %d %016llx", f->name, f->type, runs, fixed, brought, (unsigned long long)digest);
	if (differs)
		differ(&first_was, &first_is, first, differs);
	printf("\n");
}

int main(int argc, char **argv)
{
	unsigned long seed, runs;
	FILE *kept;
	int fd, n, compare;

	if (argc != 4) {
		fputs("usage: access SEED RUNS KEPT\n", stderr);
		return 2;
	}
	seed = number(argv[1]);
	runs = number(argv[2]);
	fd = open("/dev/access", O_RDWR);
	if (fd < 0)
		die("/dev/access");
	compare = !access(argv[3], F_OK);
	kept = fopen(argv[3], compare ? "r" : "w");
	if (!kept)
		die(argv[3]);
	read_forms(fd);
	state = mix(seed, 0) | 1;
	map_pages();
	for (n = 0; n < form_count; n++)
		run_form(fd, n, seed, runs, kept, compare);
	if (fclose(kept))
		die(argv[3]);
	return 0;
}
