/* SPDX-License-Identifier: GPL-2.0 */
/* probes.h - the kernel's kprobes, with kprobe_mutex held. */
#ifndef _KERNINST_PROBES_H
#define _KERNINST_PROBES_H

#include <linux/types.h>

/* Where all are, armed or not, in order. */
struct ki_probes {
	unsigned long *at;	/* to be freed by kvfree() */
	u32 n, room;
};

/* Fills the list as far as there is room, and counts all. False: that is no such table. */
bool ki_count_probes(struct ki_probes *all);
/* Makes the list. */
int ki_list_probes(struct ki_probes *all);
/* Is there any in [start, end)? */
bool ki_probed(const struct ki_probes *all, unsigned long start, unsigned long end);
/* The same of the kernel's table: takes longer, and no memory. */
bool ki_probed_now(unsigned long start, unsigned long end);
/* Waits any to become a jump, or no longer to be one? */
bool ki_probe_queued(void);
/* Makes text, read at addr, what it is without probes; with text_mutex held. */
int ki_unprobe(void *text, unsigned long addr, unsigned long len);

#endif /* _KERNINST_PROBES_H */
