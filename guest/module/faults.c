// SPDX-License-Identifier: GPL-2.0
/*
 * faults.c - counts allocations and steps down to the one at which something is to go wrong.
 *
 * Whoever sets a parameter has the device for himself, so nobody else counts. What is left
 * of it behind a call tells that the call has not come so far.
 */
#include <linux/moduleparam.h>
#include <linux/sched.h>
#include <linux/sched/signal.h>
#include <linux/stat.h>

#include "faults.h"

static unsigned int fail_nth;
module_param(fail_nth, uint, 0600);
MODULE_PARM_DESC(fail_nth, "for tests: the n-th allocation from now on fails; 0: none");

static unsigned int kill_nth;
module_param(kill_nth, uint, 0600);
MODULE_PARM_DESC(kill_nth, "for tests: the caller is killed at the n-th step from now on; 0: nowhere");

static bool is_nth(unsigned int *left)
{
	unsigned int n = READ_ONCE(*left);

	if (likely(!n))
		return false;
	WRITE_ONCE(*left, n - 1);
	return n == 1;
}

bool ki_fails(void)
{
	return is_nth(&fail_nth);
}

void ki_step(void)
{
	if (!(current->flags & PF_KTHREAD) && is_nth(&kill_nth))
		send_sig(SIGKILL, current, 1);
}
