/* SPDX-License-Identifier: GPL-2.0 */
/*
 * compat.h - what kernels from 6.1 to 7.3 call and place differently. The module is written
 * for 6.12; here, and nowhere else, it asks which version it is built for. It was compiled for
 * Debian's 6.1.176, 6.12.107, 7.2.12 and 7.3.4 alone: where a change came between those, its version is
 * upstream's as far as it is known.
 *
 * Only names and places are here. Where a kernel does something else, its symbols tell, and
 * the module says what it cannot do then: KI_ARCH_MAYBE in arch_internals.h.
 */
#ifndef _KERNINST_COMPAT_H
#define _KERNINST_COMPAT_H

/*
 * Debian's 7.2 for riscv64 is built by a gcc that knows Zacas and Zabha. One that does not
 * gives the assembler no leave to use them: this module's atomics are the kernel's others.
 * That has to be said before any header is read: Kbuild.
 */
#if defined(CONFIG_RISCV) && defined(__GNUC__) && __GNUC__ < 15
#undef CONFIG_RISCV_ISA_ZACAS
#undef CONFIG_RISCV_ISA_ZABHA
#endif

#include <linux/hrtimer.h>
#include <linux/mm.h>
#include <linux/set_memory.h>
#include <linux/version.h>

#define KI_SINCE(major, minor)	(LINUX_VERSION_CODE >= KERNEL_VERSION(major, minor, 0))

/* 6.13: the header has one name on all ISAs; on amd64 it always had that. */
#if KI_SINCE(6, 13) || defined(CONFIG_X86_64)
#include <asm/text-patching.h>
#elif defined(CONFIG_ARM64)
#include <asm/patching.h>
#else
#include <asm/patch.h>
#endif

/* 7.0: linux/kernel.h has hex_to_bin() no more. */
#if __has_include(<linux/hex.h>)
#include <linux/hex.h>
#endif

/* 6.10: memory profiling wraps allocators, and what they wrap is named so. Same arguments. */
#if !KI_SINCE(6, 10)
#define __vmalloc_node_range_noprof __vmalloc_node_range
#endif

/* 6.2: the two in one call. amd64 has a function for it, which the others do not. */
#if !KI_SINCE(6, 2)
static inline int set_memory_rox(unsigned long addr, int pages)
{
	int err = set_memory_ro(addr, pages);

	return err ? err : set_memory_x(addr, pages);
}
#endif
#if KI_SINCE(6, 2) && defined(CONFIG_X86_64)
#define KI_SET_ROX(CODE)	CODE(set_memory_rox)
#else
#define KI_SET_ROX(CODE)	CODE(set_memory_ro) CODE(set_memory_x)
#endif

/* 6.3: a mapping's flags are written by functions only. ->mmap() has mmap_lock for writing. */
#if !KI_SINCE(6, 3)
static inline void vm_flags_mod(struct vm_area_struct *vma, vm_flags_t set, vm_flags_t clear)
{
	vma->vm_flags = (vma->vm_flags | set) & ~clear;
}
#endif

/*
 * Whether it has given its CPU away by a call, to sleep, as tasks-RCU asks: who was preempted, though he was about to
 * sleep, is still queued. Since 6.12 who sleeps may be, too, for the fair server's sake (task_is_runnable()).
 */
static inline bool ki_asleep(const struct task_struct *t)
{
#if KI_SINCE(6, 12)
	if (READ_ONCE(t->se.sched_delayed))
		return true;
#endif
	return !READ_ONCE(t->on_rq);
}

/* 6.13; hrtimer_init() went with 6.15. A macro, as stable kernels may get the function, too. */
#if !KI_SINCE(6, 13)
#define hrtimer_setup(timer, run, clock, mode)		\
	do {						\
		hrtimer_init(timer, clock, mode);	\
		(timer)->function = (run);		\
	} while (0)
#endif

#ifdef CONFIG_X86_64

/* 6.16: the same three steps under other names; what a list holds is one CPU's to count. */
#if KI_SINCE(6, 16)
#define text_poke_queue		smp_text_poke_batch_add
#define text_poke_finish	smp_text_poke_batch_finish
#define text_poke_sync		smp_text_poke_sync_each_cpu
#endif

/* 6.2 to 6.14: `current` is in a structure of what is hot, before and after a variable. */
#if KI_SINCE(6, 2) && !KI_SINCE(6, 15)
#define KI_TASK_SYMBOL	"pcpu_hot"
#define KI_TASK_OFFSET	offsetof(struct pcpu_hot, current_task)
#else
#define KI_TASK_SYMBOL	"current_task"
#define KI_TASK_OFFSET	0
#endif

/* 6.4: the unwinder's tables have types of their own. Before, they are those of hints. */
#if !KI_SINCE(6, 4)
#include <linux/objtool.h>
#define ORC_TYPE_CALL	UNWIND_HINT_TYPE_CALL
#endif

#endif /* CONFIG_X86_64 */

#ifdef CONFIG_ARM64

#include <asm/cacheflush.h>
#include <asm/insn.h>

/*
 * 6.9: text that nobody runs yet is copied by a function. Before, it is written by words, and
 * then, as that does, all CPUs are told.
 */
#if !KI_SINCE(6, 9)
static inline void *aarch64_insn_copy(void *dst, void *src, size_t len)
{
	const u32 *words = src;
	size_t i;

	for (i = 0; i < len / AARCH64_INSN_SIZE; i++)
		if (aarch64_insn_write(dst + i * AARCH64_INSN_SIZE, words[i]))
			return NULL;
	flush_icache_range((unsigned long)dst, (unsigned long)dst + len);
	return dst;
}
#define KI_INSN_COPY(CODE)	CODE(aarch64_insn_write)
#else
#define KI_INSN_COPY(CODE)	CODE(aarch64_insn_copy)
#endif

/* 6.5: user and kernel have one each. Before, the address decides, as is right for both. */
#if !KI_SINCE(6, 5)
#include <asm/pointer_auth.h>
#define ptrauth_strip_kernel_insn_pac ptrauth_strip_insn_pac
#endif

#endif /* CONFIG_ARM64 */

#endif /* _KERNINST_COMPAT_H */
