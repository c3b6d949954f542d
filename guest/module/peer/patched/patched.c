// SPDX-License-Identifier: GPL-2.0
/*
 * patched.ko - a live patch, where the kernel has those: /proc/cmdline says that it is patched.
 *
 *   insmod patched.ko
 *   echo 0 >/sys/kernel/livepatch/patched/enabled; rmmod patched
 */
#include <linux/livepatch.h>
#include <linux/module.h>
#include <linux/seq_file.h>

#ifdef CONFIG_LIVEPATCH
static int patched_show(struct seq_file *m, void *v)
{
	seq_puts(m, "patched\n");
	return 0;
}

static struct klp_func funcs[] = {
	{ .old_name = "cmdline_proc_show", .new_func = patched_show },
	{ }
};

static struct klp_object objs[] = {
	{ .funcs = funcs },	/* without a name: the kernel itself */
	{ }
};

static struct klp_patch patch = {
	.mod = THIS_MODULE,
	.objs = objs,
};

static int __init patched_init(void)
{
	return klp_enable_patch(&patch);
}

MODULE_INFO(livepatch, "Y");
#else
static int __init patched_init(void)
{
	return -EOPNOTSUPP;
}
#endif

static void __exit patched_exit(void)
{
}

module_init(patched_init);
module_exit(patched_exit);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("A live patch");
