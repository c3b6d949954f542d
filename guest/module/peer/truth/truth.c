// SPDX-License-Identifier: GPL-2.0
/*
 * truth.c - functions that know how often they are called, how long they take and what they
 * return: what is measured of them from outside can be held against that.
 *
 *   insmod truth.ko
 *   echo sleep 20 >/proc/truth     calls truth_sleep() for 20 ms, in the writer's context
 *   echo again 20 >/proc/truth     comes 20 times by a block of truth_parts(), for 1 ms each
 *   echo returns 1000 >/proc/truth calls truth_returns() with each number below 1000
 *   echo waits 1 >/proc/truth      sleeps in what truth_waits() jumps to, until
 *   echo wake 1 >/proc/truth       wakes one
 *   cat /proc/truth                of each function: name, calls, nanoseconds inside,
 *                                  nanoseconds that its callers waited, those of the
 *                                  nanoseconds inside in which its task had a CPU, and the
 *                                  sum of what it returned
 *   rmmod truth
 *
 * A call's time is from behind its first instructions to before its last ones; what its
 * caller waits is from before the call to behind it. What is measured at the function's
 * first instruction and its way out is between the two, whoever takes the CPU away where:
 * an emulator's host may, for milliseconds. Time inside a call of a call is inside both.
 *
 * A task has no CPU from when the kernel says that it switches from it to when it says that
 * it has switched to it: less than half a microsecond of the switch is not the task's then.
 * A kernel without CONFIG_PREEMPT_NOTIFIERS does not say so: that column is 0.
 */
#include <linux/atomic.h>
#include <linux/completion.h>
#include <linux/cpumask.h>
#include <linux/delay.h>
#include <linux/kernel.h>
#include <linux/math.h>
#include <linux/ktime.h>
#include <linux/module.h>
#include <linux/preempt.h>
#include <linux/proc_fs.h>
#include <linux/sched.h>
#include <linux/seq_file.h>
#include <linux/uaccess.h>

#include "../../compat.h"

struct truth {
	atomic64_t calls, ns, waited, ran, returned;
};

/* One call, on its task's stack. */
struct stay {
#ifdef CONFIG_PREEMPT_NOTIFIERS
	struct preempt_notifier switches;
#endif
	u64 since, away, left;
};

#ifdef CONFIG_PREEMPT_NOTIFIERS
static void switch_from(struct preempt_notifier *n, struct task_struct *to)
{
	container_of(n, struct stay, switches)->left = ktime_get_ns();
}

static void switch_to_it(struct preempt_notifier *n, int cpu)
{
	struct stay *s = container_of(n, struct stay, switches);

	s->away += ktime_get_ns() - s->left;
}

static struct preempt_ops switch_ops = { .sched_out = switch_from, .sched_in = switch_to_it };

static __always_inline void watch(struct stay *s)
{
	preempt_notifier_init(&s->switches, &switch_ops);
	preempt_notifier_register(&s->switches);
}

static __always_inline void unwatch(struct stay *s)
{
	preempt_notifier_unregister(&s->switches);
}

#define watched(on) do { if (on) preempt_notifier_inc(); else preempt_notifier_dec(); } while (0)
#else /* a kernel without KVM, which selects them: of no call it is known how long its task had a CPU */
static __always_inline void watch(struct stay *s) { }
static __always_inline void unwatch(struct stay *s) { }
#define watched(on) do { } while (0)
#endif

static __always_inline u64 enter(struct stay *s)
{
	s->since = ktime_get_ns();
	s->away = 0;
	watch(s);
	return s->since;
}

static __always_inline void leave(struct truth *t, struct stay *s)
{
	u64 ns;

	unwatch(s);
	atomic64_inc(&t->calls);
	ns = ktime_get_ns() - s->since;
	atomic64_add(ns, &t->ns);
	if (IS_ENABLED(CONFIG_PREEMPT_NOTIFIERS))
		atomic64_add(ns - s->away, &t->ran);
}

/* Calls a function, for its caller. */
#define CALL(function, truth, ...)					\
	do {								\
		u64 since = ktime_get_ns();				\
									\
		function(__VA_ARGS__);					\
		atomic64_add(ktime_get_ns() - since, &(truth)->waited);	\
	} while (0)

/* A function of its own, with its truth, its caller, and a place in the kernel's symbols. */
#define TRUTH(name)							\
	static struct truth of_##name;					\
	static noinline __noclone void truth_##name(unsigned int ms);	\
	static void call_##name(unsigned int ms)			\
	{								\
		CALL(truth_##name, &of_##name, ms);			\
	}								\
	static noinline __noclone void truth_##name(unsigned int ms)

static __always_inline void busy(unsigned int ms)
{
	u64 end = ktime_get_ns() + (u64)ms * NSEC_PER_MSEC;

	while (ktime_get_ns() < end)
		cpu_relax();
}

TRUTH(sleep)
{
	struct stay s;

	enter(&s);
	usleep_range(ms * 1000, ms * 1000);
	leave(&of_sleep, &s);
}

TRUTH(spin)
{
	struct stay s;

	enter(&s);
	busy(ms);
	leave(&of_spin, &s);
}

/* Gives its CPU away to whoever wants it, again and again. */
TRUTH(give)
{
	struct stay s;
	u64 end = enter(&s) + (u64)ms * NSEC_PER_MSEC;

	while (ktime_get_ns() < end)
		schedule();
	leave(&of_give, &s);
}

TRUTH(nest)
{
	struct stay s;

	enter(&s);
	call_spin(ms / 2);
	call_sleep(ms - ms / 2);
	leave(&of_nest, &s);
}

/* Three deep: each call is inside for as long as it and those below it. */
static struct truth of_recur;
static noinline __noclone void recurse(unsigned int ms, unsigned int deep)
{
	struct stay s;

	enter(&s);
	usleep_range(ms * 1000, ms * 1000);
	if (deep > 1)
		CALL(recurse, &of_recur, ms, deep - 1);
	leave(&of_recur, &s);
}

static void call_recur(unsigned int ms)
{
	CALL(recurse, &of_recur, ms, 3);
}

/* Where truth_tail goes on: says when, and stays for a while. */
static noinline __noclone void tailed(unsigned int ms, u64 *since)
{
	*since = ktime_get_ns();
	busy(ms);
}

/*
 * Its way out is a jump to another function (see Kbuild), which the compiler does not make
 * with what others know of on the stack: so the caller has that.
 */
static struct truth of_tail;
static noinline __noclone void truth_tail(unsigned int ms, u64 *left, struct stay *s)
{
	enter(s);
	usleep_range(ms * 1000, ms * 1000);
	leave(&of_tail, s);
	tailed(ms, left);
}

static void call_tail(unsigned int ms)
{
	u64 left, since = ktime_get_ns();
	struct stay s;

	truth_tail(ms, &left, &s);
	atomic64_add(left - since, &of_tail.waited);
}

/* Begins on one CPU and ends on another, where there is another. */
TRUTH(migrate)
{
	unsigned int here = raw_smp_processor_id();
	unsigned int there = cpumask_next(here, cpu_online_mask);
	struct stay s;

	enter(&s);
	if (there >= nr_cpu_ids)
		there = cpumask_first(cpu_online_mask);
	set_cpus_allowed_ptr(current, cpumask_of(there));
	busy(ms);
	set_cpus_allowed_ptr(current, cpu_possible_mask);
	leave(&of_migrate, &s);
}

/* What it loads is not there: the kernel's handler goes on elsewhere in it. */
TRUTH(fault)
{
	struct stay s;
	long v;

	enter(&s);
	busy(ms);
	if (get_kernel_nofault(v, (long *)8))
		leave(&of_fault, &s);
}

/*
 * A function with parts, each of which is a basic block: who calls goes through one of them,
 * and a part's truth is of the time from behind its begin to before its end. A mark of its
 * own keeps the compiler from putting what parts have in common into one block.
 */
static noinline __noclone void stay_busy(unsigned int ms)
{
	busy(ms);
}

enum part { PART_ASLEEP, PART_BUSY, PART_AGAIN, PARTS };

static struct truth of_part[PARTS];

#define PART(part, what)						\
	do {								\
		u64 since = ktime_get_ns();				\
									\
		what;							\
		atomic64_add(ktime_get_ns() - since, &of_part[part].ns); \
		atomic64_inc(&of_part[part].calls);			\
		asm volatile("" : : "i" (part) : "memory");		\
	} while (0)

static noinline __noclone void truth_parts(unsigned int ms, enum part part)
{
	unsigned int n;

	if (part == PART_ASLEEP)
		PART(PART_ASLEEP, usleep_range(ms * 1000, ms * 1000));
	else if (part == PART_BUSY)
		PART(PART_BUSY, stay_busy(ms));
	else
		for (n = 0; n < ms; n++)
			PART(PART_AGAIN, usleep_range(1000, 1000));
	barrier();
}

static void call_asleep(unsigned int ms)
{
	CALL(truth_parts, &of_part[PART_ASLEEP], ms, PART_ASLEEP);
}

static void call_busy(unsigned int ms)
{
	CALL(truth_parts, &of_part[PART_BUSY], ms, PART_BUSY);
}

static void call_again(unsigned int ms)
{
	CALL(truth_parts, &of_part[PART_AGAIN], ms, PART_AGAIN);
}

/*
 * What follows has ways out by a return and by jumps to functions of the kernel's, which
 * return what is known. The compiler must not know it.
 */
static __always_inline void returned(struct truth *t, s64 value)
{
	atomic64_inc(&t->calls);
	atomic64_add(value, &t->returned);
}

static struct truth of_returns;
static noinline __noclone unsigned long truth_returns(unsigned long n)
{
	if (n % 3 == 0)
		return 5 * n;
	barrier();
	return int_sqrt(n);
}

static void call_returns(unsigned int below)
{
	u64 since = ktime_get_ns();
	unsigned int n;

	for (n = 0; n < below; n++)
		returned(&of_returns, truth_returns(n));
	atomic64_add(ktime_get_ns() - since, &of_returns.waited);
}

/* -1 for what is no digit. */
static struct truth of_signs;
static noinline __noclone int truth_signs(unsigned int n)
{
	if (n % 3 == 0)
		return -5;
	barrier();
	return hex_to_bin(n);
}

static void call_signs(unsigned int below)
{
	unsigned int n;

	for (n = 0; n < below; n++)
		returned(&of_signs, truth_signs(n & 0x7f));
}

/* Sleeps where it jumps to until somebody wakes it, and returns 0, or 7 at once. */
static DECLARE_COMPLETION(woken);
static struct truth of_waits;
static noinline __noclone int truth_waits(unsigned int wait)
{
	if (!wait)
		return 7;
	barrier();
	return wait_for_completion_interruptible(&woken);
}

static void call_waits(unsigned int wait)
{
	returned(&of_waits, truth_waits(wait));
}

static void wake(unsigned int n)
{
	while (n--)
		complete(&woken);
}

static const struct {
	const char *name, *symbol;
	void (*call)(unsigned int ms);
	struct truth *truth;
} functions[] = {
	{ "sleep", "truth_sleep", call_sleep, &of_sleep },
	{ "spin", "truth_spin", call_spin, &of_spin },
	{ "give", "truth_give", call_give, &of_give },
	{ "nest", "truth_nest", call_nest, &of_nest },
	{ "recur", "recurse", call_recur, &of_recur },
	{ "tail", "truth_tail", call_tail, &of_tail },
	{ "migrate", "truth_migrate", call_migrate, &of_migrate },
	{ "fault", "truth_fault", call_fault, &of_fault },
	{ "asleep", "part_asleep", call_asleep, &of_part[PART_ASLEEP] },
	{ "busy", "part_busy", call_busy, &of_part[PART_BUSY] },
	{ "again", "part_again", call_again, &of_part[PART_AGAIN] },
	{ "returns", "truth_returns", call_returns, &of_returns },
	{ "signs", "truth_signs", call_signs, &of_signs },
	{ "waits", "truth_waits", call_waits, &of_waits },
};

static ssize_t call(struct file *file, const char __user *from, size_t n, loff_t *pos)
{
	char line[32] = {}, name[17];
	unsigned int ms, i;

	if (n >= sizeof(line))
		return -EINVAL;
	if (copy_from_user(line, from, n))
		return -EFAULT;
	if (sscanf(line, "%16s %u", name, &ms) != 2 || ms > 100000)
		return -EINVAL;
	if (!strcmp(name, "wake")) {
		wake(ms);
		return n;
	}
	for (i = 0; i < ARRAY_SIZE(functions); i++) {
		if (strcmp(name, functions[i].name))
			continue;
		functions[i].call(ms);
		return n;
	}
	return -ENOENT;
}

static int show(struct seq_file *m, void *v)
{
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(functions); i++)
		seq_printf(m, "%s %lld %lld %lld %lld %lld\n", functions[i].symbol,
			   atomic64_read(&functions[i].truth->calls),
			   atomic64_read(&functions[i].truth->ns),
			   atomic64_read(&functions[i].truth->waited),
			   atomic64_read(&functions[i].truth->ran),
			   atomic64_read(&functions[i].truth->returned));
	return 0;
}

static int open_truth(struct inode *inode, struct file *file)
{
	return single_open(file, show, NULL);
}

static const struct proc_ops ops = {
	.proc_open = open_truth,
	.proc_read = seq_read,
	.proc_lseek = seq_lseek,
	.proc_release = single_release,
	.proc_write = call,
};

static int __init truth_init(void)
{
	if (!proc_create("truth", 0600, NULL, &ops))
		return -ENOMEM;
	watched(true);
	return 0;
}

static void __exit truth_exit(void)
{
	remove_proc_entry("truth", NULL);
	watched(false);
}

module_init(truth_init);
module_exit(truth_exit);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("Functions that know how long they take, and what they return");
