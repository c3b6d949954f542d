// SPDX-License-Identifier: GPL-2.0
/*
 * divert.c - windows, of which one jump replaces several instructions (djprobe,
 * "Djprobe: a jump-based probe", section on safe replacement): before the jump may
 * be written, nobody may be between two of them, and nobody may come there while
 * one waits for the last to leave. So a breakpoint stands at the first byte
 * meanwhile, and whoever comes to it is sent to the patch, which is complete.
 *
 *   divert     every window of the batch compared, then a breakpoint at each, then
 *              every CPU serialised: from here on nobody enters any
 *   quiesce    by the caller, without locks: whoever was inside goes on and leaves.
 *              A task sleeps inside none: a call is its window's last instruction and
 *              what may wait for a fault its first (agent/plan)
 *   poke       the jump, by the kernel's own steps, whose breakpoint is at the same
 *              byte and sends whoever meets it to the same patch
 *   undivert   the first byte of those that were not written; every CPU serialised
 *
 * Who meets a breakpoint of ours: trap.c.
 */
#include <linux/string.h>

#include "internals.h"
#include "kerninst_mod.h"

const bool ki_arch_diverts = true;

int ki_arch_divert(struct ki_poke *p, u32 n, u32 *failed)
{
	static const u8 int3 = INT3_INSN_OPCODE;
	int err = 0;
	u32 i;

	for (i = 0; i < n && !err; i++) {
		if (!p[i].window)
			continue;
		*failed = p[i].index;
		if (memcmp(p[i].addr, p[i].from, p[i].len))
			err = -EILSEQ;
		else
			err = ki_trap_add(p[i].window, (unsigned long)p[i].addr, p[i].patch);
	}
	if (err) {	/* nothing is written */
		for (i--; i--;)
			if (p[i].window)
				ki_trap_remove(p[i].window);
		return err;
	}
	for (i = 0; i < n; i++)
		if (p[i].window)
			text_poke(p[i].addr, &int3, INT3_INSN_SIZE);
	text_poke_sync();
	return 0;
}

void ki_arch_undivert(struct ki_poke *p, u32 n)
{
	u32 i;

	for (i = 0; i < n; i++)
		if (p[i].window && *(u8 *)p[i].addr == INT3_INSN_OPCODE)
			text_poke(p[i].addr, p[i].from, INT3_INSN_SIZE);
	text_poke_sync();
	for (i = 0; i < n; i++)
		if (p[i].window)
			ki_trap_remove(p[i].window);
}
