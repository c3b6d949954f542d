// SPDX-License-Identifier: Apache-2.0
/*
 * bench: small operations after LMbench's latency programs.
 *
 *   bench NAME [OPS [SAMPLES]]
 *
 * One warm-up batch, then SAMPLES batches of OPS operations each. Every batch
 * prints "NAME OPS NANOSECONDS" by the guest's raw monotonic clock, the loop's
 * own overhead included; the last line, "NAME total OPERATIONS", counts the
 * warm-up too. Under exact time a nanosecond is an instruction, so the smallest
 * batch is the exact cost: the others were interrupted by a timer.
 * All batches lie between a begin and an end mark (mark.h). Results are printed
 * after the end, so that printing is not measured.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "mark.h"

#define MAX_SAMPLES	1000
#define TARGET		"/etc/passwd"

static int fd;			/* of read and write */
static int to[2], from[2];	/* of pipe */
static pid_t child;
static char byte;

static void die(const char *what)
{
	fprintf(stderr, "bench: %s: %s\n", what, strerror(errno));
	exit(1);
}

static void open_fd(const char *path, int flags)
{
	fd = open(path, flags);
	if (fd < 0)
		die(path);
}

static void op_null(void)
{
	syscall(SYS_getppid);
}

static void setup_read(void)
{
	open_fd("/dev/zero", O_RDONLY);
}

static void op_read(void)
{
	if (read(fd, &byte, 1) != 1)
		die("read /dev/zero");
}

static void setup_write(void)
{
	open_fd("/dev/null", O_WRONLY);
}

static void op_write(void)
{
	if (write(fd, &byte, 1) != 1)
		die("write /dev/null");
}

/* The k-th operation, from 0, goes to k. */
static void op_seek(void)
{
	static off_t to;

	if (lseek(fd, to, SEEK_SET) < 0)
		die("lseek " TARGET);
	to++;
}

static void setup_seek(void)
{
	open_fd(TARGET, O_RDONLY);
}

static void op_stat(void)
{
	struct stat st;

	if (stat(TARGET, &st))
		die("stat " TARGET);
}

static void op_open(void)
{
	int f = open(TARGET, O_RDONLY);

	if (f < 0)
		die("open " TARGET);
	close(f);
}

/* One operation of pipe is a byte to the other process and one back. */
static void setup_pipe(void)
{
	if (pipe(to) || pipe(from))
		die("pipe");
	child = fork();
	if (child < 0)
		die("fork");
	if (child)
		return;
	close(to[1]);
	while (read(to[0], &byte, 1) == 1)
		if (write(from[1], &byte, 1) != 1)
			break;
	_exit(0);
}

static void op_pipe(void)
{
	if (write(to[1], &byte, 1) != 1 || read(from[0], &byte, 1) != 1)
		die("pipe");
}

static void end_pipe(void)
{
	int status;

	close(to[1]);
	if (waitpid(child, &status, 0) != child || status)
		die("pipe: the other process");
}

/*
 * A message to oneself: through functions that are large for what they do, and
 * that nothing else in a guest enters.
 */
static int queue;

static void setup_msg(void)
{
	queue = msgget(IPC_PRIVATE, 0600);
	if (queue < 0)
		die("msgget");
}

static void op_msg(void)
{
	struct { long type; char text[16]; } m = { .type = 1 };

	if (msgsnd(queue, &m, sizeof(m.text), 0) ||
	    msgrcv(queue, &m, sizeof(m.text), 0, 0) != sizeof(m.text))
		die("message");
}

/*
 * The same with lengths from 1 to LENGTHS in turn: what is told of lengths is
 * known beforehand. It lies at an address of the program's own, the same each
 * time, and a batch of a multiple of LENGTHS takes the same as the next.
 */
#define LENGTHS		64

static void op_sizes(void)
{
	static struct { long type; char text[LENGTHS]; } m = { .type = 1 };
	static unsigned turn;
	size_t length = 1 + turn++ % LENGTHS;

	if (msgsnd(queue, &m, length, 0) ||
	    msgrcv(queue, &m, sizeof(m.text), 0, 0) != (ssize_t)length)
		die("message");
}

static void end_msg(void)
{
	if (msgctl(queue, IPC_RMID, NULL))
		die("msgctl");
}

/*
 * What one task alone does: a system call that does nothing, a read that takes long, one
 * that finds what was written before, and sleep.
 */
static char bulk[1 << 16];
static int zero;

static void setup_mix(void)
{
	open_fd("/dev/zero", O_RDONLY);
	zero = fd;
	if (pipe(to))
		die("pipe");
}

static void op_mix(void)
{
	const struct timespec nap = { .tv_nsec = 1000000 };

	op_null();
	if (read(zero, bulk, sizeof(bulk)) != sizeof(bulk))
		die("read /dev/zero");
	if (write(to[1], &byte, 1) != 1 || read(to[0], &byte, 1) != 1)
		die("pipe");
	if (nanosleep(&nap, NULL))
		die("nanosleep");
}

static void nothing(void)
{
}

static const struct bench {
	const char *name;
	void (*setup)(void);
	void (*op)(void);
	void (*end)(void);
} benches[] = {
	{ "null",	nothing,	op_null,	nothing },
	{ "read",	setup_read,	op_read,	nothing },
	{ "write",	setup_write,	op_write,	nothing },
	{ "seek",	setup_seek,	op_seek,	nothing },
	{ "stat",	nothing,	op_stat,	nothing },
	{ "open",	nothing,	op_open,	nothing },
	{ "pipe",	setup_pipe,	op_pipe,	end_pipe },
	{ "msg",	setup_msg,	op_msg,		end_msg },
	{ "sizes",	setup_msg,	op_sizes,	end_msg },
	{ "mix",	setup_mix,	op_mix,		nothing },
};

static uint64_t now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC_RAW, &t);
	return t.tv_sec * 1000000000ull + t.tv_nsec;
}

static uint64_t batch(void (*op)(void), long ops)
{
	uint64_t start = now();

	for (long i = 0; i < ops; i++)
		op();
	return now() - start;
}

static long number(const char *s, long max)
{
	char *rest;
	long n = strtol(s, &rest, 10);

	if (*rest || rest == s || n < 1 || n > max) {
		fprintf(stderr, "bench: %s is not a number from 1 to %ld\n", s, max);
		exit(2);
	}
	return n;
}

static int usage(void)
{
	fputs("usage: bench NAME [OPS [SAMPLES]], NAME one of", stderr);
	for (size_t i = 0; i < sizeof(benches) / sizeof(*benches); i++)
		fprintf(stderr, " %s", benches[i].name);
	fputs("\n", stderr);
	return 2;
}

static const struct bench *find(const char *name)
{
	for (size_t i = 0; i < sizeof(benches) / sizeof(*benches); i++)
		if (!strcmp(benches[i].name, name))
			return &benches[i];
	return NULL;
}

int main(int argc, char **argv)
{
	static uint64_t ns[MAX_SAMPLES];
	const struct bench *b = argc > 1 && argc <= 4 ? find(argv[1]) : NULL;
	long ops = argc > 2 ? number(argv[2], 1000000000) : 2000;
	long samples = argc > 3 ? number(argv[3], MAX_SAMPLES) : 20;

	if (!b)
		return usage();
	b->setup();
	ki_mark_begin();
	batch(b->op, ops);
	for (long i = 0; i < samples; i++)
		ns[i] = batch(b->op, ops);
	ki_mark_end();
	b->end();
	for (long i = 0; i < samples; i++)
		printf("%s %ld %llu\n", b->name, ops, (unsigned long long)ns[i]);
	printf("%s total %ld\n", b->name, ops * (samples + 1));
	return 0;
}
