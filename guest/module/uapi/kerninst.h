/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note */
/*
 * kerninst.h - the one contract between /dev/kerninst and its daemon.
 *
 * The module is mechanism only: it allocates executable memory inside an
 * address window, writes code there, and makes or undoes splices whose bytes
 * the daemon computed. It decides nothing about where or what.
 *
 * Every structure is fixed-width, naturally aligned and free of implicit
 * padding; agent/kdev holds the same layout in Go and a test compares the two.
 * Integers are in the CPU's byte order (all three ISAs are little-endian).
 * Addresses are kernel virtual addresses; lengths are bytes.
 *
 * Every call returns 0 or a negative errno and, on error, has changed nothing.
 */
#ifndef _UAPI_KERNINST_H
#define _UAPI_KERNINST_H

#include <linux/ioctl.h>
#include <linux/types.h>

#define KI_ABI_VERSION	18u

/*
 * Longest replaced run of bytes at a point: a jump, and breakpoints up to the end of what
 * it displaces, so that who reads the text still finds where instructions are.
 */
#define KI_MAX_PATCH	24u
/* Most splices in one batch. */
#define KI_MAX_BATCH	16384u
/* Most bytes of code plus cells in one area. */
#define KI_MAX_AREA	(16u << 20)

/* Bytes of the annex, and most splices at once that have a fault there. */
#define KI_ANNEX_LEN	0x4000
#define KI_ANNEX_FAULTS	1024u
/* Bytes of code that a window's area has to have to lie in the module's own text. */
#define KI_ARENA_LEN	0x100000
/* Most frames of one piece of code, and most that begin in 64 aligned bytes. */
#define KI_MAX_FRAMES	1024u
#define KI_LINE		64u
#define KI_LINE_FRAMES	32u

enum ki_arch {
	KI_ARCH_NONE = 0,
	KI_ARCH_AMD64 = 1,
	KI_ARCH_ARM64 = 2,
	KI_ARCH_RISCV64 = 3,
};

/* ki_info.features */
#define KI_FEAT_NO_WINDOWS	(1u << 0)	/* nothing proves that nobody is inside a window: none */
#define KI_FEAT_LSE	(1u << 1)	/* arm64: atomics of ARMv8.1 */
#define KI_FEAT_TRAP	(1u << 2)	/* breakpoints may lead to patches */
#define KI_FEAT_PREEMPTED (1u << 3)	/* a thread may lose its CPU anywhere in the kernel, in a patch too */
#define KI_FEAT_KEYS	(1u << 4)	/* code may have sites of static keys */
#define KI_FEAT_SITED	(1u << 5)	/* code anywhere may have sites, not only that in the module's text */

struct ki_info {
	__u32 abi;		/* KI_ABI_VERSION */
	__u32 arch;		/* enum ki_arch */
	__u64 image_start;	/* _text, rounded down to the mapping's start */
	__u64 image_end;	/* _end, rounded up to the mapping's end */
	__u64 text_start;	/* _stext */
	__u64 text_end;		/* _etext */
	__u64 area_lo;		/* lowest address an area may have */
	__u64 area_hi;		/* end of the highest */
	__u32 page_size;
	__u32 cpus;		/* possible CPUs */
	__u32 features;		/* KI_FEAT_* */
	__u32 task_cpu;		/* riscv64: where in a task the number of its CPU is, 4 bytes */
	__u64 loads;		/* what patches call to load from memory, see below */
};

/*
 * Loads for patches. What loads 1, 2, 4 and 8 bytes stands at ki_info.loads and one,
 * two and three strides behind it. It takes an address in a register and gives in it
 * the value, without a sign, or 0 with a mark where nothing was loaded: because the
 * address is no kernel address, or nothing is mapped there. It may be called in any
 * context, and changes what is listed here and nothing else:
 *
 *             address, value   mark              goes on at        changed besides
 *   amd64     rax              carry flag        called            flags
 *   arm64     x15              x16, 0 or 1       x17               x14
 *   riscv64   t2               t1, 0 or 1        t0                t3
 *
 * On arm64 it has to be reached through x16. While it loads, page faults are
 * disabled for the task, by KI_LOAD_UNIT: the kernel counts in ones and asks for zero
 * or not. A splice on the kernel's own way out of a fault may load, and fault, too:
 * with KI_LOAD_FULL (task, softirq, irq and NMI have one each) nothing more is loaded.
 */
#define KI_LOAD_STRIDE	128
#define KI_LOAD_UNIT	0x100
#define KI_LOAD_FULL	0x400

/*
 * Behind the loads, four strides from the first, stands what walks the kernel's stack.
 * It takes where addresses are to be written, how many there may be (below
 * 1 << KI_WALK_SHIFT) and, shifted by as much, how many bytes lower the stack is than
 * at the point, and the point. The point is the first of the addresses, the others are
 * where the kernel returns to. It gives how many were written: 0 where it is come to
 * from itself, or the stack is full. It calls functions of the kernel, and changes what
 * is listed here and nothing else:
 *
 *             where, found     how many, lower   point   goes on at   changed besides
 *   amd64     rax              rcx               rsi     called       flags
 *   arm64     x15              x14               x13     x17          x16
 *   riscv64   t2               t1                t3      t0
 *
 * A stack is followed from what rbp, r10, r13, rdi and rdx, x29, ra and s0 hold.
 */
#define KI_WALK_SHIFT	8

/*
 * An area is code_len bytes of executable, read-only memory directly followed
 * by as many bytes of cells: zeroed, writable, never executable, and mappable
 * by the daemon. The cell of the code at address A is at A + code_len, so the
 * distance from a patch to its cell is the same everywhere in the area.
 * The annex is in the module's own text, its cells near it: the same with
 * another distance. Of its patches the kernel accepts faults (ki_splice.fault).
 * Code is filled with trap instructions until it is written.
 *
 * On amd64 the first area of KI_ARENA_LEN is in the module's text as well, if all of
 * that is in the window, and its cells are elsewhere: see ki_frame.
 *
 * Local cells are a page of cells for each possible CPU, without code. `cells` is
 * their address in per-CPU memory: on amd64 what %gs: takes, in 32 bits with a sign.
 * Mapped, the pages of all CPUs lie one behind the other, in the CPUs' order. They
 * are zeroed once, and stay until the device is closed.
 *
 * Rings are code_len bytes for each possible CPU, without code: `cells` is where the first
 * CPU's are, and the others' behind it, in the CPUs' order; mapped likewise. `addr` is
 * where a patch finds the address of its own CPU's: on amd64 in per-CPU memory, as for
 * local cells; on arm64 there too, as an address to which tpidr_el1 is added; on riscv64
 * in a list by the CPU's number (ki_info.task_cpu). 0: it cannot be found there. They are
 * zeroed once, and stay until the device is closed, when nobody is in patches any more.
 *
 * EINVAL  code_len is zero, not whole pages or too long; lo >= hi; for the
 *         annex and local cells, code_len is not KI_ANNEX_LEN or the page size;
 *         for these and rings, lo or hi are not zero; rings of more than
 *         KI_MAX_AREA bytes for all CPUs
 * EACCES  no part of the window that is large enough may hold areas (it is
 *         the kernel's image, or outside ki_info's area_lo and area_hi)
 * ENOSPC  all of that is in use, the annex is taken, or no free page of per-CPU
 *         memory is in reach of an instruction
 * ENOMEM  no memory, or too many areas
 * EOPNOTSUPP  local cells: on this ISA no instruction adds to them in one step
 */
struct ki_area {
	__u64 lo, hi;		/* in: the area must lie inside [lo, hi) */
	__u32 code_len;		/* in: bytes, a multiple of the page size */
	__u32 id;		/* out: names the area */
	__u64 addr;		/* out: address of the code */
	__u64 mmap_offset;	/* out: what to pass to mmap() for the cells */
	__u64 cells;		/* out: address of the cells */
	__u32 kind;		/* in: KI_AREA_* */
	__u32 reserved;
};

/* ki_area.kind */
#define KI_AREA_WINDOW	0u
#define KI_AREA_ANNEX	1u
#define KI_AREA_LOCAL	2u
#define KI_AREA_RINGS	3u

/* EBUSY: a live splice leads there, a task sleeps there, or it is local cells or rings. */
struct ki_area_free {
	__u32 id;
	__u32 reserved;
};

/*
 * Read kernel memory: the kernel's image, loaded modules, and own areas
 * (EACCES elsewhere, EFAULT where nothing is mapped any more). With
 * KI_READ_UNPROBED, what kprobes have written over is read as it was, armed,
 * optimised, or on its way to either; each page is of one moment, at which
 * nobody was writing text.
 */
struct ki_read {
	__u64 addr;
	__u64 buf;		/* user pointer */
	__u64 len;		/* at most 64 MiB */
	__u32 flags;		/* KI_READ_* */
	__u32 reserved;
};

#define KI_READ_UNPROBED	1u

/*
 * What a walk up the stack finds from an offset of the code to the next frame's: the
 * stack is as at the kernel's instruction `orig`, but for `down` bytes that were
 * pushed since. Where orig is no kernel text, nothing is found: so ends a patch in a
 * piece of several. amd64 looks that up by address, in areas that are in the module's
 * text; elsewhere frames are ignored.
 */
struct ki_frame {
	__u64 orig;
	__u16 off;		/* bytes from the code's begin */
	__u16 down;		/* at most KI_MAX_DOWN */
	__u16 bp;		/* where rbp is saved: bytes above the stack pointer */
	__u16 reserved;
};

#define KI_MAX_DOWN	4096u
#define KI_BP_KEPT	0xffffu	/* ki_frame.bp: not saved, but as at orig */

/*
 * Code that stands for an instruction of the kernel's that the kernel finds by its address
 * (`orig`), where control then goes on at `to`, in an own area; 0: where it would from orig.
 *
 * Of a fault, orig has an entry in the exception table, and from here on the code has one like it.
 * Of a key, orig is a static key's site in the kernel's own text and `entry` the address of its entry in
 * the kernel's table; the code is five bytes that are a nop or a jump, as the key is, and are
 * rewritten with the key's other sites. Whatever the code was to be there is not written.
 */
struct ki_site {
	__u64 orig;
	__u64 entry;
	__u64 to;
	__u32 off;		/* bytes from the code's begin */
	__u32 kind;		/* KI_SITE_* */
};

#define KI_SITE_FAULT	1u
#define KI_SITE_KEY	2u
/* Most of one piece of code, and most keys' of all. */
#define KI_MAX_SITES	1024u
#define KI_MAX_KEYS	4096u

/*
 * Write code into an own area: a patch, or many that are neighbours, with traps in
 * between. EBUSY where a live splice leads or a task still
 * sleeps, or into the same KI_LINE, ERANGE outside the code of an area. EINVAL when misaligned (with frames: not
 * to KI_LINE), and for frames that do not begin at 0, do not ascend, are not in the
 * code or more than there may be; for sites that are not in the code, do not ascend, or are not
 * what is said of them. EOPNOTSUPP for sites where the code is in no module's text, or that this kernel
 * or ISA has no way for; ENOSPC for more of them than there may be. Sites are forgotten when their
 * lines are written again.
 */
struct ki_code {
	__u64 addr;
	__u64 buf;		/* user pointer */
	__u64 len;
	__u64 frames;		/* user pointer to n struct ki_frame */
	__u64 sites;		/* user pointer to n_sites struct ki_site */
	__u32 n, n_sites;
};

/* ki_splice.flags */
#define KI_SPLICE_WINDOW	(1u << 0)	/* replaces several instructions: needs quiescence */
/*
 * The point is reached only by the jump of another splice (padding, dead
 * code). Such a splice is undone last, after a quiescence of its own: a CPU
 * interrupted between the two jumps would otherwise fall into the padding.
 */
#define KI_SPLICE_SPRINGBOARD	(1u << 1)
/*
 * With the former, amd64: not a jump to the patch but a copy of it, whole, in a
 * form that is right there. Who meets the point while it is written still goes
 * to the patch.
 */
#define KI_SPLICE_CODE		(1u << 2)
/*
 * No task falls asleep in the patch: no call in it returns into it, and no fault of
 * it is waited for. A word on the stack of a task that is asleep, however much it
 * looks like an address in the patch, is then an old one.
 */
#define KI_SPLICE_AWAKE		(1u << 3)
/*
 * No jump but a breakpoint, and breakpoints up to the end of the one instruction: the
 * kernel's handler sends whoever meets the first to the patch (trap.c).
 */
#define KI_SPLICE_TRAP		(1u << 4)
/*
 * With the former and KI_SPLICE_AWAKE: the patch ends in a breakpoint, too, and whoever meets
 * that goes on behind the instruction at the point. Not on a kernel that can preempt itself.
 */
#define KI_SPLICE_HOME		(1u << 5)
/*
 * A window whose patch is a copy of a function, from its entry on, or of a stretch of
 * one: of the bytes from the point on, `span`, those behind the written ones are run by
 * nobody while it lives, and springboards may be made there. It is undone when they are
 * gone.
 */

struct ki_splice {
	__u64 point;		/* address of the first byte replaced */
	__u64 patch;		/* where control finally goes: inside an own area */
	__u32 patch_len;	/* bytes of the patch, for the freeing rules */
	__u32 len;		/* bytes replaced, <= KI_MAX_PATCH */
	__u32 flags;		/* KI_SPLICE_* */
	__u32 id;		/* out: names the splice */
	/*
	 * Where an instruction at the point, `original`, has an entry in the
	 * exception table, and that instruction in its patch, in the annex;
	 * 0 and 0 if there is none.
	 */
	__u64 fault, original;
	/*
	 * Where the patch is out of the annex's reach: its second part, in the annex
	 * and with `fault` in it, for the freeing rules. Else 0 and 0.
	 */
	__u64 annex;
	__u32 annex_len;
	__u32 span;		/* bytes that are dead, from the point on; 0: none */
	__u8 old[KI_MAX_PATCH];	/* expected now; compared just before the write */
	__u8 new[KI_MAX_PATCH];	/* written instead; both are zero beyond len */
};

/*
 * Of a splice of a batch whose patch is a copy of functions: kernel text that is run as that copy. While the
 * splice is live nobody registers a kprobe in there, who would not see those that run the copy.
 */
struct ki_copied {
	__u64 start, end;
	__u32 splice;		/* its index in the batch; entries are in the order of these */
	__u32 reserved;
};

/* Most of one batch. */
#define KI_MAX_COPIED	65536u

/*
 * Of a splice of a batch whose patch is a copy of functions: at `from`, in the patch, where a call of it returns to or
 * where it may fault, all is as it is in the original at `to`. So whoever sleeps in the patch when nothing leads there
 * any more is sent back: his stack has `to` for `from` then, and the patch is nobody's. That is not done where `to` is
 * no text any more, or a live patch's, or in the middle of what is spliced, nor, on arm64, where it is not known how his
 * return address was signed: he stays in the patch, as he does without these.
 */
struct ki_resume {
	__u64 from, to;
	__u32 splice;		/* its index in the batch; entries are in the order of these, and ascend by `from` */
	__u32 reserved;
};

/* Most of one batch. */
#define KI_MAX_RESUMES	(1u << 20)

/*
 * A batch is applied whole or not at all, in the order of the list. On error
 * `failed` is the index of the splice that could not be made (or n when no
 * single one is to blame).
 *
 * EINVAL      misaligned, a length or form the ISA cannot write, a flag or a
 *             byte beyond len that must be zero, a jump that leads neither to
 *             the patch nor to a springboard for it, a fault outside the patch,
 *             or outside its second part if it has one, or of an instruction
 *             that the kernel expects none of, or text that is copied, or where
 *             whoever sleeps goes on, that is not as said above
 * ENOSPC      too many splices with faults
 * ERANGE      the patch, or its second part, is not in the code of an own area
 * EACCES      not kernel text, or text that must not be changed: freed or
 *             unprobeable code, sites that the kernel itself rewrites
 * EEXIST      overlaps a live splice, an earlier one of the batch, or the
 *             bytes that a live jump takes from its successor
 * EBUSY       a kprobe is registered in the function, or in one that is copied,
 *             or a live patch is being loaded and functions are to be copied,
 *             or a task waits for a page in a patch that was undone, and comes back
 *             into the middle of a window
 * EOPNOTSUPP  a window on a kernel that can preempt itself; a breakpoint, or what needs
 *             one, where KI_FEAT_TRAP is not set; arm64: a second part on
 *             one whose text asks for landing pads
 * EILSEQ      the bytes at the point are not `old`, or a jmp rel32, with the
 *             bytes that complete it, does not lead to the patch
 *
 * The bytes of a jump that is completed by its successor's first bytes (amd64)
 * stay locked with it: they may belong to an older splice, never to a newer.
 */
struct ki_batch {
	__u64 splices;		/* user pointer to n struct ki_splice, in/out */
	__u32 n;
	__u32 failed;		/* out */
	__u64 copied;		/* user pointers: to n_copied struct ki_copied, */
	__u64 resumes;		/* and to n_resumes struct ki_resume */
	__u32 n_copied;
	__u32 n_resumes;
};

/* ki_undo.flags */
/*
 * Return as soon as the text is restored. The patches stay as they are and
 * may be spliced to again; the wait happens when their bytes are written
 * (KI_IOC_CODE) or freed (KI_IOC_AREA_FREE).
 */
#define KI_UNDO_NO_WAIT	(1u << 0)

/*
 * Undo, newest splice first whatever the order of the list, all or nothing.
 * On return (without KI_UNDO_NO_WAIT) no CPU and no runnable task is inside
 * the patches any more. Tasks that sleep in one go back to where its original is (ki_resume).
 * A patch in which some task sleeps all the same is quarantined:
 * ki_stats counts it, and KI_IOC_CODE answers EBUSY there until it is empty.
 *
 * ENOENT  no such splice        EINVAL  the same one twice
 * EBUSY   someone put a kprobe on the splice, or a splice that is not in the
 *         list takes operand bytes from it, lies in its span or jumps to it
 * EILSEQ  someone else has changed the bytes
 */
struct ki_undo {
	__u64 ids;		/* user pointer to n __u32 */
	__u32 n;
	__u32 failed;		/* out, as in ki_batch */
	__u32 flags;		/* KI_UNDO_* */
	__u32 reserved;
};

struct ki_stats {
	__u32 areas, splices;		/* live now */
	__u64 spliced, unspliced;	/* since load */
	__u64 refused;			/* batches refused */
	__u64 quarantined;		/* bytes of patches that could not be freed */
	__u64 cycles;			/* the time as patches read it, */
	__u64 ns;			/* and on the monotonic clock */
};

/*
 * What cells hold, and which tasks are inside functions, at one moment: all CPUs stand
 * still. A function is the ranges with an id; a task is inside as often as its stack has
 * addresses there, those behind calls, or behind the first byte where it was interrupted.
 *
 * Clocks are words of rings: of the task with number n the n-th, modulo how many there are,
 * is how many cycles it did not run, as patches keep it, less the time at which it went if
 * it does not run. So a task's clock is the cycles less its word while it runs, and the
 * word's negative while it does not; of idle tasks it is the cycles. Without any clocks all
 * tasks' are 0.
 *
 * EINVAL  ranges that do not ascend or overlap, too many of anything, or n_words is not
 *         how many the cells have
 * ERANGE  not cells of an own area, or not whole words; clocks are not inside rings
 * ENOSPC  there are more tasks than room: `found` says how many, the rest is right
 */
struct ki_cells {
	__u64 addr;		/* as areas have it, or local cells */
	__u32 words;
	__u32 local;		/* 1: of local cells; each word is the sum of all CPUs' */
};

struct ki_range {
	__u64 start, end;
	__u32 id;
	__u32 reserved;
};

struct ki_inside {
	__u32 tgid, tid;	/* process and thread; 0 and 0: a CPU's idle task */
	__u32 id;		/* of a range */
	__u32 frames;
	__u8 comm[16];		/* ends with 0 */
	__u64 clock;		/* what the task's shows */
};

/* Most words: a counter in each block of a kernel has some six million, with what is between. */
#define KI_MAX_WORDS	(16u << 20)
/* Most ranges, and most tasks. */
#define KI_MAX_RANGES	65536u
#define KI_MAX_INSIDE	65536u

struct ki_moment {
	__u64 cells;		/* user pointers: to n_cells struct ki_cells, */
	__u64 words;		/* where their words are put, one list behind the other, */
	__u64 ranges;		/* to n_ranges struct ki_range, in order of address, */
	__u64 inside;		/* and room for as many struct ki_inside */
	__u32 n_cells, n_words, n_ranges, room;
	__u32 found;		/* out: of inside */
	__u32 cut;		/* out: tasks whose stack was deeper than what is looked at */
	__u64 cycles;		/* out: the moment, as patches read it, */
	__u64 ns;		/* and on the monotonic clock */
	__u64 clocks;		/* address of the first, in the kernel */
	__u32 n_clocks;		/* a power of two; 0: there are none */
	__u32 reserved;
};

/*
 * Waits until one of n rings has less room than wanted, or KI_IOC_WAKE, or a signal; for
 * `timeout` nanoseconds at the most. A timer looks at the rings each `period` nanoseconds,
 * first after one. Other calls go on meanwhile. A ring's first word is its state, the upper
 * half of which is its room in bytes, negative.
 *
 * EINVAL  too many rings, more than 2^31 - 1 bytes of room, or a time out of bounds
 * ERANGE  not in an area of rings
 * EINTR   a signal has come: who wants to go on waiting asks again
 */
struct ki_ring {
	__u64 at;		/* address of the state, in the kernel */
	__u32 room;		/* bytes */
	__u32 reserved;
};

#define KI_MAX_WATCHED	4096u
/* Both times are a second at the most. */
#define KI_LEAST_PERIOD	100000u

struct ki_wait {
	__u64 rings;		/* user pointer to n struct ki_ring */
	__u64 period, timeout;	/* ns */
	__u32 n;
	__u32 reserved;
};

#define KI_IOC_MAGIC	0xCE
#define KI_IOC_INFO	_IOR(KI_IOC_MAGIC, 0, struct ki_info)
#define KI_IOC_AREA	_IOWR(KI_IOC_MAGIC, 1, struct ki_area)
#define KI_IOC_AREA_FREE _IOW(KI_IOC_MAGIC, 2, struct ki_area_free)
#define KI_IOC_READ	_IOW(KI_IOC_MAGIC, 3, struct ki_read)
#define KI_IOC_CODE	_IOW(KI_IOC_MAGIC, 4, struct ki_code)
#define KI_IOC_SPLICE	_IOWR(KI_IOC_MAGIC, 5, struct ki_batch)
#define KI_IOC_UNDO	_IOWR(KI_IOC_MAGIC, 6, struct ki_undo)
#define KI_IOC_STATS	_IOR(KI_IOC_MAGIC, 7, struct ki_stats)
#define KI_IOC_MOMENT	_IOWR(KI_IOC_MAGIC, 8, struct ki_moment)
#define KI_IOC_WAIT	_IOW(KI_IOC_MAGIC, 9, struct ki_wait)
/* Who waits goes on; if nobody does, the next who will. */
#define KI_IOC_WAKE	_IO(KI_IOC_MAGIC, 10)

#endif /* _UAPI_KERNINST_H */
