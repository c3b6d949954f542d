// SPDX-License-Identifier: GPL-2.0
/*
 * peer.c - one kprobe with the smallest useful handler, to compare with.
 *
 *   insmod peer.ko addr=0xffffffff81234567 [offset=4]
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
#include <linux/kprobes.h>
#include <linux/module.h>
#include <linux/percpu.h>

static unsigned long addr;
module_param(addr, ulong, 0400);
MODULE_PARM_DESC(addr, "address of an instruction in kernel text");

static unsigned long offset;
module_param(offset, ulong, 0400);
MODULE_PARM_DESC(offset, "bytes to add to addr");

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

static int __init peer_init(void)
{
	if (!addr) {
		pr_err("peer: say which instruction: addr=0x...\n");
		return -EINVAL;
	}
	probe.addr = (kprobe_opcode_t *)(addr + offset);
	return register_kprobe(&probe);
}

static void __exit peer_exit(void)
{
	unregister_kprobe(&probe);
}

module_init(peer_init);
module_exit(peer_exit);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("Counts the hits of one kprobe");
