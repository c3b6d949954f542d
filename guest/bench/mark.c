// SPDX-License-Identifier: Apache-2.0
/*
 * mark: tells the observer outside the guest one thing.
 *
 *   mark point ADDR...   these kernel addresses are instrumentation points
 *   mark begin | end     a measurement begins or ends
 *   mark calls           where functions begin, and whatever else there is to know of
 *                        this kernel for who follows one task's calls
 *   mark watch CMD ARG...   the command's is the task whose calls are followed
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "mark.h"

static void address(unsigned long long addr)
{
	for (int shift = 60; shift >= 0; shift -= 4) {
		unsigned long at = (unsigned long)&ki_mark_nibble +
				   MARK_STRIDE * ((addr >> shift) & 15);

		((void (*)(void))at)();
	}
}

static void point(unsigned long long addr)
{
	address(addr);
	ki_mark_point();
}

static void calls(enum ki_calls which)
{
	((void (*)(void))((unsigned long)&ki_mark_calls + MARK_STRIDE * which))();
}

/* Ranges of the kernel's code: up to another symbol, or so many bytes. */
static struct known {
	const char *from, *to;
	unsigned bytes;
	enum ki_calls what;
	unsigned long long begin, end;
} known[] = {
	{ "do_task_dead", NULL, 1, KI_DIES },
#if defined(__x86_64__)
	{ "__entry_text_start", "__entry_text_end", 0, KI_ENTRY },
	{ "__irqentry_text_start", "__irqentry_text_end", 0, KI_VECTOR },
	{ "asm_exc_nmi", NULL, 1, KI_VECTOR },
	{ "__switch_to_asm", NULL, 256, KI_SWITCHES },
#elif defined(__aarch64__)
	{ "__entry_text_start", "__entry_text_end", 0, KI_ENTRY },
	{ "vectors", NULL, 0x800, KI_VECTOR },
	{ "cpu_switch_to", NULL, 256, KI_SWITCHES },
#elif defined(__riscv)
	{ "handle_exception", "__switch_to", 0, KI_ENTRY },
	{ "handle_exception", NULL, 1, KI_VECTOR },
	{ "__switch_to", NULL, 256, KI_SWITCHES },
#endif
};
#define NKNOWN (sizeof(known) / sizeof(*known))

/*
 * Symbols that are no functions: padding in front of some, and what stands for an
 * instruction of the caller's (thunks of calls and returns, trampolines).
 */
static const char *const no_functions[] = {
	"__pfx_", "__cfi_", "__x86_", "__SCT__", "srso_", "retbleed_", "its_", "$", ".L",
};

/*
 * The rest of a function that is seldom executed lies elsewhere, with a name of its own, and
 * sections begin and end where functions do or do not.
 */
static int is_function(const char *name)
{
	for (size_t i = 0; i < sizeof(no_functions) / sizeof(*no_functions); i++)
		if (!strncmp(name, no_functions[i], strlen(no_functions[i])))
			return 0;
	return !strstr(name, ".cold") && !strstr(name, "_text_start") && !strstr(name, "_text_end");
}

static void symbol(unsigned long long addr, const char *name)
{
	for (struct known *k = known; k < known + NKNOWN; k++) {
		if (!strcmp(name, k->from))
			k->begin = addr;
		if (k->to && !strcmp(name, k->to))
			k->end = addr;
	}
	if (is_function(name)) {
		address(addr);
		calls(KI_FUNCTION);
	}
}

static int tell_ranges(void)
{
	for (const struct known *k = known; k < known + NKNOWN; k++) {
		unsigned long long end = k->to ? k->end : k->begin + k->bytes;

		if (!k->begin || end <= k->begin) {
			fprintf(stderr, "mark: this kernel has no %s\n", k->from);
			return 1;
		}
		address(k->begin);
		address(end);
		calls(k->what);
	}
	return 0;
}

static int tell_calls(void)
{
	FILE *f = fopen("/proc/kallsyms", "r");
	char line[1024], type, name[512];
	unsigned long long addr;

	if (!f) {
		perror("mark: /proc/kallsyms");
		return 1;
	}
	while (fgets(line, sizeof(line), f))
		if (sscanf(line, "%llx %c %511s", &addr, &type, name) == 3 && strchr("tTwW", type))
			symbol(addr, name);
	fclose(f);
	if (tell_ranges())
		return 1;
	calls(KI_TOLD);
	return 0;
}

/* A task is known once it has been switched to. */
static int watch(char **argv)
{
	const struct timespec nap = { .tv_nsec = 1000000 };

	nanosleep(&nap, NULL);
	nanosleep(&nap, NULL);
	calls(KI_WATCH);
	execvp(argv[0], argv);
	fprintf(stderr, "mark: %s: %s\n", argv[0], strerror(errno));
	return 127;
}

static int usage(void)
{
	fputs("usage: mark begin | mark end | mark point ADDR... | mark calls | mark watch CMD ARG...\n", stderr);
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
	if (argc == 2 && !strcmp(argv[1], "calls"))
		return tell_calls();
	if (argc > 2 && !strcmp(argv[1], "watch"))
		return watch(argv + 2);
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
