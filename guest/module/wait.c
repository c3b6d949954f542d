// SPDX-License-Identifier: GPL-2.0
/*
 * wait.c - waits until rings have less room than somebody wants, looking at them in a timer.
 *
 * Who empties rings has to come before they are full, and patches cannot wake him: they call
 * nothing. So something has to look now and then, and mostly finds nothing to do. A task
 * that did would be switched to and back each time, and return to its program; a timer's
 * interrupt reads a word of each ring. No ring goes while its device is open, which the
 * waiting call keeps it.
 */
#include <linux/atomic.h>
#include <linux/hrtimer.h>
#include <linux/ktime.h>
#include <linux/sched.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include <linux/wait.h>

#include "compat.h"
#include "faults.h"
#include "kerninst_mod.h"

struct wait {
	struct hrtimer timer;
	struct task_struct *task;
	ktime_t period;
	u32 n;
	bool filled;
	struct ki_ring ring[];
};

/* Of who waits, and whoever wants him to stop; there is one device, and one of each. */
static atomic_t stop;
static DECLARE_WAIT_QUEUE_HEAD(stopped);

/* A state's upper half is the room in the ring, negative: see agent/snippet/ring.go. */
static bool filled(const struct ki_ring *r)
{
	const u64 *state = (const u64 *)(unsigned long)r->at;

	return (s32)(READ_ONCE(*state) >> 32) > -(s32)r->room;
}

static enum hrtimer_restart look(struct hrtimer *timer)
{
	struct wait *w = container_of(timer, struct wait, timer);
	u32 i;

	for (i = 0; i < w->n; i++) {
		if (!filled(&w->ring[i]))
			continue;
		WRITE_ONCE(w->filled, true);
		wake_up_process(w->task);
		return HRTIMER_NORESTART;
	}
	hrtimer_forward_now(timer, w->period);
	return HRTIMER_RESTART;
}

static int check(const struct wait *w)
{
	int err = 0;
	u32 i;

	mutex_lock(&ki_lock);
	for (i = 0; i < w->n && !err; i++) {
		if (!ki_area_rings(w->ring[i].at, 1))
			err = -ERANGE;
		else if (w->ring[i].room > S32_MAX || w->ring[i].reserved)
			err = -EINVAL;
	}
	mutex_unlock(&ki_lock);
	return err;
}

static int wait_for(struct wait *w, u64 ns)
{
	ktime_t end = ktime_add_ns(ktime_get(), ns);
	DEFINE_WAIT(entry);
	int err = 0;

	w->task = current;
	hrtimer_setup(&w->timer, look, CLOCK_MONOTONIC, HRTIMER_MODE_REL);
	hrtimer_start(&w->timer, w->period, HRTIMER_MODE_REL);
	for (;;) {
		prepare_to_wait(&stopped, &entry, TASK_INTERRUPTIBLE);
		if (READ_ONCE(w->filled) || atomic_xchg(&stop, 0))
			break;
		if (signal_pending(current)) {
			err = -EINTR;
			break;
		}
		if (!schedule_hrtimeout(&end, HRTIMER_MODE_ABS))
			break;
	}
	finish_wait(&stopped, &entry);
	hrtimer_cancel(&w->timer);
	return err;
}

long ki_wait(void __user *arg)
{
	struct ki_wait in;
	struct wait *w;
	int err;

	if (copy_from_user(&in, arg, sizeof(in)))
		return -EFAULT;
	if (in.n > KI_MAX_WATCHED || in.period < KI_LEAST_PERIOD || in.period > NSEC_PER_SEC ||
	    !in.timeout || in.timeout > NSEC_PER_SEC || in.reserved)
		return -EINVAL;
	w = ki_try(kzalloc(struct_size(w, ring, in.n), GFP_KERNEL));
	if (!w)
		return -ENOMEM;
	w->n = in.n;
	w->period = ns_to_ktime(in.period);
	err = 0;
	if (copy_from_user(w->ring, u64_to_user_ptr(in.rings), array_size(in.n, sizeof(w->ring[0]))))
		err = -EFAULT;
	if (!err)
		err = check(w);
	if (!err)
		err = wait_for(w, in.timeout);
	kfree(w);
	return err;
}

long ki_wake(void __user *arg)
{
	atomic_set(&stop, 1);
	wake_up_all(&stopped);
	return 0;
}
