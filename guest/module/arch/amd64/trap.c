// SPDX-License-Identifier: GPL-2.0
/* amd64: int3, one byte long; the kernel compiles do_int3() into exc_int3(). */
#include <linux/kprobes.h>
#include <linux/ptrace.h>
#include <linux/string.h>


#include "internals.h"
#include "kerninst_mod.h"
#include "trap.h"

const u8 ki_arch_trap[] = { INT3_INSN_OPCODE };
const u32 ki_arch_trap_len = INT3_INSN_SIZE;

/* Behind it, the address that it pushed. */
static int notrace on_trap(struct pt_regs *regs)
{
	unsigned long to = ki_trap_to(regs->ip - INT3_INSN_SIZE);

	if (unlikely(!to))
		return kprobe_int3_handler(regs);
	regs->ip = to;
	return 1;
}
NOKPROBE_SYMBOL(on_trap);

const struct ki_handler ki_arch_handler = { exc_int3, kprobe_int3_handler, on_trap };

/* call rel32 */
bool ki_arch_call(u8 *code, unsigned long at, unsigned long to)
{
	s64 d = (s64)(to - at - CALL_INSN_SIZE);
	s32 rel = d;

	code[0] = CALL_INSN_OPCODE;
	memcpy(code + 1, &rel, sizeof(rel));
	return rel == d;
}

/*
 * A breakpoint, or the jump to a detour (kprobe_optimized(): or soon, or no longer), behind
 * which bytes are kept as they were when it was written.
 */
u32 ki_arch_unprobe(const struct kprobe *p, const u8 *now, u8 *old)
{
	const struct optimized_kprobe *op = container_of(p, struct optimized_kprobe, kp);
	s32 rel;

	old[0] = p->opcode;
	if (now[0] == INT3_INSN_OPCODE)
		return INT3_INSN_SIZE;
	if (now[0] != JMP32_INSN_OPCODE || !(p->flags & KPROBE_FLAG_OPTIMIZED))
		return 0;
	memcpy(&rel, now + 1, sizeof(rel));
	if ((u8 *)p->addr + JMP32_INSN_SIZE + rel != (u8 *)op->optinsn.insn)
		return 0;
	memcpy(old + 1, op->optinsn.copied_insn, sizeof(rel));
	return JMP32_INSN_SIZE;
}
