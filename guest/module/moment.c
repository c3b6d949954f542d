// SPDX-License-Identifier: GPL-2.0
/*
 * moment.c - what cells hold at one moment, and who is inside which functions then.
 *
 * Entries and exits that are counted say who comes and goes, not who was there when the
 * counting began. So both are taken while all CPUs stand still: each runs its stopper
 * thread with interrupts off, so no cell changes, and every other task has given up its
 * CPU and has its registers saved, the idle ones too. A function is a set of ranges; a
 * task is in it as often as its stack has addresses in there. What is interrupted or
 * called by what is done here, and is spliced, comes and goes after the cells were copied.
 *
 * Where a kernel preempts itself, somebody may be between a point and his count, or behind
 * a return's count and before the return: the daemon holds what is found against what was
 * counted, and says so where it does not agree. NMIs may count while cells are copied.
 *
 * Nobody runs but the stoppers, so the clocks of all others stand still: whoever gave his
 * CPU to a stopper did so through the kernel's switch, and the patch there, if it was live,
 * has stopped his clock. If it was not, it is as if his clock had started with this.
 *
 * Nothing is allocated meanwhile, and no user memory touched.
 */
#include <linux/cpumask.h>
#include <linux/ktime.h>
#include <linux/mm.h>
#include <linux/percpu.h>
#include <linux/sched.h>
#include <linux/sched/signal.h>
#include <linux/sched/task_stack.h>
#include <linux/slab.h>
#include <linux/stacktrace.h>
#include <linux/stop_machine.h>
#include <linux/timex.h>
#include <linux/uaccess.h>

#include "faults.h"
#include "internals.h"
#include "kerninst_mod.h"

/* Most frames of one stack that are looked at. */
#define DEPTH 128u

/* What a call is about, with the kernel's copies of the lists. */
struct moment {
	struct ki_moment k;
	struct ki_cells *cells;
	struct ki_cell_source *sources;	/* of each of the cells */
	struct ki_range *ranges;
	struct ki_inside *inside;
	u64 *words;
	const u64 *clocks;		/* NULL: there are none */
};

static void copy_cells(struct moment *m)
{
	u64 *to = m->words;
	int cpu;
	u32 i, n;

	for (i = 0; i < m->k.n_cells; i++) {
		const struct ki_cell_source *s = &m->sources[i];

		for (n = 0; n < m->cells[i].words; n++, to++) {
			*to = 0;
			if (s->at) {
				*to = READ_ONCE(s->at[n]);
				continue;
			}
			for_each_possible_cpu(cpu)
				*to += READ_ONCE(per_cpu_ptr(s->local, cpu)[n]);
		}
	}
}

static const struct ki_range *range_of(const struct moment *m, unsigned long addr)
{
	u32 lo = 0, hi = m->k.n_ranges;

	while (lo < hi) {
		u32 mid = lo + (hi - lo) / 2;

		if (addr < m->ranges[mid].start)
			hi = mid;
		else if (addr >= m->ranges[mid].end)
			lo = mid + 1;
		else
			return &m->ranges[mid];
	}
	return NULL;
}

/* What a task's clock shows: see struct ki_moment. A task has a CPU until it is switched from. */
static u64 clock_of(const struct moment *m, const struct task_struct *t)
{
	u64 word;

	if (!m->clocks)
		return 0;
	if (!t->pid)
		return m->k.cycles;
	word = READ_ONCE(m->clocks[t->pid & (m->k.n_clocks - 1)]);
	return (READ_ONCE(t->on_cpu) ? m->k.cycles : 0) - word;
}

/* One frame more of t in a function. What t has already is behind `first`. */
static void add_frame(struct moment *m, struct task_struct *t, u32 id, u32 first)
{
	struct ki_inside *in;
	unsigned int c;
	u32 i;

	for (i = first; i < min(m->k.found, m->k.room); i++) {
		if (m->inside[i].id == id) {
			m->inside[i].frames++;
			return;
		}
	}
	if (m->k.found++ >= m->k.room)
		return;
	in = &m->inside[m->k.found - 1];
	*in = (struct ki_inside){ .tgid = t->tgid, .tid = t->pid, .id = id, .frames = 1,
				  .clock = clock_of(m, t) };
	for (c = 0; c < sizeof(in->comm) - 1; c++)
		in->comm[c] = READ_ONCE(t->comm[c]);
}

/* A walk up a task's stack. What the task has of m->inside is behind `first`. */
struct walk {
	struct moment *m;
	struct task_struct *t;
	u32 first, depth;
};

/*
 * The addresses are those behind calls, but for one that a task was interrupted at: at a
 * function's first instruction it is not in there yet.
 */
static bool look_at_frame(void *cookie, unsigned long addr)
{
	struct walk *w = cookie;
	const struct ki_range *r = range_of(w->m, ki_arch_strip(addr) - 1);

	if (r)
		add_frame(w->m, w->t, r->id, w->first);
	return ++w->depth < DEPTH;
}

/* Not stack_trace_save_tsk(), which leaves out what belongs to the scheduler. */
static void look_at(struct moment *m, struct task_struct *t)
{
	struct walk w = { .m = m, .t = t, .first = m->k.found };

	if (!try_get_task_stack(t))
		return;		/* dead, and off its stack */
	arch_stack_walk(look_at_frame, &w, t, NULL);
	put_task_stack(t);
	m->k.cut += w.depth == DEPTH;
}

/* On one CPU, while the others wait with interrupts off. */
static int stand_still(void *arg)
{
	struct task_struct *p, *t;
	struct moment *m = arg;
	int cpu;

	m->k.cycles = get_cycles();
	m->k.ns = ktime_get_ns();
	copy_cells(m);
	if (!m->k.n_ranges)
		return 0;
	rcu_read_lock();
	for_each_process_thread(p, t)
		look_at(m, t);
	rcu_read_unlock();
	for_each_online_cpu(cpu)
		look_at(m, idle_task(cpu));
	return 0;
}

static int find_cells(struct moment *m)
{
	u64 words = 0;
	u32 i;

	for (i = 0; i < m->k.n_cells; i++) {
		const struct ki_cells *c = &m->cells[i];

		if (c->local > 1 || !ki_area_cells(c->addr, c->words, c->local, &m->sources[i]))
			return -ERANGE;
		words += c->words;
	}
	return words == m->k.n_words ? 0 : -EINVAL;
}

static int check_ranges(const struct moment *m)
{
	u64 end = 0;
	u32 i;

	for (i = 0; i < m->k.n_ranges; i++) {
		if (m->ranges[i].start < end || m->ranges[i].end <= m->ranges[i].start ||
		    m->ranges[i].reserved)
			return -EINVAL;
		end = m->ranges[i].end;
	}
	return 0;
}

/* An empty list has no memory. */
static int get_list(void **to, u64 from, u32 n, size_t size)
{
	if (n)
		*to = ki_try_err(vmemdup_user(u64_to_user_ptr(from), array_size(n, size)));
	return PTR_ERR_OR_ZERO(*to);
}

static int take(struct moment *m)
{
	int err = find_cells(m);

	if (!err && m->k.n_clocks) {
		m->clocks = ki_area_rings(m->k.clocks, m->k.n_clocks);
		err = m->clocks ? 0 : -ERANGE;
	}
	if (!err)
		err = check_ranges(m);
	if (!err)
		err = stop_machine(stand_still, m, NULL);
	if (!err && m->k.found > m->k.room)
		err = -ENOSPC;
	return err;
}

static int give(const struct moment *m, struct ki_moment __user *arg)
{
	if (copy_to_user(u64_to_user_ptr(m->k.words), m->words, array_size(m->k.n_words, 8)) ||
	    copy_to_user(u64_to_user_ptr(m->k.inside), m->inside,
			 array_size(min(m->k.found, m->k.room), sizeof(*m->inside))) ||
	    copy_to_user(arg, &m->k, sizeof(m->k)))
		return -EFAULT;
	return 0;
}

long ki_moment(void __user *arg)
{
	struct moment m = {};
	int err, lost;

	if (copy_from_user(&m.k, arg, sizeof(m.k)))
		return -EFAULT;
	if (m.k.n_cells > KI_MAX_BATCH || m.k.n_words > KI_MAX_WORDS ||
	    m.k.n_ranges > KI_MAX_RANGES || m.k.room > KI_MAX_INSIDE || m.k.found || m.k.cut ||
	    m.k.n_clocks > KI_MAX_AREA / 8 || (m.k.n_clocks & (m.k.n_clocks - 1)) || m.k.reserved)
		return -EINVAL;
	err = get_list((void **)&m.cells, m.k.cells, m.k.n_cells, sizeof(*m.cells));
	if (err)
		return err;
	err = get_list((void **)&m.ranges, m.k.ranges, m.k.n_ranges, sizeof(*m.ranges));
	if (err)
		goto out;
	m.sources = ki_try(kvcalloc(m.k.n_cells + 1, sizeof(*m.sources), GFP_KERNEL));
	m.words = ki_try(kvcalloc(m.k.n_words + 1, 8, GFP_KERNEL));
	m.inside = ki_try(kvcalloc(m.k.room + 1, sizeof(*m.inside), GFP_KERNEL));
	err = -ENOMEM;
	if (m.sources && m.words && m.inside) {
		mutex_lock(&ki_lock);
		err = take(&m);
		mutex_unlock(&ki_lock);
		lost = err && err != -ENOSPC ? 0 : give(&m, arg);
		err = err ?: lost;
	}
	kvfree(m.inside);
	kvfree(m.words);
	kvfree(m.sources);
	kvfree(m.ranges);
out:
	kvfree(m.cells);
	return err;
}
