// SPDX-License-Identifier: Apache-2.0
/* Files in /tmp, which is memory: made, written once and closed; removed. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lmbench.h"

#define MOST 1000

static char dir[32];
static char names[MOST][4];	/* made beforehand: to print takes as long as a system call */
static uint32_t size;
static void *content;

int scratch_file(size_t bytes)
{
	int fd = open("/tmp", O_TMPFILE | O_RDWR, 0600);
	void *ones = malloc(bytes);

	if (fd < 0 || !ones)
		die("a file in /tmp");
	fill(ones, bytes, 1);
	write_all(fd, ones, bytes);
	free(ones);
	return fd;
}

static void remove_dir(void)
{
	if (chdir("/") || rmdir(dir))
		die(dir);
}

void files_setup(const struct operation *o)
{
	size = o->size;
	content = memory(size + 1);
	if (o->calls > MOST)
		die("files");
	for (uint32_t i = 0; i < o->calls; i++)
		snprintf(names[i], sizeof(names[i]), "%u", i % MOST); /* which is i: for the compiler */
	snprintf(dir, sizeof(dir), "/tmp/lmbench.%d", (int)getpid());
	if (mkdir(dir, 0700) || chdir(dir))
		die(dir);
	atexit(remove_dir);
}

void create_call(uint32_t turn)
{
	int fd = open(names[turn], O_CREAT | O_EXCL | O_WRONLY, 0600);

	if (fd < 0)
		die("create");
	if (size)
		write_all(fd, content, size);
	if (close(fd))
		die("close");
}

void delete_call(uint32_t turn)
{
	if (unlink(names[turn]))
		die("unlink");
}

void files_make(uint32_t calls)
{
	for (uint32_t i = 0; i < calls; i++)
		create_call(i);
}

void files_remove(uint32_t calls)
{
	for (uint32_t i = 0; i < calls; i++)
		delete_call(i);
}
