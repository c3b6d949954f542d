// SPDX-License-Identifier: Apache-2.0
/*
 * wpb: clients and an origin server for a proxy, after the Wisconsin Proxy Benchmark
 * 1.0 (Almeida and Cao, "Measuring Proxy Performance with the Wisconsin Proxy
 * Benchmark", 1998), as the KernInst paper drives Squid with it (section 4.2).
 *
 *   wpb origin PORT DELAY
 *   wpb drive PROXYPORT ORIGINPORT CLIENTS REQUESTS SEED
 *
 * The origin answers each request after DELAY milliseconds, which stand for the
 * network behind the proxy. What it sends depends on the document's address alone:
 * /SIZE/NAME is SIZE bytes. Sizes are evenly distributed below 40 KiB, but for one
 * document of a hundred, of 1 MiB.
 *
 * Each client is a process that asks for one document after the other, without a
 * pause, on a connection of its own. In the first phase each is a new one: all miss.
 * In the second, half are new, and half are ones that the client has asked for
 * before, the more probably the later. All randomness is of the seed.
 *
 * Each document is compared, byte by byte. At the end come lines of Go's benchmark
 * format, one for each phase: requests, time of a request as its client sees it,
 * requests per second, and how many were answered from the proxy's store, as its
 * Cache-Status says (RFC 9211). What goes wrong ends the program, and is said.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MAX_CLIENTS	256
#define MAX_REQUESTS	10000
#define SMALL		40960u		/* bytes; sizes are below */
#define LARGE		(1u << 20)	/* one of LARGE_ONE_OF */
#define LARGE_ONE_OF	100
#define PATIENCE	60		/* seconds for one document */
#define HEAD		4096		/* bytes of a request's or an answer's head */

static const char *who = "wpb";

static void die(const char *what)
{
	fprintf(stderr, "%s: %s: %s\n", who, what, strerror(errno));
	exit(1);
}

static void wrong(const char *what, const char *url)
{
	fprintf(stderr, "%s: %s: %s\n", who, url, what);
	exit(1);
}

static uint64_t now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000ull + t.tv_nsec;
}

static struct sockaddr_in local(int port)
{
	return (struct sockaddr_in){ .sin_family = AF_INET, .sin_port = htons(port),
				     .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
}

/* Documents are this, again and again, each from another place on. */
#define PATTERN	65536u
static char pattern[PATTERN];

static void make_pattern(void)
{
	for (unsigned int k = 0; k < PATTERN; k++)
		pattern[k] = k * 2654435761u >> 24;
}

/* How much of the pattern is at a place of a document in one piece, and where. */
static size_t piece(unsigned long name, size_t at, size_t size, const char **from)
{
	size_t begin = (name * 7919 + at) % PATTERN, n = PATTERN - begin;

	*from = pattern + begin;
	return n < size - at ? n : size - at;
}

/* --- the origin --- */

/* A request, from its connection on until its answer is sent. */
struct asked {
	struct asked *next;	/* in the queue, by when they are due */
	int fd;
	uint64_t due;		/* nanoseconds */
	size_t have;		/* bytes of the head */
	char *body;
	size_t size, sent;
	char head[HEAD];
	size_t head_len;
};

static struct asked *first, **last = &first;
static int poller;
static uint64_t delay;

static void want(struct asked *a, uint32_t events, int op)
{
	struct epoll_event e = { .events = events, .data.ptr = a };

	if (epoll_ctl(poller, op, a->fd, &e))
		die("epoll_ctl");
}

static void finish(struct asked *a)
{
	close(a->fd);
	free(a->body);
	free(a);
}

/* A proxy keeps what it knows the age of. */
static const char *date(void)
{
	static char b[64];
	time_t t = time(NULL);

	strftime(b, sizeof(b), "%a, %d %b %Y %H:%M:%S GMT", gmtime(&t));
	return b;
}

/* What is asked for is known: it is answered when its time has come. */
static void enqueue(struct asked *a)
{
	unsigned long name;
	const char *path = strchr(a->head, '/');

	if (path && !strncmp(path, "//", 2))	/* an absolute address */
		path = strchr(path + 2, '/');
	if (!path || sscanf(path, "/%zu/%lu", &a->size, &name) != 2 || a->size > LARGE) {
		fprintf(stderr, "wpb: asked for %.60s\n", a->head);
		finish(a);
		return;
	}
	a->body = malloc(a->size + 1);
	if (!a->body)
		die("malloc");
	for (size_t k = 0, n; k < a->size; k += n) {
		const char *from;

		n = piece(name, k, a->size, &from);
		memcpy(a->body + k, from, n);
	}
	a->head_len = snprintf(a->head, sizeof(a->head),
			       "HTTP/1.1 200 OK\r\nDate: %s\r\nContent-Type: application/octet-stream\r\n"
			       "Content-Length: %zu\r\nCache-Control: max-age=86400\r\n"
			       "Connection: close\r\n\r\n", date(), a->size);
	a->due = now() + delay;
	a->next = NULL;
	*last = a;
	last = &a->next;
	want(a, 0, EPOLL_CTL_MOD);
}

static void receive(struct asked *a)
{
	ssize_t n = read(a->fd, a->head + a->have, sizeof(a->head) - 1 - a->have);

	if (n <= 0) {
		finish(a);
		return;
	}
	a->have += n;
	a->head[a->have] = 0;
	if (strstr(a->head, "\r\n\r\n"))
		enqueue(a);
	else if (a->have == sizeof(a->head) - 1)
		finish(a);
}

static void answer(struct asked *a)
{
	size_t total = a->head_len + a->size;

	while (a->sent < total) {
		const char *from = a->sent < a->head_len ? a->head + a->sent : a->body + a->sent - a->head_len;
		size_t n = a->sent < a->head_len ? a->head_len - a->sent : total - a->sent;
		ssize_t done = send(a->fd, from, n, MSG_NOSIGNAL | MSG_DONTWAIT);

		if (done < 0 && errno == EAGAIN) {
			want(a, EPOLLOUT, EPOLL_CTL_MOD);
			return;
		}
		if (done <= 0)
			break;
		a->sent += done;
	}
	finish(a);
}

/* Answers what is due; gives how long the next one has time, in milliseconds. */
static int serve_due(void)
{
	struct asked *a;
	uint64_t t = now();

	while (first && first->due <= t) {
		a = first;
		first = a->next;
		if (!first)
			last = &first;
		answer(a);
	}
	return first ? (int)((first->due - t + 999999) / 1000000) : -1;
}

static int listen_on(int port)
{
	struct sockaddr_in at = local(port);
	int fd = socket(AF_INET, SOCK_STREAM, 0), on = 1;

	if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) ||
	    bind(fd, (void *)&at, sizeof(at)) || listen(fd, 1024))
		die("listen");
	return fd;
}

static void accept_one(int listener)
{
	struct asked *a = calloc(1, sizeof(*a));

	if (!a)
		die("calloc");
	a->fd = accept(listener, NULL, NULL);
	if (a->fd < 0)
		die("accept");
	want(a, EPOLLIN, EPOLL_CTL_ADD);
}

static void origin(int port, int milliseconds)
{
	struct epoll_event e[64] = { { .events = EPOLLIN } };
	int listener = listen_on(port), n;

	delay = milliseconds * 1000000ull;
	poller = epoll_create1(0);
	if (poller < 0 || epoll_ctl(poller, EPOLL_CTL_ADD, listener, e))
		die("epoll");
	puts("ready");
	fflush(stdout);
	for (;;) {
		n = epoll_wait(poller, e, 64, serve_due());
		for (int k = 0; k < n; k++) {
			struct asked *a = e[k].data.ptr;

			if (!a)
				accept_one(listener);
			else if (e[k].events & EPOLLOUT)
				answer(a);
			else if (!a->body)
				receive(a);
		}
	}
}

/* --- clients --- */

/* What all of a phase's requests came to; shared with the clients. */
struct tally {
	uint64_t time;		/* nanoseconds, as the clients see it */
	uint64_t bytes;
	unsigned int requests, hits;
};

static struct tally (*tallies)[2];	/* of each client */
static int proxy_port, origin_port;

static uint64_t rng;

/* splitmix64 (Steele, Lea, Flood 2014). */
static uint64_t draw(void)
{
	uint64_t z = rng += 0x9e3779b97f4a7c15ull;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ z >> 27) * 0x94d049bb133111ebull;
	return z ^ z >> 31;
}

struct document {
	size_t size;
	unsigned long name;
};

static struct document documents[2 * MAX_REQUESTS];
static int known;

static struct document fresh(int client)
{
	struct document d = { draw() % SMALL, client * 2ul * MAX_REQUESTS + known };

	if (draw() % LARGE_ONE_OF == 0)
		d.size = LARGE;
	documents[known++] = d;
	return d;
}

/* One of those that are known: the k-th last with a weight of 1/k, by trial. */
static struct document again(void)
{
	for (;;) {
		int k = draw() % known;

		if (draw() % (k + 1) == 0)
			return documents[known - 1 - k];
	}
}

static int connect_proxy(const char *url)
{
	struct sockaddr_in at = local(proxy_port);
	struct timeval patience = { .tv_sec = PATIENCE };
	int fd = socket(AF_INET, SOCK_STREAM, 0), on = 1;

	if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)) ||
	    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)))
		die("socket");
	if (connect(fd, (void *)&at, sizeof(at)))
		wrong("the proxy does not take the connection", url);
	return fd;
}

/* Reads until the end of the connection; gives what is behind the head. */
static size_t receive_all(int fd, char *b, size_t most, const char *url)
{
	size_t have = 0;
	ssize_t n;

	while ((n = read(fd, b + have, most - have)) > 0)
		have += n;
	if (n < 0)
		wrong(errno == EAGAIN ? "no answer in time" : strerror(errno), url);
	if (have == most)
		wrong("the answer is too long", url);
	b[have] = 0;
	return have;
}

/* Asks for a document and compares it; whether it came from the proxy's store. */
static int fetch(struct document d)
{
	static char b[LARGE + 2 * HEAD];
	char url[64], head[HEAD], *body;
	size_t have;
	int fd, n;

	snprintf(url, sizeof(url), "http://127.0.0.1:%d/%zu/%lu", origin_port, d.size, d.name);
	fd = connect_proxy(url);
	n = snprintf(head, sizeof(head), "GET %s HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nConnection: close\r\n\r\n", url, origin_port);
	if (write(fd, head, n) != n)
		wrong("the proxy does not take the request", url);
	have = receive_all(fd, b, sizeof(b) - 1, url);
	close(fd);
	body = strstr(b, "\r\n\r\n");
	if (strncmp(b, "HTTP/1.1 200 ", 13) || !body)
		wrong("the answer is no document", url);
	*body = 0;
	body += 4;
	if (b + have - body != (ssize_t)d.size)
		wrong("the document has another size", url);
	for (size_t k = 0, part; k < d.size; k += part) {
		const char *from;

		part = piece(d.name, k, d.size, &from);
		if (memcmp(body + k, from, part))
			wrong("the document has other content", url);
	}
	return strstr(b, ";hit") != NULL;
}

static void ask(struct tally *t, struct document d)
{
	uint64_t begin = now();

	t->hits += fetch(d);
	t->time += now() - begin;
	t->bytes += d.size;
	t->requests++;
}

static void client(int number, int phase, int requests)
{
	struct tally *t = &tallies[number][phase];

	for (int k = 0; k < requests; k++)
		ask(t, phase == 0 || draw() % 2 ? fresh(number) : again());
}

/* A client lives through both phases; it is told when to begin, and says when it is done. */
static void live(int number, int requests, uint64_t seed, int begin, int done)
{
	char name[32], byte;

	snprintf(name, sizeof(name), "wpb client %d", number);
	who = name;
	rng = seed + number * 0x632be59bd9b4e019ull;
	for (int phase = 0; phase < 2; phase++) {
		if (read(begin, &byte, 1) != 1)
			die("waiting");
		client(number, phase, requests);
		if (write(done, &byte, 1) != 1)
			die("end");
	}
	exit(0);
}

static void report(const char *phase, int clients, int n, uint64_t time)
{
	struct tally sum = { 0 };

	for (int k = 0; k < clients; k++) {
		sum.time += tallies[k][n].time;
		sum.bytes += tallies[k][n].bytes;
		sum.requests += tallies[k][n].requests;
		sum.hits += tallies[k][n].hits;
	}
	printf("BenchmarkSquid/%s-1 %u %.0f ns/op %.3f req/s %.3f MB/s %.4f hits/req\n", phase, sum.requests,
	       (double)sum.time / sum.requests, sum.requests * 1e9 / time, sum.bytes * 1e3 / time,
	       (double)sum.hits / sum.requests);
	fflush(stdout);
}

static void await(int clients, int done)
{
	char byte;

	while (clients--)
		if (read(done, &byte, 1) != 1)
			die("waiting for clients");
}

/* A client that fails has said why, and ends all: they die with their parent. */
static void child_ended(int signal)
{
	int status;

	(void)signal;
	while (waitpid(-1, &status, WNOHANG) > 0)
		if (status)
			_exit(1);
}

static int drive(int clients, int requests, uint64_t seed)
{
	static const char *const phases[] = { "miss", "mixed" };
	int begin[2], done[2];
	uint64_t t;

	if (clients < 1 || clients > MAX_CLIENTS || requests < 1 || requests > MAX_REQUESTS) {
		fprintf(stderr, "wpb: 1 to %d clients, 1 to %d requests\n", MAX_CLIENTS, MAX_REQUESTS);
		return 2;
	}
	tallies = mmap(NULL, clients * sizeof(*tallies), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (tallies == MAP_FAILED || pipe(begin) || pipe(done))
		die("pipe");
	sigaction(SIGCHLD, &(struct sigaction){ .sa_handler = child_ended, .sa_flags = SA_RESTART }, NULL);
	for (int k = 0; k < clients; k++) {
		pid_t child = fork();

		if (child < 0)
			die("fork");
		if (!child) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			close(done[0]);
			close(begin[1]);
			live(k, requests, seed, begin[0], done[1]);
		}
	}
	close(done[1]);
	for (int n = 0; n < 2; n++) {
		t = now();
		for (int k = 0; k < clients; k++)
			if (write(begin[1], "", 1) != 1)
				die("begin");
		await(clients, done[0]);
		report(phases[n], clients, n, now() - t);
	}
	return 0;
}

int main(int argc, char **argv)
{
	signal(SIGPIPE, SIG_IGN);
	make_pattern();
	if (argc == 4 && !strcmp(argv[1], "origin"))
		origin(atoi(argv[2]), atoi(argv[3]));
	if (argc == 7 && !strcmp(argv[1], "drive")) {
		proxy_port = atoi(argv[2]);
		origin_port = atoi(argv[3]);
		return drive(atoi(argv[4]), atoi(argv[5]), strtoull(argv[6], NULL, 0));
	}
	fprintf(stderr, "usage: wpb origin PORT DELAY | wpb drive PROXYPORT ORIGINPORT CLIENTS REQUESTS SEED\n");
	return 2;
}
