// SPDX-License-Identifier: GPL-2.0
/* riscv64: c.ebreak; in a longer instruction its first half, as kprobes have it. */
#include <linux/kprobes.h>
#include <linux/ptrace.h>
#include <linux/string.h>

#include "internals.h"
#include "kerninst_mod.h"
#include "trap.h"

const u8 ki_arch_trap[] = { 0x02, 0x90 };
const u32 ki_arch_trap_len = sizeof(ki_arch_trap);

static bool notrace on_trap(struct pt_regs *regs)
{
	unsigned long to = ki_trap_to(regs->epc);

	if (unlikely(!to))
		return kprobe_breakpoint_handler(regs);
	regs->epc = to;
	return true;
}
NOKPROBE_SYMBOL(on_trap);

const struct ki_handler ki_arch_handler = { handle_break, kprobe_breakpoint_handler, on_trap };

/* auipc ra, hi; jalr ra, lo(ra) */
bool ki_arch_call(u8 *code, unsigned long at, unsigned long to)
{
	s64 d = (s64)(to - at), hi = (d + 0x800) & ~0xfffll;
	u32 w[2] = { (u32)hi | 0x97, (u32)(d - hi) << 20 | 0x80e7 };

	memcpy(code, w, sizeof(w));
	return hi == (s32)hi;
}

/* The breakpoint is as long as the instruction: c.ebreak, or ebreak. */
u32 ki_arch_unprobe(const struct kprobe *p, const u8 *now, u8 *old)
{
	const u32 longer = __BUG_INSN_32, shorter = __BUG_INSN_16;
	u32 n = GET_INSN_LENGTH(p->opcode);

	if (memcmp(now, n == sizeof(longer) ? &longer : &shorter, n))
		return 0;
	memcpy(old, &p->opcode, n);
	return n;
}
