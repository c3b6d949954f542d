// SPDX-License-Identifier: Apache-2.0
/*
 * Processes: one is made, does nothing, or runs the program argv, and is waited
 * for. The word "nop" in argv is the path of the program beside this one that
 * does nothing.
 */
#define _GNU_SOURCE
#include <limits.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lmbench.h"

#define NOP "nop"
#define MAX_ARGS 4

static char nop[PATH_MAX];
static char *args[MAX_ARGS];

static void find_nop(void)
{
	ssize_t n = readlink("/proc/self/exe", nop, sizeof(nop) - sizeof(NOP));
	char *slash;

	if (n < 0)
		die("/proc/self/exe");
	nop[n] = 0;
	slash = strrchr(nop, '/');
	strcpy(slash + 1, NOP);
	if (access(nop, X_OK))
		die(nop);
}

void process_setup(const struct operation *o)
{
	find_nop();
	for (int i = 0; o->argv && o->argv[i] && i < MAX_ARGS - 1; i++)
		args[i] = strcmp(o->argv[i], NOP) ? (char *)o->argv[i] : nop;
}

void process_call(uint32_t turn)
{
	pid_t pid = fork();
	int status;

	(void)turn;
	if (pid < 0)
		die("fork");
	if (!pid) {
		if (!args[0])
			_exit(0);
		execv(args[0], args);
		_exit(127);
	}
	if (waitpid(pid, &status, 0) != pid || status)
		die("the new process");
}
