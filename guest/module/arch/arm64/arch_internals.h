/* SPDX-License-Identifier: GPL-2.0 */
#define KI_ARCH_INTERNALS(CODE, DATA, MARK)	\
	CODE(set_memory_ro)			\
	CODE(set_memory_x)			\
	CODE(stop_machine_cpuslocked)		\
	CODE(aarch64_insn_copy)			\
	CODE(aarch64_insn_patch_text_nosync)
