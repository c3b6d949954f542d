// SPDX-License-Identifier: Apache-2.0
/*
 * meter: counts from one moment to another, at which nothing is being counted.
 *
 *   meter AREAS [BYTES OFFSET]... CELL...  <request  >answer  3<>/dev/kerninst
 *
 * Counters of splices in timers, the scheduler or system calls move while somebody
 * reads them, and an observer outside (lab/oracle) would be asked at another moment
 * than they are. So: all CPUs are in this program, in user mode, and counters are
 * read, the observer is told, and counters are read again. If none has moved,
 * inside and outside are of the same moment; otherwise, once more. No CPU was in
 * the kernel when the observer was told, so none was between a point and its counter.
 * (A task that was preempted between the two would be: kernels that preempt
 * themselves can count one less outside than inside.)
 *
 * The descriptor is the daemon's own. For each of AREAS it is mapped BYTES long at
 * OFFSET, one behind the other, and CELL is a counter's place in that. "counting\n" is written at the first moment; what comes
 * to standard input, or its end, asks for the second, and the counts between are
 * written as lines.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "mark.h"

#define MAX_CPUS	64
#define MAX_CELLS	65536
#define DEVICE		3
#define TRIES		1000000

static const volatile char *cells;
static int ncells, ncpus;
static unsigned long cell[MAX_CELLS];
static unsigned long long base[MAX_CELLS], now[MAX_CELLS];

/* One for each CPU but the first, which does the reading. */
static struct beat {
	unsigned long n;
	pthread_t thread;
	char pad[64];
} beats[MAX_CPUS];
static int stop;

static void die(const char *what)
{
	fprintf(stderr, "meter: %s: %s\n", what, strerror(errno));
	exit(1);
}

static void pin(int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	if (sched_setaffinity(0, sizeof(set), &set))
		die("sched_setaffinity");
}

/*
 * Where an emulator's CPUs take turns, a CPU that only waits gives its turn away:
 * otherwise the others' moment comes after the next tick of the clock.
 */
static inline void relax(void)
{
#if defined(__x86_64__)
	__asm__ volatile("pause" ::: "memory");
#elif defined(__aarch64__)
	__asm__ volatile("yield" ::: "memory");
#endif
}

/* On its CPU, in user mode, whenever its number grows. */
static void *beat(void *arg)
{
	struct beat *b = arg;

	pin(b - beats);
	while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
		__atomic_add_fetch(&b->n, 1, __ATOMIC_SEQ_CST);
		relax();
	}
	return NULL;
}

/* Every other CPU was in user mode at some time since this was called. */
static void all_beat(void)
{
	for (int i = 1; i < ncpus; i++) {
		unsigned long n = __atomic_load_n(&beats[i].n, __ATOMIC_SEQ_CST);

		while (__atomic_load_n(&beats[i].n, __ATOMIC_SEQ_CST) < n + 2)
			relax();
	}
}

static unsigned long long counter(int i)
{
	return __atomic_load_n((const volatile unsigned long long *)(cells + cell[i]), __ATOMIC_SEQ_CST);
}

/* Whether no counter is other than in now, which becomes what they are. */
static int still(void)
{
	int same = 1;

	for (int i = 0; i < ncells; i++) {
		unsigned long long n = counter(i);

		same &= n == now[i];
		now[i] = n;
	}
	return same;
}

static void moment(void (*mark)(void))
{
	int tries = 0;

	stop = 0;
	pin(0);
	for (int i = 1; i < ncpus; i++)
		if (pthread_create(&beats[i].thread, NULL, beat, &beats[i]))
			die("pthread_create");
	do {
		if (++tries > TRIES) {
			errno = EAGAIN;
			die("counters never stand still");
		}
		all_beat();
		still();
		all_beat();
		mark();
		all_beat();
	} while (!still());
	__atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
	for (int i = 1; i < ncpus; i++)
		pthread_join(beats[i].thread, NULL);
}

/*
 * Pages of this program that are touched for the first time between two readings
 * would be faults, and those of the cells' mapping were made with it.
 */
static void touch(void)
{
	memset(base, 0, sizeof(base));
	memset(now, 0, sizeof(now));
	still();
}

static unsigned long number(const char *s)
{
	char *rest;
	unsigned long n;

	errno = 0;
	n = strtoul(s, &rest, 0);
	if (errno || *rest || rest == s) {
		fprintf(stderr, "meter: %s is not a number\n", s);
		exit(2);
	}
	return n;
}

/* Maps the cells of all areas, one behind the other; their length. */
static unsigned long map(int areas, char **argv)
{
	unsigned long bytes = 0, at = 0;
	char *all;

	for (int i = 0; i < areas; i++)
		bytes += number(argv[2 * i]);
	if (!bytes)
		return 0;
	all = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (all == MAP_FAILED)
		die("mmap");
	for (int i = 0; i < areas; at += number(argv[2 * i]), i++)
		if (mmap(all + at, number(argv[2 * i]), PROT_READ, MAP_SHARED | MAP_FIXED,
			 DEVICE, number(argv[2 * i + 1])) == MAP_FAILED)
			die("mmap");
	cells = all;
	return bytes;
}

int main(int argc, char **argv)
{
	unsigned long bytes, areas = argc > 1 ? number(argv[1]) : 0;
	char c;

	ncpus = sysconf(_SC_NPROCESSORS_ONLN);
	if (argc < 2 || areas > (unsigned long)(argc - 2) / 2 || argc - 2 > MAX_CELLS || ncpus > MAX_CPUS) {
		fputs("usage: meter AREAS [BYTES OFFSET]... CELL...\n", stderr);
		return 2;
	}
	bytes = map(areas, argv + 2);
	argv += 2 + 2 * areas;
	ncells = argc - 2 - 2 * areas;
	for (int i = 0; i < ncells; i++) {
		cell[i] = number(argv[i]);
		if (cell[i] % 8 || cell[i] + 8 > bytes) {
			fprintf(stderr, "meter: no counter is at %s\n", argv[i]);
			return 2;
		}
	}
	touch();
	ki_mark_begin();
	moment(ki_mark_reset);
	memcpy(base, now, sizeof(base));
	if (write(1, "counting\n", 9) != 9)
		die("write");
	while (read(0, &c, 1) < 0 && errno == EINTR)
		;
	moment(ki_mark_report);
	for (int i = 0; i < ncells; i++)
		printf("%llu\n", now[i] - base[i]);
	return 0;
}
