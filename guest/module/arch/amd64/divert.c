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
 * Who meets a breakpoint of ours:
 *
 *   Any context, NMI included: the kernel's handler runs with interrupts off and
 *     makes RCU watch before it calls notifiers. Nothing in here takes a lock.
 *   Code on the handler's own way: would meet the breakpoint again, and again. Most of
 *     it is NOKPROBE or noinstr, where nothing is spliced. The rest is listed below,
 *     and a tracepoint leads out of it, to whatever its probes run: while that is
 *     enabled, nothing is diverted. (Who enables it while somebody waits here is not
 *     kept from it: that takes jump_label_mutex, inside of which CPUs cannot be kept
 *     from coming and going, and tasks-RCU waits for who does that.)
 *   A CPU that met one which is gone when it looks: none. Breakpoints are looked
 *     up with interrupts off from the moment they are met, and entries stay until
 *     every CPU has taken an interrupt since the byte was replaced.
 *   A kprobe that is being stepped: the kernel's kprobes are asked first and do not
 *     know the address; what they remember of the one they are at stays as it is.
 */
#include <linux/hashtable.h>
#include <linux/kallsyms.h>
#include <linux/kdebug.h>
#include <linux/kprobes.h>
#include <linux/ptrace.h>
#include <linux/string.h>
#include <linux/tracepoint-defs.h>

#include <asm/text-patching.h>

#include "internals.h"
#include "kerninst_mod.h"

/*
 * What notify_die() runs that a kprobe may be in (kernel/notifier.c, kernel/rcu/tree_plugin.h:
 * in a handler that nests like an NMI's, the third returns at once).
 */
static const char *const on_the_way[] = {
	"__rcu_read_lock", "__rcu_read_unlock", "rcu_read_unlock_special",
};

bool ki_arch_divertible(unsigned long addr)
{
	char name[KSYM_NAME_LEN];
	u32 i;

	if (lookup_symbol_name(addr, name))
		return true;	/* not the kernel's */
	for (i = 0; i < ARRAY_SIZE(on_the_way); i++)
		if (!strncmp(name, on_the_way[i], strlen(on_the_way[i])))
			return false;
	return true;
}

/* A batch is at most 16384: sixteen to a list. */
static DEFINE_HASHTABLE(diversions, 10);

static int on_int3(struct notifier_block *nb, unsigned long why, void *data)
{
	struct pt_regs *regs = ((struct die_args *)data)->regs;
	const struct ki_diversion *d;
	unsigned long at;

	if (why != DIE_INT3 || user_mode(regs))
		return NOTIFY_DONE;
	at = regs->ip - INT3_INSN_SIZE;
	hash_for_each_possible_rcu(diversions, d, node, at) {
		if (d->at == at) {
			regs->ip = d->to;
			return NOTIFY_STOP;
		}
	}
	return NOTIFY_DONE;
}
NOKPROBE_SYMBOL(on_int3);

/* Behind kprobes, which are asked on their own, and before debuggers. */
static struct notifier_block int3_notifier = {
	.notifier_call = on_int3,
	.priority = INT_MAX - 1,
};

const bool ki_arch_diverts = true;

int ki_arch_divert_init(void)
{
	return register_die_notifier(&int3_notifier);
}

void ki_arch_divert_exit(void)
{
	unregister_die_notifier(&int3_notifier);
}

int ki_arch_divert(struct ki_poke *p, u32 n, u32 *failed)
{
	static const u8 int3 = INT3_INSN_OPCODE;
	u32 i;

	if (static_key_enabled(&__tracepoint_notifier_run.key)) {
		*failed = p[0].index;
		return -EBUSY;
	}
	for (i = 0; i < n; i++) {
		if (p[i].window && memcmp(p[i].addr, p[i].from, p[i].len)) {
			*failed = p[i].index;
			return -EILSEQ;
		}
	}
	for (i = 0; i < n; i++) {
		if (!p[i].window)
			continue;
		p[i].window->at = (unsigned long)p[i].addr;
		p[i].window->to = p[i].patch;
		hash_add_rcu(diversions, &p[i].window->node, p[i].window->at);
		text_poke(p[i].addr, &int3, INT3_INSN_SIZE);
	}
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
			hash_del_rcu(&p[i].window->node);
}
