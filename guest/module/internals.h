/* SPDX-License-Identifier: GPL-2.0 */
/*
 * internals.h - functions and data of the kernel that the module needs and
 * that are not exported.
 *
 * They are left undefined in kerninst.ko. The loader in user space
 * (agent/kdev, ResolveModule) finds their names in the section
 * .kerninst.internals and gives each the absolute address that /proc/kallsyms
 * shows, so that the kernel's own relocation makes direct calls: no indirect
 * branch, hence nothing for IBT to object to, and no look-up in the module.
 * Exported symbols stay undefined and keep their version check.
 *
 * CODE(f), DATA(d): the module compares the symbol with the kernel's name for
 * that address at load. KI_ARCH_MAYBE lists functions that a kernel may not have, with a
 * question mark in the section: the loader gives those _text. MARK(m): a linker's mark, which shares its address
 * with other symbols; marks are checked by their order.
 */
#ifndef _KERNINST_INTERNALS_H
#define _KERNINST_INTERNALS_H

#include "compat.h"
#include "arch_internals.h"

/* Generated code is text, wherever it is, if it is BPF's: for ISAs that have KI_ARCH_NAMED. */
#ifdef CONFIG_BPF_JIT
#include <linux/bpf.h>
#define KI_NAMING(CODE)				\
	CODE(bpf_ksym_add)			\
	CODE(bpf_ksym_del)
#else
#define KI_NAMING(CODE)
#endif

#ifdef CONFIG_FUNCTION_GRAPH_TRACER
#define KI_GRAPH(CODE)	CODE(ftrace_graph_get_ret_stack)
#else
#define KI_GRAPH(CODE)
#endif

#define KI_INTERNALS(CODE, DATA, MARK)		\
	MARK(_text)				\
	MARK(_stext)				\
	MARK(_etext)				\
	MARK(__init_begin)			\
	MARK(_end)				\
	MARK(__start___jump_table)		\
	MARK(__stop___jump_table)		\
	DATA(saved_command_line)		\
	DATA(text_mutex)			\
	DATA(kprobe_mutex)			\
	DATA(kprobe_blacklist)			\
	DATA(kprobe_table)			\
	CODE(get_kprobe)			\
	CODE(within_kprobe_blacklist)		\
	CODE(arch_within_kprobe_blacklist)	\
	CODE(lookup_symbol_name)		\
	CODE(kallsyms_lookup_name)		\
	CODE(core_kernel_text)			\
	CODE(__module_address)			\
	CODE(__module_text_address)		\
	CODE(kallsyms_lookup_size_offset)	\
	CODE(jump_label_lock)			\
	CODE(jump_label_unlock)			\
	CODE(jump_label_text_reserved)		\
	CODE(ftrace_text_reserved)		\
	CODE(put_task_stack)			\
	CODE(search_exception_tables)		\
	CODE(__vmalloc_node_range_noprof)	\
	CODE(stack_trace_save_regs)		\
	CODE(arch_stack_walk)			\
	CODE(idle_task)				\
	KI_GRAPH(CODE)				\
	KI_ARCH_INTERNALS(CODE, DATA, MARK)

/* Those that no header of the kernel declares. */
extern struct mutex kprobe_mutex;
extern struct list_head kprobe_blacklist;
extern struct hlist_head kprobe_table[];

#endif /* _KERNINST_INTERNALS_H */
