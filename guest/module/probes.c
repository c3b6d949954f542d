// SPDX-License-Identifier: GPL-2.0
/*
 * probes.c - where the kernel's kprobes are, and what text is without them.
 *
 * All with kprobe_mutex held: who adds, arms, optimises or takes away a probe has it.
 */
#include <linux/kallsyms.h>
#include <linux/kprobes.h>
#include <linux/mm.h>
#include <linux/slab.h>
#include <linux/log2.h>
#include <linux/sort.h>
#include <linux/uaccess.h>

#include "faults.h"
#include "internals.h"
#include "kerninst_mod.h"
#include "probes.h"

static int by_address(const void *a, const void *b)
{
	unsigned long x = *(unsigned long *)a, y = *(unsigned long *)b;

	return x < y ? -1 : x > y;
}

/*
 * The kernel's table, 1 << KPROBE_HASH_BITS buckets (kernel/kprobes.c, which keeps that to itself): how
 * long it is, only its symbol says, whose size is what lies up to the next one. With KASAN there is a
 * redzone behind it.
 */
static u32 probe_buckets(void)
{
	unsigned long size = 0, off;

	kallsyms_lookup_size_offset((unsigned long)kprobe_table, &size, &off);
	size /= sizeof(kprobe_table[0]);
	return size ? rounddown_pow_of_two(size) : 0;
}

bool ki_count_probes(struct ki_probes *all)
{
	u32 buckets = probe_buckets(), i;
	struct kprobe *p;

	all->n = 0;
	for (i = 0; i < buckets; i++) {
		hlist_for_each_entry(p, &kprobe_table[i], hlist) {
			if (get_kprobe(p->addr) != p)
				return false;
			if (all->n < all->room)
				all->at[all->n] = (unsigned long)p->addr;
			all->n++;
		}
	}
	return true;
}

int ki_list_probes(struct ki_probes *all)
{
	lockdep_assert_held(&kprobe_mutex);
	*all = (struct ki_probes){ };
	if (!ki_count_probes(all))
		return -EPROTO;
	if (!all->n)
		return 0;
	all->room = all->n;
	all->at = ki_try(kvcalloc(all->room, sizeof(*all->at), GFP_KERNEL));
	if (!all->at)
		return -ENOMEM;
	ki_count_probes(all);
	sort(all->at, all->n, sizeof(*all->at), by_address, NULL);
	return 0;
}

bool ki_probed(const struct ki_probes *all, unsigned long start, unsigned long end)
{
	u32 lo = 0, hi = all->n, mid;

	while (lo < hi) {
		mid = lo + (hi - lo) / 2;
		if (all->at[mid] < start)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo < all->n && all->at[lo] < end;
}

bool ki_probed_now(unsigned long start, unsigned long end)
{
	u32 buckets = probe_buckets(), i;
	struct kprobe *p;

	lockdep_assert_held(&kprobe_mutex);
	for (i = 0; i < buckets; i++)
		hlist_for_each_entry(p, &kprobe_table[i], hlist)
			if ((unsigned long)p->addr >= start && (unsigned long)p->addr < end)
				return true;
	return false;
}

/* May bytes of a probe be in [addr, addr + len)? */
static bool near(const struct kprobe *p, unsigned long addr, unsigned long len)
{
	unsigned long at = (unsigned long)p->addr;

	return at + KI_PROBE_MAX > addr && at < addr + len;
}

/*
 * Puts what one probe has replaced into text, which was read at addr. Of a probe on its way
 * there or back, nothing or all of it stands: text_mutex is held, too. What was there is
 * taken from the probe only where its own bytes are; one of an ftrace site has none, and of
 * one whose module goes the text may be gone.
 */
static void unprobe_one(const struct kprobe *p, u8 *text, unsigned long addr, unsigned long len)
{
	unsigned long at = (unsigned long)p->addr;
	u8 now[KI_PROBE_MAX] = { }, old[KI_PROBE_MAX];
	u32 i, n;

	if (p->flags & (KPROBE_FLAG_FTRACE | KPROBE_FLAG_GONE))
		return;
	/* Text may end there, with its page. */
	if (copy_from_kernel_nofault(now, p->addr, sizeof(now)) &&
	    copy_from_kernel_nofault(now, p->addr, min(sizeof(now), PAGE_SIZE - offset_in_page(at))))
		return;
	n = ki_arch_unprobe(p, now, old);
	for (i = 0; i < n; i++)
		if (at + i >= addr && at + i < addr + len)
			text[at + i - addr] = old[i];
}

int ki_unprobe(void *text, unsigned long addr, unsigned long len)
{
	u32 buckets = probe_buckets(), i;
	struct kprobe *p;

	lockdep_assert_held(&kprobe_mutex);
	for (i = 0; i < buckets; i++) {
		hlist_for_each_entry(p, &kprobe_table[i], hlist) {
			if (!near(p, addr, len))
				continue;
			if (get_kprobe(p->addr) != p)
				return -EPROTO;
			unprobe_one(p, text, addr, len);
		}
	}
	return 0;
}

bool ki_probe_queued(void)
{
	u32 buckets = probe_buckets(), i;
	struct kprobe *p;

	lockdep_assert_held(&kprobe_mutex);
	for (i = 0; i < buckets; i++)
		hlist_for_each_entry(p, &kprobe_table[i], hlist)
			if (ki_arch_queued(p))
				return true;
	return false;
}
