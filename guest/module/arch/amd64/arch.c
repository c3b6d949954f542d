// SPDX-License-Identifier: GPL-2.0
/*
 * amd64: text is written under execution, by the kernel's own three steps (int3
 * over the first byte; the tail; the first byte), with every CPU serialised after
 * each: once for as many instructions as the kernel's list holds (256), which has
 * them in the order of their addresses.
 *
 * A CPU, an interrupt or an NMI that meets the int3 in between is sent on by
 * the kernel, which emulates the instruction that it was told to: here always
 * the jump to the patch, when splicing and when undoing alike. The patch is
 * complete and ends with the displaced instruction and the way back, so both
 * the old and the new text mean the same during the change. The emulation
 * counts the displacement from point + *bytes written*.
 *
 * A task preempted at the point is before it or past it, never inside, where one
 * instruction is replaced. Where several are, nobody comes to them any more, and
 * everybody who was there has left: divert.c.
 */
#include <linux/errno.h>
#include <linux/kprobes.h>
#include <linux/memory.h>
#include <linux/rcupdate.h>
#include <linux/sizes.h>
#include <linux/sort.h>
#include <linux/static_call.h>
#include <linux/string.h>
#include <linux/uaccess.h>

#include <asm/nops.h>
#include <asm/page_types.h>
#include <asm/pgtable_64_types.h>
#include <asm/text-patching.h>
#include <asm/unwind.h>

#include "faults.h"
#include "internals.h"
#include "kerninst_mod.h"

const u32 ki_arch_id = KI_ARCH_AMD64;
const u32 ki_arch_insn_align = 1;
const bool ki_arch_moves = true;

#define MIN_WRITE 2	/* jmp rel8 */
#define MAX_WRITE 5	/* what the kernel's writer takes */

u32 ki_arch_features(void)
{
	return 0;
}

/* What the kernel takes such a site for, else: asm/nops.h, arch/x86/kernel/jump_label.c. */
bool ki_arch_key_site(u8 *bytes, unsigned long at, unsigned long to)
{
	static const u8 nop[KI_ARCH_KEY_LEN] = { BYTES_NOP5 };
	s32 d = to - (at + KI_ARCH_KEY_LEN);

	memcpy(bytes, nop, sizeof(nop));
	if (!to)
		return true;
	bytes[0] = JMP32_INSN_OPCODE;
	memcpy(bytes + 1, &d, sizeof(d));
	return at + KI_ARCH_KEY_LEN + d == to;
}

/*
 * The window of 1 GiB that is reserved for the image and moves inside it
 * under KASLR, the modules' area behind it, less the fixed mappings at the top, and
 * the hole of 2 GiB in front of it, which only jumps back reach that are not chosen
 * freely (Documentation/arch/x86/x86_64/mm.rst). EFI, cpu_entry_area, vmemmap and the
 * direct map lie below, fixmap above.
 *
 * With KASAN, what of that window is not the image has no shadow (kasan_init() in
 * arch/x86/mm/kasan_init_64.c): whoever it looks after faults there, this module and kmemleak too. The
 * modules' area gets its own as it is used.
 */
void ki_arch_area_range(unsigned long *lo, unsigned long *hi)
{
	*lo = IS_ENABLED(CONFIG_KASAN) ? MODULES_VADDR : __START_KERNEL_map - SZ_2G;
	*hi = MODULES_END;
}

/* Segment overrides and REX change nothing about a near jump. */
static bool is_padding_prefix(u8 b)
{
	switch (b) {
	case 0x26: case 0x2e: case 0x36: case 0x3e: case 0x64: case 0x65:
		return true;
	}
	return b >= 0x40 && b <= 0x4f;
}

static u32 prefixes(const u8 *b, u32 len)
{
	u32 k = 0;

	while (k < len && is_padding_prefix(b[k]))
		k++;
	return k;
}

static s64 distance(u64 from, u64 to)
{
	return (s64)(to - from);
}

static bool all_breakpoints(const u8 *b, u32 from, u32 len)
{
	for (; from < len; from++)
		if (b[from] != INT3_INSN_OPCODE)
			return false;
	return true;
}

/*
 * jmp rel32, whole or with its last bytes supplied by the next instruction, or
 * a whole jmp rel8 (to a springboard). Behind a whole one, breakpoints.
 */
int ki_arch_check(const struct ki_splice *s)
{
	s64 d = distance(s->point + s->len, s->patch);
	u32 k = prefixes(s->new, s->len), n;

	if (s->flags & KI_SPLICE_CODE)
		return d == (s32)d ? 0 : -EINVAL;
	if (s->len < MIN_WRITE || d != (s32)d || k == s->len ||
	    (s->new[k] != JMP8_INSN_OPCODE && s->new[k] != JMP32_INSN_OPCODE))
		return -EINVAL;
	n = k + (s->new[k] == JMP8_INSN_OPCODE ? JMP8_INSN_SIZE : JMP32_INSN_SIZE);
	if (min(n, s->len) > MAX_WRITE || !all_breakpoints(s->new, n, s->len) ||
	    (s->len < n && s->new[k] == JMP8_INSN_OPCODE))
		return -EINVAL;
	/* A breakpoint at its first byte says that it waits. */
	return !(s->flags & KI_SPLICE_WINDOW) ||
	       (n == JMP32_INSN_SIZE && s->len >= n && s->old[0] != INT3_INSN_OPCODE) ? 0 : -EINVAL;
}

bool ki_arch_target(const struct ki_splice *s, unsigned long *to)
{
	u32 k = prefixes(s->new, s->len);

	if ((s->flags & KI_SPLICE_CODE) || s->new[k] != JMP8_INSN_OPCODE)
		return false;	/* jmp rel32: ki_arch_poke compares it */
	*to = s->point + k + JMP8_INSN_SIZE + (s8)s->new[k + 1];
	return true;
}

u32 ki_arch_locked_len(const struct ki_splice *s)
{
	u32 k = prefixes(s->new, s->len);

	if (s->flags & KI_SPLICE_CODE)
		return s->len;
	return s->new[k] == JMP32_INSN_OPCODE ? max(k + JMP32_INSN_SIZE, s->len) : s->len;
}

/* Not constant, so that it stays data: see ki_marks. */
struct static_call_site *ki_static_calls[2] = {
	__start_static_call_sites, __stop_static_call_sites,
};

/* Static calls. The address is relative to the entry. */
u32 ki_arch_sites(unsigned long *to)
{
	struct static_call_site *s;

	if (to)
		for (s = ki_static_calls[0]; s < ki_static_calls[1]; s++)
			*to++ = (unsigned long)&s->addr + s->addr;
	return ki_static_calls[1] - ki_static_calls[0];
}

/*
 * Compilers choose the short form of a static key's jump where it reaches. While the
 * kernel rewrites one, a breakpoint stands there: until it has.
 */
unsigned long ki_arch_site_len(unsigned long site)
{
	u8 first = READ_ONCE(*(u8 *)site);

	if (first == INT3_INSN_OPCODE) {
		mutex_lock(&text_mutex);
		first = READ_ONCE(*(u8 *)site);
		mutex_unlock(&text_mutex);
	}
	return first == JMP8_INSN_OPCODE || first == 0x66 /* xchg %ax,%ax */ ? 2 : 5;
}

bool ki_arch_rewritten(unsigned long first, unsigned long last)
{
	return static_call_text_reserved((void *)first, (void *)last);
}

/* endbr64, its rest (gen_endbr_poison()), and that since 6.16, which has a trap in it. */
bool ki_arch_landing(unsigned long at)
{
	u32 now;

	if (get_kernel_nofault(now, (u32 *)at))
		return false;
	return now == 0xfa1e0ff3 || now == 0x001f0f66 || now == 0xd6401f0f;
}

/* Behind the text come constants. */
bool ki_arch_gap(unsigned long first, unsigned long last)
{
	return false;
}

void ki_arch_fill_traps(void *code, unsigned long len)
{
	memset(code, INT3_INSN_OPCODE, len);
}

/*
 * Other CPUs are serialised by the splice that makes the code reachable: its
 * writer does so after each of its steps.
 */
int ki_arch_write_code(void *dst, const void *src, unsigned long len)
{
	return text_poke_copy(dst, src, len) ? 0 : -EFAULT;
}

/* What changes by the kernel's steps, or at once; behind it, breakpoints are written. */
static u32 head(const struct ki_poke *p)
{
	if (p->code)
		return p->len;
	return p->trap ? INT3_INSN_SIZE : min(p->len, MAX_WRITE);
}

/*
 * Nobody runs what is behind the head: it is the inside of what is displaced, whatever
 * stands there, and nobody is within a window. Who has fetched it with the head has
 * forgotten it when the head, changed, is what every CPU sees: so it is written after
 * that, and taken back before, to be whole when the first sees the old head again.
 */
static void poke_tail(const struct ki_poke *p, const u8 *bytes)
{
	u32 n = head(p);

	if (n < p->len)
		text_poke(p->addr + n, bytes + n, p->len - n);
}

static void poke(const struct ki_poke *p, const u8 *bytes)
{
	u8 jump[16] = { JMP32_INSN_OPCODE };	/* as long as a decoder may look */
	u32 n = head(p);
	s32 d = distance((unsigned long)p->addr + n, p->patch);

	/*
	 * Nobody can be at these bytes, so they need no steps. CPUs that have
	 * fetched them all the same are serialised by the writing of the point,
	 * which comes next, before its jump can be met.
	 */
	if (p->code) {
		text_poke(p->addr, bytes, n);
		return;
	}
	/* One byte changes, at once; who has fetched it is waited for in settle(). */
	if (p->trap) {
		text_poke(p->addr, bytes, n);
		return;
	}
	memcpy(jump + 1, &d, sizeof(d));
	text_poke_queue(p->addr, bytes, n, p->call ? NULL : jump);
}

/* Is the text what it was, but for the breakpoint at a window that waits? */
static bool as_before(const struct ki_poke *p)
{
	const u8 *at = p->addr;

	if (!p->window)
		return !memcmp(at, p->from, p->len);
	return *at == INT3_INSN_OPCODE && !memcmp(at + 1, p->from + 1, p->len - 1);
}

/*
 * Does the jump that will stand there, completed by what is in memory now,
 * lead to the patch? A jmp rel8 was looked at when it was admitted.
 */
static bool leads_to_patch(const struct ki_poke *p)
{
	u8 b[MAX_WRITE + JMP32_INSN_SIZE];
	u32 k = prefixes(p->to, p->len);
	s32 d;

	if (p->code || p->to[k] != JMP32_INSN_OPCODE)
		return true;
	memcpy(b, p->addr, k + JMP32_INSN_SIZE);
	memcpy(b, p->to, head(p));
	memcpy(&d, b + k + 1, sizeof(d));
	return (unsigned long)p->addr + k + JMP32_INSN_SIZE + d == p->patch;
}

/* What is jumped to first, then by addresses: else the kernel writes each by itself. */
static int boards_first(const void *a, const void *b)
{
	const struct ki_poke *x = a, *y = b;

	if (x->code != y->code)
		return x->code ? -1 : 1;
	if (x->board != y->board)
		return x->board ? -1 : 1;
	return x->addr < y->addr ? -1 : x->addr > y->addr;
}

static bool any_trap(const struct ki_poke *p, u32 n)
{
	while (n--)
		if (p[n].trap)
			return true;
	return false;
}

/* Each CPU has fetched anew what has been written. */
static void settle(const struct ki_poke *p, u32 n)
{
	text_poke_finish();
	if (any_trap(p, n))
		text_poke_sync();
}

/* The insides of what comes back: a breakpoint goes at once, so every CPU has to see them. */
static void tails_back(const struct ki_poke *p, u32 n)
{
	u32 i;

	for (i = 0; i < n; i++)
		if (!p[i].jump)
			poke_tail(&p[i], p[i].to);
	if (n && !p->jump && any_trap(p, n))
		text_poke_sync();
}

static void tails_out(const struct ki_poke *p, u32 n)
{
	u32 i;

	for (i = 0; i < n; i++)
		if (p[i].jump)
			poke_tail(&p[i], p[i].to);
}

/*
 * Boards are whole before the first of the others is written: a point must not lead to one
 * that waits in the kernel's next list, nor may a stretch be entered again, when it comes
 * back, while one is still in it.
 */
static void poke_boards_first(const struct ki_poke *p, u32 n)
{
	u32 i;

	tails_back(p, n);
	ki_step();
	for (i = 0; i < n; i++) {
		if (i && p[i - 1].board && !p[i].board) {
			text_poke_finish();
			ki_step();
		}
		poke(&p[i], p[i].to);
	}
	ki_step();
	settle(p, n);
	ki_step();
	tails_out(p, n);
}

static bool as_planned(const struct ki_poke *p)
{
	return as_before(p) && (!p->jump || leads_to_patch(p));
}

/*
 * The batch also writes what completes a jump: one after the other, and each CPU sees
 * one before the next. Otherwise some might take the jump with bytes of a breakpoint.
 */
static int poke_each(struct ki_poke *p, u32 n, u32 *failed)
{
	u32 i;

	for (i = 0; i < n; i++) {
		if (!as_planned(&p[i]))
			goto back;
		poke_boards_first(&p[i], 1);
	}
	return 0;
back:
	*failed = p[i].index;
	while (i--) {
		if (p[i].board || p[i].host)
			continue;
		swap(p[i].from, p[i].to);
		p[i].jump = !p[i].jump;
		poke_boards_first(&p[i], 1);
	}
	return -EILSEQ;
}

/*
 * A kprobe that comes to a function later becomes a jump over five bytes if nothing in the
 * function jumps into them, as the kernel decodes it. What a splice has displaced, and what
 * does not decode any more behind it, is not seen: but it may well jump there, from a patch.
 */
static bool optimises(void)
{
	return (unsigned long)&kprobes_allow_optimization != ki_marks.image &&
	       (unsigned long)wait_for_kprobe_optimizer != ki_marks.image;
}

void ki_arch_settle_probes(void)
{
	if (optimises())
		wait_for_kprobe_optimizer();
}

bool ki_arch_queued(const struct kprobe *p)
{
	/* Only what may become a jump has the flag, and that is one of these. */
	return (p->flags & KPROBE_FLAG_OPTIMIZED) &&
	       !list_empty(&container_of(p, struct optimized_kprobe, kp)->list);
}

/*
 * Whether they are barred the variable says: the administrator may have written it meanwhile.
 * One who forbids them while we do is not seen, and what we have barred comes back.
 */
static bool barred;

void ki_arch_bar_jumps(bool bar)
{
	if (!optimises())
		return;
	if (bar && kprobes_allow_optimization) {
		barred = true;
		kprobes_allow_optimization = false;
	} else if (!bar && barred) {
		barred = false;
		kprobes_allow_optimization = true;
	}
}

bool ki_arch_jumps_barred(void)
{
	return barred && !kprobes_allow_optimization;
}

/* Nobody else writes meanwhile: what all are found to be before, each still is then. */
int ki_arch_poke(struct ki_poke *p, u32 n, u32 *failed)
{
	u32 i;

	for (i = 0; i < n; i++)
		if (p[i].each)
			return poke_each(p, n, failed);
	for (i = 0; i < n; i++) {
		if (!as_planned(&p[i])) {
			*failed = p[i].index;
			return -EILSEQ;
		}
	}
	sort(p, n, sizeof(*p), boards_first, NULL);
	poke_boards_first(p, n);
	return 0;
}

/*
 * _rude also waits for the code that tasks-RCU does not watch (idle, and CPUs
 * on their way in or out of the kernel). Newer kernels do nothing there, where such code
 * is noinstr (7.2: CONFIG_ARCH_WANTS_NO_INSTR): no splice is in that, and for what an idle
 * task runs besides, with RCU watching and preemption off, tasks-RCU's own grace periods wait.
 */
void ki_arch_quiesce(void)
{
	synchronize_rcu_tasks();
	synchronize_rcu_tasks_rude();
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
 * By the tables of the kernel's unwinder, as live patching asks who is in a function
 * (arch_stack_walk_reliable()): they are of functions in assembler, too.
 */
bool ki_arch_returns(struct task_struct *t, bool (*elsewhere)(const void *arg, unsigned long addr),
		     const void *arg)
{
#ifdef CONFIG_UNWINDER_ORC
	struct pt_regs *regs;
	struct unwind_state s;
	unsigned long addr;

	for (unwind_start(&s, t, NULL, NULL); !unwind_done(&s) && !unwind_error(&s);
	     unwind_next_frame(&s)) {
		regs = unwind_get_entry_regs(&s, NULL);
		if (regs)
			return user_mode(regs);
		addr = unwind_get_return_address(&s);
		if (!addr || !elsewhere(arg, addr))
			return false;
	}
#endif
	return false;
}

/* Callee-saved registers are on the stack, above the saved stack pointer. */
unsigned long ki_arch_saved(struct task_struct *t, const unsigned long **words,
			    unsigned int *n, const unsigned long **pc)
{
	return t->thread.sp;
}
