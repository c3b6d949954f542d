// SPDX-License-Identifier: Apache-2.0
/* Mappings, and pages that are touched for the first time. */
#define _GNU_SOURCE
#include <sys/mman.h>
#include <unistd.h>

#include "lmbench.h"

#define STRIDE (16 * KIB)	/* between the bytes that mmap's reads touch */
#define MOST_PAGES 1024		/* that a file of page faults has */

static int fd;
static size_t size, page;
static volatile char *mapped;
static size_t mapped_size;

void mmap_setup(const struct operation *o)
{
	size = o->size;
	fd = scratch_file(size);
}

/* Maps a file, reads a byte of every 16 KiB, and takes the mapping away. */
void mmap_call(uint32_t turn)
{
	volatile const char *p = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);

	(void)turn;
	if (p == MAP_FAILED)
		die("mmap");
	for (size_t i = 0; i < size; i += STRIDE)
		p[i];
	if (munmap((void *)p, size))
		die("munmap");
}

static void map(uint32_t pages, int flags, int file)
{
	page = getpagesize();
	mapped_size = pages * page;
	mapped = mmap(NULL, mapped_size, PROT_READ | PROT_WRITE, flags, file, 0);
	/* Else one fault may bring a large page. */
	if (mapped == MAP_FAILED || madvise((void *)mapped, mapped_size, MADV_NOHUGEPAGE))
		die("mmap");
}

/* Memory without a file: the kernel takes a page and clears it. */
void anonymous_before(uint32_t calls)
{
	map(calls, MAP_PRIVATE | MAP_ANONYMOUS, -1);
}

void mapped_setup(const struct operation *o)
{
	(void)o;
	fd = scratch_file(MOST_PAGES * getpagesize());
}

/* A shared file whose pages are in memory: the kernel looks one up. */
void mapped_before(uint32_t calls)
{
	if (calls > MOST_PAGES)
		die("pages");
	map(calls, MAP_SHARED, fd);
}

/* A store: for a load, the kernel would map neighbours too. */
void page_call(uint32_t turn)
{
	mapped[turn * page] = 1;
}

void pages_after(uint32_t calls)
{
	(void)calls;
	if (munmap((void *)mapped, mapped_size))
		die("munmap");
}
