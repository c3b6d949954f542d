// SPDX-License-Identifier: Apache-2.0
/*
 * Two processes that are connected. A call sends one byte and reads the answer of
 * size bytes: of one byte for a latency, which is there and back; of many for a
 * bandwidth, in which the request is a small part.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include "lmbench.h"

#define BLOCK (64 * KIB)	/* most that is written or read at once */

static struct end mine;
static uint32_t answer;
static char *block;

void by_pipe(struct end ends[2])
{
	int there[2], back[2];

	if (pipe(there) || pipe(back))
		die("pipe");
	ends[0] = (struct end){ .in = back[0], .out = there[1] };
	ends[1] = (struct end){ .in = there[0], .out = back[1] };
}

static void both_ways(struct end ends[2], const int s[2])
{
	for (int i = 0; i < 2; i++)
		ends[i] = (struct end){ .in = s[i], .out = s[i] };
}

void by_unix(struct end ends[2])
{
	int s[2];

	if (socketpair(AF_UNIX, SOCK_STREAM, 0, s))
		die("socketpair");
	both_ways(ends, s);
}

/* On loopback. Nothing waits for more to send (TCP_NODELAY). */
void by_tcp(struct end ends[2])
{
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int listener = socket(AF_INET, SOCK_STREAM, 0), s[2], on = 1, room = 2 * BLOCK;
	socklen_t len = sizeof(at);

	/* Said once, or the kernel has the window grow from one sample to the next. */
	if (listener < 0 || setsockopt(listener, SOL_SOCKET, SO_RCVBUF, &room, sizeof(room)) ||
	    setsockopt(listener, SOL_SOCKET, SO_SNDBUF, &room, sizeof(room)) || bind(listener, (struct sockaddr *)&at, len) || listen(listener, 1) ||
	    getsockname(listener, (struct sockaddr *)&at, &len))
		die("a TCP port");
	s[0] = socket(AF_INET, SOCK_STREAM, 0);
	if (s[0] < 0 || setsockopt(s[0], SOL_SOCKET, SO_RCVBUF, &room, sizeof(room)) ||
	    setsockopt(s[0], SOL_SOCKET, SO_SNDBUF, &room, sizeof(room)) || connect(s[0], (struct sockaddr *)&at, len))
		die("connect");
	s[1] = accept(listener, NULL, NULL);
	if (s[1] < 0 || setsockopt(s[0], IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) ||
	    setsockopt(s[1], IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)))
		die("accept");
	close(listener);
	both_ways(ends, s);
}

static uint32_t part(uint32_t rest)
{
	return rest < BLOCK ? rest : BLOCK;
}

static void serve(struct end e)
{
	char request;

	for (;;) {
		read_all(e.in, &request, 1);
		for (uint32_t rest = answer; rest; rest -= part(rest))
			write_all(e.out, block, part(rest));
	}
}

void pair_setup(const struct operation *o)
{
	struct end ends[2];

	block = memory(BLOCK);
	answer = o->size;
	o->connect(ends);
	if (helper())
		serve(ends[1]);
	mine = ends[0];
}

void pair_call(uint32_t turn)
{
	(void)turn;
	write_all(mine.out, block, 1);
	for (uint32_t rest = answer; rest; rest -= part(rest))
		read_all(mine.in, block, part(rest));
}
