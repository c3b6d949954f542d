/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Lines of text, written to a file a buffer at a time. */
#ifndef OUTPUT_H
#define OUTPUT_H

#include "plugin.h"

#define LONGEST	512	/* more than any piece that is put at once has */

static int out = -1;
static char buffer[16 * LONGEST];
static unsigned long used;

static void flush(void)
{
	unsigned long at = 0;

	while (at < used) {
		long n = write(out, buffer + at, used - at);

		if (n <= 0)
			break;
		at += n;
	}
	used = 0;
}

static void put(const char *s)
{
	if (used > sizeof(buffer) - LONGEST)
		flush();
	while (*s)
		buffer[used++] = *s++;
}

static void put_number(const char *before, u64 n, unsigned int base)
{
	char digits[21], *d = digits + sizeof(digits) - 1;

	*d = 0;
	do
		*--d = "0123456789abcdef"[n % base];
	while (n /= base);
	put(before);
	put(d);
}

#endif
