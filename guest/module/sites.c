// SPDX-License-Identifier: GPL-2.0
/*
 * sites.c - places in the kernel's own text that are never spliced: those that
 * the kernel rewrites while it runs, and those where it allows no probe.
 *
 * The kernel answers both questions by walking its tables from end to end:
 * some 300,000 instructions for one address. The tables of the image never
 * change after boot, so they are copied once, sorted by address, and searched.
 * Text of modules comes and goes; for that the kernel is asked.
 */
#include <linux/bsearch.h>
#include <linux/ftrace.h>
#include <linux/jump_label.h>
#include <linux/kallsyms.h>
#include <linux/kprobes.h>
#include <linux/slab.h>
#include <linux/sort.h>
#include <linux/stringhash.h>

#include "faults.h"
#include "internals.h"
#include "kerninst_mod.h"

/* Longest of all sites, in bytes: a call or jump with a 32-bit displacement. */
#define SITE_MAX 5

struct ban {
	unsigned long start, end;
};

static unsigned long *sites;
static u32 site_count;
static struct ban *banned;	/* in order, none overlaps another */
static u32 banned_count;

static int by_value(const void *a, const void *b)
{
	unsigned long x = *(unsigned long *)a, y = *(unsigned long *)b;

	return x < y ? -1 : x > y;
}

static int copy_sites(void)
{
	struct jump_entry *e, *end = (struct jump_entry *)ki_marks.jump_end;
	struct jump_entry *start = (struct jump_entry *)ki_marks.jump_table;
	u32 n = end - start, more = ki_arch_sites(NULL);

	sites = ki_try(kvcalloc(n + more, sizeof(*sites), GFP_KERNEL));
	if (!sites)
		return -ENOMEM;
	for (e = start; e < end; e++)
		sites[site_count++] = jump_entry_code(e);
	site_count += ki_arch_sites(sites + site_count);
	sort(sites, site_count, sizeof(*sites), by_value, NULL);
	return 0;
}

static int by_start(const void *a, const void *b)
{
	return by_value(&((const struct ban *)a)->start, &((const struct ban *)b)->start);
}

/* A function may be banned by itself, and with its section. */
static void join_banned(void)
{
	u32 i, n = 0;

	sort(banned, banned_count, sizeof(*banned), by_start, NULL);
	for (i = 0; i < banned_count; i++) {
		if (n && banned[i].start <= banned[n - 1].end)
			banned[n - 1].end = max(banned[n - 1].end, banned[i].end);
		else
			banned[n++] = banned[i];
	}
	banned_count = n;
}

static int copy_banned(void)
{
	struct kprobe_blacklist_entry *b;
	u32 n = 0;
	int err = 0;

	mutex_lock(&kprobe_mutex);
	list_for_each_entry(b, &kprobe_blacklist, list)
		n++;
	banned = ki_try(kvcalloc(n, sizeof(*banned), GFP_KERNEL));
	if (banned)
		list_for_each_entry(b, &kprobe_blacklist, list)
			banned[banned_count++] = (struct ban){ b->start_addr, b->end_addr };
	else
		err = -ENOMEM;
	mutex_unlock(&kprobe_mutex);
	join_banned();
	return err;
}

/* Does a site lie in [first, last], or reach into it? */
static bool site_in(unsigned long first, unsigned long last)
{
	u32 lo = 0, hi = site_count, mid;

	while (lo < hi) {
		mid = lo + (hi - lo) / 2;
		if (sites[mid] < first - SITE_MAX + 1)
			lo = mid + 1;
		else
			hi = mid;
	}
	for (; lo < site_count && sites[lo] <= last; lo++)
		if (sites[lo] >= first || sites[lo] + ki_arch_site_len(sites[lo]) > first)
			return true;
	return false;
}

/* ftrace sorts its records and searches them; no copy needed. What marks a site is told where it is. */
bool ki_ftrace_owns(unsigned long first, unsigned long last)
{
	unsigned long at;

	if (ftrace_text_reserved((void *)first, (void *)last))
		return true;
	for (at = first - KI_LANDING_LEN + 1; at <= last; at++)
		if (ki_arch_landing(at) &&
		    ftrace_text_reserved((void *)at + KI_LANDING_LEN, (void *)at + KI_LANDING_LEN))
			return true;
	return false;
}

bool ki_core_rewritten(unsigned long first, unsigned long last)
{
	return site_in(first, last) || ki_ftrace_owns(first, last);
}

static bool in_banned(unsigned long addr)
{
	u32 lo = 0, hi = banned_count, mid;

	while (lo < hi) {
		mid = lo + (hi - lo) / 2;
		if (banned[mid].end <= addr)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo < banned_count && banned[lo].start <= addr;
}

/* In the kernel's list, whoever put it there but this module. Under kprobe_mutex. */
static bool in_list(unsigned long addr)
{
	struct kprobe_blacklist_entry *b;

	list_for_each_entry(b, &kprobe_blacklist, list)
		if (b->start_addr <= addr && addr < b->end_addr && !ki_barred_here(b))
			return true;
	return false;
}

/*
 * Hashes of the names of banned functions. To look a name up that the kernel does not have takes a
 * comparison with each symbol of each module, and in a dense batch counters are in those.
 */
static unsigned long *names;
static u32 name_count;

static unsigned long name_hash(const char *name)
{
	return full_name_hash(NULL, name, strlen(name));
}

/* Hashes them, the first into `to`, as many as have room, and says how many there are. */
static u32 hash_names(unsigned long *to, u32 room)
{
	char name[KSYM_NAME_LEN];
	unsigned long at, size, off;
	u32 i, n = 0;

	for (i = 0; i < banned_count; i++)
		for (at = banned[i].start; at < banned[i].end; at += max(size - off, 1ul)) {
			if (!kallsyms_lookup_size_offset(at, &size, &off))
				break;
			if (n < room && !lookup_symbol_name(at, name))
				to[n] = name_hash(name);
			n++;
		}
	return n;
}

static int copy_names(void)
{
	u32 room;

	do {	/* modules come and go meanwhile */
		kvfree(names);
		room = hash_names(NULL, 0);
		names = ki_try(kvcalloc(room, sizeof(*names), GFP_KERNEL));
		if (!names)
			return -ENOMEM;
		name_count = hash_names(names, room);
	} while (name_count > room);
	sort(names, name_count, sizeof(*names), by_value, NULL);
	return 0;
}

static bool may_be_banned(const char *name)
{
	unsigned long hash = name_hash(name);

	return bsearch(&hash, names, name_count, sizeof(*names), by_value);
}

/*
 * A part that the compiler split off (foo.cold) is banned with its function, as in
 * within_kprobe_blacklist(). That itself is not believed: by now splices of ours are in the
 * kernel's list, and one at the begin of foo would ban all foo.constprop.0 that there are,
 * whichever files they are of.
 */
static bool banned_by(unsigned long addr, bool (*in)(unsigned long))
{
	char name[KSYM_NAME_LEN], *suffix;

	if (arch_within_kprobe_blacklist(addr) || in(addr))
		return true;
	if (lookup_symbol_name(addr, name))
		return false;
	suffix = strchr(name, '.');
	if (!suffix)
		return false;
	*suffix = '\0';
	if (in == in_banned && !may_be_banned(name))
		return false;
	addr = kallsyms_lookup_name(name);
	return addr && in(addr);
}

bool ki_core_banned(unsigned long addr)
{
	return banned_by(addr, in_banned);
}

int ki_sites_init(void)
{
	int err = copy_sites();

	if (!err)
		err = copy_banned();
	if (!err)
		err = copy_names();
	if (err)
		ki_sites_exit();
	return err;
}

void ki_sites_exit(void)
{
	kvfree(sites);
	kvfree(banned);
	kvfree(names);
}

/* The kernel's answer is no more often than not, and quick: it has nothing of ours to tell apart. */
bool ki_module_banned(unsigned long addr)
{
	bool yes;

	mutex_lock(&kprobe_mutex);
	yes = within_kprobe_blacklist(addr) && banned_by(addr, in_list);
	mutex_unlock(&kprobe_mutex);
	return yes;
}
