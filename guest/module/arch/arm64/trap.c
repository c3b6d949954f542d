// SPDX-License-Identifier: GPL-2.0
/*
 * arm64: brk, with the number of kprobes, so that the kernel asks those; for a number of
 * ours there is no hook (call_el1_break_hook() in arch/arm64/kernel/debug-monitors.c).
 */
#include <linux/kprobes.h>
#include <linux/ptrace.h>
#include <linux/string.h>

#include <asm/brk-imm.h>
#include <asm/debug-monitors.h>
#include <asm/insn.h>

#include "internals.h"
#include "kerninst_mod.h"
#include "trap.h"

/* brk #KPROBES_BRK_IMM: 11010100001 imm16 00000 (Arm ARM C6.2.42) */
#define BRK	(0xd4200000u | KPROBES_BRK_IMM << 5)

const u8 ki_arch_trap[] = { BRK & 0xff, BRK >> 8 & 0xff, BRK >> 16 & 0xff, BRK >> 24 };
const u32 ki_arch_trap_len = AARCH64_INSN_SIZE;

static int notrace on_trap(struct pt_regs *regs, unsigned long esr)
{
	unsigned long to = ki_trap_to(regs->pc);

	if (unlikely(!to))
		return kprobe_brk_handler(regs, esr);
	regs->pc = to;
	return DBG_HOOK_HANDLED;
}
NOKPROBE_SYMBOL(on_trap);

const struct ki_handler ki_arch_handler = { do_el1_brk64, kprobe_brk_handler, on_trap };

/* bl: 100101 imm26, in words (Arm ARM C6.2.34) */
bool ki_arch_call(u8 *code, unsigned long at, unsigned long to)
{
	s64 d = (s64)(to - at) / 4;
	u32 w = 0x94000000u | (d & 0x3ffffff);

	memcpy(code, &w, sizeof(w));
	return IS_ALIGNED(to - at, 4) && d == sign_extend64(d & 0x3ffffff, 25);
}

/* ldr x16, .+8; br x16: by that register a branch may come to where a call may (BTI) */
void ki_arch_veneer(u8 *code, unsigned long to)
{
	const u32 jump[] = { 0x58000050u, 0xd61f0200u };

	memcpy(code, jump, sizeof(jump));
	memcpy(code + sizeof(jump), &to, sizeof(to));
}

u32 ki_arch_unprobe(const struct kprobe *p, const u8 *now, u8 *old)
{
	if (memcmp(now, ki_arch_trap, AARCH64_INSN_SIZE))
		return 0;
	memcpy(old, &p->opcode, AARCH64_INSN_SIZE);
	return AARCH64_INSN_SIZE;
}
