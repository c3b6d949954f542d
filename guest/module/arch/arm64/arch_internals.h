/* SPDX-License-Identifier: GPL-2.0 */
#define KI_ARCH_INTERNALS(CODE, DATA, MARK)	\
	CODE(set_memory_ro)			\
	CODE(set_memory_x)			\
	CODE(stop_machine_cpuslocked)		\
	CODE(aarch64_insn_copy)			\
	CODE(aarch64_insn_patch_text_nosync)

/* Four bytes of what ki_arch_fill_traps() fills with, for the assembler. */
#define KI_ARCH_TRAPS "0xd4202000"
/* How far code and its cells may be from each other, in bytes. */
#define KI_ARCH_CELL_REACH ((1ul << 20) - 2 * KI_ANNEX_LEN)
/* No instruction adds to per-CPU memory in one step. */
#define KI_ARCH_LOCAL_REACH 0ul
/* Bytes of patch memory in the module's text besides the annex: none. */
#define KI_ARCH_ARENA 0
/* No handler of a fault looks at where the instruction and its fixup are. */
#define KI_ARCH_FIXUP_IS_NEXT(e) false
