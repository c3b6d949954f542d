// SPDX-License-Identifier: GPL-2.0
/*
 * text.c - splices: admitted, written, remembered, undone, and their patches
 * kept until nobody can be inside.
 *
 * A splice goes through four states:
 *
 *   admitted  in the trees and in the kernel's kprobe blacklist, nothing
 *             written: no new probe can come to these bytes
 *   live      written
 *   retired   the old bytes are back; a task may still be in the patch
 *   gone      freed
 *
 * Two trees: `points` holds the bytes that a splice occupies or depends on,
 * `patches` the code that it may send a task to. A retired splice is only in
 * the second. A patch of two parts is in it twice: whoever is in one of them may
 * yet run the other, so both are written and freed only when nobody is in either.
 *
 * kprobes. Registering one looks into the blacklist first and takes
 * kprobe_mutex later. So the order here is: blacklist, let a grace period pass
 * (whoever looked before has gone on to the mutex), take the mutex, look for
 * probes, write. A probe that slipped through all the same (its task was preempted
 * between the two, or waited for the mutex that we held) sits on the splice
 * and makes undoing it answer EBUSY until it is removed.
 *
 * With the mutex and text_mutex, the kernel reads a function from its begin to tell
 * where instructions are (can_probe(), arch_check_kprobe()). A jump and breakpoints up to
 * the end of what it displaces do not mislead it. What would is barred to probes up to
 * the function's end: a jump that is completed by what follows it, a breakpoint while a
 * window waits, and the dead bytes of what was moved away.
 */
#include <linux/cpu.h>
#include <linux/ftrace.h>
#include <linux/jump_label.h>
#include <linux/kallsyms.h>
#include <linux/kernel.h>
#include <linux/kprobes.h>
#include <linux/memory.h>
#include <linux/module.h>
#include <linux/rculist.h>
#include <linux/slab.h>
#include <linux/sort.h>
#include <linux/xarray.h>

#include "faults.h"
#include "internals.h"
#include "kerninst_mod.h"
#include "probes.h"

/* Retired patches that may wait for somebody else's quiescence. */
#define RETIRED_MAX 8192u

/* A range of patch memory, in patches. */
struct part {
	struct interval_tree_node node;
	struct live *of;
};

struct live {
	struct interval_tree_node at;	/* in points: written and operand bytes */
	struct part in;			/* where the point leads to */
	struct part annex;		/* what that leads to, if s.annex_len is not 0 */
	struct list_head link;		/* in lives, oldest first, or in retired */
	struct list_head copy;		/* in copies, if it is one */
	struct kprobe_blacklist_entry black;
	struct ki_trap trap;		/* for good, or while a window waits */
	struct ki_trap home;		/* at the patch's end, of KI_SPLICE_HOME */
	struct rcu_head rcu;		/* the blacklist is read under RCU */
	struct ki_splice s;
	struct module *owner;		/* of the point, kept loaded; NULL: the kernel. Patches
					   lead back into it, so until this is gone */
	struct live *board;		/* the springboard that the point jumps to */
	u32 users;			/* points that jump here */
	u32 leaving;			/* those of them that a call undoes */
	u32 index;			/* in the caller's list, during a call */
	u32 session;			/* whose cells the patch writes */
	bool undoing;			/* in that list */
	bool making;			/* in the batch that is being made */
	bool retired;
	bool held;			/* the last scan found a task inside */
	struct resume *resumes;		/* ascending by from */
	u32 n_resumes;
	u32 n_copied;
	struct kprobe_blacklist_entry copied[];	/* kernel text that the patch is a copy of */
};

/* As ki_resume. */
struct resume {
	unsigned long from, to;
};

static struct rb_root_cached points = RB_ROOT_CACHED;
static struct rb_root_cached patches = RB_ROOT_CACHED;
static DEFINE_XARRAY(by_id);
static LIST_HEAD(lives);
static LIST_HEAD(retired);
static LIST_HEAD(copies);		/* of lives, those that have copied functions, while no kprobe is let in there */
static u32 live_count, retired_count;
static u32 retired_faults;	/* of those, in which a task may wait for a page */
static u64 spliced, unspliced, refused, quarantined;

/* For who asks meanwhile: the device answers nobody else while a batch is written. */
static uint waiting;
module_param(waiting, uint, 0444);
MODULE_PARM_DESC(waiting, "points at which a breakpoint stands until nobody is in their windows any more");

/* --- may this be spliced? --- */

static bool all_zero(const u8 *b, u32 from)
{
	for (; from < KI_MAX_PATCH; from++)
		if (b[from])
			return false;
	return true;
}

static bool in_patch(const struct ki_splice *s, u64 addr)
{
	if (s->annex_len)
		return addr >= s->annex && addr - s->annex < s->annex_len;
	return addr >= s->patch && addr - s->patch < s->patch_len;
}

/* A part of the patch in the annex is there for what may fault, and only for that. */
static bool good_annex(const struct ki_splice *s)
{
	if (!s->annex_len)
		return !s->annex;
	return s->fault && IS_ALIGNED(s->annex, ki_arch_insn_align) &&
	       ki_annex_has(s->annex) && !ki_annex_has(s->patch);
}

/* An instruction of the annex for one at the point, or neither. */
static bool good_fault(const struct ki_splice *s)
{
	if (!s->fault)
		return !s->original;
	return in_patch(s, s->fault) &&
	       ki_annex_has(s->fault) && s->original >= s->point &&
	       s->original - s->point < KI_MAX_PATCH &&
	       !(s->flags & KI_SPLICE_SPRINGBOARD);
}

/* The longest function, or stretch of one, that is ever moved away, in bytes. */
#define SPAN_MAX 4096u

static bool good_span(const struct ki_splice *s)
{
	return !s->span ||
	       (ki_arch_moves && s->span > s->len && s->span <= SPAN_MAX && s->patch_len >= s->span && !s->fault &&
		(s->flags & (KI_SPLICE_WINDOW | KI_SPLICE_SPRINGBOARD)) == KI_SPLICE_WINDOW);
}

/* Who sleeps in a patch would meet the breakpoint at its end when it leads nowhere any more. */
static bool good_home(const struct ki_splice *s)
{
	u32 with = KI_SPLICE_TRAP | KI_SPLICE_AWAKE;

	return !(s->flags & KI_SPLICE_HOME) ||
	       ((s->flags & with) == with && s->patch_len > ki_arch_trap_len &&
		IS_ALIGNED(s->patch_len, ki_arch_insn_align));
}

/* Breakpoints over one instruction that is none. */
static int check_trap(const struct ki_splice *s)
{
	u32 n = ki_arch_trap_len, i;

	for (i = 0; i + n <= s->len; i += n)
		if (memcmp(s->new + i, ki_arch_trap, n))
			return -EINVAL;
	if ((s->flags & ~(KI_SPLICE_TRAP | KI_SPLICE_AWAKE | KI_SPLICE_HOME)) || !i || i != s->len ||
	    !memcmp(s->old, ki_arch_trap, n) ||
	    !IS_ALIGNED(s->point | s->patch, ki_arch_insn_align))
		return -EINVAL;
	/* Who has been at it has left it when its breakpoint goes: so where all stand still. */
	if ((s->flags & KI_SPLICE_HOME) && (ki_arch_diverts || IS_ENABLED(CONFIG_PREEMPTION)))
		return -EOPNOTSUPP;
	return ki_traps_work() ? 0 : -EOPNOTSUPP;
}

/* Where the breakpoint at a patch's end is. */
static unsigned long home_of(const struct ki_splice *s)
{
	return s->patch + s->patch_len - ki_arch_trap_len;
}

/* Is there a way to prove that nobody is inside a window? */
bool ki_text_windows(void)
{
	return ki_arch_diverts ? ki_traps_work() : !IS_ENABLED(CONFIG_PREEMPTION);
}

static int check_form(const struct ki_splice *s)
{
	int err;

	if (!s->len || s->len > KI_MAX_PATCH || !s->patch_len ||
	    (s->flags & ~(KI_SPLICE_WINDOW | KI_SPLICE_SPRINGBOARD | KI_SPLICE_CODE | KI_SPLICE_AWAKE | KI_SPLICE_TRAP | KI_SPLICE_HOME)) ||
	    ((s->flags & KI_SPLICE_AWAKE) && s->fault) ||
	    ((s->flags & KI_SPLICE_CODE) && !(s->flags & KI_SPLICE_SPRINGBOARD)) ||
	    !good_fault(s) || !good_annex(s) || !good_span(s) || !good_home(s) ||
	    !all_zero(s->old, s->len) || !all_zero(s->new, s->len) ||
	    s->point + KI_MAX_PATCH < s->point)
		return -EINVAL;
	err = s->flags & KI_SPLICE_TRAP ? check_trap(s) : ki_arch_check(s);
	if (err)
		return err;
	if ((s->flags & KI_SPLICE_WINDOW) && !ki_text_windows())
		return -EOPNOTSUPP;
	return ki_area_has_code(s->patch, s->patch_len) &&
	       (!s->annex_len || ki_area_has_code(s->annex, s->annex_len)) ? 0 : -ERANGE;
}

/* Text that stays, and whose module, if any, stays with it from now on. */
static int own_text(unsigned long first, unsigned long last, struct module **owner)
{
	struct module *mod;
	int err = -EACCES;

	*owner = NULL;
	if (core_kernel_text(first))
		return core_kernel_text(last) ? 0 : -EACCES;
	preempt_disable();	/* __module_text_address() walks modules under RCU */
	mod = __module_text_address(first);
	/* A module whose init fails is freed, whatever references it has. */
	if (mod && mod != THIS_MODULE && mod == __module_text_address(last) &&
	    mod->state == MODULE_STATE_LIVE && !within_module_init(first, mod) &&
	    try_module_get(mod)) {
		*owner = mod;
		err = 0;
	}
	preempt_enable();
	return err;
}

/*
 * Sites that the kernel rewrites while it runs: it would overwrite our bytes.
 * Places where it allows no probe, because probing or entry code runs there.
 */
static bool core_off_limits(unsigned long first, unsigned long last, unsigned long written)
{
	return ki_core_banned(first) || ki_core_banned(written) ||
	       ki_core_rewritten(first, last);
}

static bool module_off_limits(unsigned long first, unsigned long last, unsigned long written)
{
	bool yes;

	if (ki_module_banned(first) || ki_module_banned(written))
		return true;
	jump_label_lock();
	yes = jump_label_text_reserved((void *)first, (void *)last) ||
	      ki_ftrace_owns(first, last) ||
	      ki_arch_rewritten(first, last);
	jump_label_unlock();
	return yes;
}

bool ki_barred_here(const struct kprobe_blacklist_entry *b)
{
	struct interval_tree_node *node;
	unsigned long at = b->start_addr;
	const struct live *l;

	list_for_each_entry(l, &copies, copy)
		if (b >= l->copied && b < l->copied + l->n_copied)
			return true;
	for (node = interval_tree_iter_first(&points, at, at); node;
	     node = interval_tree_iter_next(node, at, at))
		if (&container_of(node, struct live, at)->black == b)
			return true;
	return false;
}

bool ki_text_spliced(unsigned long first, unsigned long last)
{
	return interval_tree_iter_first(&points, first, last);
}

/* A springboard behind the text, where nothing is. */
static bool in_gap(const struct live *l)
{
	return (l->s.flags & KI_SPLICE_SPRINGBOARD) && ki_arch_gap(l->at.start, l->at.last);
}

/* Nothing of a board's host, which was looked at when it was admitted, is off limits. */
static int check_text(struct live *l, const struct live *host)
{
	unsigned long first = l->at.start, last = l->at.last;
	unsigned long written = first + l->s.len - 1;
	int err;

	if (in_gap(l))
		return 0;
	err = own_text(first, last, &l->owner);
	if (err || host)
		return err;
	if (((l->s.flags & KI_SPLICE_TRAP) && ki_traps_meet(first)) || ki_traps_rewrite(first, last) ||
	    (l->owner ? module_off_limits(first, last, written) :
			core_off_limits(first, last, written))) {
		module_put(l->owner);
		return -EACCES;
	}
	return 0;
}

/* The module in whose text it is. Only compared: it may go at once. */
static const struct module *text_of(unsigned long addr)
{
	const struct module *m;

	preempt_disable();	/* __module_text_address() walks modules under RCU */
	m = __module_text_address(addr);
	preempt_enable();
	return m;
}

/*
 * What is run as a copy is barred to kprobes for as long as the splice is live. The kernel takes what it bars in a module off its
 * list when that goes: so it is the image's, or of the module that the splice holds.
 */
static bool stays(unsigned long addr, const struct module *owner)
{
	return core_kernel_text(addr) || (owner && text_of(addr) == owner);
}

static bool copies_stay(const struct live *l)
{
	u32 k;

	for (k = 0; k < l->n_copied; k++)
		if (!stays(l->copied[k].start_addr, l->owner) || !stays(l->copied[k].end_addr - 1, l->owner))
			return false;
	return true;
}

/* --- admitting --- */

/*
 * The jump must lead to the patch, or to a springboard that leads there. A
 * displacement that was cut off would send the kernel anywhere.
 */
static int check_target(struct live *l)
{
	struct interval_tree_node *node;
	unsigned long to;
	struct live *o;

	if ((l->s.flags & KI_SPLICE_TRAP) || !ki_arch_target(&l->s, &to) || to == l->s.patch)
		return 0;
	node = interval_tree_iter_first(&points, to, to);
	for (; node; node = interval_tree_iter_next(node, to, to)) {
		o = container_of(node, struct live, at);
		if (o->s.point == to && o->s.patch == l->s.patch &&
		    (o->s.flags & KI_SPLICE_SPRINGBOARD)) {
			l->board = o;
			return 0;
		}
	}
	return -EINVAL;
}

static void set_part(struct part *p, struct live *of, u64 addr, u32 len)
{
	p->node.start = addr;
	p->node.last = addr + len - 1;
	p->of = of;
}

static u32 locked_len(const struct ki_splice *s)
{
	return s->flags & KI_SPLICE_TRAP ? s->len : ki_arch_locked_len(s);
}

static bool diverts(const struct live *l)
{
	return ki_arch_diverts && (l->s.flags & KI_SPLICE_WINDOW);
}

/* Would the kernel take what is behind the splice, once it is made, for what it is not? */
static bool misleads(const struct live *l)
{
	return l->s.span || locked_len(&l->s) > l->s.len;
}

/* Behind what is barred to probes: up to a function's end, or no more than the splice has. */
static unsigned long barred_end(const struct live *l, bool misled)
{
	unsigned long size, off, end = l->at.last + 1;

	if (!misled || !kallsyms_lookup_size_offset(l->s.point, &size, &off))
		return end;
	return max(end, l->s.point - off + size);
}

static struct live *new_live(const struct ki_splice *s, u32 n_copied)
{
	struct live *l = ki_try(kvzalloc(struct_size(l, copied, n_copied), GFP_KERNEL));

	if (!l)
		return NULL;
	l->s = *s;
	l->n_copied = n_copied;
	INIT_LIST_HEAD(&l->copy);
	l->session = ki_session;
	l->at.start = s->point;
	l->at.last = s->point + max(locked_len(s), s->span) - 1;
	set_part(&l->in, l, s->patch, s->patch_len);
	set_part(&l->annex, l, s->annex, s->annex_len);
	l->black.start_addr = l->at.start;
	l->black.end_addr = barred_end(l, misleads(l) || diverts(l));
	return l;
}

/* Is a springboard in the dead bytes of a function that was moved away? */
static bool in_span(const struct live *l, const struct live *o)
{
	return (l->s.flags & KI_SPLICE_SPRINGBOARD) && o->s.span &&
	       l->s.point - o->s.point >= o->s.len &&
	       l->s.point - o->s.point < o->s.span &&
	       l->s.len <= o->s.span - (l->s.point - o->s.point);
}

/* Bytes that are a splice's: those that are written, and what of a stretch stays behind them. */
static u32 extent(const struct live *l)
{
	return max(l->s.len, l->s.span);
}

/*
 * The written bytes must be nobody's, written or operand. Operand bytes may be
 * an older splice's written bytes: that is how a successor is spliced first. Dead
 * bytes must be nobody's at first. *host is the function that a springboard is in.
 */
static bool taken(const struct live *l, const struct live **host)
{
	unsigned long first = l->s.point, last = first + extent(l) - 1;
	struct interval_tree_node *node;

	*host = NULL;
	for (node = interval_tree_iter_first(&points, first, last); node;
	     node = interval_tree_iter_next(node, first, last)) {
		if (!in_span(l, container_of(node, struct live, at)))
			return true;
		*host = container_of(node, struct live, at);
	}
	return false;
}

/* Behind a window's begin, its end is at most so far, in bytes. */
#define BEHIND_MAX 32u

/*
 * A task that waits for a page in a patch that text no longer leads to comes back behind
 * what was displaced there: that may be the middle of a window, but not of one that begins
 * where he left and is no longer than what was replaced then.
 */
static bool comes_back(const struct live *l)
{
	const struct live *o;

	if (!retired_faults || !((l->s.flags & KI_SPLICE_WINDOW) || l->s.span))
		return false;
	list_for_each_entry(o, &retired, link)
		if (o->s.fault && !(o->s.point == l->s.point && extent(o) >= extent(l)) &&
		    o->s.point < l->at.last && l->s.point < o->s.point + BEHIND_MAX)
			return true;
	return false;
}

static int admit(struct live *l)
{
	const struct live *host;
	int err;

	if (taken(l, &host))
		return -EEXIST;
	if (comes_back(l))
		return -EBUSY;
	err = check_text(l, host);
	if (err)
		return err;
	err = copies_stay(l) ? check_target(l) : -EINVAL;
	if (!err && l->s.fault)
		err = ki_annex_add(l->s.fault, l->s.original, 0);
	if (err)
		goto put;
	err = ki_fails() ? -ENOMEM : xa_insert(&by_id, l->s.id, l, GFP_KERNEL);
	if (err)
		goto remove;
	interval_tree_insert(&l->at, &points);
	interval_tree_insert(&l->in.node, &patches);
	if (l->s.annex_len)
		interval_tree_insert(&l->annex.node, &patches);
	list_add_tail(&l->link, &lives);
	live_count++;
	if (l->board)
		l->board->users++;
	return 0;
remove:
	if (l->s.fault)
		ki_annex_remove(l->s.fault);
put:
	module_put(l->owner);
	return err;
}

/* Takes it out of everything that concerns the point. */
static void forget_point(struct live *l)
{
	interval_tree_remove(&l->at, &points);
	xa_erase(&by_id, l->s.id);
	list_del(&l->link);
	live_count--;
	if (l->board)
		l->board->users--;
}

static void forget_patch(struct live *l)
{
	interval_tree_remove(&l->in.node, &patches);
	if (l->s.annex_len)
		interval_tree_remove(&l->annex.node, &patches);
	if (l->s.fault)
		ki_annex_remove(l->s.fault);
	module_put(l->owner);
	kvfree(l->resumes);
	kvfree_rcu(l, rcu);
}

/* Newest first: a point knows its springboard. */
static void forget_all(struct live **l, u32 n)
{
	while (n--) {
		forget_point(l[n]);
		forget_patch(l[n]);
	}
}

static int set_copied(struct live *l, const struct ki_copied *c)
{
	u32 k;

	for (k = 0; k < l->n_copied; k++) {
		if (c[k].reserved || c[k].start >= c[k].end)
			return -EINVAL;
		/* Written in the original alone: who runs the copy would ask nobody about our breakpoints. */
		if (ki_traps_rewrite(c[k].start, c[k].end - 1))
			return -EACCES;
		l->copied[k].start_addr = c[k].start;
		l->copied[k].end_addr = c[k].end;
	}
	return 0;
}

/* Whether anybody is ever sent there is looked at when he is. */
static int set_resumes(struct live *l, const struct ki_resume *r, u32 n)
{
	u32 k;

	if (!n)
		return 0;
	l->resumes = ki_try(kvmalloc_array(n, sizeof(*l->resumes), GFP_KERNEL));
	if (!l->resumes)
		return -ENOMEM;
	l->n_resumes = n;
	for (k = 0; k < n; k++) {
		if (r[k].reserved || (k ? r[k].from <= r[k - 1].from : r[k].from < l->s.patch) ||
		    r[k].from - l->s.patch >= l->s.patch_len || !IS_ALIGNED(r[k].from | r[k].to, ki_arch_insn_align))
			return -EINVAL;
		l->resumes[k] = (struct resume){ r[k].from, r[k].to };
	}
	return 0;
}

/* The first of what b has left, as many as it says, are of this one. */
static int admit_new(const struct ki_splice *s, const struct ki_text_batch *b, struct live **l)
{
	int err;

	*l = new_live(s, b->n_copied);
	if (!*l)
		return -ENOMEM;
	err = set_copied(*l, b->copied);
	if (!err)
		err = set_resumes(*l, b->resumes, b->n_resumes);
	if (!err)
		err = admit(*l);
	if (err) {
		kvfree((*l)->resumes);
		kvfree(*l);
	}
	return err;
}

static int admit_all(struct ki_text_batch b, struct live **l, u32 *failed)
{
	struct ki_text_batch of = {};
	u32 i;
	int err;

	for (i = 0; i < b.n; i++) {
		*failed = i;
		err = check_form(&b.splices[i]);
		if (err)
			goto back;
		of.copied = b.copied + of.n_copied;
		of.resumes = b.resumes + of.n_resumes;
		b.n_copied -= of.n_copied;
		b.n_resumes -= of.n_resumes;
		b.copied = of.copied;
		b.resumes = of.resumes;
		for (of.n_copied = 0; of.n_copied < b.n_copied && b.copied[of.n_copied].splice == i; of.n_copied++)
			;
		for (of.n_resumes = 0; of.n_resumes < b.n_resumes && b.resumes[of.n_resumes].splice == i; of.n_resumes++)
			;
		err = admit_new(&b.splices[i], &of, &l[i]);
		if (err)
			goto back;
		l[i]->index = i;
		l[i]->making = true;
		ki_step();
		cond_resched();
	}
	*failed = b.n;
	if (b.n_copied == of.n_copied && b.n_resumes == of.n_resumes)
		return 0;
	err = -EINVAL;	/* they are of no splice, or in no order */
back:
	forget_all(l, i);
	return err;
}

/* --- kprobes --- */

/* With kprobe_mutex held. */
static void bar_copied(struct live *l)
{
	u32 k;

	for (k = 0; k < l->n_copied; k++)
		list_add_tail_rcu(&l->copied[k].list, &kprobe_blacklist);
	if (l->n_copied)
		list_add_tail(&l->copy, &copies);
}

static void let_into_copied(struct live *l)
{
	u32 k;

	for (k = 0; k < l->n_copied; k++)
		list_del_rcu(&l->copied[k].list);
	list_del_init(&l->copy);
}

static void blacklist_add(struct live **l, u32 n)
{
	u32 i;

	ki_arch_settle_probes();
	mutex_lock(&kprobe_mutex);
	while (ki_probe_queued()) {	/* one that came in between */
		mutex_unlock(&kprobe_mutex);
		ki_arch_settle_probes();
		mutex_lock(&kprobe_mutex);
	}
	ki_arch_bar_jumps(true);
	for (i = 0; i < n; i++) {
		list_add_tail_rcu(&l[i]->black.list, &kprobe_blacklist);
		bar_copied(l[i]);
	}
	mutex_unlock(&kprobe_mutex);
	synchronize_rcu_expedited();
}

/*
 * A probe that came meanwhile may have been made ready to become a jump, by what could be
 * seen then: none does before all are gone.
 */
static void unbar_jumps(void)
{
	struct ki_probes all = { };

	if (ki_count_probes(&all) && !all.n)
		ki_arch_bar_jumps(false);
}

static void blacklist_remove(struct live **l, u32 n)
{
	u32 i;

	mutex_lock(&kprobe_mutex);
	for (i = 0; i < n; i++) {
		list_del_rcu(&l[i]->black.list);
		let_into_copied(l[i]);
	}
	if (live_count == n)
		unbar_jumps();
	mutex_unlock(&kprobe_mutex);
}

bool ki_text_unbar(void)
{
	bool barred;

	mutex_lock(&kprobe_mutex);
	if (!live_count)
		unbar_jumps();
	barred = ki_arch_jumps_barred();
	mutex_unlock(&kprobe_mutex);
	return !barred;
}

/*
 * Armed or not. An optimised probe overwrites bytes behind its own, within the
 * function: so the whole function counts.
 */
static int no_probe_in_functions(struct live **l, u32 n, u32 *failed)
{
	unsigned long start = 0, end = 0, size, off, point;
	struct ki_probes all;
	u32 i, k;
	int err = ki_list_probes(&all);

	if (err || !all.n)	/* to find a function's bounds takes long */
		return err;
	for (i = 0; i < n; i++) {
		point = l[i]->s.point;
		if (ki_probed(&all, l[i]->at.start, l[i]->at.last + 1))
			goto busy;
		for (k = 0; k < l[i]->n_copied; k++)
			if (ki_probed(&all, l[i]->copied[k].start_addr, l[i]->copied[k].end_addr))
				goto busy;
		if ((point >= start && point < end) || in_gap(l[i]))
			continue;	/* the function looked at last, or none */
		if (!kallsyms_lookup_size_offset(point, &size, &off))
			continue;
		start = point - off;
		end = start + size;
		if (ki_probed(&all, start, end))
			goto busy;
	}
	goto out;
busy:
	*failed = l[i]->index;
	err = -EBUSY;
out:
	kvfree(all.at);
	return err;
}

static int no_probe_on_splices(struct live **l, u32 n, u32 *failed)
{
	struct ki_probes all;
	u32 i;
	int err = ki_list_probes(&all);

	for (i = 0; !err && i < n; i++) {
		if (ki_probed(&all, l[i]->at.start, l[i]->at.last + 1)) {
			*failed = l[i]->index;
			err = -EBUSY;
		}
	}
	kvfree(all.at);
	return err;
}

/* The same when there is no way back: a list of all probes would take memory. */
static int still_no_probe(struct live **l, u32 n)
{
	u32 i;

	for (i = 0; i < n; i++) {
		if (ki_probed_now(l[i]->at.start, l[i]->at.last + 1))
			return -EBUSY;
		cond_resched();
	}
	return 0;
}

/* --- writing --- */

static void lock_text(void)
{
	mutex_lock(&kprobe_mutex);
	cpus_read_lock();
	mutex_lock(&text_mutex);
}

static void unlock_text(void)
{
	mutex_unlock(&text_mutex);
	cpus_read_unlock();
	mutex_unlock(&kprobe_mutex);
}

/*
 * Does a batch write what completes a jump, and the jump? Its successor may be made with
 * it, before it, or undone with it, after it.
 */
static bool tail_changes(const struct live *l)
{
	unsigned long first = l->s.point + l->s.len, last = l->at.last;
	struct interval_tree_node *node;
	const struct live *o;

	if (l->s.span || first > last)
		return false;
	for (node = interval_tree_iter_first(&points, first, last); node;
	     node = interval_tree_iter_next(node, first, last)) {
		o = container_of(node, struct live, at);
		if (o != l && (o->making || o->undoing))
			return true;
	}
	return false;
}

static void fill_poke(struct ki_poke *p, struct live *l, bool undo)
{
	p->addr = (void *)l->s.point;
	p->from = undo ? l->s.new : l->s.old;
	p->to = undo ? l->s.old : l->s.new;
	p->len = l->s.len;
	p->patch = l->s.patch;
	p->jump = !undo;
	p->board = l->s.flags & KI_SPLICE_SPRINGBOARD;
	p->host = l->s.span;
	p->code = l->s.flags & KI_SPLICE_CODE;
	p->trap = l->s.flags & KI_SPLICE_TRAP;
	p->call = false;
	p->each = tail_changes(l);
	p->window = !undo && diverts(l) ? &l->trap : NULL;
	p->index = l->index;
}

/*
 * Nobody comes to the windows of a batch any more, and then nobody is inside one. The
 * locks are given back while that takes its time: whatever others do to the text
 * meanwhile, who writes compares it once more, and probes are barred.
 */
static int divert(struct ki_poke *p, u32 n, u32 *failed)
{
	int err = ki_arch_divert(p, n, failed);
	u32 i, windows = 0;

	if (err)
		return err;
	for (i = 0; i < n; i++)
		windows += !!p[i].window;
	WRITE_ONCE(waiting, windows);
	unlock_text();
	ki_step();
	ki_quiesce();
	ki_step();
	lock_text();
	WRITE_ONCE(waiting, 0);
	return 0;
}

/*
 * The breakpoints of a batch are not there any more, and every CPU knows. That is of those at
 * the points; those at the patches' ends nobody comes to: a CPU that takes notice, in a thread
 * of its own, has left what it was at, and no task sleeps or was preempted there.
 */
static void remove_traps(struct live **l, u32 n)
{
	u32 i;

	for (i = 0; i < n; i++) {
		if (l[i]->s.flags & KI_SPLICE_TRAP)
			ki_trap_remove(&l[i]->trap);
		if (l[i]->s.flags & KI_SPLICE_HOME)
			ki_trap_remove(&l[i]->home);
	}
}

static int add_trap(struct live *l)
{
	int err = ki_trap_add(&l->trap, l->s.point, l->s.patch);

	if (err || !(l->s.flags & KI_SPLICE_HOME))
		return err;
	err = ki_trap_add(&l->home, home_of(&l->s), l->s.point + l->s.len);
	if (err)
		ki_trap_remove(&l->trap);
	return err;
}

/* They are about to be there. */
static int add_traps(struct live **l, u32 n, u32 *failed)
{
	u32 i;
	int err;

	for (i = 0; i < n; i++) {
		if (!(l[i]->s.flags & KI_SPLICE_TRAP))
			continue;
		err = add_trap(l[i]);
		if (err) {
			*failed = l[i]->index;
			remove_traps(l, i);
			return err;
		}
	}
	return 0;
}

/* p has room for all. */
static int poke_all(struct ki_poke *p, struct live **l, u32 n, bool undo, u32 *failed)
{
	bool windows = false;
	int err = 0;
	u32 i;

	if (!undo)
		err = add_traps(l, n, failed);
	if (err)
		return err;
	for (i = 0; i < n; i++) {
		fill_poke(&p[i], l[i], undo);
		windows |= !!p[i].window;
	}
	if (windows)
		err = divert(p, n, failed);
	ki_step();
	if (!err) {
		err = ki_arch_poke(p, n, failed);
		if (windows)
			ki_arch_undivert(p, n);
		ki_step();
	}
	if (undo == !err)
		remove_traps(l, n);
	return err;
}

static int newest_first(const void *a, const void *b)
{
	u32 x = (*(struct live **)a)->s.id, y = (*(struct live **)b)->s.id;

	return x < y ? 1 : x > y ? -1 : 0;
}

/* A springboard, or what made room for some. */
static bool is_late(const struct live *l)
{
	return (l->s.flags & KI_SPLICE_SPRINGBOARD) || l->s.span;
}

/*
 * Whoever is on the way to a springboard must find it, and who enters a function
 * again must find all of it: first points, then what lies in dead bytes, then what
 * they belong to, which is older.
 */
static int springboards_last(const void *a, const void *b)
{
	bool x = is_late(*(struct live **)a), y = is_late(*(struct live **)b);

	return x != y ? (int)x - (int)y : newest_first(a, b);
}

static bool late_is_written(const struct live *l)
{
	return is_late(l) && !memcmp((void *)l->s.point, l->s.new, l->s.len);
}

/*
 * A batch was refused in the middle. Its points are as they were; the boards that
 * were written are not, until nobody can be on the way to one, nor are the functions
 * that they lie in. Sorted with the newest first, those are the last. Needs no memory:
 * it must not fail.
 */
static void take_back_boards(struct live **l, u32 n)
{
	struct ki_poke p;
	u32 failed, i;

	sort(l, n, sizeof(*l), springboards_last, NULL);
	if (!late_is_written(l[n - 1]))
		return;
	ki_quiesce();
	lock_text();
	for (i = 0; i < n; i++) {
		if (!late_is_written(l[i]))
			continue;
		fill_poke(&p, l[i], true);
		WARN_ON(ki_arch_poke(&p, 1, &failed));
	}
	unlock_text();
}

/* *poked: whatever it answers, text may have led to the patches meanwhile. */
static int apply_all(struct live **l, u32 n, u32 *failed, bool *poked)
{
	struct ki_poke *p;
	int err;

	*poked = false;
	ki_step();
	blacklist_add(l, n);
	p = ki_try(kvcalloc(n, sizeof(*p), GFP_KERNEL));
	if (!p)
		return -ENOMEM;
	ki_step();
	ki_annex_publish();
	ki_step();
	lock_text();
	ki_step();
	err = no_probe_in_functions(l, n, failed);
	*poked = !err;
	if (!err)
		err = poke_all(p, l, n, false, failed);
	unlock_text();
	kvfree(p);
	if (err && *poked)
		take_back_boards(l, n);
	return err;
}

/* --- leaving --- */

static void retire(struct live **l, u32 n)
{
	u32 i;

	blacklist_remove(l, n);
	for (i = 0; i < n; i++) {
		forget_point(l[i]);
		list_add_tail(&l[i]->link, &retired);
		l[i]->retired = true;
		retired_faults += !!l[i]->s.fault;
	}
	retired_count += n;
}

static struct ki_text_holder holder;

const struct ki_text_holder *ki_text_holder(void)
{
	return &holder;
}

static bool asked(const struct interval_tree_node *node)
{
	return container_of(node, struct part, node)->of->retired;
}

static void found_task(struct interval_tree_node *node, const struct task_struct *t, bool asleep)
{
	struct live *l = container_of(node, struct part, node)->of;

	if (!l->retired || (asleep && l->s.flags & KI_SPLICE_AWAKE))
		return;
	if (!holder.point) {
		memcpy(holder.comm, t->comm, sizeof(holder.comm));	/* get_task_comm() takes a lock */
		holder.comm[sizeof(holder.comm) - 1] = 0;
		holder.pid = task_pid_nr((struct task_struct *)t);
		holder.point = l->s.point;
	}
	l->held = true;
}

/* Text where an instruction begins that is the original's, or a splice's first. */
static bool is_whole(unsigned long addr)
{
	struct interval_tree_node *node;

	for (node = interval_tree_iter_first(&points, addr, addr); node;
	     node = interval_tree_iter_next(node, addr, addr))
		if (node->start != addr)
			return false;
	return core_kernel_text(addr) || text_of(addr);
}

/*
 * All CPUs stand still. Of what nobody comes to any more, where a task that sleeps there goes on is found by
 * where it would; what is there is the original, or leads to what is as good.
 */
static unsigned long resume_at(const struct interval_tree_node *node, unsigned long v)
{
	const struct live *l = container_of(node, struct part, node)->of;
	u32 lo = 0, hi = l->retired ? l->n_resumes : 0;

	/* Of a live patch's own text it is asked who sleeps there before that goes, and in the copy nobody was found. */
	if (l->owner && is_livepatch_module(l->owner))
		return 0;
	while (lo < hi) {
		u32 mid = (lo + hi) / 2;

		if (l->resumes[mid].from == v)
			return is_whole(l->resumes[mid].to) ? l->resumes[mid].to : 0;
		if (l->resumes[mid].from < v)
			lo = mid + 1;
		else
			hi = mid;
	}
	return 0;
}

/* Frees the retired patches that nobody is in. */
static void reap(void)
{
	struct ki_ranges r = { .tree = &patches, .asked = asked, .found = found_task };
	struct live *l, *next;
	bool all;

	if (list_empty(&retired))
		return;
	ki_step();
	ki_quiesce();
	ki_step();
	list_for_each_entry(l, &retired, link) {
		l->held = false;
		if (l->n_resumes)
			r.resumes = resume_at;
	}
	holder = (struct ki_text_holder){};
	all = ki_stacks_scan(&r);
	ki_step();
	quarantined = 0;
	list_for_each_entry_safe(l, next, &retired, link) {
		if (l->held || (!all && !(l->s.flags & KI_SPLICE_AWAKE))) {
			if (!(l->s.flags & KI_SPLICE_SPRINGBOARD))	/* whose patch is its point's */
				quarantined += l->s.patch_len + l->s.annex_len;
			continue;
		}
		list_del(&l->link);
		retired_count--;
		retired_faults -= !!l->s.fault;
		forget_patch(l);
	}
}

bool ki_text_copies(void)
{
	struct live *l;

	lockdep_assert_held(&ki_lock);
	if (!list_empty(&copies))
		return true;
	list_for_each_entry(l, &retired, link)
		if (l->n_copied)
			return true;
	return false;
}

/* --- splicing --- */

static void made(struct live **l, u32 n)
{
	while (n--) {
		l[n]->making = false;
		if (diverts(l[n]))	/* does not wait any more; readers take either */
			WRITE_ONCE(l[n]->black.end_addr, barred_end(l[n], misleads(l[n])));
	}
}

int ki_text_splice(const struct ki_text_batch *b, u32 *failed)
{
	struct live **l = ki_try(kvcalloc(b->n, sizeof(*l), GFP_KERNEL));
	u32 n = b->n;
	bool poked;
	int err;

	if (!l)
		return -ENOMEM;
	if (b->n_copied && ki_patch_comes()) {
		err = -EBUSY;
		*failed = b->copied[0].splice;
		goto out;
	}
	if (retired_faults)
		reap();		/* mostly nobody is there any more */
	err = admit_all(*b, l, failed);
	if (err)
		goto out;
	err = apply_all(l, n, failed, &poked);
	ki_step();
	made(l, n);
	if (!err) {
		spliced += n;
	} else if (poked) {
		/* Taken back; who is in a patch now leaves it like any other. */
		retire(l, n);
		reap();
	} else {
		blacklist_remove(l, n);
		forget_all(l, n);
	}
out:
	if (err)
		refused++;
	kvfree(l);
	return err;
}

/* --- undoing --- */

static void release_marks(struct live **l, u32 n)
{
	while (n--) {
		l[n]->undoing = false;
		if (l[n]->board)
			l[n]->board->leaving = 0;
	}
}

static int look_up(const u32 *ids, u32 n, struct live **l, u32 *failed)
{
	u32 i;

	for (i = 0; i < n; i++) {
		l[i] = xa_load(&by_id, ids[i]);
		if (!l[i] || l[i]->undoing) {
			*failed = i;
			release_marks(l, i);
			return l[i] ? -EINVAL : -ENOENT;
		}
		l[i]->undoing = true;
		l[i]->index = i;
	}
	return 0;
}

/*
 * A newer jump that takes operand bytes from this splice must go first, and so must a
 * springboard in its span. Older overlapping ones are those that this splice takes
 * bytes from.
 */
static int nobody_depends(struct live **l, u32 n, u32 *failed)
{
	struct interval_tree_node *node;
	unsigned long last;
	struct live *o;
	u32 i;

	for (i = 0; i < n; i++) {
		last = l[i]->s.point + extent(l[i]) - 1;
		for (node = interval_tree_iter_first(&points, l[i]->s.point, last); node;
		     node = interval_tree_iter_next(node, l[i]->s.point, last)) {
			o = container_of(node, struct live, at);
			if (o->s.id > l[i]->s.id && !o->undoing) {
				*failed = l[i]->index;
				return -EBUSY;
			}
		}
	}
	return 0;
}

static int still_ours(struct live **l, u32 n, u32 *failed)
{
	u32 i;

	lockdep_assert_held(&text_mutex);
	for (i = 0; i < n; i++) {
		if (memcmp((void *)l[i]->s.point, l[i]->s.new, l[i]->s.len)) {
			*failed = l[i]->index;
			return -EILSEQ;
		}
	}
	return 0;
}

/*
 * Restores l[0..first) and, after a quiescence, the springboards and functions behind them.
 * All are checked before the first is written. Should something come to a springboard
 * between the two (a probe that slipped through, another's writing), that stays, as it
 * is: nobody comes there any more, no splice is made there, and ki_text_undo_all() tries
 * again. The points are undone, so that is no error.
 */
static int restore_by(struct ki_poke *p, struct live **l, u32 first, u32 n, u32 *failed)
{
	int err;

	lock_text();
	err = no_probe_on_splices(l, n, failed);
	if (!err)
		err = still_ours(l, n, failed);
	if (!err && first)
		err = poke_all(p, l, first, true, failed);
	unlock_text();
	if (err)
		return err;
	ki_step();
	retire(l, first);
	unspliced += first;
	ki_step();
	if (first == n)
		return 0;
	ki_quiesce();	/* also for points that an earlier call has restored */
	lock_text();
	err = still_no_probe(l + first, n - first);
	if (!err)
		err = poke_all(p, l + first, n - first, true, failed);
	unlock_text();
	if (err) {
		pr_warn(KI_NAME ": %u springboards and moved functions stay behind, the first at %pS: error %d\n",
			n - first, (void *)l[first]->s.point, err);
		return first ? 0 : err;
	}
	ki_step();
	retire(l + first, n - first);
	ki_step();
	unspliced += n - first;
	return 0;
}

/* All memory is had before the first is written: what is begun is not left half done for want of it. */
static int restore(struct live **l, u32 first, u32 n, u32 *failed)
{
	struct ki_poke *p = ki_try(kvcalloc(n, sizeof(*p), GFP_KERNEL));
	int err = p ? restore_by(p, l, first, n, failed) : -ENOMEM;

	kvfree(p);
	return err;
}

/* A springboard that some other point jumps to has to stay. */
static int nobody_jumps(struct live **l, u32 n, u32 *failed)
{
	u32 i;

	for (i = 0; i < n; i++)
		if (l[i]->board)
			l[i]->board->leaving++;
	for (i = 0; i < n; i++) {
		if (l[i]->users > l[i]->leaving) {
			*failed = l[i]->index;
			return -EBUSY;
		}
	}
	return 0;
}

static int undo(struct live **l, u32 n, u32 *failed)
{
	u32 first = 0;
	int err;

	err = nobody_depends(l, n, failed);
	if (!err)
		err = nobody_jumps(l, n, failed);
	if (err)
		return err;
	sort(l, n, sizeof(*l), springboards_last, NULL);
	while (first < n && !is_late(l[first]))
		first++;
	return restore(l, first, n, failed);
}

int ki_text_undo(const u32 *ids, u32 n, u32 flags, u32 *failed)
{
	struct live **l = ki_try(kvcalloc(n, sizeof(*l), GFP_KERNEL));
	int err;

	if (!l)
		return -ENOMEM;
	err = look_up(ids, n, l, failed);
	ki_step();
	if (!err) {
		err = undo(l, n, failed);
		release_marks(l, n);	/* nothing has been freed yet */
	}
	kvfree(l);
	if (!err && (!(flags & KI_UNDO_NO_WAIT) || retired_count > RETIRED_MAX))
		reap();
	return err;
}

/* --- everything at once --- */

/* The newest splices, at most a batch of them. */
static u32 newest(u32 *ids)
{
	struct live *l;
	u32 n = 0;

	list_for_each_entry_reverse(l, &lives, link) {
		if (n == KI_MAX_BATCH)
			break;
		ids[n++] = l->s.id;
	}
	return n;
}

static void undo_each(void)
{
	struct live *l, *older;
	u32 failed, id;

	list_for_each_entry_safe_reverse(l, older, &lives, link) {
		id = l->s.id;
		ki_text_undo(&id, 1, KI_UNDO_NO_WAIT, &failed);
	}
}

/*
 * In batches, newest first: what depends on a splice (a jump to a springboard,
 * one that takes operand bytes) is newer than it. Should a batch be refused,
 * one by one, so that one foreign probe keeps one splice alive and not
 * thousands.
 */
bool ki_text_undo_all(void)
{
	u32 *ids = ki_try(kvcalloc(KI_MAX_BATCH, sizeof(*ids), GFP_KERNEL));
	u32 n, failed;

	while (ids && (n = newest(ids)))
		if (ki_text_undo(ids, n, KI_UNDO_NO_WAIT, &failed))
			break;
	kvfree(ids);
	undo_each();
	reap();
	return list_empty(&lives) && list_empty(&retired);
}

bool ki_text_left_of(u32 session)
{
	struct live *l;

	list_for_each_entry(l, &lives, link)
		if (l->session == session)
			return true;
	list_for_each_entry(l, &retired, link)
		if (l->session == session)
			return true;
	return false;
}

/* --- code --- */

bool ki_text_has(unsigned long addr, unsigned long len)
{
	return interval_tree_iter_first(&patches, addr, addr + len - 1);
}

bool ki_text_in_use(unsigned long addr, unsigned long len)
{
	if (!ki_text_has(addr, len))
		return false;
	reap();
	return ki_text_has(addr, len);
}

static bool good_frames(unsigned long addr, unsigned long len, const struct ki_frame *f, u32 n)
{
	u32 i, lately = 0;

	if (!n)
		return true;
	if (!IS_ALIGNED(addr, KI_LINE) || f[0].off)
		return false;
	for (i = 0; i < n; i++) {
		if (f[i].off >= len || f[i].down > KI_MAX_DOWN || f[i].reserved ||
		    (f[i].bp != KI_BP_KEPT && f[i].bp >= f[i].down) ||
		    (i && f[i].off <= f[i - 1].off))
			return false;
		lately = i && f[i].off / KI_LINE == f[i - 1].off / KI_LINE ? lately + 1 : 1;
		/* One more for what goes on from the line before, one for what ends. */
		if (lately > KI_LINE_FRAMES - 2)
			return false;
	}
	return true;
}

/* Were two at one place, the kernel would find another's bytes at a key's, and stop. */
static int check_site(const struct ki_text_code *c, const struct ki_site *s, u32 *end)
{
	u32 n = s->kind == KI_SITE_KEY ? KI_ARCH_KEY_LEN : 1, before = *end;

	*end = s->off + n;
	if (s->off < before || !IS_ALIGNED(s->off, ki_arch_insn_align) || (s->kind != KI_SITE_KEY && s->kind != KI_SITE_FAULT) ||
	    s->off >= c->len || c->len - s->off < n || (s->to && !ki_area_has_code(s->to, 1)) ||
	    (s->kind == KI_SITE_FAULT && s->entry) ||
	    (s->kind == KI_SITE_KEY && !IS_ALIGNED(c->addr + s->off, KI_ARCH_KEY_ALIGN)))
		return -EINVAL;
	return s->kind == KI_SITE_KEY ? ki_key_check(s) : 0;
}

static int check_sites(const struct ki_text_code *c)
{
	u32 i, end = 0;
	int err = 0;

	if (c->n_sites && !ki_area_sited(c->addr, c->len))
		return -EOPNOTSUPP;
	for (i = 0; i < c->n_sites && !err; i++)
		err = check_site(c, &c->sites[i], &end);
	return err;
}

static bool sited;	/* some code has had sites */

void ki_text_forget_sites(unsigned long addr, unsigned long len)
{
	if (!sited || !ki_area_sited(addr, 1))
		return;
	ki_keys_lock();
	ki_keys_drop(addr, len);
	ki_keys_unlock();
	ki_annex_remove_all(addr, len);
}

static int add_sites(const struct ki_text_code *c)
{
	const struct ki_site *s;
	int err = 0;

	for (s = c->sites; s < c->sites + c->n_sites && !err; s++)
		err = s->kind == KI_SITE_KEY ? ki_key_add(s, c->addr + s->off, c->code + s->off) :
					       ki_annex_add(c->addr + s->off, s->orig, s->to);
	return err;
}

/* Keys do not change from when their sites' bytes are decided on until those are there. */
static int write_with_sites(const struct ki_text_code *c)
{
	int err;

	if (!c->n_sites) {
		ki_annex_publish();	/* what was forgotten */
		return ki_arch_write_code((void *)c->addr, c->code, c->len);
	}
	sited = true;
	ki_keys_lock();
	err = add_sites(c);
	if (!err)
		err = ki_arch_write_code((void *)c->addr, c->code, c->len);
	if (err) {	/* before a key can change that leads to what is not there */
		ki_keys_drop(c->addr, c->len);
		ki_annex_remove_all(c->addr, c->len);
	}
	ki_keys_unlock();
	ki_annex_publish();
	return err;
}

int ki_text_write_code(const struct ki_text_code *c)
{
	unsigned long first = round_down(c->addr, KI_LINE), whole = round_up(c->addr + c->len, KI_LINE) - first;
	int err;

	if (!ki_area_has_code(c->addr, c->len))
		return -ERANGE;
	if (!IS_ALIGNED(c->addr | c->len, ki_arch_insn_align) || !good_frames(c->addr, c->len, c->frames, c->n))
		return -EINVAL;
	err = check_sites(c);
	if (err)
		return err;
	/* What is said of code's stack is said of whole lines. */
	if (ki_text_in_use(first, whole))
		return -EBUSY;
	ki_text_forget_sites(first, whole);
	ki_step();
	err = write_with_sites(c);
	ki_step();
	if (!err)
		ki_arch_frames(c->addr, c->len, c->frames, c->n);
	return err;
}

void ki_text_stats(struct ki_stats *st)
{
	st->splices = live_count;
	st->spliced = spliced;
	st->unspliced = unspliced;
	st->refused = refused;
	st->quarantined = quarantined;
}
