/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests look for, by lines: a comment at the end of a line names it. */
typedef unsigned long u64;

volatile u64 sink;

#define ALWAYS static inline __attribute__((always_inline))

ALWAYS u64 twice(u64 v)
{
	sink += v;				/* twice */
	return v * 2;
}

/* Nothing is left of it. */
ALWAYS void empty(u64 only)
{
	__asm__ volatile("" : : "r"(only));
}

ALWAYS u64 nested(u64 a, u64 b)
{
	if (a > b)
		sink = twice(a);		/* nested: a */
	empty(a);
	return twice(b) + 1;			/* nested: b */
}

/* Inlined, and not: its address is taken. */
static inline u64 both(u64 *p)
{
	sink = *p;
	return *p + 3;
}

u64 (*volatile taken)(u64 *) = both;

__attribute__((noinline)) u64 callee(u64 v)
{
	sink = v;
	return v + sink;
}

u64 first(u64 x)
{
	return nested(x, 7);			/* first */
}

u64 second(u64 *p)
{
	u64 v = both(p);			/* second */

	if (__builtin_expect(v == 13, 0)) {
		sink = twice(v);		/* second: seldom */
		__builtin_trap();
	}
	return callee(twice(callee(v)));	/* second: between calls */
}

__attribute__((section(".init.text"))) u64 at_boot(u64 v)
{
	return twice(v);
}
