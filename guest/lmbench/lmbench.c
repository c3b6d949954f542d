// SPDX-License-Identifier: Apache-2.0
/*
 * lmbench: latencies and bandwidths of a kernel, after what LMbench measures.
 *
 *   lmbench [-whole] [-roomy] [SAMPLES [NAME...]]
 *
 * Measures each operation of the table, or those that are named, in SAMPLES
 * samples, and prints the results in the format of Go's benchmarks. README.md
 * says how and what. With -whole only what is no system call is subtracted: probes
 * of the kernel are in what is measured, all of them. With -roomy memory is left as it
 * is found, for who has each page fault probed, and compares by the tenth. Each operation has a process of its own, so that no memory,
 * descriptor or signal handler of one is there for the next.
 * All of it lies between a begin and an end mark (mark.h).
 */
#define _GNU_SOURCE
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/personality.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lmbench.h"
#include "mark.h"

#define SAMPLES		11
#define MAX_SAMPLES	1000

#if defined(__x86_64__)
#define GOARCH "amd64"
#elif defined(__aarch64__)
#define GOARCH "arm64"
#else
#define GOARCH "riscv64"
#endif

static int usage(void)
{
	fputs("usage: lmbench [-whole] [-roomy] [SAMPLES [NAME...]], names of", stderr);
	for (const struct operation *o = operations; o->name; o++)
		fprintf(stderr, " %s", o->name);
	fputs("\n", stderr);
	return 2;
}

static int known(const char *name)
{
	for (const struct operation *o = operations; o->name; o++)
		if (!strcmp(o->name, name))
			return 1;
	return 0;
}

static int wanted(const struct operation *o, char **names)
{
	if (!*names)
		return 1;
	for (; *names; names++)
		if (!strcmp(o->name, *names))
			return 1;
	return 0;
}

/*
 * Processes take turns: who is woken waits at the end of one queue and stops nobody.
 * In the fair class it is up to what happened long before whether a byte that is passed
 * on takes one switch or three, and since Linux 6.12 there are two ways to switch, 900
 * instructions apart.
 */
static void in_turn(void)
{
	struct sched_param p = { .sched_priority = 1 };

	if (sched_setscheduler(0, SCHED_FIFO, &p))
		die("scheduler");
}

/*
 * Addresses are the same in each run: how many page tables a process has is up to
 * where its parts lie. It has to be said before a program begins.
 */
static void no_randomness(char **argv)
{
	int p = personality(0xffffffff);

	if (p < 0)
		die("personality");
	if (p & ADDR_NO_RANDOMIZE)
		return;
	if (personality(p | ADDR_NO_RANDOMIZE) < 0)
		die("personality");
	execv("/proc/self/exe", argv);
	die("/proc/self/exe");
}

static void configuration(void)
{
	struct utsname u;

	if (uname(&u))
		die("uname");
	printf("goos: linux\ngoarch: " GOARCH "\npkg: guest/lmbench\nkernel: %s\n", u.release);
}

/* Measures in a process of its own, and says whether all went well. */
static int apart(const struct operation *o, struct sampling s, long cpus)
{
	int status;
	pid_t pid;

	fflush(stdout); /* or the other process would print it too */
	pid = fork();
	if (pid < 0)
		die("fork");
	if (!pid) {
		measure(o, s, cpus);
		exit(0);
	}
	if (waitpid(pid, &status, 0) != pid)
		die("waitpid");
	if (status)
		fprintf(stderr, "lmbench: %s: status %#x\n", o->name, status);
	return !status;
}

int main(int argc, char **argv)
{
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);
	struct sampling s = { .samples = SAMPLES };
	char **names = argv + 1, *rest;
	int good = 1, roomy = 0;

	if (*names && !strcmp(*names, "-whole"))
		s.whole = !!*names++;
	if (*names && !strcmp(*names, "-roomy"))
		roomy = !!*names++;
	if (*names) {
		s.samples = strtol(*names++, &rest, 10);
		if (*rest || s.samples < 2 || s.samples > MAX_SAMPLES)
			return usage();
	}
	for (char **n = names; *n; n++)
		if (!known(*n))
			return usage();
	no_randomness(argv);
	in_turn();
	configuration();
	if (!roomy)
		occupy();
	ki_mark_begin();
	for (const struct operation *o = operations; o->name; o++)
		if (wanted(o, names))
			good &= apart(o, s, cpus);
	ki_mark_end();
	if (!roomy)
		give_back();
	return !good;
}
