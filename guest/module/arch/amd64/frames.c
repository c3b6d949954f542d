// SPDX-License-Identifier: GPL-2.0
/*
 * amd64: what the kernel's unwinder finds for code in the annex and in the arena.
 *
 * Who walks up a stack looks each address up in a table (ORC,
 * Documentation/arch/x86/orc-unwinder.rst): the kernel's for the kernel's text, a
 * module's for its text. An entry holds from its address to the next one's and says
 * where the caller's frame is, mostly so many bytes above the stack pointer. In a patch
 * that is what it is at the instruction that the kernel would be at, and as much more
 * as has been pushed since.
 *
 * The table. Walks are made at any time, on any CPU, in interrupts and NMIs, and search
 * it by halves. It is the module's from its init on and has a constant length: the
 * module's own entries, and KI_LINE_FRAMES for each KI_LINE bytes in between. Those
 * change in place, while nobody is in the code that they are about:
 *
 *   - a search for an address elsewhere compares with addresses of the line. Whatever
 *     it finds of the old and the new ones, they are in the line: it goes the same way;
 *   - a search for an address in the line comes of a word that looks like one, and finds
 *     something between the old and the new. It ends in a wrong guess at worst, as such a
 *     word does anyhow: the unwinder reads within the stack.
 *
 * Entries that a line does not need repeat its last one.
 */
#include <linux/build_bug.h>
#include <linux/init.h>
#include <linux/module.h>
#include <linux/rcupdate.h>
#include <linux/sched.h>

#include <asm/orc_types.h>

#include "internals.h"
#include "kerninst_mod.h"

#define LINES	((KI_ANNEX_LEN + KI_ARCH_ARENA) / KI_LINE)
#define OWN_MAX	8192u	/* entries that the module is built with */

static int ki_orc_addrs[LINES * KI_LINE_FRAMES + OWN_MAX];	/* relative to themselves */
static struct orc_entry ki_orc_entries[ARRAY_SIZE(ki_orc_addrs)];
static u32 ki_orc_first;	/* where the annex's first line has its entries */

static const struct orc_entry nothing;	/* walks end here */

/* Neither constant nor this file's alone, so that it stays data: see ki_marks. */
struct ki_orc_table {
	const int *addrs, *addrs_end;
	const struct orc_entry *entries, *entries_end;
} ki_orc_kernel = {
	__start_orc_unwind_ip, __stop_orc_unwind_ip, __start_orc_unwind, __stop_orc_unwind,
};

static unsigned long addr_of(const int *a)
{
	return (unsigned long)a + *a;
}

/* The last entry of n whose address is not above. */
static struct orc_entry find(const int *a, const struct orc_entry *e, u32 n, unsigned long addr)
{
	u32 lo = 0, hi = n, mid;

	while (lo < hi) {
		mid = lo + (hi - lo) / 2;
		if (addr_of(&a[mid]) <= addr)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo ? e[lo - 1] : nothing;
}

static struct orc_entry original(unsigned long addr)
{
	struct orc_entry e = nothing;
	struct module *mod;

	if (core_kernel_text(addr))
		return find(ki_orc_kernel.addrs, ki_orc_kernel.entries,
			    ki_orc_kernel.addrs_end - ki_orc_kernel.addrs, addr);
	preempt_disable();	/* __module_text_address() walks modules under RCU */
	mod = __module_text_address(addr);
	if (mod)
		e = find(mod->arch.orc_unwind_ip, mod->arch.orc_unwind, mod->arch.num_orcs, addr);
	preempt_enable();
	return e;
}

/* Which registers have been pushed, and changed since, is only said of rbp. */
static struct orc_entry entry_of(const struct ki_frame *f)
{
	struct orc_entry e = original(f->orig);
	bool saved = f->bp != KI_BP_KEPT;

	switch (e.sp_reg) {
	case ORC_REG_SP:
		e.sp_offset += f->down;
		break;
	case ORC_REG_BP:
	case ORC_REG_BP_INDIRECT:
		if (saved)
			return nothing;
		break;
	default:	/* other registers, or the very word at the stack pointer */
		if (f->down)
			return nothing;
	}
	if (saved && (e.bp_reg == ORC_REG_BP || e.type != ORC_TYPE_CALL))
		return nothing;
	if (saved && e.bp_reg == ORC_REG_UNDEFINED && e.sp_reg == ORC_REG_SP) {
		e.bp_reg = ORC_REG_PREV_SP;
		e.bp_offset = f->bp - e.sp_offset;
	}
	return e;
}

static void set(u32 k, unsigned long addr, struct orc_entry e)
{
	ki_orc_entries[k] = e;
	WRITE_ONCE(ki_orc_addrs[k], (int)(addr - (unsigned long)&ki_orc_addrs[k]));
}

/* What is said of a line; begins with what holds at its first byte. */
struct line {
	u32 k;		/* the next of its entries */
	u32 end;
};

static struct line line_at(unsigned long addr)
{
	u32 k = ki_orc_first + (addr - ki_annex_addr()) / KI_LINE * KI_LINE_FRAMES;

	return (struct line){ k, k + KI_LINE_FRAMES };
}

static void say(struct line *l, unsigned long addr, struct orc_entry e)
{
	set(l->k++, addr, e);
}

static void fill_up(struct line *l, unsigned long addr, struct orc_entry e)
{
	while (l->k < l->end)
		say(l, addr, e);
}

/*
 * Lines are whole: with frames, code begins with one, and behind its end in the last
 * one is nothing.
 */
void ki_arch_frames(unsigned long addr, unsigned long len, const struct ki_frame *f, u32 n)
{
	unsigned long base = round_down(addr, KI_LINE), end = addr + len, at, from;
	struct orc_entry e = nothing;
	struct line l;

	if (addr < ki_annex_addr() || end > ki_arena_addr() + KI_ARCH_ARENA)
		return;
	for (at = base; at < end; at += KI_LINE) {
		l = line_at(at);
		from = at;
		say(&l, at, e);
		for (; n && addr + f->off < at + KI_LINE; f++, n--) {
			e = entry_of(f);
			from = addr + f->off;
			say(&l, from, e);
		}
		if (end < at + KI_LINE) {
			e = nothing;
			from = end;
		}
		fill_up(&l, from, e);
		cond_resched();
	}
}

/* The module's own entries from k on, up to an address, and where ours go on. */
static u32 copy_own(u32 *to, u32 k, unsigned long end)
{
	const struct mod_arch_specific *own = &THIS_MODULE->arch;

	for (; k < own->num_orcs && addr_of(&own->orc_unwind_ip[k]) < end; k++, (*to)++)
		set(*to, addr_of(&own->orc_unwind_ip[k]), own->orc_unwind[k]);
	return k;
}

static void build(u32 *n)
{
	unsigned long end = ki_arena_addr() + KI_ARCH_ARENA;
	struct orc_entry behind = original(end);
	u32 to = 0, own;

	own = copy_own(&to, 0, ki_annex_addr());
	ki_orc_first = to;
	to += LINES * KI_LINE_FRAMES;
	*n = to;
	ki_arch_frames(ki_annex_addr(), end - ki_annex_addr(), NULL, 0);
	while (own < THIS_MODULE->arch.num_orcs &&
	       addr_of(&THIS_MODULE->arch.orc_unwind_ip[own]) < end)
		own++;
	set((*n)++, end, behind);
	copy_own(n, own, ULONG_MAX);
}

/*
 * A walk reads three words, in any order: so the length is none while the others
 * change, and walks that have read it before have ended by then (they are under RCU).
 * Meanwhile walks find nothing about the module, of which only this runs.
 */
static void publish(u32 n)
{
	struct mod_arch_specific *own = &THIS_MODULE->arch;

	WRITE_ONCE(own->num_orcs, 0);
	synchronize_rcu_expedited();
	WRITE_ONCE(own->orc_unwind_ip, ki_orc_addrs);
	WRITE_ONCE(own->orc_unwind, ki_orc_entries);
	synchronize_rcu_expedited();
	WRITE_ONCE(own->num_orcs, n);
}

int __init ki_arch_frames_init(void)
{
	u32 n;

	BUILD_BUG_ON(KI_ANNEX_LEN % KI_LINE || KI_ARCH_ARENA % KI_LINE);
	BUILD_BUG_ON(KI_ARCH_ARENA != KI_ARENA_LEN);
	if (ki_orc_kernel.addrs_end <= ki_orc_kernel.addrs ||
	    ki_orc_kernel.addrs_end - ki_orc_kernel.addrs != ki_orc_kernel.entries_end - ki_orc_kernel.entries) {
		pr_err(KI_NAME ": the loader gave a bound of the unwinder's tables a wrong address\n");
		return -ENOEXEC;
	}
	if (THIS_MODULE->arch.num_orcs >= OWN_MAX)
		return -E2BIG;
	build(&n);
	publish(n);
	return 0;
}
