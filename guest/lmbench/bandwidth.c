// SPDX-License-Identifier: Apache-2.0
/*
 * Bandwidths in one process: memory, word by word, and a file that is in memory.
 * Copying moves each byte once, as it is counted here.
 */
#include <sys/mman.h>
#include <unistd.h>

#include "lmbench.h"

#define BLOCK (64 * KIB)	/* of a read */

static uint64_t *from, *to;
static size_t size;
static int fd;

void memory_setup(const struct operation *o)
{
	size = o->moves;
	from = memory(size);
	to = memory(size);
}

void memory_read(uint32_t turn)
{
	(void)turn;
	keep(sum(from, size));
}

void memory_write(uint32_t turn)
{
	fill(to, size, turn);
}

void memory_copy(uint32_t turn)
{
	(void)turn;
	for (size_t i = 0; i < size / sizeof(*to); i++)
		to[i] = from[i];
}

void file_setup(const struct operation *o)
{
	memory_setup(o);
	fd = scratch_file(size);
}

void file_read(uint32_t turn)
{
	(void)turn;
	for (size_t at = 0; at < size; at += BLOCK)
		if (pread(fd, to, BLOCK, at) != BLOCK)
			die("pread");
}

/* Maps the file, adds up its words, and takes the mapping away. */
void file_map(uint32_t turn)
{
	void *p = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);

	(void)turn;
	if (p == MAP_FAILED)
		die("mmap");
	if (sum(p, size) != size / sizeof(uint64_t)) {
		die("the file's content");
	}
	if (munmap(p, size))
		die("munmap");
}
