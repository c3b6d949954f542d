// SPDX-License-Identifier: Apache-2.0
/*
 * mark: tells the observer outside the guest one thing.
 *
 *   mark point ADDR...   these kernel addresses are instrumentation points
 *   mark begin | end     a measurement begins or ends
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mark.h"

static void point(unsigned long long addr)
{
	for (int shift = 60; shift >= 0; shift -= 4) {
		unsigned long at = (unsigned long)&ki_mark_nibble +
				   MARK_STRIDE * ((addr >> shift) & 15);

		((void (*)(void))at)();
	}
	ki_mark_point();
}

static int usage(void)
{
	fputs("usage: mark begin | mark end | mark point ADDR...\n", stderr);
	return 2;
}

int main(int argc, char **argv)
{
	if (argc == 2 && !strcmp(argv[1], "begin")) {
		ki_mark_begin();
		return 0;
	}
	if (argc == 2 && !strcmp(argv[1], "end")) {
		ki_mark_end();
		return 0;
	}
	if (argc < 3 || strcmp(argv[1], "point"))
		return usage();
	for (int i = 2; i < argc; i++) {
		char *rest;
		unsigned long long addr;

		errno = 0;
		addr = strtoull(argv[i], &rest, 0);
		if (errno || *rest || rest == argv[i]) {
			fprintf(stderr, "mark: %s is not an address\n", argv[i]);
			return 2;
		}
		point(addr);
	}
	return 0;
}
