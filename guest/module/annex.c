// SPDX-License-Identifier: GPL-2.0
/*
 * annex.c - patch memory in the module's own text, for displaced instructions
 * whose faults have a fixup.
 *
 * The kernel looks a faulting address up in its own exception table and in that
 * of the module whose memory it lies in (kernel/extable.c). Areas are no
 * module's memory; this is. Each such splice adds an entry to the module's
 * table, with the address that the instruction has in its patch and with the
 * type, the data and the fixup of the original: who faults in the patch goes on
 * where he would have gone on without it. Where the kernel wants the fixup to be
 * the next instruction, it is that of the patch, which leads there, too.
 *
 * The table. Fault handlers search it by halves at any time, on any CPU, in
 * interrupts and NMIs. So a table in use never changes. There are two, of
 * constant length; the other one is filled, in order, and becomes the module's
 * by one store. It is filled again only after a grace period, which every
 * search ends before (search_module_extables keeps preemption off). But the
 * handler reads what was found behind that (fixup_exception), and where the
 * kernel preempts itself it may be preempted there, being in no reader: so
 * tasks-RCU is waited for there, as nobody sleeps between the two. Entries that
 * are not needed repeat the last one.
 */
#include <linux/extable.h>
#include <linux/init.h>
#include <linux/module.h>
#include <linux/rcupdate.h>
#include <linux/string.h>
#include <linux/stringify.h>

#include <asm/extable.h>	/* linux/extable.h only declares the entry */

#ifdef CONFIG_BPF_JIT
#include <linux/bpf.h>
#include <linux/filter.h>
#endif

#include "internals.h"
#include "kerninst_mod.h"

#define OWN_MAX	64u	/* entries that the module is built with */
#define TOTAL	(KI_ANNEX_FAULTS + OWN_MAX)

/*
 * Pages of their own, so that no other code is in them. Nothing leads here. The
 * kernel bars probes from the section. Behind the annex, where the ISA has one, lies
 * the arena: patch memory for what cannot fault, in the module's text for the sake
 * of who walks up a stack.
 */
asm(".pushsection .kprobes.text, \"ax\"\n"
    ".balign 4096\n"
    "ki_annex:\n"
    ".fill " __stringify(KI_ANNEX_LEN) " / 4, 4, " KI_ARCH_TRAPS "\n"
    ".if " __stringify(KI_ARCH_ARENA) "\n"
    "kerninst_patches:\n"	/* what backtraces show */
    ".fill " __stringify(KI_ARCH_ARENA) " / 4, 4, " KI_ARCH_TRAPS "\n"
    ".endif\n"
    ".popsection\n");

extern char ki_annex[];

/* Copied: the table that it is from goes with its module, and a patch may stay. */
struct fault {
	unsigned long insn, fixup;
	struct exception_table_entry like;	/* its type and data */
};

static struct fault faults[TOTAL];	/* by address */
static u32 fault_count;
static struct exception_table_entry tables[2][TOTAL];
static u32 in_use;
static bool stale;		/* the table in use is not what faults says */

static unsigned long insn_of(const struct exception_table_entry *e)
{
	return (unsigned long)&e->insn + e->insn;
}

static unsigned long fixup_of(const struct exception_table_entry *e)
{
	return (unsigned long)&e->fixup + e->fixup;
}

unsigned long ki_annex_addr(void)
{
	return (unsigned long)ki_annex;
}

unsigned long ki_arena_addr(void)
{
	return (unsigned long)ki_annex + KI_ANNEX_LEN;
}

bool ki_annex_has(unsigned long addr)
{
	return addr - (unsigned long)ki_annex < KI_ANNEX_LEN;
}

static u32 position(unsigned long insn)
{
	u32 k = 0;

	while (k < fault_count && faults[k].insn < insn)
		k++;
	return k;
}

static int add(unsigned long insn, unsigned long fixup, const struct exception_table_entry *like)
{
	u32 k = position(insn);

	if (fault_count == TOTAL)
		return -ENOSPC;
	if (k < fault_count && faults[k].insn == insn)
		return -EEXIST;
	memmove(&faults[k + 1], &faults[k], (fault_count - k) * sizeof(faults[0]));
	faults[k] = (struct fault){ insn, fixup, *like };
	fault_count++;
	stale = true;
	return 0;
}

bool ki_annex_own(unsigned long addr, unsigned long len)
{
	return addr - (unsigned long)ki_annex < KI_ANNEX_LEN + KI_ARCH_ARENA &&
	       addr - (unsigned long)ki_annex + len <= KI_ANNEX_LEN + KI_ARCH_ARENA;
}

static int add_like(unsigned long insn, unsigned long original, unsigned long to)
{
	const struct exception_table_entry *like = search_exception_tables(original);
	unsigned long fixup;

	if (!like || insn_of(like) != original)
		return -EINVAL;
	fixup = to ? to : fixup_of(like);
	if (!to && KI_ARCH_FIXUP_IS_NEXT(like))
		fixup += insn - original;
	if (to && KI_ARCH_FIXUP_IS_NEXT(like) && to - insn != fixup_of(like) - original)
		return -EINVAL;
	if (!ki_in_reach(fixup, tables, sizeof(tables)) || !ki_in_reach(insn, tables, sizeof(tables)))
		return -ERANGE;
	return add(insn, fixup, like);
}

/* Whose entry it is may be a module that goes meanwhile, if nothing is spliced in it yet: free_module() waits for RCU. */
int ki_annex_add(unsigned long insn, unsigned long original, unsigned long to)
{
	int err;

	preempt_disable();
	err = add_like(insn, original, to);
	preempt_enable();
	return err;
}

/* Nobody can be at the instruction any more. */
void ki_annex_remove(unsigned long insn)
{
	u32 k = position(insn);

	if (k == fault_count || faults[k].insn != insn)
		return;
	fault_count--;
	memmove(&faults[k], &faults[k + 1], (fault_count - k) * sizeof(faults[0]));
	stale = true;
}

void ki_annex_remove_all(unsigned long addr, unsigned long len)
{
	u32 k = position(addr);

	while (k < fault_count && faults[k].insn - addr < len)
		ki_annex_remove(faults[k].insn);
}

/*
 * Code outside the module's text is a program of BPF's to the kernel, all of it the same, which has
 * the same table (search_bpf_extables() in kernel/bpf/core.c, with the same readers).
 */
#ifdef CONFIG_BPF_JIT
static struct bpf_prog_aux served;
static struct bpf_prog serving = { .aux = &served };

void ki_annex_serves(struct bpf_prog_aux *aux)
{
	aux->prog = &serving;
}

static void serve(struct exception_table_entry *t)
{
	smp_store_release(&served.extable, t);
	WRITE_ONCE(served.num_exentries, TOTAL);
}
#else
static void serve(struct exception_table_entry *t) { }
#endif

static void fill(struct exception_table_entry *t)
{
	const struct fault *f;
	u32 k;

	for (k = 0; k < TOTAL; k++, t++) {
		f = &faults[min(k, fault_count - 1)];
		*t = f->like;
		t->insn = f->insn - (unsigned long)&t->insn;
		t->fixup = f->fixup - (unsigned long)&t->fixup;
	}
}

/* Before anything leads to the patches of what was added. May sleep. */
void ki_annex_publish(void)
{
	if (!stale || !fault_count)
		return;
	if (THIS_MODULE->extable == tables[in_use]) {	/* not the loader's any more */
		synchronize_rcu_expedited();
		if (IS_ENABLED(CONFIG_PREEMPTION))
			synchronize_rcu_tasks();
	}
	in_use = !in_use;
	fill(tables[in_use]);
	smp_store_release(&THIS_MODULE->extable, tables[in_use]);
	WRITE_ONCE(THIS_MODULE->num_exentries, TOTAL);
	serve(tables[in_use]);
	stale = false;
}

/*
 * The module's own entries, which the loader has sorted, go along. Published here,
 * when nobody can fault in the module yet: from now on only one of the two words
 * that the kernel reads, table and length, ever changes.
 */
int ki_annex_init(void)
{
	const struct exception_table_entry *e = THIS_MODULE->extable;
	u32 k;
	int err;

	for (k = 0; k < THIS_MODULE->num_exentries; k++) {
		err = k < OWN_MAX ? add(insn_of(&e[k]), fixup_of(&e[k]), &e[k]) : -E2BIG;
		if (err)
			return err;
	}
	ki_annex_publish();
	return 0;
}
