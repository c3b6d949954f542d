// SPDX-License-Identifier: GPL-2.0
/*
 * truth.c - functions that know how often they are called, how long they take and what they
 * return: what is measured of them from outside can be held against that.
 *
 *   insmod truth.ko
 *   echo sleep 20 >/proc/truth     calls truth_sleep() for 20 ms, in the writer's context
 *   echo returns 1000 >/proc/truth calls truth_returns() with each number below 1000
 *   echo waits 1 >/proc/truth      sleeps in what truth_waits() jumps to, until
 *   echo wake 1 >/proc/truth       wakes one
 *   cat /proc/truth                of each function: name, calls, nanoseconds inside,
 *                                  nanoseconds that its callers waited, and the sum of what
 *                                  it returned
 *   rmmod truth
 *
 * A call's time is from behind its first instructions to before its last ones; what its
 * caller waits is from before the call to behind it. What is measured at the function's
 * first instruction and its way out is between the two, whoever takes the CPU away where:
 * an emulator's host may, for milliseconds. Time inside a call of a call is inside both.
 */
#include <linux/atomic.h>
#include <linux/completion.h>
#include <linux/cpumask.h>
#include <linux/delay.h>
#include <linux/kernel.h>
#include <linux/math.h>
#include <linux/ktime.h>
#include <linux/module.h>
#include <linux/proc_fs.h>
#include <linux/sched.h>
#include <linux/seq_file.h>
#include <linux/uaccess.h>

struct truth {
	atomic64_t calls, ns, waited, returned;
};

static __always_inline u64 enter(void)
{
	return ktime_get_ns();
}

static __always_inline void leave(struct truth *t, u64 since)
{
	atomic64_inc(&t->calls);
	atomic64_add(ktime_get_ns() - since, &t->ns);
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
	u64 t = enter();

	usleep_range(ms * 1000, ms * 1000);
	leave(&of_sleep, t);
}

TRUTH(spin)
{
	u64 t = enter();

	busy(ms);
	leave(&of_spin, t);
}

/* Gives its CPU away to whoever wants it, again and again. */
TRUTH(give)
{
	u64 t = enter(), end = t + (u64)ms * NSEC_PER_MSEC;

	while (ktime_get_ns() < end)
		schedule();
	leave(&of_give, t);
}

TRUTH(nest)
{
	u64 t = enter();

	call_spin(ms / 2);
	call_sleep(ms - ms / 2);
	leave(&of_nest, t);
}

/* Three deep: each call is inside for as long as it and those below it. */
static struct truth of_recur;
static noinline __noclone void recurse(unsigned int ms, unsigned int deep)
{
	u64 t = enter();

	usleep_range(ms * 1000, ms * 1000);
	if (deep > 1)
		CALL(recurse, &of_recur, ms, deep - 1);
	leave(&of_recur, t);
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

/* Its way out is a jump to another function (see Kbuild). */
static struct truth of_tail;
static noinline __noclone void truth_tail(unsigned int ms, u64 *left)
{
	u64 t = enter();

	usleep_range(ms * 1000, ms * 1000);
	leave(&of_tail, t);
	tailed(ms, left);
}

static void call_tail(unsigned int ms)
{
	u64 left, since = ktime_get_ns();

	truth_tail(ms, &left);
	atomic64_add(left - since, &of_tail.waited);
}

/* Begins on one CPU and ends on another, where there is another. */
TRUTH(migrate)
{
	u64 t = enter();
	unsigned int here = raw_smp_processor_id();
	unsigned int there = cpumask_next(here, cpu_online_mask);

	if (there >= nr_cpu_ids)
		there = cpumask_first(cpu_online_mask);
	set_cpus_allowed_ptr(current, cpumask_of(there));
	busy(ms);
	set_cpus_allowed_ptr(current, cpu_possible_mask);
	leave(&of_migrate, t);
}

/* What it loads is not there: the kernel's handler goes on elsewhere in it. */
TRUTH(fault)
{
	u64 t = enter();
	long v;

	busy(ms);
	if (get_kernel_nofault(v, (long *)8))
		leave(&of_fault, t);
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
		seq_printf(m, "%s %lld %lld %lld %lld\n", functions[i].symbol,
			   atomic64_read(&functions[i].truth->calls),
			   atomic64_read(&functions[i].truth->ns),
			   atomic64_read(&functions[i].truth->waited),
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
	return proc_create("truth", 0600, NULL, &ops) ? 0 : -ENOMEM;
}

static void __exit truth_exit(void)
{
	remove_proc_entry("truth", NULL);
}

module_init(truth_init);
module_exit(truth_exit);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("Functions that know how long they take, and what they return");
