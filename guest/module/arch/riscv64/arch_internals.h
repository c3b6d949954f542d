/* SPDX-License-Identifier: GPL-2.0 */
#define KI_ARCH_INTERNALS(CODE, DATA, MARK)	\
	CODE(set_memory_ro)			\
	CODE(set_memory_x)			\
	CODE(stop_machine_cpuslocked)		\
	CODE(patch_insn_write)			\
	CODE(patch_text_nosync)
