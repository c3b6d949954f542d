/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * arrivals: counts, outside the guest, how often it arrives at given kernel
 * instructions, independently of anything that runs inside.
 *
 *   -plugin arrivals.so,out=FILE[,all=LEAST]
 *
 * The guest names the points and the beginning and end of a measurement by
 * executing marks: instructions at fixed user addresses (guest/bench/mark.S),
 * so that neither registers nor memory need to be read. Between the first
 * `begin` and the matching `end`, each execution of a point's first byte is
 * one arrival. When the last measurement ends, FILE gets one line per point:
 *
 *   arrivals ADDRESS TOTAL CPU0 CPU1 ...
 *
 * and, at the end of the run, the line `done`. Later blocks replace earlier
 * ones: totals are cumulative. A program that knows a moment at which no CPU is
 * on its way to a counter can have the counts set to 0 (`reset`) and written down
 * (`report`) without an end.
 *
 * With all=LEAST every instruction of the kernel is a point, and those with as many
 * arrivals are reported. That is for machines with one vCPU.
 *
 * Counters are per vCPU and written by that vCPU's thread alone: inline
 * counters of QEMU 7.2 lose updates as soon as there are two vCPUs. A point is
 * announced before it is spliced; the splice writes the text, which makes QEMU
 * translate the block anew, now with the callback.
 *
 * Freestanding, as plugin.h has it.
 */
#include "output.h"

/* As guest/bench/mark.S has them. */
#define MARK_END	(MARK_BASE + 0x40)
#define MARK_POINT	(MARK_BASE + 0x80)
#define MARK_RESET	(MARK_BASE + 0xc0)
#define MARK_REPORT	(MARK_BASE + 0xe0)
#define MARK_NIBBLE	(MARK_BASE + 0x100)
#define MARK_STRIDE	16
#define MARK_LIMIT	(MARK_NIBBLE + 16 * MARK_STRIDE)

#define MAX_POINTS	4096
#define MAX_CPUS	16
#define MAX_INSNS	(1u << 20)	/* of the kernel that may be translated, with all= */

/* One cache line per vCPU, so that they do not slow each other down. */
struct point {
	u64 addr;
	struct { u64 n; u64 pad[7]; } cpu[MAX_CPUS];
};

static struct point points[MAX_POINTS];
static int npoints;		/* published last, after the point is filled */
static unsigned short slots[4 * MAX_POINTS];	/* 1 + the point's number, by hash */

/* With all=: each instruction that was translated, by hash, never moved. */
static struct insn { u64 addr, n; } insns[2 * MAX_INSNS];
static unsigned int ninsns;
static u64 least;		/* 0: points are told */

static int active;		/* measurements under way */
static int ncpus;
static u64 nibbles;		/* the last sixteen, shifted in from the right */

static u64 arrivals(const struct point *p, int cpu)
{
	return __atomic_load_n(&p->cpu[cpu].n, __ATOMIC_RELAXED);
}

static void report_all(void)
{
	for (unsigned int i = 0; i < 2 * MAX_INSNS; i++) {
		if (insns[i].n < least)
			continue;
		put_number("arrivals 0x", insns[i].addr, 16);
		put_number(" ", insns[i].n, 10);
		put_number(" ", insns[i].n, 10);
		put("\n");
	}
	flush();
}

static void report(void)
{
	int n = __atomic_load_n(&npoints, __ATOMIC_ACQUIRE);

	if (least) {
		report_all();
		return;
	}

	for (int i = 0; i < n; i++) {
		u64 total = 0, of[MAX_CPUS];

		/* Each read once: another vCPU may be counting, if the report is none to keep. */
		for (int c = 0; c < ncpus; c++)
			total += of[c] = arrivals(&points[i], c);
		put_number("arrivals 0x", points[i].addr, 16);
		put_number(" ", total, 10);
		for (int c = 0; c < ncpus; c++)
			put_number(" ", of[c], 10);
		put("\n");
	}
	flush();
}

static void on_begin(unsigned int vcpu, void *data)
{
	__atomic_add_fetch(&active, 1, __ATOMIC_SEQ_CST);
}

static void on_end(unsigned int vcpu, void *data)
{
	if (__atomic_sub_fetch(&active, 1, __ATOMIC_SEQ_CST) == 0)
		report();
}

/* No CPU is on its way to a counter: whoever executes the mark sees to that. */
static void on_reset(unsigned int vcpu, void *data)
{
	for (unsigned int i = 0; least && i < 2 * MAX_INSNS; i++)
		insns[i].n = 0;
	for (int i = 0; i < npoints; i++)
		for (int c = 0; c < ncpus; c++)
			__atomic_store_n(&points[i].cpu[c].n, 0, __ATOMIC_RELAXED);
}

static void on_report(unsigned int vcpu, void *data)
{
	report();
}

/* Kernel addresses of neighbouring instructions differ in the lowest bits. */
static unsigned int hash(u64 addr)
{
	return addr * 0x9e3779b97f4a7c15ull >> 40;
}

/* Points are added one at a time, by marks of one program. */
static struct point *find(u64 addr)
{
	for (unsigned int h = hash(addr);; h++) {
		unsigned short s = __atomic_load_n(&slots[h % (4 * MAX_POINTS)], __ATOMIC_ACQUIRE);

		if (!s || points[s - 1].addr == addr)
			return s ? &points[s - 1] : 0;
	}
}

static void on_nibble(unsigned int vcpu, void *data)
{
	nibbles = nibbles << 4 | (u64)data;
}

static void on_point(unsigned int vcpu, void *data)
{
	int n = npoints;

	if (find(nibbles))
		return;
	if (n == MAX_POINTS) {
		put("error: more than 4096 points\n");
		flush();
		return;
	}
	points[n].addr = nibbles;
	__atomic_store_n(&npoints, n + 1, __ATOMIC_RELEASE);
	for (unsigned int h = hash(nibbles);; h++) {
		unsigned short *s = &slots[h % (4 * MAX_POINTS)];

		if (!*s) {
			__atomic_store_n(s, n + 1, __ATOMIC_RELEASE);
			return;
		}
	}
}

static void on_arrival(unsigned int vcpu, void *data)
{
	struct point *p = data;

	if (__atomic_load_n(&active, __ATOMIC_RELAXED) > 0)
		__atomic_store_n(&p->cpu[vcpu].n, p->cpu[vcpu].n + 1, __ATOMIC_RELAXED);
}

static void on_insn(unsigned int vcpu, void *data)
{
	if (active > 0)
		((struct insn *)data)->n++;
}

/* What one instruction's arrivals are counted in, or 0 when there are too many. */
static struct insn *insn_at(u64 addr)
{
	for (unsigned int h = hash(addr);; h++) {
		struct insn *i = &insns[h % (2 * MAX_INSNS)];

		if (i->addr == addr)
			return i;
		if (i->addr)
			continue;
		if (ninsns == MAX_INSNS) {
			put("error: more than 1048576 instructions\n");
			flush();
			return 0;
		}
		ninsns++;
		i->addr = addr;
		return i;
	}
}

static void watch(struct qemu_plugin_insn *insn, udata_cb cb, void *data)
{
	qemu_plugin_register_vcpu_insn_exec_cb(insn, cb, QEMU_PLUGIN_CB_NO_REGS, data);
}

static void watch_mark(struct qemu_plugin_insn *insn, u64 addr)
{
	if (addr == MARK_BASE)
		watch(insn, on_begin, 0);
	else if (addr == MARK_END)
		watch(insn, on_end, 0);
	else if (addr == MARK_POINT)
		watch(insn, on_point, 0);
	else if (addr == MARK_RESET)
		watch(insn, on_reset, 0);
	else if (addr == MARK_REPORT)
		watch(insn, on_report, 0);
	else if (addr >= MARK_NIBBLE && (addr - MARK_NIBBLE) % MARK_STRIDE == 0)
		watch(insn, on_nibble, (void *)((addr - MARK_NIBBLE) / MARK_STRIDE));
}

static void on_translate(qemu_plugin_id_t id, struct qemu_plugin_tb *tb)
{
	unsigned long count = qemu_plugin_tb_n_insns(tb);

	for (unsigned long i = 0; i < count; i++) {
		struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(tb, i);
		u64 addr = qemu_plugin_insn_vaddr(insn);

		if (addr >= MARK_BASE && addr < MARK_LIMIT)
			watch_mark(insn, addr);
		if (!(addr >> 63))
			continue;	/* a user's */
		if (least) {
			struct insn *at = insn_at(addr);

			if (at)
				watch(insn, on_insn, at);
			continue;
		}
		struct point *p = find(addr);

		if (p)
			watch(insn, on_arrival, p);
	}
}

static void on_exit(qemu_plugin_id_t id, void *data)
{
	put("done\n");
	flush();
}

static const char *value(const char *arg, const char *key)
{
	while (*key)
		if (*arg++ != *key++)
			return 0;
	return *arg == '=' ? arg + 1 : 0;
}

static u64 number(const char *s)
{
	u64 n = 0;

	while (*s >= '0' && *s <= '9')
		n = 10 * n + *s++ - '0';
	return n;
}

EXPORT int qemu_plugin_install(qemu_plugin_id_t id, const qemu_info_t *info,
			       int argc, char **argv)
{
	const char *path = 0;

	for (int i = 0; i < argc; i++)
		if (value(argv[i], "out"))
			path = value(argv[i], "out");
		else if (value(argv[i], "all"))
			least = number(value(argv[i], "all"));
	ncpus = info->system.max_vcpus;
	if (!path || !info->system_emulation || ncpus > MAX_CPUS || (least && ncpus > 1))
		return -1;
	out = open(path, O_WRONLY_CREAT_TRUNC_CLOEXEC, 0600);
	if (out < 0)
		return -1;
	qemu_plugin_register_vcpu_tb_trans_cb(id, on_translate);
	qemu_plugin_register_atexit_cb(id, on_exit, 0);
	return 0;
}
