// SPDX-License-Identifier: Apache-2.0
/*
 * equiv: runs code as it is and with a splice in it, and compares.
 *
 *   equiv FILE
 *
 * FILE holds cases of 64-bit words: a struct header, then its maps, its pads, the
 * states of its patch, its bare and its spliced chunks. A map is memory of the case
 * alone: text, filled with traps, data, filled at random and compared, or cells. A chunk is
 * bytes at an address: first the bare ones are written, later the spliced ones over
 * them. Control comes in at ENTRY, and every way out ends in a trap or a fault.
 *
 * Every run begins and ends in a signal handler: what it starts from is put into the
 * interrupted context, and what it ended with is found there. So all registers can
 * have any value, the stack pointer and riscv64's gp and tp among them, and nothing
 * of this program runs in between. Each case is run RUNS times from random registers,
 * flags, vector registers and memory, and again from the same ones with the splice.
 * The same must come out: the signal, where, registers, flags, vector registers, and
 * memory, but for what the case says is free (registers), and what was below the
 * stack pointer, unless the bare code writes it and leaves the pointer below it. What
 * reads there by way of an index would be lost in a kernel too, to an interrupt: such
 * a start is found by another run with other bytes there, and is not used. The counter
 * has to be one more.
 *
 * A fault in the patch counts as where its state map says the kernel would be, with
 * the stack where it says. Registers are numbered as the decoders number them. A line
 * per case is printed:
 *
 *   INDEX RUNS LANDED PADS [what differs]
 *
 * LANDED is how many runs ended in a trap, not a fault, and PADS a mask of the pads
 * where they did: hexadecimal.
 */
#define _GNU_SOURCE
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <ucontext.h>

#define ARENA	0x48000000ul	/* what base registers point to: the host knows it */
#define ARENA_SIZE 16384
#define STACK	0x48010000ul
#define STACK_SIZE 8192
#define BELOW	512		/* what a patch may write below the stack pointer, in bytes */
#define MAX_RUNS 16
#define MAX_DATA (ARENA_SIZE + STACK_SIZE + 8 * 4096)
#define MAX_LIST 64
#define MAX_FAULTS 2		/* runs that end in a fault, if others do not */
#define MAX_TRIES 120		/* to find others */
#define TICKS	30		/* seconds that a run may take: hosts can be busy */

enum { TEXT, DATA, CELLS };

struct header {
	uint64_t entry, cell, unit, patch, patch_len, runs;	/* a hit adds unit to the cell */
	uint64_t values;		/* so many of the first pads registers and memory hold */
	uint64_t indexed;		/* whether it may read below the stack pointer */
	uint64_t trap;			/* where a breakpoint leads to the patch; 0: a jump does */
	uint64_t free, free_at_fault;	/* registers that may differ */
	uint64_t maps, pads, states, bare, spliced;	/* how many */
};

struct map { uint64_t addr, len, kind, fill; };
struct point { uint64_t off, orig, sp; };
struct chunk { uint64_t addr, len; unsigned char *bytes; };

#if defined(__x86_64__)

#define REGS		16
#define SP		4
#define FLAG_BITS	0x8d5ull
#define FLAGS		16
#define start()		asm volatile("int3" ::: "memory")
#define START_LEN	0
#define TRAP_LEN	1	/* by which the address of a trap is behind it */

static const int numbers[REGS] = {
	REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI,
	REG_R8, REG_R9, REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15,
};

static uint64_t *reg(ucontext_t *uc, int r) { return (uint64_t *)&uc->uc_mcontext.gregs[numbers[r]]; }
static uint64_t *pc(ucontext_t *uc) { return (uint64_t *)&uc->uc_mcontext.gregs[REG_RIP]; }
static uint64_t *flags(ucontext_t *uc) { return (uint64_t *)&uc->uc_mcontext.gregs[REG_EFL]; }

/* The frame's whole area; of it the ten x87 registers and MXCSR stay as they are. */
static void *vectors(ucontext_t *uc, size_t *len, size_t *first, size_t *end)
{
	unsigned char *a = (unsigned char *)uc->uc_mcontext.fpregs;
	uint32_t magic, size;

	memcpy(&magic, a + 464, 4);
	memcpy(&size, a + 468, 4);
	*len = magic == 0x46505853 ? size : 512;
	*first = 160;
	*end = 416;
	return a;
}

#elif defined(__aarch64__)

#define REGS		32
#define SP		31
#define FLAG_BITS	0xf0000000ull
#define FLAGS		32
#define start()		asm volatile("brk #0" ::: "memory")
#define START_LEN	4
#define TRAP_LEN	0

static uint64_t *reg(ucontext_t *uc, int r)
{
	return r == SP ? (uint64_t *)&uc->uc_mcontext.sp : (uint64_t *)&uc->uc_mcontext.regs[r];
}
static uint64_t *pc(ucontext_t *uc) { return (uint64_t *)&uc->uc_mcontext.pc; }
static uint64_t *flags(ucontext_t *uc) { return (uint64_t *)&uc->uc_mcontext.pstate; }

/* The first record of the frame (asm/sigcontext.h): 16 bytes, then 32 registers. */
static void *vectors(ucontext_t *uc, size_t *len, size_t *first, size_t *end)
{
	unsigned char *a = (unsigned char *)uc->uc_mcontext.__reserved;
	uint32_t magic;

	memcpy(&magic, a, 4);
	if (magic != 0x46508001)
		abort();
	*len = *end = 16 + 32 * 16;
	*first = 16;
	return a;
}

#elif defined(__riscv)

#define REGS		32
#define SP		2
#define FLAG_BITS	0ull
#define FLAGS		63
#define start()		asm volatile(".option push\n.option norvc\nebreak\n.option pop" ::: "memory")
#define START_LEN	4
#define TRAP_LEN	0

static uint64_t none, zero;

static uint64_t *reg(ucontext_t *uc, int r)
{
	if (r == 0) {
		zero = 0;
		return &zero;
	}
	return (uint64_t *)&uc->uc_mcontext.__gregs[r];
}
static uint64_t *pc(ucontext_t *uc) { return (uint64_t *)&uc->uc_mcontext.__gregs[0]; }
static uint64_t *flags(ucontext_t *uc) { (void)uc; return &none; }

static void *vectors(ucontext_t *uc, size_t *len, size_t *first, size_t *end)
{
	*len = sizeof(uc->uc_mcontext.__fpregs.__d);
	*first = 0;
	*end = 32 * 8;
	return &uc->uc_mcontext.__fpregs.__d;
}

#endif

/* What a run starts from, or ended with. */
struct state {
	uint64_t reg[REGS], flags, pc, sig;
	unsigned char vec[512];
};

static struct {
	struct header h;
	struct map maps[MAX_LIST];
	uint64_t pads[MAX_LIST];
	struct point states[MAX_LIST];
	struct chunk bare[4], spliced[4];
} c;

/* Memory that is compared: the arena, the stack, and the case's data. */
static struct { unsigned char *at; size_t len; } data[MAX_LIST];
static int datas;
static unsigned char pristine[MAX_DATA], left[MAX_RUNS][MAX_DATA];

static struct state in[MAX_RUNS], out[MAX_RUNS];
static ucontext_t home;
static unsigned char home_vec[8192], clean_vec[8192];

static enum { IDLE, BARE, SPLICED } phase;
static unsigned int run, ticks, faults, tries, again;
static uint64_t counted, landed, pads;
static char verdict[8192];

static uint64_t seed = 0x9e3779b97f4a7c15ull;

static uint64_t rnd(void)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return seed;
}

/*
 * Any number; nothing; a small one, as a count or an index; what was there before, to
 * be equal to it; an address in the arena's middle; or one where control may go.
 */
static uint64_t value(uint64_t before)
{
	switch (rnd() % 10) {
	case 0:
		return rnd();
	case 1:
		return 0;
	case 2:
		return rnd() % 64;
	case 3:
		return -(rnd() % 64);
	case 4:
		return before;
	case 5:
	case 6:
		if (c.h.values)
			return c.pads[rnd() % c.h.values];
		/* fallthrough */
	default:
		return ARENA + ARENA_SIZE / 4 - 512 + (rnd() % 64) * 16;
	}
}

static void fill(void)
{
	uint64_t w, k;

	for (k = 0; k + 8 <= MAX_DATA; k += 8) {
		w = c.h.values && rnd() % 2 ? c.pads[rnd() % c.h.values] : rnd();
		memcpy(pristine + k, &w, 8);
	}
}

static void choose(struct state *s)
{
	uint64_t w;
	size_t k;

	for (k = 0; k < REGS; k++)
		s->reg[k] = value(k ? s->reg[k - 1] : 0);
#if defined(__riscv)
	s->reg[0] = 0;
#endif
	s->reg[SP] = STACK + STACK_SIZE / 2 + (rnd() % 32) * 16;
	s->flags = rnd() & FLAG_BITS;
	for (k = 0; k < sizeof(s->vec); k += 8) {
		w = rnd();
		memcpy(s->vec + k, &w, 8);
	}
}

static void reset_data(void)
{
	size_t n = 0;
	int k;

	for (k = 0; k < datas; n += data[k++].len)
		memcpy(data[k].at, pristine + n, data[k].len);
}

/* Changes what is below the stack pointer. */
static void disturb(void)
{
	unsigned char *sp = (unsigned char *)in[run].reg[SP];
	int k;

	for (k = 1; k <= BELOW; k++)
		sp[-k] ^= 0xff;
}

static void keep_data(void)
{
	size_t n = 0;
	int k;

	for (k = 0; k < datas; n += data[k++].len)
		memcpy(left[run] + n, data[k].at, data[k].len);
}

static void put(ucontext_t *uc, const struct state *s)
{
	size_t len, first, end;
	unsigned char *v = vectors(uc, &len, &first, &end);
	int r;

	for (r = 0; r < REGS; r++)
		*reg(uc, r) = s->reg[r];
	*flags(uc) = (*flags(uc) & ~FLAG_BITS) | s->flags;
	*pc(uc) = c.h.entry;
	memcpy(v, clean_vec, len);
	memcpy(v + first, s->vec, end - first);
}

static void get(ucontext_t *uc, int sig, struct state *s)
{
	size_t len, first, end;
	unsigned char *v = vectors(uc, &len, &first, &end);
	int r;

	for (r = 0; r < REGS; r++)
		s->reg[r] = *reg(uc, r);
	s->flags = *flags(uc) & FLAG_BITS;
	s->pc = *pc(uc) - (sig == SIGTRAP ? TRAP_LEN : 0);
	s->sig = sig;
	memset(s->vec, 0, sizeof(s->vec));
	memcpy(s->vec, v + first, end - first);
}

/* Where the kernel would be instead of in the patch. */
static void translate(struct state *s)
{
	uint64_t k, off = s->pc - c.h.patch;

	if (s->pc < c.h.patch || off >= c.h.patch_len)
		return;
	for (k = c.h.states; k-- > 0;)
		if (c.states[k].off <= off) {
			s->pc = c.states[k].orig;
			s->reg[SP] += c.states[k].sp;
			return;
		}
}

/* The first address where memory differs that may not, or 0. */
static uint64_t memory_differs(void)
{
	uint64_t sp = in[run].reg[SP];
	size_t n = 0, b;
	int k;

	for (k = 0; k < datas; n += data[k++].len) {
		if (!memcmp(data[k].at, left[run] + n, data[k].len))
			continue;
		for (b = 0; b < data[k].len; b++) {
			uint64_t a = (uint64_t)(uintptr_t)data[k].at + b;

			if (data[k].at[b] == left[run][n + b])
				continue;
			if (a >= sp - BELOW && a < sp && (a < out[run].reg[SP] || left[run][n + b] == pristine[n + b]))
				continue;
			return a;
		}
	}
	return 0;
}

static size_t show(char *to, size_t room, const char *name, const struct state *s)
{
	size_t n = snprintf(to, room, " | %s: signal %d at %llx flags %llx", name, (int)s->sig,
			    (unsigned long long)s->pc, (unsigned long long)s->flags);
	int r;

	for (r = 0; r < REGS && n < room; r++)
		n += snprintf(to + n, room - n, " %llx", (unsigned long long)s->reg[r]);
	return n;
}

static void compare(struct state *s, uint64_t count)
{
	uint64_t mask = 0, free, mem = memory_differs();
	struct state *b = &out[run];
	const char *what = NULL;
	size_t n;
	int r;

	if (verdict[0])
		return;
	free = b->sig == SIGTRAP ? c.h.free : c.h.free_at_fault;
	for (r = 0; r < REGS; r++)
		if (s->reg[r] != b->reg[r] && !(free >> r & 1))
			mask |= 1ull << r;
	if (s->flags != b->flags && !(free >> FLAGS & 1))
		mask |= 1ull << FLAGS;
	if (s->sig != b->sig || s->pc != b->pc)
		what = "place";
	else if (mask)
		what = "registers";
	else if (memcmp(s->vec, b->vec, sizeof(s->vec)))
		what = "vectors";
	else if (mem)
		what = "memory";
	else if (count != c.h.unit)
		what = "counter";
	if (!what)
		return;
	n = snprintf(verdict, sizeof(verdict), " %s differ in run %u: mask %llx, memory at %llx, counter %+lld", what, run,
		     (unsigned long long)mask, (unsigned long long)mem, (long long)count);
	n += show(verdict + n, sizeof(verdict) - n, "from", &in[run]);
	n += show(verdict + n, sizeof(verdict) - n, "bare", b);
	show(verdict + n, sizeof(verdict) - n, "spliced", s);
}

/* Text can be written by nobody else, as the kernel's. */
static void protect(int how)
{
	uint64_t k;

	for (k = 0; k < c.h.maps; k++)
		if (c.maps[k].kind == TEXT && mprotect((void *)c.maps[k].addr, c.maps[k].len, how))
			abort();
}

static void write_chunks(const struct chunk *list, uint64_t n)
{
	uint64_t k;

	protect(PROT_READ | PROT_WRITE);
	for (k = 0; k < n; k++)
		memcpy((void *)list[k].addr, list[k].bytes, list[k].len);
	protect(PROT_READ | PROT_EXEC);
	for (k = 0; k < n; k++)
		__builtin___clear_cache((char *)list[k].addr, (char *)list[k].addr + list[k].len);
}

static uint64_t *cell(void) { return (uint64_t *)c.h.cell; }

static void end_bare(ucontext_t *uc, int sig)
{
	static struct state other;
	uint64_t k;

	if (sig == SIGALRM) {
		snprintf(verdict, sizeof(verdict), " is not run: it does not end");
		phase = IDLE;
		return;
	}
	if (sig != SIGTRAP && !again && ++faults > MAX_FAULTS && ++tries < MAX_TRIES) {
		choose(&in[run]);
		return;
	}
	get(uc, sig, again ? &other : &out[run]);
	if (!again)
		keep_data();
	if (c.h.indexed && (again = !again))
		return;
	if (c.h.indexed && memcmp(&other, &out[run], offsetof(struct state, vec)) && ++tries < MAX_TRIES) {
		choose(&in[run]);
		return;
	}
	if (sig == SIGTRAP)
		landed++;
	for (k = 0; k < c.h.pads; k++)
		if (sig == SIGTRAP && c.pads[k] == out[run].pc)
			pads |= 1ull << k;
	if (++run < c.h.runs) {
		choose(&in[run]);
		return;
	}
	run = 0;
	phase = SPLICED;
	write_chunks(c.spliced, c.h.spliced);
}

static void end_spliced(ucontext_t *uc, int sig)
{
	struct state s;

	get(uc, sig, &s);
	translate(&s);
	compare(&s, *cell() - counted);
	if (++run == c.h.runs)
		phase = IDLE;
}

/* Ends one run and begins the next. */
void on_signal(int sig, siginfo_t *info, void *context)
{
	ucontext_t *uc = context;
	size_t len, first, end;
	unsigned char *v = vectors(uc, &len, &first, &end);

	(void)info;
	/* As the kernel's handler does it (guest/module/trap.c). */
	if (phase == SPLICED && sig == SIGTRAP && c.h.trap && *pc(uc) - TRAP_LEN == c.h.trap) {
		*pc(uc) = c.h.patch;
		return;
	}
	if (sig == SIGALRM && (phase == IDLE || ++ticks < TICKS))
		return;
	ticks = 0;
	switch (phase) {
	case IDLE:
		if (sig != SIGTRAP || len > sizeof(home_vec)) {
			signal(sig, SIG_DFL);	/* a fault of our own */
			return;
		}
		home = *uc;
		memcpy(home_vec, v, len);
		memcpy(clean_vec, v, len);
		phase = BARE;
		run = faults = tries = again = 0;
		choose(&in[0]);
		write_chunks(c.bare, c.h.bare);
		break;
	case BARE:
		end_bare(uc, sig);
		break;
	case SPLICED:
		end_spliced(uc, sig);
		break;
	}
	if (phase == IDLE) {
		int r;

		for (r = 0; r < REGS; r++)
			*reg(uc, r) = *reg(&home, r);
		*flags(uc) = *flags(&home);
		*pc(uc) = *pc(&home) + START_LEN;
		memcpy(v, home_vec, len);
		return;
	}
	reset_data();
	if (again)
		disturb();
	counted = rnd();
	*cell() = counted;
	put(uc, &in[run]);
}

#if defined(__riscv)
/* The compiler expects gp and tp to be its own, also in a handler. */
uint64_t own_tp;
extern void entry(int, siginfo_t *, void *);
asm(".text\n.option push\n.option norelax\nentry:\n"
    "	la gp, __global_pointer$\n	la t0, own_tp\n	ld tp, 0(t0)\n	tail on_signal\n.option pop\n");
#else
#define entry on_signal
#endif

static int map_case(void)
{
	uint64_t k, n;

	datas = 2;
	for (k = 0; k < c.h.maps; k++) {
		struct map *m = &c.maps[k];
		void *at = mmap((void *)m->addr, m->len, PROT_READ | PROT_WRITE,
				MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);

		if (at != (void *)m->addr) {
			snprintf(verdict, sizeof(verdict), " is not run: no memory at %llx", (unsigned long long)m->addr);
			c.h.maps = k;
			return 0;
		}
		for (n = 0; n < m->len && m->kind == TEXT; n += 8)
			memcpy((char *)at + n, &m->fill, 8);
		if (m->kind == DATA) {
			data[datas].at = at;
			data[datas++].len = m->len;
		}
	}
	return 1;
}

static void unmap_case(void)
{
	uint64_t k;

	for (k = 0; k < c.h.maps; k++)
		munmap((void *)c.maps[k].addr, c.maps[k].len);
	for (k = 0; k < c.h.bare; k++)
		free(c.bare[k].bytes);
	for (k = 0; k < c.h.spliced; k++)
		free(c.spliced[k].bytes);
}

static int get_words(FILE *f, void *to, size_t n)
{
	return fread(to, 8, n, f) == n;
}

static int get_chunks(FILE *f, struct chunk *list, uint64_t n)
{
	uint64_t k, words;

	for (k = 0; k < n; k++) {
		if (!get_words(f, &list[k], 2) || list[k].len > 4096)
			return 0;
		words = (list[k].len + 7) / 8;
		list[k].bytes = malloc(8 * words);
		if (!list[k].bytes || !get_words(f, list[k].bytes, words))
			return 0;
	}
	return 1;
}

static int get_case(FILE *f)
{
	struct header *h = &c.h;

	return h->runs <= MAX_RUNS && h->maps <= 8 && h->pads <= MAX_LIST && h->states <= MAX_LIST && h->bare <= 4 &&
	       h->spliced <= 4 && get_words(f, c.maps, 4 * h->maps) && get_words(f, c.pads, h->pads) &&
	       get_words(f, c.states, 3 * h->states) && get_chunks(f, c.bare, h->bare) && get_chunks(f, c.spliced, h->spliced);
}

static int prepare(void)
{
	static const int signals[] = { SIGSEGV, SIGILL, SIGFPE, SIGBUS, SIGTRAP, SIGALRM, SIGSYS };
	static const uint64_t fixed[] = { ARENA, STACK }, sizes[] = { ARENA_SIZE, STACK_SIZE };
	struct itimerval second = { { 1, 0 }, { 1, 0 } };
	struct sigaction act = { .sa_flags = SA_ONSTACK | SA_SIGINFO };
	stack_t alt = { .ss_size = 256 << 10 };
	size_t k;

#if defined(__riscv)
	asm volatile("mv %0, tp" : "=r"(own_tp));
#endif
	for (k = 0; k < 2; k++) {
		data[k].at = mmap((void *)fixed[k], sizes[k], PROT_READ | PROT_WRITE,
				  MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
		data[k].len = sizes[k];
		if (data[k].at != (void *)fixed[k])
			return 0;
	}
	alt.ss_sp = malloc(alt.ss_size);
	if (!alt.ss_sp || sigaltstack(&alt, NULL))
		return 0;
	act.sa_sigaction = entry;
	for (k = 0; k < sizeof(signals) / sizeof(signals[0]); k++)
		sigaction(signals[k], &act, NULL);
	return !setitimer(ITIMER_REAL, &second, NULL);
}

int main(int argc, char **argv)
{
	FILE *f;
	int n;

	if (argc != 2 || !(f = fopen(argv[1], "r"))) {
		fprintf(stderr, "usage: equiv FILE\n");
		return 2;
	}
	if (!prepare()) {
		perror("equiv");
		return 1;
	}
	setlinebuf(stdout);	/* who dies says of which case */
	for (n = 0; get_words(f, &c.h, sizeof(c.h) / 8); n++) {
		if (!get_case(f)) {
			fprintf(stderr, "equiv: case %d is cut short or out of bounds\n", n);
			return 1;
		}
		landed = pads = verdict[0] = 0;
		fill();
		if (map_case())
			start();
		printf("%d %d %d %llx%s\n", n, (int)c.h.runs, (int)landed, (unsigned long long)pads, verdict);
		unmap_case();
	}
	fclose(f);
	return ferror(stdout) || fflush(stdout) ? 1 : 0;
}
