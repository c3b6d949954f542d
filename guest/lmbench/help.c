// SPDX-License-Identifier: Apache-2.0
/* What several operations need. */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lmbench.h"

#define MAX_HELPERS 64

static pid_t helpers[MAX_HELPERS];
static int helping;

void die(const char *what)
{
	fprintf(stderr, "lmbench: %s: %s\n", what, strerror(errno));
	exit(1);
}

void *memory(size_t size)
{
	void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

	if (p == MAP_FAILED)
		die("memory");
	return p;
}

/*
 * Word by word on every ISA: the program is built without the optimisations that
 * would make vector instructions, or calls of the C library, of these loops.
 */
uint64_t sum(const void *p, size_t size)
{
	const uint64_t *w = p;
	uint64_t s = 0;

	for (size_t i = 0; i < size / sizeof(*w); i++)
		s += w[i];
	return s;
}

void fill(void *p, size_t size, uint64_t value)
{
	uint64_t *w = p;

	for (size_t i = 0; i < size / sizeof(*w); i++)
		w[i] = value;
}

void keep(uint64_t value)
{
	asm volatile("" :: "r"(value));
}

/* A helper ends with the caller, however that ends. */
int helper(void)
{
	pid_t pid;

	if (helping == MAX_HELPERS) {
		errno = E2BIG;
		die("helpers");
	}
	pid = fork();
	if (pid < 0)
		die("fork");
	if (pid) {
		helpers[helping++] = pid;
		return 0;
	}
	helping = 0;
	if (prctl(PR_SET_PDEATHSIG, SIGKILL))
		_exit(1);
	return 1;
}

/*
 * Before the next operation begins, for their end would be in its samples. One
 * that has ended by itself has failed.
 */
void end_helpers(void)
{
	int status;

	for (int i = 0; i < helping; i++) {
		kill(helpers[i], SIGKILL);
		if (waitpid(helpers[i], &status, 0) != helpers[i] || !WIFSIGNALED(status))
			die("a helper");
	}
	helping = 0;
}

void write_all(int fd, const void *p, size_t n)
{
	for (ssize_t done; n; p = (const char *)p + done, n -= done) {
		done = write(fd, p, n);
		if (done <= 0)
			die("write");
	}
}

void read_all(int fd, void *p, size_t n)
{
	for (ssize_t done; n; p = (char *)p + done, n -= done) {
		done = read(fd, p, n);
		if (done <= 0)
			die("read");
	}
}
