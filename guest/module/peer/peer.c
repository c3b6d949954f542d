// SPDX-License-Identifier: GPL-2.0
/*
 * peer.c - one probe of the kernel's own with the smallest useful handler, to
 * compare with.
 *
 *   insmod peer.ko addr=0xffffffff81234567 [offset=4]     kprobe
 *   insmod peer.ko kind=kretprobe addr=FUNCTION           its entry and return
 *   insmod peer.ko kind=ftrace function=NAME              its entry
 *   cat /sys/module/peer/parameters/hits
 *   rmmod peer
 *
 * Whether the kernel turns the probe into a jump (amd64, optprobes) is the
 * user's choice and is made by sysctl before loading:
 *   echo 0 > /proc/sys/debug/kprobes-optimization     it stays a trap
 *   echo 1 > /proc/sys/debug/kprobes-optimization     a jump, some jiffies after
 *                                                     loading, where possible
 * A post_handler would forbid the optimisation too, but it would be called and
 * so change what is measured. /sys/kernel/debug/kprobes/list shows what the
 * kernel did.
 */
#include <linux/ftrace.h>
#include <linux/kprobes.h>
#include <linux/module.h>
#include <linux/percpu.h>

static unsigned long addr;
module_param(addr, ulong, 0400);
MODULE_PARM_DESC(addr, "address of an instruction in kernel text");

static unsigned long offset;
module_param(offset, ulong, 0400);
MODULE_PARM_DESC(offset, "bytes to add to addr");

static char *kind = "kprobe";
module_param(kind, charp, 0400);
MODULE_PARM_DESC(kind, "kprobe, kretprobe or ftrace");

static char *function;
module_param(function, charp, 0400);
MODULE_PARM_DESC(function, "name of the function that ftrace is asked for");

/* Per CPU: an increment that two CPUs share would lose updates, or cost more. */
static DEFINE_PER_CPU(unsigned long, hit);

static int hits_get(char *buf, const struct kernel_param *kp)
{
	unsigned long sum = 0;
	int cpu;

	for_each_possible_cpu(cpu)
		sum += per_cpu(hit, cpu);
	return sysfs_emit(buf, "%lu\n", sum);
}

static const struct kernel_param_ops hits_ops = { .get = hits_get };
module_param_cb(hits, &hits_ops, NULL, 0444);
MODULE_PARM_DESC(hits, "how often the probe was hit (read only)");

static int count(struct kprobe *p, struct pt_regs *regs)
{
	this_cpu_inc(hit);
	return 0;
}
NOKPROBE_SYMBOL(count);

static struct kprobe probe = { .pre_handler = count };

static int register_kprobe_peer(void)
{
	probe.addr = (kprobe_opcode_t *)(addr + offset);
	return register_kprobe(&probe);
}

static void unregister_kprobe_peer(void)
{
	unregister_kprobe(&probe);
}

/* Counted when the function returns: the way there is part of what it costs. */
static int returned(struct kretprobe_instance *ri, struct pt_regs *regs)
{
	this_cpu_inc(hit);
	return 0;
}
NOKPROBE_SYMBOL(returned);

static struct kretprobe retprobe = { .handler = returned, .maxactive = 64 };

static int register_kretprobe_peer(void)
{
	retprobe.kp.addr = (kprobe_opcode_t *)addr;
	return register_kretprobe(&retprobe);
}

static void unregister_kretprobe_peer(void)
{
	unregister_kretprobe(&retprobe);
}

static void notrace entered(unsigned long ip, unsigned long parent,
			    struct ftrace_ops *ops, struct ftrace_regs *fregs)
{
	this_cpu_inc(hit);
}

static struct ftrace_ops tracer = { .func = entered };

static int register_ftrace_peer(void)
{
	int err;

	if (!function)
		return -EINVAL;
	err = ftrace_set_filter(&tracer, function, strlen(function), 1);
	return err ? err : register_ftrace_function(&tracer);
}

static void unregister_ftrace_peer(void)
{
	unregister_ftrace_function(&tracer);
	ftrace_free_filter(&tracer);
}

static const struct peer {
	const char *kind;
	int (*begin)(void);
	void (*end)(void);
} peers[] = {
	{ "kprobe", register_kprobe_peer, unregister_kprobe_peer },
	{ "kretprobe", register_kretprobe_peer, unregister_kretprobe_peer },
	{ "ftrace", register_ftrace_peer, unregister_ftrace_peer },
};

static const struct peer *peer;

static int __init peer_init(void)
{
	int i;

	if (!addr) {
		pr_err("peer: say which instruction: addr=0x...\n");
		return -EINVAL;
	}
	for (i = 0; i < ARRAY_SIZE(peers); i++)
		if (!strcmp(kind, peers[i].kind))
			peer = &peers[i];
	if (!peer) {
		pr_err("peer: kind=%s is not known: kprobe, kretprobe or ftrace\n", kind);
		return -EINVAL;
	}
	return peer->begin();
}

static void __exit peer_exit(void)
{
	peer->end();
}

module_init(peer_init);
module_exit(peer_exit);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("Counts the hits of one probe of the kernel");
