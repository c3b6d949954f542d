// SPDX-License-Identifier: GPL-2.0
/*
 * peer.c - one probe of the kernel's own with the smallest useful handler, or many
 * of them, to compare with; and something that warns.
 *
 *   insmod peer.ko addr=0xffffffff81234567 [offset=4]     kprobe
 *   insmod peer.ko kind=kprobes addrs=0x...,0x...         many, each with its own count
 *   insmod peer.ko kind=records addrs=0x...,0x...         many, each hit of which is a record
 *   insmod peer.ko kind=kretprobe addr=FUNCTION           its entry and return
 *   insmod peer.ko kind=ftrace function=NAME              its entry
 *   insmod peer.ko kind=ftrace function=NAME delay=200 addr=0x... size=N
 *                                                         the same, and what calls it from there waits
 *   insmod peer.ko kind=warned                            nothing, but of warned
 *   echo 7 >/sys/module/peer/parameters/warned; cat /sys/module/peer/parameters/warned
 *                                                         what comes of a number; of 7, with
 *                                                         a warning
 *   cat /sys/module/peer/parameters/hits
 *   cat /proc/peer                                        of many: address, hits (of
 *                                                         records 0: they are in hits
 *                                                         together), error
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
#include <linux/delay.h>
#include <linux/ftrace.h>
#include <linux/kprobes.h>
#include <linux/module.h>
#include <linux/percpu.h>
#include <linux/proc_fs.h>
#include <linux/seq_file.h>

static unsigned long addr;
module_param(addr, ulong, 0400);
MODULE_PARM_DESC(addr, "address of an instruction in kernel text");

static unsigned long offset;
module_param(offset, ulong, 0400);
MODULE_PARM_DESC(offset, "bytes to add to addr");

static char *kind = "kprobe";
module_param(kind, charp, 0400);
MODULE_PARM_DESC(kind, "kprobe, kprobes, records, kretprobe, ftrace or warned");

#define MANY 65536
static unsigned long addrs[MANY];
static int many;
module_param_array(addrs, ulong, &many, 0400);
MODULE_PARM_DESC(addrs, "addresses of instructions, for kind=kprobes and kind=records");

static char *function;
module_param(function, charp, 0400);
MODULE_PARM_DESC(function, "name of the function that ftrace is asked for");

static unsigned int delay;
module_param(delay, uint, 0400);
MODULE_PARM_DESC(delay, "microseconds that a caller in [addr, addr+size) waits, for kind=ftrace");

static unsigned long size;
module_param(size, ulong, 0400);
MODULE_PARM_DESC(size, "bytes of the caller that waits");

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
	if (delay && parent - addr < size)
		udelay(delay);
}

/* One of many kprobes: its own count, per CPU as that of a single one. */
static struct counted {
	struct kprobe probe;
	unsigned long __percpu *hits;
	int error; /* why it is not there, as an errno below zero */
} *counted;

static int count_own(struct kprobe *p, struct pt_regs *regs)
{
	this_cpu_inc(*container_of(p, struct counted, probe)->hits);
	return 0;
}
NOKPROBE_SYMBOL(count_own);

/*
 * A record of a hit is the probe's address, in the CPU's own ring: the newest are written
 * over the oldest. As many as come are counted in hit.
 */
#define RECORDS 2048 /* a power of two; of 8 bytes, so that alloc_percpu has room */
static unsigned long __percpu (*records)[RECORDS];

static int record(struct kprobe *p, struct pt_regs *regs)
{
	unsigned long n = this_cpu_inc_return(hit) - 1;

	(*this_cpu_ptr(records))[n % RECORDS] = (unsigned long)p->addr;
	return 0;
}
NOKPROBE_SYMBOL(record);

static kprobe_pre_handler_t handler = count_own; /* of each of many */

/* One line for each address in the order in which they were given. */
static int counted_show(struct seq_file *m, void *unused)
{
	unsigned long sum;
	int i, cpu;

	for (i = 0; i < many; i++) {
		sum = 0;
		for_each_possible_cpu(cpu)
			sum += *per_cpu_ptr(counted[i].hits, cpu);
		seq_printf(m, "%#lx %lu %d\n", addrs[i], sum, counted[i].error);
	}
	return 0;
}

static void free_counted(void)
{
	int i;

	for (i = 0; i < many; i++)
		free_percpu(counted[i].hits);
	kvfree(counted);
}

/* Those that the kernel refuses are left out, and say so. */
static int register_counted_peers(void)
{
	int i;

	if (!many)
		return -EINVAL;
	counted = kvcalloc(many, sizeof(*counted), GFP_KERNEL);
	if (!counted)
		return -ENOMEM;
	for (i = 0; i < many; i++) {
		counted[i].hits = alloc_percpu(unsigned long);
		if (!counted[i].hits)
			goto no_memory;
	}
	if (!proc_create_single("peer", 0400, NULL, counted_show))
		goto no_memory;
	for (i = 0; i < many; i++) {
		counted[i].probe.pre_handler = handler;
		counted[i].probe.addr = (kprobe_opcode_t *)addrs[i];
		counted[i].error = register_kprobe(&counted[i].probe);
	}
	return 0;
no_memory:
	free_counted(); /* free_percpu(NULL) does nothing */
	return -ENOMEM;
}

static void unregister_counted_peers(void)
{
	struct kprobe **live = kvmalloc_array(many, sizeof(*live), GFP_KERNEL | __GFP_NOFAIL);
	int i, n = 0;

	remove_proc_entry("peer", NULL);
	for (i = 0; i < many; i++)
		if (!counted[i].error)
			live[n++] = &counted[i].probe;
	/* All at once: each call waits until no CPU can be in a handler. */
	unregister_kprobes(live, n);
	kvfree(live);
	free_counted();
}

static int register_record_peers(void)
{
	int err;

	records = __alloc_percpu(sizeof(*records), sizeof(long));
	if (!records)
		return -ENOMEM;
	handler = record;
	err = register_counted_peers();
	if (err)
		free_percpu(records);
	return err;
}

static void unregister_record_peers(void)
{
	unregister_counted_peers();
	free_percpu(records);
}

static struct ftrace_ops tracer = { .func = entered };

static int register_ftrace_peer(void)
{
	int err;

	if (!function || delay > 1000)	/* nothing else gets the CPU meanwhile */
		return -EINVAL;
	err = ftrace_set_filter(&tracer, function, strlen(function), 1);
	return err ? err : register_ftrace_function(&tracer);
}

static void unregister_ftrace_peer(void)
{
	unregister_ftrace_function(&tracer);
	ftrace_free_filter(&tracer);
}

/*
 * Where the kernel warns, it goes on: what is computed before and behind it must be there
 * in the registers. Not inline, nor of constants: it has a name in the warning.
 */
static noinline unsigned long peer_warned(unsigned long n, unsigned long by)
{
	unsigned long sum = n;

	while (n > 1) {
		sum = sum * by + n;
		n = n & 1 ? 3 * n + 1 : n / 2;
		if (WARN_ON(n == 22)) /* 7's next */
			sum ^= READ_ONCE(delay) + 0x55; /* into a register that is free before */
	}
	return sum;
}

static unsigned long came;

static int warned_set(const char *val, const struct kernel_param *kp)
{
	unsigned long n;
	int err = kstrtoul(val, 0, &n);

	if (err || !n || n > 1000)
		return err ?: -EINVAL;
	came = peer_warned(n, READ_ONCE(many) + 31);
	return 0;
}

static int warned_get(char *buf, const struct kernel_param *kp)
{
	return sysfs_emit(buf, "%lu\n", came);
}

static const struct kernel_param_ops warned_ops = { .set = warned_set, .get = warned_get };
module_param_cb(warned, &warned_ops, NULL, 0600);
MODULE_PARM_DESC(warned, "a number up to 1000, and what comes of it; there is a warning on 7's way");

static int register_nothing(void)
{
	return 0;
}

static void unregister_nothing(void)
{
}

static const struct peer {
	const char *kind;
	int (*begin)(void);
	void (*end)(void);
} peers[] = {
	{ "kprobe", register_kprobe_peer, unregister_kprobe_peer },
	{ "kprobes", register_counted_peers, unregister_counted_peers },
	{ "records", register_record_peers, unregister_record_peers },
	{ "kretprobe", register_kretprobe_peer, unregister_kretprobe_peer },
	{ "ftrace", register_ftrace_peer, unregister_ftrace_peer },
	{ "warned", register_nothing, unregister_nothing },
};

static const struct peer *peer;

static int __init peer_init(void)
{
	int i;

	if (!addr && !many && strcmp(kind, "warned") && strcmp(kind, "ftrace")) {
		pr_err("peer: say which instruction: addr=0x..., or addrs=0x...,0x...\n");
		return -EINVAL;
	}
	for (i = 0; i < ARRAY_SIZE(peers); i++)
		if (!strcmp(kind, peers[i].kind))
			peer = &peers[i];
	if (!peer) {
		pr_err("peer: kind=%s is not known: kprobe, kprobes, records, kretprobe, ftrace or warned\n", kind);
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
MODULE_DESCRIPTION("Counts the hits of the kernel's own probes");
