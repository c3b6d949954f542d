// SPDX-License-Identifier: Apache-2.0
/*
 * How an operation is timed: samples of a fixed number of calls between two
 * readings of the raw monotonic clock, after one that is not counted.
 *
 * What a call does beside the operation (at the least: the loop, the call by a
 * pointer, one reading of the clock) is timed in the same way first, and its
 * shortest sample is subtracted from each of the operation's. The shortest of
 * these is the figure: whatever else happens only adds.
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "lmbench.h"

/* An overhead, and an operation as well: what is left of that has to be nothing. */
void nothing(uint32_t turn)
{
	(void)turn;
}

static uint64_t now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC_RAW, &t);
	return t.tv_sec * 1000000000ull + t.tv_nsec;
}

/* noinline: the operation's loop and its overhead's are the same instructions. */
static __attribute__((noinline)) uint64_t timed(void (*call)(uint32_t), uint32_t calls)
{
	uint64_t start = now();

	for (uint32_t i = 0; i < calls; i++)
		call(i);
	return now() - start;
}

/*
 * What the kernel has put off, as the freeing of what was deleted, it does while
 * nothing else is to be done: several grace periods of RCU.
 */
static void settle(void)
{
	struct timespec t = { .tv_nsec = 50 * 1000000 };

	if (nanosleep(&t, NULL))
		die("nanosleep");
}

static uint64_t sample(const struct operation *o)
{
	uint64_t ns;

	if (o->before)
		o->before(o->calls);
	settle();
	ns = timed(o->call, o->calls);
	if (o->after)
		o->after(o->calls);
	return ns;
}

static uint64_t overhead(void (*call)(uint32_t), const struct operation *o, int samples)
{
	uint64_t least = UINT64_MAX;

	if (!call)
		call = nothing;
	timed(call, o->calls);
	for (int i = 0; i < samples; i++) {
		uint64_t ns = timed(call, o->calls);

		least = ns < least ? ns : least;
	}
	return least;
}

/*
 * A line of samples in nanoseconds per operation, in the order of measuring,
 * which readers of Go's benchmark format take for a comment; then the result, but
 * for an operation that does nothing.
 */
static void print(const struct operation *o, const double ns[], int samples, long cpus)
{
	double least = ns[0];

	printf("# %s", o->name);
	for (int i = 0; i < samples; i++) {
		printf(" %.2f", ns[i]);
		least = ns[i] < least ? ns[i] : least;
	}
	putchar('\n');
	if (o->call == nothing)
		return;
	printf("Benchmark%s-%ld %u %.2f ns/op", o->name, cpus, o->calls * (o->per ? o->per : 1), least);
	if (o->moves)
		printf(" %.2f MB/s", o->moves * 1e3 / least);
	putchar('\n');
}

void measure(const struct operation *o, struct sampling s, long cpus)
{
	double *ns = calloc(s.samples, sizeof(*ns));
	double n = (double)o->calls * (o->per ? o->per : 1);
	uint64_t other;

	if (!ns)
		die("memory");
	if (o->setup)
		o->setup(o);
	other = overhead(s.whole ? o->own : o->overhead, o, s.samples);
	sample(o);
	for (int i = 0; i < s.samples; i++)
		ns[i] = ((double)sample(o) - other) / n;
	end_helpers();
	print(o, ns, s.samples, cpus);
}
