// SPDX-License-Identifier: Apache-2.0
/*
 * Context switches: a byte goes round a ring of processes by pipes, and each adds
 * up size bytes of its own memory when it comes by. A round is as many switches
 * as there are processes. The writing, reading and adding are not what is asked
 * for: the overhead is as much of them, in one process and by a pipe of its own.
 */
#include <unistd.h>

#include "lmbench.h"

#define MOST 16

static struct end first;	/* of this process in the ring */
static struct end alone;	/* a pipe of its own */
static uint32_t processes, size;
static void *work;

static void receive(struct end e)
{
	char token;

	read_all(e.in, &token, 1);
	keep(sum(work, size));
}

static void send(struct end e)
{
	write_all(e.out, "", 1);
}

static void pass_on(struct end e)
{
	for (;;) {
		receive(e);
		send(e);
	}
}

/* Memory of each process's own: what a fork shares would be one cache line. */
static void own_work(void)
{
	work = size ? memory(size) : NULL;
	fill(work, size, 1);
}

/* Process k reads pipe k and writes the next one. */
void ring_setup(const struct operation *o)
{
	int p[MOST][2], own[2];

	processes = o->processes;
	size = o->size;
	if (processes > MOST || pipe(own))
		die("ring");
	alone = (struct end){ own[0], own[1] };
	for (uint32_t k = 0; k < processes; k++)
		if (pipe(p[k]))
			die("pipe");
	for (uint32_t k = 0; k < processes; k++) {
		struct end e = { p[k][0], p[(k + 1) % processes][1] };

		if (k == 0) {
			first = e;
		} else if (helper()) {
			own_work();
			pass_on(e);
		}
	}
	own_work();
}

void ring_call(uint32_t turn)
{
	(void)turn;
	send(first);
	receive(first);
}

void ring_overhead(uint32_t turn)
{
	(void)turn;
	for (uint32_t k = 0; k < processes; k++) {
		send(alone);
		receive(alone);
	}
}

/* The adding alone: the pipe is the kernel's. */
void ring_own(uint32_t turn)
{
	(void)turn;
	for (uint32_t k = 0; k < processes; k++)
		keep(sum(work, size));
}
