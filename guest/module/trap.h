/* SPDX-License-Identifier: GPL-2.0 */
/* trap.h - the look-up of trap.c, for who is on the way from a breakpoint to its patch. */
#ifndef _KERNINST_TRAP_H
#define _KERNINST_TRAP_H

#include <linux/hashtable.h>

#include "kerninst_mod.h"

/* Four to a list, of a batch of nothing else. */
#define KI_TRAP_BITS 12

extern DECLARE_HASHTABLE(ki_traps, KI_TRAP_BITS);

/* Where a breakpoint leads; 0: it is not ours. With interrupts off. */
static __always_inline unsigned long ki_trap_to(unsigned long at)
{
	const struct ki_trap *t;

	hash_for_each_possible_rcu_notrace(ki_traps, t, node, at)
		if (t->at == at)
			return t->to;
	return 0;
}

#endif /* _KERNINST_TRAP_H */
