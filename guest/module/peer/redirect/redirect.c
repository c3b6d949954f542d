// SPDX-License-Identifier: GPL-2.0
/*
 * redirect.ko - takes the place of a live patch: somebody who may send a
 * function's callers elsewhere when it is entered.
 *
 *   insmod redirect.ko function=vfs_read
 *   rmmod redirect
 *
 * It sends them nowhere. To ftrace the flag is what counts.
 */
#include <linux/ftrace.h>
#include <linux/module.h>
#include <linux/string.h>

static char *function;
module_param(function, charp, 0400);
MODULE_PARM_DESC(function, "name of a function that ftrace can call out of");

static void on_entry(unsigned long ip, unsigned long parent, struct ftrace_ops *ops,
		     struct ftrace_regs *regs)
{
}

static struct ftrace_ops ops = {
	.func = on_entry,
	.flags = FTRACE_OPS_FL_IPMODIFY | FTRACE_OPS_FL_SAVE_REGS_IF_SUPPORTED,
};

static int __init redirect_init(void)
{
	int err;

	if (!function) {
		pr_err("redirect: say whom: function=NAME\n");
		return -EINVAL;
	}
	err = ftrace_set_filter(&ops, function, strlen(function), 1);
	return err ? err : register_ftrace_function(&ops);
}

static void __exit redirect_exit(void)
{
	unregister_ftrace_function(&ops);
}

module_init(redirect_init);
module_exit(redirect_exit);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("An ftrace user that may change the instruction pointer");
