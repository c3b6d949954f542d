/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the plugins here share. They are freestanding: the objects depend on no C
 * library version, and what they use of the process's own libc is declared below.
 * Each includes this once, for it defines the version that QEMU looks up.
 *
 * The few declarations of QEMU's plugin interface are as the interface's
 * documentation names them: Debian packages no header. These have kept their form
 * from interface version 1 (QEMU 4.2) to the current one.
 */
#ifndef PLUGIN_H
#define PLUGIN_H

typedef unsigned long long u64;
typedef u64 qemu_plugin_id_t;
struct qemu_plugin_tb;
struct qemu_plugin_insn;

enum qemu_plugin_cb_flags { QEMU_PLUGIN_CB_NO_REGS };

typedef struct qemu_info {
	const char *target_name;
	struct { int min, cur; } version;
	_Bool system_emulation;
	struct { int smp_vcpus, max_vcpus; } system;
} qemu_info_t;

typedef void (*tb_trans_cb)(qemu_plugin_id_t, struct qemu_plugin_tb *);
typedef void (*udata_cb)(unsigned int vcpu, void *userdata);
typedef void (*id_udata_cb)(qemu_plugin_id_t, void *userdata);

void qemu_plugin_register_vcpu_tb_trans_cb(qemu_plugin_id_t, tb_trans_cb);
void qemu_plugin_register_atexit_cb(qemu_plugin_id_t, id_udata_cb, void *);
unsigned long qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *);
struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *, unsigned long);
u64 qemu_plugin_insn_vaddr(const struct qemu_plugin_insn *);
unsigned long qemu_plugin_insn_size(const struct qemu_plugin_insn *);
void qemu_plugin_register_vcpu_insn_exec_cb(struct qemu_plugin_insn *, udata_cb,
					    enum qemu_plugin_cb_flags, void *);

int open(const char *path, int flags, ...);
long write(int fd, const void *buf, unsigned long n);

#define O_WRONLY_CREAT_TRUNC_CLOEXEC	(01 | 0100 | 01000 | 02000000)

#define EXPORT		__attribute__((visibility("default")))

#ifndef PLUGIN_VERSION
#define PLUGIN_VERSION	1	/* the interface that the installed QEMU wants */
#endif

EXPORT int qemu_plugin_version = PLUGIN_VERSION;

#define MARK_BASE	0x7ab00000ull	/* as guest/bench/mark.h has it */

#endif
