/* SPDX-License-Identifier: Apache-2.0 */
/* What makes a module of fixture.c, and more code in a section of its own. */
typedef unsigned long u64;

extern volatile u64 sink;

static const char name[] __attribute__((section(".modinfo"), used)) = "license=GPL\0name=fix_ture";

static inline __attribute__((always_inline)) u64 thrice(u64 v)
{
	sink = v;				/* thrice */
	return v * 3;
}

/* Another file has one of that name, too. */
static __attribute__((noinline, section(".text.module"))) u64 callee(u64 v)
{
	return sink + v;
}

__attribute__((section(".text.module"))) u64 third(u64 x)
{
	return thrice(callee(x));		/* third */
}

__attribute__((section(".exit.text"))) u64 at_exit(u64 v)
{
	return thrice(v);
}
