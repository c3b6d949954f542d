// SPDX-License-Identifier: GPL-2.0
/*
 * walk.c - looks at the kernel's stack for a patch: the one way on which code of a
 * patch comes to functions of the kernel.
 *
 * A splice may lie on what is called here. The daemon refuses snippets that walk
 * there, as far as it finds these functions; should one come by itself all the same, or
 * an exception in between, nothing is walked a second time in the same context: task,
 * softirq, irq and NMI have one walk each. Nobody else is on the CPU meanwhile, for it
 * is not given away: the task in a walk is the one that has set the mark.
 *
 * Without memory of its own, without locks, with some 600 bytes of stack: where the
 * task has no more than KI_WALK_ROOM, nothing is walked.
 */
#include <linux/kprobes.h>
#include <linux/percpu.h>
#include <linux/preempt.h>
#include <linux/sched/task_stack.h>
#include <linux/stacktrace.h>

#include <asm/ptrace.h>

#include "kerninst_mod.h"

#define KI_WALK_ROOM	2048

static DEFINE_PER_CPU(bool [4], walking);	/* by interrupt_context_level() */

static __always_inline bool room(unsigned long sp)
{
	/* From another stack it is far to the end of this one, or farther, and that is fine. */
	return sp - (unsigned long)task_stack_page(current) >= KI_WALK_ROOM;
}

/*
 * Called by what stands behind the loads, with the registers that are known at the
 * point. Returns how many of n addresses were found, 0: it was not looked for any.
 */
notrace __kprobes unsigned long ki_walk(struct pt_regs *regs, unsigned long *to, unsigned int n)
{
	unsigned long got = 0;
	bool *busy;

	preempt_disable_notrace();
	busy = &(*this_cpu_ptr(&walking))[interrupt_context_level()];
	if (!*busy && room((unsigned long)regs)) {
		*busy = true;
		barrier();
		got = stack_trace_save_regs(regs, to, n, 0);
		barrier();
		*busy = false;
	}
	/*
	 * preempt_enable_notrace() would give the CPU away where that was asked for
	 * meanwhile: with the flags of the point (user memory may be open, between stac
	 * and clac), and by a function that may be spliced with a walk, too, which would
	 * end in itself. So that waits for the next interrupt.
	 */
	barrier();
	if (IS_ENABLED(CONFIG_PREEMPT_COUNT))
		__preempt_count_sub(1);
	return got;
}
