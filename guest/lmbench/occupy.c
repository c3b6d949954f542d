// SPDX-License-Identifier: Apache-2.0
/*
 * Memory begins alike. How many instructions it takes the kernel to give out a page,
 * and to take it back, is up to what is free beside it: blocks are split and joined
 * (mm/page_alloc.c). After a boot that is a matter of chance, by which making a process
 * differs by 4 % from one guest to the next. So a process takes nearly all memory page
 * by page, for which the kernel has the smallest blocks first, gives back the half in the
 * middle, which came out of the largest, and keeps the rest as long as the caller lives.
 */
#define _GNU_SOURCE
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lmbench.h"

/*
 * Bytes that are not taken. They are called free, but are the kernel's reserve, in lists
 * of one CPU, or for devices only: with 40 MiB less, arm64 runs out of memory.
 */
#define LEFT (80 << 20)

static void occupier(int ready)
{
	size_t page = sysconf(_SC_PAGESIZE);
	long pages = sysconf(_SC_AVPHYS_PAGES) - (long)(LEFT / page);
	size_t quarter = pages / 4 * page;
	char *all;

	if (pages < 4 || prctl(PR_SET_PDEATHSIG, SIGKILL) || prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0))
		_exit(1);
	all = memory(4 * quarter);
	if (munmap(all + quarter, 2 * quarter) || write(ready, "", 1) != 1)
		_exit(1);
	for (;;)
		pause();
}

static pid_t holder;

void occupy(void)
{
	int ready[2];
	char c;

	if (pipe(ready))
		die("pipe");
	switch (holder = fork()) {
	case -1:
		die("fork");
	case 0:
		occupier(ready[1]);
	}
	close(ready[1]);
	if (read(ready[0], &c, 1) != 1)
		die("memory that is in pieces");
	close(ready[0]);
}

/* Waits, or its end would be counted at times. It must have held all that until now. */
void give_back(void)
{
	if (waitpid(holder, NULL, WNOHANG))
		die("the process that holds memory has ended before");
	if (kill(holder, SIGKILL) || waitpid(holder, NULL, 0) != holder)
		die("the process that holds memory");
}
