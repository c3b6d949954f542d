// SPDX-License-Identifier: GPL-2.0
/*
 * nap.ko - somewhere to fall asleep.
 *
 *   call nap				from a patch
 *   cat /sys/module/nap/parameters/asleep	how many tasks are in it
 *   echo 1 > /sys/module/nap/parameters/awake	lets them all return
 *   insmod nap.ko fail=1			sleeps in its init, which then fails
 *
 * nap itself (one file for each ISA) may be called from anywhere in process
 * context: it changes neither registers nor flags.
 */
#include <linux/atomic.h>
#include <linux/delay.h>
#include <linux/module.h>

static bool awake;
module_param(awake, bool, 0600);
MODULE_PARM_DESC(awake, "whether sleepers return");

static bool fail;
module_param(fail, bool, 0400);
MODULE_PARM_DESC(fail, "whether loading fails");

static atomic_t asleep;

/*
 * Named as what a compiler makes of a function, and of a part that it splits off. The first's
 * first instruction can be spliced.
 */
static notrace noinline __noclone int nap_count(void)
{
	return atomic_read(&asleep);
}

static notrace noinline __noclone int nap_count_part(void) __asm__("nap_count.part.0");
static notrace noinline __noclone int nap_count_part(void)
{
	return 2 * nap_count() / 2;
}

static int asleep_get(char *buf, const struct kernel_param *kp)
{
	return sysfs_emit(buf, "%d\n", nap_count_part());
}

static const struct kernel_param_ops asleep_ops = { .get = asleep_get };
module_param_cb(asleep, &asleep_ops, NULL, 0444);
MODULE_PARM_DESC(asleep, "tasks that sleep here (read only)");

void nap(void);
void nap_until_awake(void);

void nap_until_awake(void)
{
	atomic_inc(&asleep);
	while (!READ_ONCE(awake))
		msleep(10);
	atomic_dec(&asleep);
}

/* The symbol has to be in this module, and in /proc/kallsyms. */
static int __init nap_init(void)
{
	pr_debug("nap: at %p\n", nap);
	if (!fail)
		return 0;
	nap_until_awake();
	return -EIO;
}

static void __exit nap_exit(void)
{
}

module_init(nap_init);
module_exit(nap_exit);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("Lets tasks fall asleep inside a patch");
