// SPDX-License-Identifier: GPL-2.0
/*
 * arm64: an instruction that another CPU may be executing can be replaced
 * under way only between a few kinds (branches, nop, traps: Arm ARM B2.2.5).
 * A displaced instruction is of any kind, so all splices are written in
 * stopped.c, and every CPU then passes an isb.
 */
#include <linux/bitops.h>
#include <linux/errno.h>
#include <linux/ptrace.h>
#include <linux/rcupdate.h>
#include <linux/sched/task_stack.h>
#include <linux/uaccess.h>
#include <linux/string.h>

#include <asm/barrier.h>
#include <asm/cpufeature.h>
#include <asm/debug-monitors.h>
#include <asm/insn.h>
#include <asm/pgtable.h>
#include <asm/pointer_auth.h>
#include <asm/sections.h>

#include "internals.h"
#include "kerninst_mod.h"

const u32 ki_arch_id = KI_ARCH_ARM64;
const u32 ki_arch_insn_align = AARCH64_INSN_SIZE;
const bool ki_arch_moves = false;

u32 ki_arch_features(void)
{
	return cpus_have_final_cap(ARM64_HAS_LSE_ATOMICS) ? KI_FEAT_LSE : 0;
}

/*
 * The modules' space, and directly above it the vmalloc space, in which the image lies:
 * at its very beginning without KASLR, and all modules below. Below both is the linear
 * map, above them vmemmap, fixmap and PCI I/O space.
 */
void ki_arch_area_range(unsigned long *lo, unsigned long *hi)
{
	*lo = MODULES_VADDR;
	*hi = VMALLOC_END;
}

static u32 first_word(const struct ki_splice *s)
{
	u32 w;

	memcpy(&w, s->new, sizeof(w));
	return le32_to_cpu((__force __le32)w);
}

/* b: 000101 imm26, in words (Arm ARM C6.2.26). */
static bool is_b(u32 w)
{
	return w >> 26 == 0x05;
}

bool ki_arch_target(const struct ki_splice *s, unsigned long *to)
{
	u32 w = first_word(s);

	if (!is_b(w))
		return false;
	*to = s->point + ((s64)sign_extend32(w, 25) << 2);
	return true;
}

/* One b; or, in a window or a springboard, whatever gets there. */
int ki_arch_check(const struct ki_splice *s)
{
	if (!IS_ALIGNED(s->point | s->patch | s->len, AARCH64_INSN_SIZE) || !s->len ||
	    (s->flags & KI_SPLICE_CODE))
		return -EINVAL;
	/* br leads to the second part and back, in text that would ask for landing pads. */
	if (s->annex_len && IS_ENABLED(CONFIG_ARM64_BTI_KERNEL))
		return -EOPNOTSUPP;
	if (s->flags & KI_SPLICE_WINDOW)
		return 0;
	if (s->len != AARCH64_INSN_SIZE)
		return -EINVAL;
	return is_b(first_word(s)) || (s->flags & KI_SPLICE_SPRINGBOARD) ? 0 : -EINVAL;
}

u32 ki_arch_locked_len(const struct ki_splice *s)
{
	return s->len;
}

u32 ki_arch_sites(unsigned long *to)
{
	return 0;
}

unsigned long ki_arch_site_len(unsigned long site)
{
	return 4;
}

bool ki_arch_rewritten(unsigned long first, unsigned long last)
{
	return false;
}

/* ftrace's site is in front of a landing pad, or there is none. */
bool ki_arch_landing(unsigned long at)
{
	return false;
}

/* Behind the text come constants. */
bool ki_arch_gap(unsigned long first, unsigned long last)
{
	return false;
}

/* A nop or a b, as arch/arm64/kernel/jump_label.c has it. */
bool ki_arch_key_site(u8 *bytes, unsigned long at, unsigned long to)
{
	u32 w = 0xd503201f;

	if (to)
		w = 0x14000000 | ((to - at) >> 2 & 0x03ffffff);
	w = (__force u32)cpu_to_le32(w);
	memcpy(bytes, &w, sizeof(w));
	return !to || (s64)(to - at) == sign_extend64(to - at, 27);
}

void ki_arch_fill_traps(void *code, unsigned long len)
{
	/* brk with an immediate that no handler claims: an oops with an address. */
	memset32(code, AARCH64_BREAK_FAULT, len / AARCH64_INSN_SIZE);
}

/*
 * In pieces: the kernel's copier keeps interrupts off. It cleans and
 * invalidates the caches and makes every CPU synchronise, by interrupt.
 */
int ki_arch_write_code(void *dst, const void *src, unsigned long len)
{
	unsigned long n;

	for (; len; dst += n, src += n, len -= n) {
		n = min(len, 16 * PAGE_SIZE);
		if (!aarch64_insn_copy(dst, (void *)src, n))
			return -EFAULT;
	}
	return 0;
}

int ki_arch_write_stopped(void *addr, const u8 *bytes, unsigned int len)
{
	unsigned int i;
	int err = 0;
	u32 word;

	for (i = 0; i < len && !err; i += sizeof(word)) {
		memcpy(&word, bytes + i, sizeof(word));
		err = aarch64_insn_patch_text_nosync(addr + i, word);
	}
	return err;
}

void ki_arch_sync_core(void)
{
	isb();
}

int ki_arch_poke(struct ki_poke *p, u32 n, u32 *failed)
{
	return ki_poke_stopped(p, n, failed);
}

/* Frame records tell who called, and patches leave them alone. */
int ki_arch_frames_init(void)
{
	return 0;
}

void ki_arch_frames(unsigned long addr, unsigned long len, const struct ki_frame *f, u32 n)
{
}

/* On a kernel without preemption the first wait is that for a normal RCU period. */
void ki_arch_quiesce(void)
{
	if (IS_ENABLED(CONFIG_PREEMPTION))
		synchronize_rcu_tasks();
	ki_stop_all();
}

/* Return addresses on the stack are signed. */
unsigned long ki_arch_strip(unsigned long word)
{
	return ptrauth_strip_kernel_insn_pac(word);
}

/*
 * x29 points to the caller's and to where a function returns to (AAPCS64, 6.4.6). Who handles a
 * system call or an exception returns to the vectors' code, and has the last record, which is
 * beside the registers of the program, for its caller's; or that of an exception in the
 * kernel, which is beside other registers (arch/arm64/kernel/entry.S, kernel_entry).
 *
 * What was not made by a compiler may call without a record, and what called that is not found then.
 * So of each function something is asked before the call that makes one: that stores x29 and x30, and
 * lets x29 point to them: so far above sp, in bytes, or it is negative. From `at` on it is looked for, and that is then behind it.
 */
static int record_of(unsigned long *at, unsigned long addr)
{
	int stored = -1;
	u32 insn;

	while (*at && *at + 4 <= addr) {
		if (get_kernel_nofault(insn, (u32 *)*at))
			return -1;
		*at += 4;
		if ((insn & 0xffc07fff) == 0xa9807bfd)		/* stp x29, x30, [sp, #n]! */
			stored = 0;
		else if ((insn & 0xffe07fff) == 0xa9007bfd)	/* stp x29, x30, [sp, #n], n >= 0 */
			stored = (insn >> 15 & 63) * 8;
		else if ((insn & 0xffc003ff) == 0x910003fd && (insn >> 10 & 0xfff) == stored)	/* add x29, sp, #n */
			return stored;
	}
	return -1;
}

bool ki_arch_returns(struct task_struct *t, bool (*elsewhere)(const void *arg, unsigned long addr),
		     const void *arg)
{
	unsigned long fp = t->thread.cpu_context.fp, low = t->thread.cpu_context.sp, lr, at;
	unsigned long last = (unsigned long)&task_pt_regs(t)->stackframe;
	const unsigned long *record;
	unsigned int entries = 0;

	if (!IS_ENABLED(CONFIG_FRAME_POINTER))
		return false;
	while (fp >= low && fp <= last && !(fp % 8)) {	/* the last lies as pt_regs has it: since 6.13 not at 16 */
		if (fp == last)
			return entries == 1;
		record = (const unsigned long *)fp;
		lr = ki_arch_strip(READ_ONCE_NOCHECK(record[1]));
		if (lr >= (unsigned long)__entry_text_start && lr < (unsigned long)__entry_text_end)
			entries++;
		else if (!elsewhere(arg, lr) || (at = ki_function_of(lr), record_of(&at, lr)) < 0)
			return false;
		low = fp + 16;
		fp = READ_ONCE_NOCHECK(record[0]);
	}
	return false;
}

#ifdef CONFIG_ARM64_PTR_AUTH_KERNEL
/* pacia1716 (Arm ARM C6.2.254). In order with what switches keys. */
static __always_inline unsigned long sign(unsigned long addr, unsigned long with)
{
	register unsigned long x17 asm("x17") = addr;
	register unsigned long x16 asm("x16") = with;

	asm volatile("hint #8" : "+r" (x17) : "r" (x16));
	return x17;
}

/* Jumps, calls and returns, of any kind. */
static bool branches(u32 insn)
{
	return (insn & 0x7c000000) == 0x14000000 || (insn & 0xff000000) == 0x54000000 ||
	       (insn & 0x7c000000) == 0x34000000 || (insn & 0xfe000000) == 0xd6000000;
}

static bool calls(u32 insn)
{
	return insn >> 26 == 0x25 || (insn & 0xfffffc1f) == 0xd63f0000;	/* bl, blr */
}

/* add or sub to sp, of a register or a constant, and and or orr of one. */
static bool writes_sp(u32 insn)
{
	return (insn & 0xbf00001f) == 0x9100001f || (insn & 0xbfe0001f) == 0x8b20001f ||
	       (insn & 0xdf80001f) == 0x9200001f;
}

/*
 * How far above sp, in bytes, the record of a function that begins at `at` is where it has called, before `to`; negative:
 * not known. Behind the record, and before the first jump, a prologue may make more room, and where the function
 * returns that is given back; what else moves sp, such as alloca(), is not followed.
 */
static int above_sp(unsigned long at, unsigned long to)
{
	unsigned long begin = at;
	int n = record_of(&at, to);
	bool prologue = true;
	u32 insn;

	for (; n >= 0 && at + 4 <= to; at += 4) {
		if (get_kernel_nofault(insn, (u32 *)at) || (prologue && (insn & 0xffe0001f) == 0xd4200000))	/* brk */
			return -1;
		if (prologue && (insn & 0xff8003ff) == 0xd10003ff) {	/* sub sp, sp, #n */
			n += (insn >> 10 & 0xfff) << (insn >> 22 & 1 ? 12 : 0);
		} else if (writes_sp(insn) && (insn & 0xff8003ff) != 0x910003ff) {	/* add sp, sp, #n */
			return -1;
		} else if (prologue && branches(insn)) {
			prologue = false;
			if (ki_text_spliced(begin, at))
				return -1;
		}
	}
	return n;
}

/*
 * What a return address was signed with that has become the one to `to`: sp, where what was called began. It is in that
 * one's record, beside the caller's x29, and how far above sp that is the caller says, where `to` is in; 0: not known.
 */
static __no_sanitize_address unsigned long signed_with(const struct task_struct *t, const unsigned long *word,
						       unsigned long to, unsigned long end)
{
	unsigned long at = (unsigned long)word, size, off, fp;
	int n;

	if (at <= (unsigned long)task_stack_page(t) || at >= end || !kallsyms_lookup_size_offset(to - 1, &size, &off))
		return 0;
	n = above_sp(to - 1 - off, to);
	fp = word[-1];
	return n >= 0 && fp < end && fp > at + n ? fp - n : 0;
}

/*
 * The registers that who was interrupted in the kernel gets back, one of which is at a word; NULL: that is in none. They are
 * on the stack, right below where it was, as kernel_entry has put them.
 */
static __no_sanitize_address const struct pt_regs *interrupted(const struct task_struct *t, const unsigned long *word,
							       unsigned long at, unsigned long end)
{
	const struct pt_regs *regs = (const void *)word - at;

	if (!IS_ALIGNED((unsigned long)regs, 16) || (unsigned long)regs < (unsigned long)task_stack_page(t) ||
	    (unsigned long)(regs + 1) > end)
		return NULL;
	return regs->sp == (unsigned long)(regs + 1) && !user_mode(regs) ? regs : NULL;
}

/*
 * Might what was called, and returns to an address, have signed that one before it came to pc? Copies of memory do not,
 * and are one piece of code. What a register has led to, or is longer, may have.
 */
static bool signs(unsigned long addr, unsigned long pc)
{
	unsigned long at;
	u32 insn;

	if (get_kernel_nofault(insn, (u32 *)(addr - 4)) || insn >> 26 != 0x25)	/* bl */
		return true;
	at = addr - 4 + (sign_extend64(insn, 25) << 2);
	if (pc < at || pc - at > PAGE_SIZE || ki_text_spliced(at, pc))
		return true;
	for (; at < pc; at += 4)
		if (get_kernel_nofault(insn, (u32 *)at) || (insn & ~0x40u) == 0xd503233f)	/* paciasp, pacibsp */
			return true;
	return false;
}

/*
 * Is a word that looks as if it was not signed none that is? Where who was interrupted goes on is not: that is in a register,
 * and until 6.13 in a record beside these, which comes later. And x30 is not in what does not sign it, for who sleeps over
 * a fault: who was preempted may have been about to.
 */
static __no_sanitize_address bool plain(const struct task_struct *t, const unsigned long *word, unsigned long to,
					unsigned long end)
{
	const struct pt_regs *regs = interrupted(t, word, offsetof(struct pt_regs, regs[30]), end);

	if (regs)
		return ki_asleep(t) && !signs(*word, regs->pc);
	if (interrupted(t, word, offsetof(struct pt_regs, pc), end))
		return true;
	regs = interrupted(t, word, offsetof(struct pt_regs, stackframe) + sizeof(long), end);
	return !KI_SINCE(6, 13) && regs && regs->pc == to && word[-1] == regs->regs[29];
}

/*
 * Where a call returns to is signed, with the task's key: one that is understood is signed again. Some addresses look the
 * same when they are signed, so one of these that looks as if it were not stays, and may be one that goes nowhere: on the stack
 * of who sleeps that keeps nothing. What tracers keep, and where who waits for a page goes on, is not signed.
 * No function is begun with one key and left with another.
 */
static __no_sanitize_address unsigned long signed_again(const struct task_struct *t, const unsigned long *word,
							unsigned long to, unsigned long end)
{
	unsigned long was = *word, addr = ki_arch_strip(was), with, same;
	struct ptrauth_keys_kernel keys = t->thread.keys_kernel;
	u32 insn;

	if (!end || get_kernel_nofault(insn, (u32 *)(addr - 4)) || !calls(insn) || (was == addr && plain(t, word, to, end)))
		return was == addr ? to : was;
	with = was == addr ? 0 : signed_with(t, word, to, end);
	if (!with)
		return was;
	ptrauth_keys_switch_kernel(&keys);
	same = sign(addr, with);
	to = sign(to, with);
	ptrauth_keys_switch_kernel(&current->thread.keys_kernel);
	return same == was ? to : was;
}

void __no_sanitize_address ki_arch_readdress(const struct task_struct *t, unsigned long *word, unsigned long to,
					     unsigned long end)
{
	*word = system_supports_address_auth() ? signed_again(t, word, to, end) : to;
}
#else
void __no_sanitize_address ki_arch_readdress(const struct task_struct *t, unsigned long *word, unsigned long to,
					     unsigned long end)
{
	*word = to;
}
#endif

unsigned long ki_arch_saved(struct task_struct *t, const unsigned long **words,
			    unsigned int *n, const unsigned long **pc)
{
	*words = (unsigned long *)&t->thread.cpu_context;
	*n = sizeof(t->thread.cpu_context) / sizeof(long);
	*pc = (unsigned long *)&t->thread.cpu_context.pc;
	return t->thread.cpu_context.sp;
}
