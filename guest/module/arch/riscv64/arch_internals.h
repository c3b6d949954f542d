/* SPDX-License-Identifier: GPL-2.0 */
#define KI_ARCH_INTERNALS(CODE, DATA, MARK)	\
	CODE(set_memory_ro)			\
	CODE(set_memory_x)			\
	CODE(stop_machine_cpuslocked)		\
	CODE(patch_insn_write)			\
	CODE(patch_text_nosync)

/* Four bytes of what ki_arch_fill_traps() fills with, for the assembler. */
#define KI_ARCH_TRAPS "0x90029002"
/* How far code and its cells may be from each other, in bytes. */
#define KI_ARCH_CELL_REACH (1ul << 30)
/* No instruction adds to per-CPU memory in one step. */
#define KI_ARCH_LOCAL_REACH 0ul
