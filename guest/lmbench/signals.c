// SPDX-License-Identifier: Apache-2.0
/* Signals: a handler installed, one that runs, one that runs on account of a fault. */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include "lmbench.h"

/* fault.S: stores a byte at p; what follows that instruction. */
void fault_store(char *p);
extern const char fault_stored[];

static volatile sig_atomic_t caught;
static char *barred;
static pid_t self;

static void on_signal(int sig)
{
	(void)sig;
	caught++;
}

static void handle(int sig, void (*handler)(int))
{
	struct sigaction a = { .sa_handler = handler };

	if (sigaction(sig, &a, NULL))
		die("sigaction");
}

void install_call(uint32_t turn)
{
	(void)turn;
	handle(SIGUSR1, on_signal);
}

void catch_setup(const struct operation *o)
{
	(void)o;
	handle(SIGUSR1, on_signal);
	self = getpid();
}

/* Sends a signal to itself: the handler has run when kill returns. */
void catch_call(uint32_t turn)
{
	(void)turn;
	caught = 0;
	if (kill(self, SIGUSR1) || caught != 1)
		die("kill");
}

#if defined(__x86_64__)
#define PC(uc) ((uc)->uc_mcontext.gregs[REG_RIP])
#elif defined(__aarch64__)
#define PC(uc) ((uc)->uc_mcontext.pc)
#else
#define PC(uc) ((uc)->uc_mcontext.__gregs[0])
#endif

/* Goes on behind the store, so that each call faults once. */
static void on_fault(int sig, siginfo_t *info, void *context)
{
	ucontext_t *uc = context;

	(void)sig;
	if (info->si_addr == barred)
		caught++;
	PC(uc) = (uintptr_t)fault_stored;
}

void fault_setup(const struct operation *o)
{
	struct sigaction a = { .sa_sigaction = on_fault, .sa_flags = SA_SIGINFO };
	size_t page = getpagesize();

	(void)o;
	barred = memory(page);
	if (mprotect(barred, page, PROT_READ) || sigaction(SIGSEGV, &a, NULL))
		die("protection");
}

void fault_call(uint32_t turn)
{
	(void)turn;
	caught = 0;
	errno = 0;
	fault_store(barred);
	if (caught != 1)
		die("the fault");
}
