/* SPDX-License-Identifier: GPL-2.0 */
#include <linux/static_call_types.h>

extern struct static_call_site __start_static_call_sites[], __stop_static_call_sites[];

#define KI_ARCH_INTERNALS(CODE, DATA, MARK)	\
	MARK(__start_static_call_sites)		\
	MARK(__stop_static_call_sites)		\
	CODE(set_memory_rox)			\
	CODE(static_call_text_reserved)		\
	CODE(text_poke)				\
	CODE(text_poke_bp)			\
	CODE(text_poke_copy)

/* Four bytes of what ki_arch_fill_traps() fills with, for the assembler. */
#define KI_ARCH_TRAPS "0xcccccccc"
/* How far code and its cells may be from each other, in bytes. */
#define KI_ARCH_CELL_REACH (1ul << 30)
/* What %gs:disp32 reaches of per-CPU memory, whose addresses begin at 0. */
#define KI_ARCH_LOCAL_REACH (1ul << 31)
