/* SPDX-License-Identifier: GPL-2.0 */
#define KI_ARCH_INTERNALS(CODE, DATA, MARK)	\
	CODE(set_memory_rox)			\
	CODE(static_call_text_reserved)		\
	CODE(text_poke_bp)			\
	CODE(text_poke_copy)
