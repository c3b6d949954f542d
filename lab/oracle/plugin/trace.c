/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * trace: records every kernel instruction that one vCPU executes, as runs.
 *
 *   -plugin trace.so,out=FILE
 *
 * Recording begins when a guest program executes the mark `begin`
 * (guest/bench/mark.S) and ends after TRACE_INSNS instructions. FILE gets words
 * of 64 bits, little-endian:
 *
 *   count << 48 | address	instructions that follow each other in memory;
 *				the address's upper 16 bits are all ones
 *   0				control left the kernel
 *   ~0				the end; the trace is whole
 *
 * An instruction is recorded before it executes: the last of a run may have
 * faulted. Iterations of one instruction (rep) are one.
 *
 * Freestanding, as plugin.h has it.
 */
#include "plugin.h"

#ifndef TRACE_INSNS
#define TRACE_INSNS	5000000ull
#endif

#define ADDRESS		((1ull << 48) - 1)
#define MAX_RUN		0xfffeull

static u64 words[8192];
static unsigned long used;
static int out = -1;

static enum { WAITING, RECORDING, DONE } state;
static u64 start, count, last, next, recorded;
static int outside = 1;		/* a 0 has been written, or nothing yet */

static void flush(void)
{
	unsigned long at = 0, bytes = used * sizeof(u64);

	while (at < bytes) {
		long n = write(out, (char *)words + at, bytes - at);

		if (n <= 0)
			break;
		at += n;
	}
	used = 0;
}

static void put(u64 word)
{
	words[used++] = word;
	if (used == sizeof(words) / sizeof(*words))
		flush();
}

static void put_run(void)
{
	if (count)
		put(count << 48 | start);
	count = 0;
}

static void finish(void)
{
	if (state != RECORDING)
		return;
	put_run();
	put(~0ull);
	flush();
	state = DONE;
}

/* The instruction comes in the pointer: its length above its address. */
static void on_kernel(unsigned int vcpu, void *data)
{
	u64 a = (u64)data & ADDRESS, len = (u64)data >> 48;

	if (state != RECORDING || (a == last && !outside))
		return;
	if (a != next || outside || count == MAX_RUN) {
		put_run();
		start = a;
	}
	outside = 0;
	count++;
	last = a;
	next = a + len;
	if (++recorded == TRACE_INSNS)
		finish();
}

static void on_user(unsigned int vcpu, void *data)
{
	if (state != RECORDING || outside)
		return;
	put_run();
	put(0);
	outside = 1;
}

static void on_begin(unsigned int vcpu, void *data)
{
	if (state == WAITING)
		state = RECORDING;
}

static void on_translate(qemu_plugin_id_t id, struct qemu_plugin_tb *tb)
{
	unsigned long n = qemu_plugin_tb_n_insns(tb);

	for (unsigned long i = 0; i < n; i++) {
		struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(tb, i);
		u64 a = qemu_plugin_insn_vaddr(insn);

		if (a == MARK_BASE)
			qemu_plugin_register_vcpu_insn_exec_cb(insn, on_begin,
				QEMU_PLUGIN_CB_NO_REGS, 0);
		if (a >> 63)
			qemu_plugin_register_vcpu_insn_exec_cb(insn, on_kernel,
				QEMU_PLUGIN_CB_NO_REGS,
				(void *)((a & ADDRESS) | (u64)qemu_plugin_insn_size(insn) << 48));
		else if (i == 0)
			qemu_plugin_register_vcpu_insn_exec_cb(insn, on_user,
				QEMU_PLUGIN_CB_NO_REGS, 0);
	}
}

static void on_exit(qemu_plugin_id_t id, void *data)
{
	finish();
}

EXPORT int qemu_plugin_install(qemu_plugin_id_t id, const qemu_info_t *info,
			       int argc, char **argv)
{
	const char *path = 0;

	for (int i = 0; i < argc; i++)
		if (argv[i][0] == 'o' && argv[i][1] == 'u' && argv[i][2] == 't' && argv[i][3] == '=')
			path = argv[i] + 4;
	if (!path || !info->system_emulation || info->system.max_vcpus != 1)
		return -1;
	out = open(path, O_WRONLY_CREAT_TRUNC_CLOEXEC, 0600);
	if (out < 0)
		return -1;
	qemu_plugin_register_vcpu_tb_trans_cb(id, on_translate);
	qemu_plugin_register_atexit_cb(id, on_exit, 0);
	return 0;
}
