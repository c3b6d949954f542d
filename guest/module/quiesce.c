// SPDX-License-Identifier: GPL-2.0
/*
 * quiesce.c - the proof that nobody is inside a patch that text no longer
 * leads to.
 *
 * Three kinds of visitor:
 *   a CPU executing it, or interrupted in it: ki_arch_quiesce() waits until
 *     each CPU has passed a point at which it cannot be inside;
 *   a preempted task (amd64): tasks-RCU, part of ki_arch_quiesce(), waits
 *     until each task has gone to sleep by itself;
 *   a task that went to sleep inside, in a call or a fault: nothing waits for
 *     it. Its stack holds an address in the patch, or what a tracer keeps that
 *     has put its own address there, and ki_stacks_scan() looks
 *     for one while all CPUs are stopped, so that no task can move from "asleep
 *     and not waited for" to "awake and not on its stack" in between. Where it is
 *     known which address in the original is as good, it has that then (JIFL's way
 *     back, section 3.5 of its paper, for those that are not there to take it).
 * The scan is conservative: any word counts. A stale one costs memory until
 * the next scan, never a crash. It may be there as long as its task sleeps, for days:
 * an interrupt in the patch left it, or what was called from there, and the task sleeps in a
 * function that has not written all of its frame. So for patches in which nobody falls asleep
 * (KI_SPLICE_AWAKE) only words of other tasks count: of those that run or were preempted. And
 * a task that went to sleep by itself goes on by returns, where to is in the frames of those that
 * have called: if these lead from one function of the kernel to the next, up to where it came in
 * from its program, it is in no patch, whatever else is on its stack. Whoever has a patch on that
 * way, or sleeps over a fault in the kernel, or has never been in a program, or comes by a function
 * that does not say where it returns to, has any word count.
 *
 * A task that ends is taken off all lists before it has left the kernel: a thread that
 * nobody waits for does that itself (exit_notify(), release_task()), and may sleep in what
 * it calls then, as in proc_flush_pid(). Its stack is found nowhere. But the kernel counts
 * its stacks, and takes one off the count when such a task sleeps no more
 * (exit_task_stack_account()). So where there are more stacks than tasks on lists, the scan
 * says so, and patches in which somebody may sleep stay until the next one.
 */
#include <linux/ftrace.h>
#include <linux/init_task.h>
#include <linux/kprobes.h>
#include <linux/mmzone.h>
#include <linux/nodemask.h>
#include <linux/percpu.h>
#include <linux/ptrace.h>
#ifdef CONFIG_RETHOOK
#include <linux/rethook.h>
#endif
#include <linux/sched.h>
#include <linux/sched/signal.h>
#include <linux/sched/task_stack.h>
#include <linux/stop_machine.h>

#include "internals.h"
#include "kerninst_mod.h"

void ki_quiesce(void)
{
	ki_arch_quiesce();
}

/*
 * Words of who asks are where calls return to, none of which is where a patch begins: he
 * came by a system call, and was not interrupted above our own frames. What looks like a
 * patch's address there is what an earlier call of ours left, whose frames were elsewhere,
 * since the kernel moves the stack of each system call (randomize_kstack_offset).
 */
static bool left_by_us(const struct interval_tree_node *node, unsigned long v,
		       const struct task_struct *t)
{
	return t == ki_caller.task && v == node->start;
}

/*
 * All that words lead into is found to hold t, which is asleep or not. Without t it is only
 * asked whether any of it would matter: mostly there is none, and no more is asked.
 */
static bool scan_words(const struct ki_ranges *r, const unsigned long *w, unsigned long n,
		       const struct task_struct *t, bool asleep)
{
	struct interval_tree_node *node;
	unsigned long v;

	while (n--) {
		v = ki_arch_strip(READ_ONCE_NOCHECK(*w++));
		for (node = interval_tree_iter_first(r->tree, v, v); node;
		     node = interval_tree_iter_next(node, v, v)) {
			if (!t && r->asked(node))
				return true;
			if (t && !left_by_us(node, v, t))
				r->found(node, t, asleep);
		}
	}
	return false;
}

/* What words of the task at hand have been, and are; of so many more than one is in a copy. All CPUs stand still. */
#define RESUMED_MAX	64
static struct resumed {
	unsigned long was, is;
} resumed[RESUMED_MAX];
static unsigned int n_resumed;

/*
 * A task goes on where words say, up to where its stack ends, when it runs again: it does so in the originals of
 * what it sleeps in, as far as these resume. Of a copy, registers and stack are then as they are there, so that a word
 * may change alone. A word that is no such address but looks like one is an old one, or is there to be shown.
 */
static __no_sanitize_address void resume_words(const struct ki_ranges *r, unsigned long *w, unsigned long n,
					       const struct task_struct *t, unsigned long end)
{
	struct interval_tree_node *node;
	unsigned long was, v, to;

	for (; n--; w++) {
		was = *w;
		v = ki_arch_strip(was);
		for (node = interval_tree_iter_first(r->tree, v, v); node;
		     node = interval_tree_iter_next(node, v, v)) {
			to = r->resumes(node, v);
			if (to)
				ki_arch_readdress(t, w, to, end);
		}
		if (*w != was && n_resumed < ARRAY_SIZE(resumed))
			resumed[n_resumed++] = (struct resumed){ was, *w };
	}
}

/* A register that a task gets back may have one of these, by which it goes nowhere: schedule() asks who has called it. */
static void resume_saved(unsigned long *w, unsigned int n)
{
	unsigned int k;

	for (; n--; w++)
		for (k = 0; k < n_resumed; k++)
			if (*w == resumed[k].was)
				*w = resumed[k].is;
			else if (*w == ki_arch_strip(resumed[k].was))
				*w = ki_arch_strip(resumed[k].is);
}

/* Words that are in no frame, and what is asked of those. */
typedef void (*other_words)(const struct ki_ranges *r, unsigned long *w, struct task_struct *t, bool asleep);

static void scan_other(const struct ki_ranges *r, unsigned long *w, struct task_struct *t, bool asleep)
{
	scan_words(r, w, 1, t, asleep);
}

static void resume_other(const struct ki_ranges *r, unsigned long *w, struct task_struct *t, bool asleep)
{
	resume_words(r, w, 1, t, 0);
}

/*
 * What the function graph tracer has put its own address in the place of; and the same of kretprobes, and of what
 * else hooks returns as they do.
 */
static void each_other(const struct ki_ranges *r, struct task_struct *t, bool asleep, other_words look)
{
#ifdef CONFIG_FUNCTION_GRAPH_TRACER
	struct ftrace_ret_stack *e;
	int i;

	for (i = 0; t->ret_stack && (e = ftrace_graph_get_ret_stack(t, i)); i++)
		look(r, &e->ret, t, asleep);
#endif
#ifdef CONFIG_RETHOOK
	struct rethook_node *h;

	llist_for_each_entry(h, t->rethooks.first, llist)
		look(r, &h->ret_addr, t, asleep);
#endif
#if defined(CONFIG_KRETPROBES) && !defined(CONFIG_KRETPROBE_ON_RETHOOK)
	struct kretprobe_instance *k;

	llist_for_each_entry(k, t->kretprobe_instances.first, llist)
		look(r, (unsigned long *)&k->ret_addr, t, asleep);
#endif
}

/*
 * Where the kernel's part of a stack ends: above are the registers of the user,
 * who may put there what he likes.
 */
static unsigned long stack_end(struct task_struct *t, unsigned long stack)
{
	return t->flags & PF_KTHREAD ? stack + THREAD_SIZE : (unsigned long)task_pt_regs(t);
}

/* All CPUs stand still: of so many frames of a scan is asked, and the rest may be in patches. */
#define FRAMES_MAX	20000
static int frames_left;

/* Is it in no patch, nor where one might be? With ki_lock held, as all scans. */
static bool elsewhere(const void *arg, unsigned long addr)
{
	const struct ki_ranges *r = arg;

	return frames_left-- > 0 && !interval_tree_iter_first(r->tree, addr, addr) &&
	       !ki_area_has_code(addr, 1) && !ki_area_has_code(addr - 1, 1);
}

/*
 * What is in place of a return address, as tracers have it, is where a function begins: it
 * is none. And nobody can tell instructions apart behind what is spliced.
 */
unsigned long ki_function_of(unsigned long addr)
{
	unsigned long size, off;

	if (!kallsyms_lookup_size_offset(addr, &size, &off) || !off ||
	    !kallsyms_lookup_size_offset(addr - 1, &size, &off) ||
	    ki_text_spliced(addr - 1 - off, addr - 1))
		return 0;
	return addr - 1 - off;
}

/* It is on its stack: the stopper thread of a CPU. */
static bool runs(const struct task_struct *t)
{
#ifdef CONFIG_SMP
	if (READ_ONCE(t->on_cpu))
		return true;
#endif
	return t == current;
}

static void scan_task(const struct ki_ranges *r, struct task_struct *t, bool asleep)
{
	const unsigned long *words, *saved = NULL, *pc = NULL;
	unsigned long stack, sp, end;
	unsigned int n, n_saved = 0;
	void *base;
	bool on;

	base = try_get_task_stack(t);
	if (!base)
		return;		/* dead, and off its stack */
	stack = (unsigned long)base;
	end = stack_end(t, stack);
	sp = ki_arch_saved(t, &saved, &n_saved, &pc);
	if (t == ki_caller.task) {
		sp = ki_caller.frame;	/* who asks is not in a patch below that, */
		n_saved = 0;		/* and its registers are there */
	}
	if (runs(t))
		n_saved = 0;		/* they are of when it slept, and what it runs now has no patches */
	on = sp >= stack && sp < stack + THREAD_SIZE;
	if (!on)
		sp = stack;
	sp = round_up(sp, sizeof(long));
	words = (unsigned long *)sp;
	n = sp < end ? (end - sp) / sizeof(long) : 0;
	/* A shadow of a stack would have to be changed as well. */
	if (r->resumes && !runs(t) && !IS_ENABLED(CONFIG_SHADOW_CALL_STACK)) {
		n_resumed = 0;
		if (pc)		/* on no stack, and signed by nobody */
			resume_other(r, (unsigned long *)pc, t, asleep);
		each_other(r, t, asleep, resume_other);
		resume_words(r, (unsigned long *)sp, n, t, end);
		resume_saved((unsigned long *)saved, n_saved);
	}
	scan_words(r, saved, n_saved, t, asleep);
	/* These have what is in no frame, as others' addresses are there instead. */
	each_other(r, t, asleep, scan_other);
	if (scan_words(r, words, n, NULL, asleep) && !(asleep && on && ki_arch_returns(t, elsewhere, r)))
		scan_words(r, words, n, t, asleep);
	put_task_stack(t);
}

/*
 * On one CPU, while the others wait with interrupts off. The tasks that are
 * "running" are the waiting stopper threads, so nobody is on a stack of interrupts.
 * The idle tasks are on no list. They are never preempted, and have given their CPUs
 * away by a call, out of which they may return into a patch that has made it. Those of
 * CPUs that are offline are looked at, too: they go on when theirs come.
 */
struct scan {
	const struct ki_ranges *r;
	unsigned long seen;	/* stacks that are counted */
	bool all;
};

/* Stacks that the kernel counts, in KiB. Nobody changes that meanwhile. */
static long stacks_kb(void)
{
	long kb = 0;
	int node, cpu;

	for_each_online_node(node) {
		pg_data_t *n = NODE_DATA(node);

		kb += atomic_long_read(&n->vm_stat[NR_KERNEL_STACK_KB]);
		for_each_possible_cpu(cpu)
			kb += per_cpu_ptr(n->per_cpu_nodestats, cpu)->vm_node_stat_diff[NR_KERNEL_STACK_KB];
	}
	return kb;
}

static int scan_all(void *arg)
{
	struct scan *s = arg;
	struct task_struct *p, *t;
	int cpu;

	rcu_read_lock();
	/* All CPUs are stopped, so who sleeps goes on sleeping. */
	for_each_process_thread(p, t) {
		scan_task(s->r, t, ki_asleep(t));
		s->seen += !t->exit_state;	/* one that ends may be counted no more */
	}
	rcu_read_unlock();
	for_each_possible_cpu(cpu) {
		t = idle_task(cpu);
		if (t)
			scan_task(s->r, t, true);
		s->seen += t && t != &init_task;	/* whose stack was not made */
	}
	s->all = stacks_kb() == s->seen * (THREAD_SIZE / 1024);
	return 0;
}

bool ki_stacks_scan(const struct ki_ranges *r)
{
	struct scan s = { .r = r };

	frames_left = FRAMES_MAX;
	stop_machine(scan_all, &s, NULL);
	return s.all;
}
