// SPDX-License-Identifier: GPL-2.0
/*
 * riscv64: fence.i orders the instruction fetches of its own hart only, and a
 * fetch may be made of several reads, so all splices are written in stopped.c
 * and each hart then executes a fence.i of its own. Asking other harts for
 * one, as flush_icache_range() does, would wait for ever there: they have
 * interrupts off.
 */
#include <linux/bitops.h>
#include <linux/errno.h>
#include <linux/memory.h>
#include <linux/rcupdate.h>
#include <linux/sched/task_stack.h>
#include <linux/uaccess.h>
#include <linux/sizes.h>
#include <linux/string.h>

#include <asm/cacheflush.h>

#include "internals.h"
#include "kerninst_mod.h"

#define C_EBREAK	0x9002
#define PARCEL		2	/* bytes; instructions are one or two of them */
#define LONGEST		4

const u32 ki_arch_id = KI_ARCH_RISCV64;
const u32 ki_arch_insn_align = PARCEL;
const bool ki_arch_moves = true;

u32 ki_arch_features(void)
{
	return 0;
}

/*
 * The kernel's module region: from 2 GiB below the image's end up to its
 * start, which keeps all of it in reach of auipc from all text.
 */
void ki_arch_area_range(unsigned long *lo, unsigned long *hi)
{
	unsigned long end;

	ki_image(hi, &end);
	*lo = PAGE_ALIGN(ki_marks.image_end) - SZ_2G;
}

static u32 parcels(const u8 *b)
{
	u32 w;

	memcpy(&w, b, sizeof(w));
	return w;
}

/*
 * jal x0: imm[20|10:1|11|19:12] rd=0 1101111 (Unprivileged ISA 2.5). Into rd
 * 0 only: a link register would be overwritten.
 */
static bool jal_target(u32 w, s64 *d)
{
	if ((w & 0xfff) != 0x06f)
		return false;
	*d = sign_extend32((w >> 31 & 1) << 20 | (w >> 12 & 0xff) << 12 |
			   (w >> 20 & 1) << 11 | (w >> 21 & 0x3ff) << 1, 20);
	return true;
}

/* c.j: 101 imm[11|4|9:8|10|6|7|3:1|5] 01 */
static bool cj_target(u32 w, s64 *d)
{
	if ((w & 0xe003) != 0xa001)
		return false;
	*d = sign_extend32((w >> 12 & 1) << 11 | (w >> 11 & 1) << 4 | (w >> 9 & 3) << 8 |
			   (w >> 8 & 1) << 10 | (w >> 7 & 1) << 6 | (w >> 6 & 1) << 7 |
			   (w >> 3 & 7) << 1 | (w >> 2 & 1) << 5, 11);
	return true;
}

/* auipc rd, hi; jalr x0, lo(rd) */
static bool far_target(u32 w, u32 w2, s64 *d)
{
	u32 rd = w >> 7 & 31;

	if ((w & 0x7f) != 0x17 || (w2 & 0x7fff) != 0x67 || (w2 >> 15 & 31) != rd)
		return false;
	*d = (s64)(s32)(w & 0xfffff000) + ((s32)w2 >> 20);
	return true;
}

static bool known_jump(const struct ki_splice *s, s64 *d)
{
	u32 w = parcels(s->new);

	return cj_target(w, d) || (s->len >= 4 && jal_target(w, d)) ||
	       (s->len >= 8 && far_target(w, parcels(s->new + 4), d));
}

bool ki_arch_target(const struct ki_splice *s, unsigned long *to)
{
	s64 d;

	if ((s->flags & KI_SPLICE_CODE) || !known_jump(s, &d))
		return false;
	*to = s->point + d;
	return true;
}

/*
 * One c.j or jal; as a springboard auipc and jalr, too; in a window, whatever gets there;
 * a copy of a patch, whatever that is.
 */
int ki_arch_check(const struct ki_splice *s)
{
	s64 d;

	if (!IS_ALIGNED(s->point | s->patch | s->len, PARCEL) || !s->len)
		return -EINVAL;
	if (s->flags & (KI_SPLICE_WINDOW | KI_SPLICE_CODE))
		return 0;
	if (s->len > LONGEST && !(s->flags & KI_SPLICE_SPRINGBOARD))
		return -EINVAL;
	return known_jump(s, &d) ? 0 : -EINVAL;
}

u32 ki_arch_locked_len(const struct ki_splice *s)
{
	return s->len;
}

u32 ki_arch_sites(unsigned long *to)
{
	return 0;
}

/* Static keys are jumps that are never compressed. */
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

/*
 * The image's sections begin at multiples of 2 MiB, so that each can have its own
 * permissions: what is left behind the text is mapped like it, and is no part of what
 * is freed after boot (vmlinux.lds.S, mark_rodata_ro() in arch/riscv/mm/init.c).
 */
bool ki_arch_gap(unsigned long first, unsigned long last)
{
	return IS_ENABLED(CONFIG_STRICT_KERNEL_RWX) && first >= ki_marks.text_end &&
	       first <= last && last < ki_marks.init;
}

/* addi x0, x0, 0 or jal x0, with the reach that arch/riscv/kernel/jump_label.c allows. */
bool ki_arch_key_site(u8 *bytes, unsigned long at, unsigned long to)
{
	u32 d = to - at, w = 0x00000013;

	if (to)
		w = 0x6f | (d >> 20 & 1) << 31 | (d >> 1 & 0x3ff) << 21 |
		    (d >> 11 & 1) << 20 | (d >> 12 & 0xff) << 12;
	memcpy(bytes, &w, sizeof(w));
	return !to || (s64)(to - at) == sign_extend64(to - at, 19);
}

void ki_arch_fill_traps(void *code, unsigned long len)
{
	memset16(code, C_EBREAK, len / PARCEL);
}

/* Also makes every other hart execute fence.i, by interrupt. */
int ki_arch_write_code(void *dst, const void *src, unsigned long len)
{
	int err;

	mutex_lock(&text_mutex);	/* guards the alias that it writes through */
	err = patch_text_nosync(dst, src, len);
	mutex_unlock(&text_mutex);
	return err;
}

/*
 * text_mutex is held by the task that stopped the machine. What writes the next one asks on
 * its way whose text that is (patch_map(): core_kernel_text(), vmalloc_to_page()), which may
 * be what has just been written.
 */
int ki_arch_write_stopped(void *addr, const u8 *bytes, unsigned int len)
{
	int err = patch_insn_write(addr, bytes, len);

	local_flush_icache_all();
	return err;
}

void ki_arch_sync_core(void)
{
	local_flush_icache_all();
}

int ki_arch_poke(struct ki_poke *p, u32 n, u32 *failed)
{
	return ki_poke_stopped(p, n, failed);
}

/* Walks go by frame pointers, which patches leave alone, from text to text: see give_name(). */
int ki_arch_frames_init(void)
{
	return 0;
}

void ki_arch_frames(unsigned long addr, unsigned long len, const struct ki_frame *f, u32 n)
{
}

void ki_arch_quiesce(void)
{
	if (IS_ENABLED(CONFIG_PREEMPTION))
		synchronize_rcu_tasks();
	ki_stop_all();
}

unsigned long ki_arch_strip(unsigned long word)
{
	return word;
}

void __no_sanitize_address ki_arch_readdress(const struct task_struct *t, unsigned long *word, unsigned long to,
					     unsigned long end)
{
	*word = to;
}

/*
 * Below where s0 points a function keeps where it returns to, and below that its caller's s0
 * (arch/riscv/kernel/stacktrace.c). Who handles a system call or an exception returns to what is
 * around that, and its frame ends at the registers of what was interrupted. Old kernels do not say
 * where that code ends, and walks have none.
 *
 * What was not made by a compiler may call without a frame, and what called that is not found then.
 * So of each function something is asked before the call that makes one: that saves ra and s0
 * beside each other, and lets s0 point behind them.
 */
struct frame {
	int ra, s0;		/* where they are saved, in bytes from sp; 0: not yet */
	int ends[4];		/* where s0 points to, likewise, and other uses of that form */
	unsigned int n;
};

static void end_at(struct frame *f, int off)
{
	if (f->n < ARRAY_SIZE(f->ends))
		f->ends[f->n++] = off;
}

/* c.addi4spn s0 and c.sdsp (RISC-V ISA manual, chapter on C: formats CIW and CSS). */
static void short_form(struct frame *f, u16 i)
{
	int off = (i >> 7 & 0x38) | (i >> 1 & 0x1c0), reg = i >> 2 & 31;

	if ((i & 0xe01f) == 0 && i)
		end_at(f, (i >> 7 & 0x30) | (i >> 1 & 0x3c0) | (i >> 4 & 4) | (i >> 2 & 8));
	if ((i & 0xe003) != 0xe002)
		return;
	if (reg == 1 && !f->ra)
		f->ra = off;
	if (reg == 8 && !f->s0)
		f->s0 = off;
}

/* addi s0, sp and sd to where sp points (formats I and S). */
static void long_form(struct frame *f, u32 i)
{
	int off = ((s32)i >> 25) * 32 + (i >> 7 & 31);

	if ((i & 0xfffff) == 0x10413)
		end_at(f, (s32)i >> 20);
	if ((i & 0x1fff07f) == 0x113023 && !f->ra)	/* sd ra */
		f->ra = off;
	if ((i & 0x1fff07f) == 0x813023 && !f->s0)	/* sd s0 */
		f->s0 = off;
}

static bool frames(unsigned long addr)
{
	unsigned long at = ki_function_of(addr);
	struct frame f = { };
	u16 half, next;
	unsigned int k;

	while (at && at + 4 <= addr) {
		if (get_kernel_nofault(half, (u16 *)at) || get_kernel_nofault(next, (u16 *)at + 1))
			return false;
		if ((half & 3) == 3)
			long_form(&f, half | (u32)next << 16);
		else
			short_form(&f, half);
		at += (half & 3) == 3 ? 4 : 2;
	}
	for (k = 0; k < f.n; k++)
		if (f.ra == f.ends[k] - 8 && f.s0 == f.ends[k] - 16)
			return true;
	return false;
}

bool ki_arch_returns(struct task_struct *t, bool (*elsewhere)(const void *arg, unsigned long addr),
		     const void *arg)
{
	unsigned long fp = t->thread.s[0], low = t->thread.sp + 2 * sizeof(long), ra;
	unsigned long end = (unsigned long)task_pt_regs(t);
	const unsigned long *frame;

	if (!IS_ENABLED(CONFIG_FRAME_POINTER))
		return false;
	while (fp >= low && fp <= end && !(fp % sizeof(long))) {
		frame = (const unsigned long *)fp;
		ra = READ_ONCE_NOCHECK(frame[-1]);
		if (ra >= (unsigned long)handle_exception && ra < (unsigned long)ret_from_exception_end)
			return fp == end;
		if (!elsewhere(arg, ra) || !frames(ra))
			return false;
		low = fp + 2 * sizeof(long);
		fp = READ_ONCE_NOCHECK(frame[-2]);
	}
	return false;
}

/* ra, sp and the callee-saved s0 to s11. */
unsigned long ki_arch_saved(struct task_struct *t, const unsigned long **words,
			    unsigned int *n, const unsigned long **pc)
{
	*words = &t->thread.ra;
	*n = 2 + ARRAY_SIZE(t->thread.s);
	*pc = &t->thread.ra;
	return t->thread.sp;
}
