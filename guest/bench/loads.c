// SPDX-License-Identifier: Apache-2.0
/*
 * loads: gives the kernel pointers to look at, and has it do so in an interrupt.
 *
 *   loads pointers ROUNDS ADDRESS...	ADDRESS is in hex, or "user", or "banner+N"
 *   loads alarms N
 *
 * Pointers are the second argument of getppid, which takes none, behind a first that
 * is unused and before a third that says whose call it is. Each is printed once, as
 * "ADDRESS VALUE". An alarm is raised by the kernel's timer interrupt, and the next one
 * asked for when it came.
 */
#define _GNU_SOURCE
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

#define OURS	0x6b65726e696e7374ul
#define MOST	64

static const char user[16] = "not to be seen";

static unsigned long banner(void)
{
	char line[512];
	unsigned long addr = 0;
	FILE *f = fopen("/proc/kallsyms", "r");

	while (f && fgets(line, sizeof(line), f))
		if (strstr(line, " linux_banner\n"))
			addr = strtoul(line, NULL, 16);
	if (!addr) {
		fputs("loads: linux_banner is not in /proc/kallsyms\n", stderr);
		exit(1);
	}
	return addr;
}

static unsigned long address(const char *name)
{
	if (!strcmp(name, "user"))
		return (unsigned long)user;
	if (!strncmp(name, "banner+", 7))
		return banner() + strtoul(name + 7, NULL, 10);
	return strtoul(name, NULL, 16);
}

static int pointers(int rounds, int n, char **names)
{
	unsigned long all[MOST];

	if (rounds < 1 || n < 1 || n > MOST)
		return 2;
	for (int i = 0; i < n; i++) {
		all[i] = address(names[i]);
		printf("%s %#lx\n", names[i], all[i]);
	}
	for (int k = 0; k < rounds; k++)
		for (int i = 0; i < n; i++)
			syscall(SYS_getppid, 0, all[i], OURS);
	return 0;
}

static volatile sig_atomic_t came;

static void on_alarm(int sig)
{
	(void)sig;
	came++;
}

static int alarms(int n)
{
	struct itimerval soon = { .it_value.tv_usec = 1000 };

	if (n < 1 || signal(SIGALRM, on_alarm) == SIG_ERR)
		return 2;
	for (int i = 0; i < n; i++) {
		if (setitimer(ITIMER_REAL, &soon, NULL)) {
			perror("loads");
			return 1;
		}
		while (came <= i) /* busy, so that something is interrupted */
			;
	}
	return 0;
}

int main(int argc, char **argv)
{
	int err = 2;

	if (argc > 3 && !strcmp(argv[1], "pointers"))
		err = pointers(atoi(argv[2]), argc - 3, argv + 3);
	else if (argc == 3 && !strcmp(argv[1], "alarms"))
		err = alarms(atoi(argv[2]));
	if (err == 2)
		fputs("usage: loads pointers ROUNDS ADDRESS... | loads alarms N\n", stderr);
	return err ? err : ferror(stdout) || fflush(stdout);
}
