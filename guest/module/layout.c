// SPDX-License-Identifier: GPL-2.0
/*
 * layout.c - the layout of the device's structures, as literals.
 *
 * It makes no code. agent/kdev has the same literals in a table and its test
 * reads this file: whoever changes a structure must change the header, this
 * file and the Go side, or something fails.
 */
#include <linux/build_bug.h>
#include <linux/stddef.h>

#include "kerninst.h"

#define SIZE(type, bytes)  static_assert(sizeof(struct type) == (bytes))
#define FIELD(type, name, offset, bytes)				\
	static_assert(offsetof(struct type, name) == (offset) &&	\
		      sizeof(((struct type *)0)->name) == (bytes))
#define IOCTL(name, number) static_assert((name) == (number))

SIZE(ki_info, 80);
FIELD(ki_info, abi, 0, 4);
FIELD(ki_info, arch, 4, 4);
FIELD(ki_info, image_start, 8, 8);
FIELD(ki_info, image_end, 16, 8);
FIELD(ki_info, text_start, 24, 8);
FIELD(ki_info, text_end, 32, 8);
FIELD(ki_info, area_lo, 40, 8);
FIELD(ki_info, area_hi, 48, 8);
FIELD(ki_info, page_size, 56, 4);
FIELD(ki_info, cpus, 60, 4);
FIELD(ki_info, features, 64, 4);
FIELD(ki_info, task_cpu, 68, 4);
FIELD(ki_info, loads, 72, 8);

SIZE(ki_area, 56);
FIELD(ki_area, lo, 0, 8);
FIELD(ki_area, hi, 8, 8);
FIELD(ki_area, code_len, 16, 4);
FIELD(ki_area, id, 20, 4);
FIELD(ki_area, addr, 24, 8);
FIELD(ki_area, mmap_offset, 32, 8);
FIELD(ki_area, cells, 40, 8);
FIELD(ki_area, kind, 48, 4);
FIELD(ki_area, reserved, 52, 4);

SIZE(ki_area_free, 8);
FIELD(ki_area_free, id, 0, 4);
FIELD(ki_area_free, reserved, 4, 4);

SIZE(ki_read, 32);
FIELD(ki_read, addr, 0, 8);
FIELD(ki_read, buf, 8, 8);
FIELD(ki_read, len, 16, 8);
FIELD(ki_read, flags, 24, 4);
FIELD(ki_read, reserved, 28, 4);

SIZE(ki_frame, 16);
FIELD(ki_frame, orig, 0, 8);
FIELD(ki_frame, off, 8, 2);
FIELD(ki_frame, down, 10, 2);
FIELD(ki_frame, bp, 12, 2);
FIELD(ki_frame, reserved, 14, 2);

SIZE(ki_site, 32);
FIELD(ki_site, orig, 0, 8);
FIELD(ki_site, entry, 8, 8);
FIELD(ki_site, to, 16, 8);
FIELD(ki_site, off, 24, 4);
FIELD(ki_site, kind, 28, 4);

SIZE(ki_code, 48);
FIELD(ki_code, addr, 0, 8);
FIELD(ki_code, buf, 8, 8);
FIELD(ki_code, len, 16, 8);
FIELD(ki_code, frames, 24, 8);
FIELD(ki_code, sites, 32, 8);
FIELD(ki_code, n, 40, 4);
FIELD(ki_code, n_sites, 44, 4);

SIZE(ki_splice, 112);
FIELD(ki_splice, point, 0, 8);
FIELD(ki_splice, patch, 8, 8);
FIELD(ki_splice, patch_len, 16, 4);
FIELD(ki_splice, len, 20, 4);
FIELD(ki_splice, flags, 24, 4);
FIELD(ki_splice, id, 28, 4);
FIELD(ki_splice, fault, 32, 8);
FIELD(ki_splice, original, 40, 8);
FIELD(ki_splice, annex, 48, 8);
FIELD(ki_splice, annex_len, 56, 4);
FIELD(ki_splice, span, 60, 4);
FIELD(ki_splice, old, 64, 24);
FIELD(ki_splice, new, 88, 24);

SIZE(ki_batch, 40);
FIELD(ki_batch, splices, 0, 8);
FIELD(ki_batch, n, 8, 4);
FIELD(ki_batch, failed, 12, 4);
FIELD(ki_batch, copied, 16, 8);
FIELD(ki_batch, resumes, 24, 8);
FIELD(ki_batch, n_copied, 32, 4);
FIELD(ki_batch, n_resumes, 36, 4);

SIZE(ki_copied, 24);
FIELD(ki_copied, start, 0, 8);
FIELD(ki_copied, end, 8, 8);
FIELD(ki_copied, splice, 16, 4);
FIELD(ki_copied, reserved, 20, 4);

SIZE(ki_resume, 24);
FIELD(ki_resume, from, 0, 8);
FIELD(ki_resume, to, 8, 8);
FIELD(ki_resume, splice, 16, 4);
FIELD(ki_resume, reserved, 20, 4);

SIZE(ki_undo, 24);
FIELD(ki_undo, ids, 0, 8);
FIELD(ki_undo, n, 8, 4);
FIELD(ki_undo, failed, 12, 4);
FIELD(ki_undo, flags, 16, 4);
FIELD(ki_undo, reserved, 20, 4);

SIZE(ki_stats, 56);
FIELD(ki_stats, areas, 0, 4);
FIELD(ki_stats, splices, 4, 4);
FIELD(ki_stats, spliced, 8, 8);
FIELD(ki_stats, unspliced, 16, 8);
FIELD(ki_stats, refused, 24, 8);
FIELD(ki_stats, quarantined, 32, 8);
FIELD(ki_stats, cycles, 40, 8);
FIELD(ki_stats, ns, 48, 8);

SIZE(ki_cells, 16);
FIELD(ki_cells, addr, 0, 8);
FIELD(ki_cells, words, 8, 4);
FIELD(ki_cells, local, 12, 4);

SIZE(ki_range, 24);
FIELD(ki_range, start, 0, 8);
FIELD(ki_range, end, 8, 8);
FIELD(ki_range, id, 16, 4);
FIELD(ki_range, reserved, 20, 4);

SIZE(ki_inside, 40);
FIELD(ki_inside, tgid, 0, 4);
FIELD(ki_inside, tid, 4, 4);
FIELD(ki_inside, id, 8, 4);
FIELD(ki_inside, frames, 12, 4);
FIELD(ki_inside, comm, 16, 16);
FIELD(ki_inside, clock, 32, 8);

SIZE(ki_moment, 88);
FIELD(ki_moment, cells, 0, 8);
FIELD(ki_moment, words, 8, 8);
FIELD(ki_moment, ranges, 16, 8);
FIELD(ki_moment, inside, 24, 8);
FIELD(ki_moment, n_cells, 32, 4);
FIELD(ki_moment, n_words, 36, 4);
FIELD(ki_moment, n_ranges, 40, 4);
FIELD(ki_moment, room, 44, 4);
FIELD(ki_moment, found, 48, 4);
FIELD(ki_moment, cut, 52, 4);
FIELD(ki_moment, cycles, 56, 8);
FIELD(ki_moment, ns, 64, 8);
FIELD(ki_moment, clocks, 72, 8);
FIELD(ki_moment, n_clocks, 80, 4);
FIELD(ki_moment, reserved, 84, 4);

SIZE(ki_ring, 16);
FIELD(ki_ring, at, 0, 8);
FIELD(ki_ring, room, 8, 4);
FIELD(ki_ring, reserved, 12, 4);

SIZE(ki_wait, 32);
FIELD(ki_wait, rings, 0, 8);
FIELD(ki_wait, period, 8, 8);
FIELD(ki_wait, timeout, 16, 8);
FIELD(ki_wait, n, 24, 4);
FIELD(ki_wait, reserved, 28, 4);

IOCTL(KI_IOC_INFO, 0x8050ce00);
IOCTL(KI_IOC_AREA, 0xc038ce01);
IOCTL(KI_IOC_AREA_FREE, 0x4008ce02);
IOCTL(KI_IOC_READ, 0x4020ce03);
IOCTL(KI_IOC_CODE, 0x4030ce04);
IOCTL(KI_IOC_SPLICE, 0xc028ce05);
IOCTL(KI_IOC_UNDO, 0xc018ce06);
IOCTL(KI_IOC_STATS, 0x8038ce07);
IOCTL(KI_IOC_MOMENT, 0xc058ce08);
IOCTL(KI_IOC_WAIT, 0x4020ce09);
IOCTL(KI_IOC_WAKE, 0x0000ce0a);
