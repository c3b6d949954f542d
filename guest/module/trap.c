// SPDX-License-Identifier: GPL-2.0
/*
 * trap.c - breakpoints that lead to patches: the last resort, for a point where no jump
 * fits, and what sends CPUs around a window while it waits (arch/amd64/divert.c).
 *
 * Method (KernInst, section 3.4.2: splice the trap handler itself). What handles a
 * kernel's breakpoint asks kprobes first. That one call is made to lead to ki_arch_on_trap()
 * instead, while there is any breakpoint of ours: a look-up, and for all that is not
 * ours, the call that it was. So a hit costs the exception and its bookkeeping, and
 * neither what kprobes do for theirs nor a chain of notifiers.
 *
 * What else could be on the way to the look-up, or from there to the patch?
 *   A breakpoint of ours: never. All of it but the handler is noinstr or NOKPROBE, where
 *     nothing is spliced, on kernels without the tracers named below. In the handler
 *     (riscv64's may have kprobes, 6.12.107) there are no breakpoints, and in the module
 *     is nothing at all.
 *   Any context, NMI included: the handler runs with interrupts off and RCU watches.
 *     Readers take no lock.
 *   The call, while it is rewritten: it is met by who met another breakpoint. amd64: the
 *     writer's breakpoint on the call is one more exception, which is emulated before
 *     anything else is asked (poke_int3_handler). Others: every CPU waits in stopped.c.
 *   A CPU that met a breakpoint which is gone when it looks: none. From the exception to
 *     the look-up, interrupts are off, and an entry stays until every CPU has taken one
 *     since the breakpoint went (the writers' last step).
 *   A CPU in ki_arch_on_trap() when the module goes: none, for the same reason.
 *   The breakpoint that a patch ends in, where no jump leads back (KI_SPLICE_HOME): the same
 *     look-up leads behind the point. It is met where the point was, by the same CPU.
 *   A kprobe that is being stepped: what the kernel remembers of it stays as it is.
 */
#include <linux/hashtable.h>
#include <linux/kallsyms.h>
#include <linux/kernel.h>
#include <linux/module.h>
#include <linux/string.h>
#include <linux/vmalloc.h>

#include "internals.h"
#include "kerninst_mod.h"
#include "trap.h"

DEFINE_HASHTABLE(ki_traps, KI_TRAP_BITS);

/* A handler for user space and kernel in one may have two. */
#define MAX_CALLS 2u

static struct call {
	unsigned long at;
	u8 theirs[KI_ARCH_CALL_LEN], ours[KI_ARCH_CALL_LEN];
} calls[MAX_CALLS];
static u32 call_count;
static void *veneer;	/* NULL: calls reach the module */
static u32 users;
static bool ours;	/* the calls lead here */

/*
 * Those trace on the way to the handler: who traces runs what may hold a breakpoint, which
 * would be met again, and again. Refused rather than guessed.
 */
static bool traced_on_the_way(void)
{
	return IS_ENABLED(CONFIG_RCU_TRACE) || IS_ENABLED(CONFIG_TRACE_IRQFLAGS) ||
	       IS_ENABLED(CONFIG_HWLAT_TRACER) || IS_ENABLED(CONFIG_OSNOISE_TRACER);
}

/* The calls of a function to another; more than MAX_CALLS: too many. */
static u32 find_calls(unsigned long in, unsigned long to)
{
	unsigned long size, off, at;
	u8 want[KI_ARCH_CALL_LEN];
	u32 n = 0;

	if (in == ki_marks.image || to == ki_marks.image ||
	    !kallsyms_lookup_size_offset(in, &size, &off))
		return 0;
	for (at = in; at + KI_ARCH_CALL_LEN <= in + size; at += ki_arch_insn_align) {
		if (!ki_arch_call(want, at, to) || memcmp((void *)at, want, sizeof(want)))
			continue;
		if (n < MAX_CALLS) {
			calls[n].at = at;
			memcpy(calls[n].theirs, want, sizeof(want));
		}
		n++;
	}
	return n;
}

#ifdef KI_ARCH_VENEER_LEN
/* A jump to the module that calls in the handler reach. */
static bool make_veneer(unsigned long near)
{
	u8 code[KI_ARCH_VENEER_LEN];

	veneer = ki_area_page(near - min(near, KI_ARCH_CALL_REACH), near + KI_ARCH_CALL_REACH);
	if (!veneer)
		return false;
	ki_arch_veneer(code, (unsigned long)ki_arch_handler.ours);
	return !ki_arch_write_code(veneer, code, sizeof(code));
}
#else
static bool make_veneer(unsigned long near)
{
	return false;	/* a call reaches all modules from all of the kernel */
}
#endif

static bool encode_ours(unsigned long to)
{
	u32 i;

	for (i = 0; i < call_count; i++)
		if (!ki_arch_call(calls[i].ours, calls[i].at, to))
			return false;
	return true;
}

/* Nothing is written yet. A kernel whose handler is another one has no breakpoints of ours. */
void ki_traps_init(void)
{
	if (traced_on_the_way())
		return;
	call_count = find_calls((unsigned long)ki_arch_handler.in, (unsigned long)ki_arch_handler.calls);
	if (call_count > MAX_CALLS)
		call_count = 0;
	if (!call_count || encode_ours((unsigned long)ki_arch_handler.ours))
		return;
	if (!make_veneer(calls[0].at) || !encode_ours((unsigned long)veneer))
		call_count = 0;
}

void ki_traps_exit(void)
{
	vfree(veneer);
}

/* Would a breakpoint be met on the way to itself? Of that, only this is no text without probes. */
bool ki_traps_meet(unsigned long addr)
{
	unsigned long size, off;

	return !kallsyms_lookup_size_offset(addr, &size, &off) ||
	       addr - off == (unsigned long)ki_arch_handler.in ||
	       addr - off == (unsigned long)ki_arch_handler.calls;
}

bool ki_traps_rewrite(unsigned long first, unsigned long last)
{
	u32 i;

	for (i = 0; i < call_count; i++)
		if (first < calls[i].at + KI_ARCH_CALL_LEN && last >= calls[i].at)
			return true;
	return false;
}

bool ki_traps_work(void)
{
	return call_count;
}

static int lead(bool here)
{
	struct ki_poke p[MAX_CALLS] = { };
	u32 i, failed;

	for (i = 0; i < call_count; i++) {
		p[i].addr = (void *)calls[i].at;
		p[i].from = here ? calls[i].theirs : calls[i].ours;
		p[i].to = here ? calls[i].ours : calls[i].theirs;
		p[i].len = KI_ARCH_CALL_LEN;
		p[i].call = true;
	}
	return ki_arch_poke(p, call_count, &failed);
}

int ki_trap_add(struct ki_trap *t, unsigned long at, unsigned long to)
{
	int err;

	if (ki_trap_to(at))	/* a second patch's way back would lead to whichever is newer */
		return -EEXIST;
	if (!ours) {
		err = lead(true);
		if (err)
			return err;
		ours = true;
	}
	users++;
	t->at = at;
	t->to = to;
	hash_add_rcu(ki_traps, &t->node, at);
	return 0;
}

void ki_trap_remove(struct ki_trap *t)
{
	hash_del_rcu(&t->node);
	if (--users)
		return;
	if (!lead(false))
		ours = false;
	else	/* Somebody has changed the call, and may come to us by it. */
		__module_get(THIS_MODULE);
}
