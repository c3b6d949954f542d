// SPDX-License-Identifier: Apache-2.0
/* Single system calls. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sys/select.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "lmbench.h"

#define TARGET "/etc/passwd"

static int fd, highest;
static char byte;
static fd_set watched;

/* Nothing caches it: neither the C library nor the kernel's vDSO. */
void null_call(uint32_t turn)
{
	(void)turn;
	if (syscall(SYS_getppid) < 0)
		die("getppid");
}

static int opened(const char *path, int flags)
{
	int f = open(path, flags);

	if (f < 0)
		die(path);
	return f;
}

void read_setup(const struct operation *o)
{
	(void)o;
	fd = opened("/dev/zero", O_RDONLY);
}

void read_call(uint32_t turn)
{
	(void)turn;
	if (read(fd, &byte, 1) != 1)
		die("read /dev/zero");
}

void write_setup(const struct operation *o)
{
	(void)o;
	fd = opened("/dev/null", O_WRONLY);
}

void write_call(uint32_t turn)
{
	(void)turn;
	if (write(fd, &byte, 1) != 1)
		die("write /dev/null");
}

void stat_call(uint32_t turn)
{
	struct stat st;

	(void)turn;
	if (stat(TARGET, &st))
		die("stat " TARGET);
}

void fstat_setup(const struct operation *o)
{
	(void)o;
	fd = opened(TARGET, O_RDONLY);
}

void fstat_call(uint32_t turn)
{
	struct stat st;

	(void)turn;
	if (fstat(fd, &st))
		die("fstat " TARGET);
}

void open_call(uint32_t turn)
{
	(void)turn;
	if (close(opened(TARGET, O_RDONLY)))
		die("close " TARGET);
}

/* size descriptors of pipes, from which nothing is to be read. */
void select_setup(const struct operation *o)
{
	int p[2];

	FD_ZERO(&watched);
	for (uint32_t i = 0; i < o->size; i++) {
		if (pipe(p) || p[0] >= FD_SETSIZE)
			die("pipe");
		FD_SET(p[0], &watched);
		highest = p[0];
	}
}

void select_call(uint32_t turn)
{
	struct timeval at_once = { 0 };
	fd_set set = watched;

	(void)turn;
	if (select(highest + 1, &set, NULL, NULL, &at_once))
		die("select");
}
