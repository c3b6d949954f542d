// SPDX-License-Identifier: GPL-2.0
/*
 * stopped.c - writing text on ISAs that forbid replacing a general
 * instruction while another CPU may execute it (arm64, riscv64).
 *
 * Each chunk is written inside one stop_machine: all CPUs have interrupts off
 * and wait in this file, one of them compares and writes, and each then makes
 * its own instruction fetch forget what it knew (isb, fence.i). What else
 * could run meanwhile?
 *   interrupts: masked on all CPUs;
 *   NMI-like events (pseudo-NMI, SBI, debug): may run text with a chunk half
 *     written, each instruction of it whole, old or new; patches are complete
 *     before the first of them is reachable;
 *   page faults: none, kernel text and the writer's alias are mapped;
 *   tasks: without kernel preemption a task gives up its CPU only where it
 *     calls schedule(), so none is in the middle of a window; windows are
 *     refused on a kernel with preemption.
 * No cross-CPU call may be made inside: its target would not answer.
 */
#include <linux/atomic.h>
#include <linux/cpumask.h>
#include <linux/errno.h>
#include <linux/processor.h>
#include <linux/stop_machine.h>
#include <linux/string.h>

#include "faults.h"
#include "internals.h"
#include "kerninst_mod.h"

/* Bounds the time for which the machine stands still. */
#define CHUNK_WORDS 1000u

struct chunk {
	struct ki_poke *p;
	u32 n;
	u32 failed;	/* index in p of the one to blame, else n */
	int err;	/* written before done */
	atomic_t arrived;
	bool done;
};

static void write_chunk(struct chunk *c)
{
	u32 i;

	for (i = 0; i < c->n; i++) {
		if (memcmp(c->p[i].addr, c->p[i].from, c->p[i].len)) {
			c->failed = i;
			c->err = -EILSEQ;
			return;
		}
	}
	for (i = 0; i < c->n; i++) {
		c->err = ki_arch_write_stopped(c->p[i].addr, c->p[i].to, c->p[i].len);
		if (c->err)
			break;
	}
	if (!c->err)
		return;
	c->failed = i;
	/* The one that failed may be half written. */
	do {
		ki_arch_write_stopped(c->p[i].addr, c->p[i].from, c->p[i].len);
	} while (i--);
}

/* Runs on every CPU; the last to arrive writes, the others then look afresh. */
static int stopped(void *arg)
{
	struct chunk *c = arg;

	if (atomic_inc_return(&c->arrived) == num_online_cpus()) {
		write_chunk(c);
		smp_store_release(&c->done, true);
	} else {
		while (!smp_load_acquire(&c->done))
			cpu_relax();
	}
	ki_arch_sync_core();
	return 0;
}

static int run_chunk(struct chunk *c)
{
	int err = stop_machine_cpuslocked(stopped, c, cpu_online_mask);

	return err ? err : c->err;
}

static u32 chunk_size(const struct ki_poke *p, u32 n)
{
	u32 i, words = 0;

	for (i = 0; i < n; i++) {
		words += DIV_ROUND_UP(p[i].len, 4);
		if (i && words > CHUNK_WORDS)
			break;
	}
	return i;
}

/*
 * Takes back what earlier chunks wrote, the last first: what leads somewhere goes
 * before what it leads to. Nobody else writes: text_mutex is held. A task that was
 * preempted on a springboard goes on there: those are left to the caller.
 */
static void take_back(struct ki_poke *p, u32 n)
{
	u32 i, k, left;

	if (IS_ENABLED(CONFIG_PREEMPTION)) {
		for (i = 0, k = 0; i < n; i++)
			if (!p[i].board)
				p[k++] = p[i];
		n = k;
	}
	left = n;
	for (i = 0; i < n; i++)
		swap(p[i].from, p[i].to);
	for (i = 0; i < n / 2; i++)
		swap(p[i], p[n - 1 - i]);
	while (left) {
		struct chunk c = { .p = p + n - left };

		k = chunk_size(c.p, left);
		c.n = k;
		WARN_ON(run_chunk(&c));
		left -= k;
	}
}

int ki_poke_stopped(struct ki_poke *p, u32 n, u32 *failed)
{
	u32 done = 0;
	int err;

	while (done < n) {
		struct chunk c = { .p = p + done, .n = chunk_size(p + done, n - done) };

		c.failed = c.n;
		err = run_chunk(&c);
		ki_step();
		if (err) {
			*failed = c.failed < c.n ? p[done + c.failed].index : n;
			take_back(p, done);
			return err;
		}
		done += c.n;
	}
	return 0;
}

static int sync_only(void *arg)
{
	ki_arch_sync_core();
	return 0;
}

/* Without kernel preemption, nobody is inside a window while the machine stands still. */
const bool ki_arch_diverts = false;

int ki_arch_divert(struct ki_poke *p, u32 n, u32 *failed)
{
	return -EOPNOTSUPP;
}

void ki_arch_undivert(struct ki_poke *p, u32 n)
{
}

/* The kernel makes jumps of kprobes on no such ISA. */
void ki_arch_settle_probes(void)
{
}

bool ki_arch_queued(const struct kprobe *p)
{
	return false;
}

void ki_arch_bar_jumps(bool bar)
{
}

bool ki_arch_jumps_barred(void)
{
	return false;
}

/*
 * Without kernel preemption, a CPU that runs the stopper thread has left every
 * patch: the task it ran before gave up the CPU by itself.
 */
void ki_stop_all(void)
{
	stop_machine(sync_only, NULL, cpu_online_mask);
}
