/* SPDX-License-Identifier: GPL-2.0 */
/*
 * kerninst_mod.h - the seams inside the module, grouped by the file that
 * implements them. arch/<isa>/arch.c has the same names in each folder.
 *
 * Locks, outermost first:
 *   call_lock          core.c: one call at a time; user memory may be touched
 *   mmap_lock          kernel: of the caller's memory
 *   ki_lock            everything that the device owns: areas, splices
 *   jump_label_mutex   only while sites are compared with the kernel's own
 *   kprobe_mutex       kernel: no probe comes or goes
 *   cpus_read_lock     kernel: no CPU comes or goes
 *   text_mutex         kernel: nobody else writes text
 * User memory is copied before ki_lock is taken: mmap() has mmap_lock first.
 */
#ifndef _KERNINST_MOD_H
#define _KERNINST_MOD_H

#include <linux/interval_tree.h>
#include <linux/list.h>
#include <linux/mm_types.h>
#include <linux/mutex.h>
#include <linux/sched.h>
#include <linux/types.h>

#include "kerninst.h"

struct kprobe_blacklist_entry;

#define KI_NAME "kerninst"

/* core.c */
extern struct mutex ki_lock;
extern u32 ki_session;	/* how often the device has been opened */
/*
 * The task that is in a call of the device, and where its stack begins to be
 * ours: below, our own frames are full of patch addresses.
 */
extern struct ki_caller {
	struct task_struct *task;
	unsigned long frame;
} ki_caller;

/* internals.c */
int ki_internals_check(void);
/*
 * The linker's marks of the kernel's image. As data, which is relocated with 64
 * bits: on riscv64 the lowest module is 2 GiB below _end, and an address that
 * the compiler makes of _end and a constant is out of its code's reach.
 */
extern struct ki_marks {
	unsigned long image, image_end;	/* _text, _end */
	unsigned long text, text_end;	/* _stext, _etext */
	unsigned long jump_table, jump_end;	/* __start___jump_table, __stop_ */
	unsigned long init;			/* __init_begin */
} ki_marks;

/* sites.c: text of the image that is never spliced. */
int ki_sites_init(void);
void ki_sites_exit(void);
/* Does the kernel rewrite a byte of [first, last] while it runs? */
bool ki_core_rewritten(unsigned long first, unsigned long last);
/* Does ftrace, or is a byte of what a site is told by (ki_arch_landing())? Of modules, too. */
bool ki_ftrace_owns(unsigned long first, unsigned long last);
/* Is a probe forbidden there, by others than this module? */
bool ki_core_banned(unsigned long addr);
bool ki_module_banned(unsigned long addr);	/* in a module's text; under ki_lock */

/* area.c: executable memory and cells. All under ki_lock. */
int ki_area_alloc(struct ki_area *a);
int ki_area_free(u32 id);
void ki_area_free_all(void);
/* Those that nothing that is left can come to. */
void ki_area_free_unused(void);
int ki_area_mmap(struct vm_area_struct *vma);
/* The area whose code, or code and cells, contain all of [addr, addr + len). */
bool ki_area_has_code(unsigned long addr, unsigned long len);
bool ki_area_has(unsigned long addr, unsigned long len);
/* A page of code for the module's own use with [lo, hi) around it, full of traps; NULL: none. */
void *ki_area_page(unsigned long lo, unsigned long hi);
u32 ki_area_count(void);
/* Where so many words of cells are: at an address, or local, at one for each CPU. */
struct ki_cell_source {
	const u64 *at;
	const u64 __percpu *local;
};
/* False: they are not those of an own area. */
bool ki_area_cells(u64 addr, u32 words, bool local, struct ki_cell_source *s);
/* So many words of an area's rings, which are one behind the other; NULL: they are not. */
const u64 *ki_area_rings(u64 addr, u32 words);
/* Are areas text to the kernel, wherever they lie? */
extern const bool ki_area_named;
/* May code there have sites? */
bool ki_area_sited(unsigned long addr, unsigned long len);

/* The kernel's image as far as it is mapped: [start, end). */
void ki_image(unsigned long *start, unsigned long *end);

/*
 * annex.c: patches whose faults the kernel accepts. All under ki_lock. Entries count
 * from the next ki_annex_publish() on, and must not be removed before nobody can
 * be at the instruction.
 */
int ki_annex_init(void);
unsigned long ki_annex_addr(void);
unsigned long ki_arena_addr(void);	/* behind it, KI_ARCH_ARENA bytes */
bool ki_annex_has(unsigned long addr);
/* Code in areas has its faults looked up here: the name that such an area has. */
struct bpf_prog_aux;
void ki_annex_serves(struct bpf_prog_aux *aux);
/* to: where control goes on; 0: where it would from the original. */
int ki_annex_add(unsigned long insn, unsigned long original, unsigned long to);
void ki_annex_remove_all(unsigned long addr, unsigned long len);
/* Is all of it in the module's text? */
bool ki_annex_own(unsigned long addr, unsigned long len);
void ki_annex_remove(unsigned long insn);
void ki_annex_publish(void);

/* Does a distance of 32 bits from anywhere in a table of so many bytes lead there? Entries have such. */
static inline bool ki_in_reach(unsigned long a, const void *table, unsigned long len)
{
	s64 far = (s64)(a - (unsigned long)table), most = len;

	return far - most == (s32)(far - most) && far + most == (s32)(far + most);
}

/* livepatch.c: no live patch comes while functions run as copies, nor the other way round. */
int ki_patches_init(void);
void ki_patches_exit(void);
bool ki_patch_comes(void);	/* under ki_lock */

/* text.c: what is spliced now. All under ki_lock. */
/* Is an entry of the kernel's list of places without probes one of a splice's? */
bool ki_barred_here(const struct kprobe_blacklist_entry *b);
bool ki_text_windows(void);
/* May the kernel make jumps of kprobes again, when nothing is spliced? */
bool ki_text_unbar(void);
/* Is anything run as a copy, or was anybody in a copy that was undone when stacks were last looked at? */
bool ki_text_copies(void);
/* Splices, of which n_copied say what they are copies of, and n_resumes where whoever sleeps in these goes on. */
struct ki_text_batch {
	struct ki_splice *splices;
	const struct ki_copied *copied;
	const struct ki_resume *resumes;
	u32 n, n_copied, n_resumes;
};
int ki_text_splice(const struct ki_text_batch *b, u32 *failed);
int ki_text_undo(const u32 *ids, u32 n, u32 flags, u32 *failed);
/* Code, of which n frames are said, and n_sites that it has; the code of these changes. */
struct ki_text_code {
	unsigned long addr, len;
	u8 *code;
	const struct ki_frame *frames;
	const struct ki_site *sites;
	u32 n, n_sites;
};
int ki_text_write_code(const struct ki_text_code *c);
/* What is in a range of code that nobody is in any more has no sites. */
void ki_text_forget_sites(unsigned long addr, unsigned long len);
/* Is any point in [first, last]? */
bool ki_text_spliced(unsigned long first, unsigned long last);
/* Is any patch in the range live, or possibly still being executed? The second looks first who has left. */
bool ki_text_has(unsigned long addr, unsigned long len);
bool ki_text_in_use(unsigned long addr, unsigned long len);
/* Is anything left that was spliced since the device was opened so often? */
bool ki_text_left_of(u32 session);
/* Undoes everything that can be undone; true when nothing is left. */
bool ki_text_undo_all(void);
void ki_text_stats(struct ki_stats *st);
/* Of the last scan: why patches stay that no text leads to. Nobody changes that meanwhile. */
struct ki_text_holder {
	char comm[TASK_COMM_LEN];
	int pid;
	unsigned long point;	/* whose patch it is; 0: a task may be asleep that is on no list */
};
const struct ki_text_holder *ki_text_holder(void);

/* quiesce.c */
/* A set of address ranges, asked once per word of every kernel stack. */
struct ki_ranges {
	struct rb_root_cached *tree;	/* of interval_tree_node */
	/* Does it matter whether somebody is in there? */
	bool (*asked)(const struct interval_tree_node *node);
	void (*found)(struct interval_tree_node *node, const struct task_struct *t, bool asleep);
	/* Where whoever would go on at v in there may as well go on elsewhere; 0: nowhere. NULL: nobody does. */
	unsigned long (*resumes)(const struct interval_tree_node *node, unsigned long v);
};
/* On return, every CPU has left each patch that no text leads to any more. */
void ki_quiesce(void);
/*
 * Calls found() for each range that a stack or saved register points into, and says of which
 * task that is, and whether it went to sleep by itself. It is false where a task may be
 * asleep that is on no list, and was not looked at.
 */
bool ki_stacks_scan(const struct ki_ranges *r);

/* moment.c: a call of the device; takes ki_lock. */
long ki_moment(void __user *arg);

/* wait.c: calls of the device, without call_lock; the first takes ki_lock, and not while it waits. */
long ki_wait(void __user *arg);
long ki_wake(void __user *arg);

/* trap.c: breakpoints. All under ki_lock, text_mutex and cpus_read_lock, but for init. */
/* What sends whoever meets the breakpoint at `at` to `to`. */
struct ki_trap {
	struct hlist_node node;
	unsigned long at, to;
};
void ki_traps_init(void);
void ki_traps_exit(void);
/* Does the kernel's handler ask us, if we want? */
bool ki_traps_work(void);
bool ki_traps_meet(unsigned long addr);
/* Is any of [first, last] led to us while there is a breakpoint of ours? */
bool ki_traps_rewrite(unsigned long first, unsigned long last);
/*
 * From here on, whoever meets a breakpoint at t->at is sent to t->to; until removed,
 * when every CPU has taken an interrupt since the breakpoint went.
 */
int ki_trap_add(struct ki_trap *t, unsigned long at, unsigned long to);
void ki_trap_remove(struct ki_trap *t);

/* One replacement of bytes in live text. */
struct ki_poke {
	void *addr;
	const u8 *from, *to;	/* len bytes each */
	unsigned int len;
	unsigned long patch;	/* where a CPU may be sent during the change */
	bool jump;		/* `to` is a jump and must lead to the patch */
	bool board;		/* reached only by jumps of others */
	bool host;		/* behind its written bytes, boards may lie */
	bool code;		/* that is not a jump but code, longer than one */
	bool trap;		/* one of the two begins with a breakpoint, for good */
	bool call;		/* both are calls */
	bool each;		/* others of the batch write what completes the jump */
	struct ki_trap *window;	/* several instructions become a jump; else NULL */
	u32 index;		/* in the caller's list */
};

/* stopped.c: for ISAs that write while every other CPU waits. */
int ki_poke_stopped(struct ki_poke *p, u32 n, u32 *failed);
void ki_stop_all(void);

/* arch/<isa>/arch.c */
extern const u32 ki_arch_id;		/* enum ki_arch */
extern const u32 ki_arch_insn_align;	/* bytes */
u32 ki_arch_features(void);
/* Where areas may lie. The kernel's image inside it is excluded by the caller. */
void ki_arch_area_range(unsigned long *lo, unsigned long *hi);
/* Can this ISA write these bytes at that address? 0 or -EINVAL. */
int ki_arch_check(const struct ki_splice *s);
/*
 * Where the new bytes lead, as far as they say so themselves: not for a jump
 * whose displacement is completed by what follows it (compared by
 * ki_arch_poke), nor for a sequence that the module does not know.
 */
bool ki_arch_target(const struct ki_splice *s, unsigned long *to);
/* Bytes from the point on that nobody may change while the splice lives. */
u32 ki_arch_locked_len(const struct ki_splice *s);
/*
 * Sites of the image that the kernel rewrites beside static keys and ftrace:
 * their number, and their addresses in any order unless to is NULL.
 */
u32 ki_arch_sites(unsigned long *to);
/* How long a site of the image is, in bytes: at most that, while it is rewritten. */
unsigned long ki_arch_site_len(unsigned long site);
/* The same question for text of modules. */
bool ki_arch_rewritten(unsigned long first, unsigned long last);
/*
 * Is there a landing pad at at, KI_LANDING_LEN bytes, or what boot has left of one? In front of
 * an ftrace site the kernel reads it to tell where the function goes on, which jumps into the
 * middle of that site where it finds anything else (amd64: is_endbr() in bpf_jit_comp.c).
 */
bool ki_arch_landing(unsigned long at);
#define KI_LANDING_LEN	4
/*
 * Is [first, last] in what the image has behind its text that is mapped with it, and is
 * neither text nor data? Springboards may lie there.
 */
bool ki_arch_gap(unsigned long first, unsigned long last);
/* Does the writer of windows prove that nobody is in code that calls nobody, however long? */
extern const bool ki_arch_moves;
void ki_arch_fill_traps(void *code, unsigned long len);
/* Into memory that is already read-only and executable. */
int ki_arch_write_code(void *dst, const void *src, unsigned long len);
/*
 * No kprobe becomes a jump from here on, or may again; with kprobe_mutex held. Before, with
 * no lock, those are waited for that are about to: none may be left, as the kernel would try
 * again and again. Is that barred by us?
 */
struct kprobe;
void ki_arch_settle_probes(void);
bool ki_arch_queued(const struct kprobe *p);
void ki_arch_bar_jumps(bool bar);
bool ki_arch_jumps_barred(void);
/*
 * Writes all, in order, or none: -EILSEQ and *failed where `from` is not found.
 * Boards that it wrote before are left as they are, as somebody may be between a
 * point and its board: the caller takes them back after a quiescence.
 * Called with cpus_read_lock and text_mutex held.
 */
int ki_arch_poke(struct ki_poke *p, u32 n, u32 *failed);
void ki_arch_quiesce(void);
/*
 * Windows of a kernel that preempts itself: where ki_arch_diverts, they are diverted, all
 * or none (-EILSEQ and *failed), then comes a quiescence, then ki_arch_poke() for all of
 * the batch, and whether that fails or not, undivert. With the same locks as that.
 */
extern const bool ki_arch_diverts;
int ki_arch_divert(struct ki_poke *p, u32 n, u32 *failed);
void ki_arch_undivert(struct ki_poke *p, u32 n);
/*
 * What a walk up a stack finds in the annex and in the arena. Frames are in order and in
 * the code, which nobody is in; n is 0 for code that nobody comes to.
 */
int ki_arch_frames_init(void);
void ki_arch_frames(unsigned long addr, unsigned long len, const struct ki_frame *f, u32 n);
/*
 * Sites of static keys in code. While keys are locked none changes, and bytes are what they are to be:
 * from when they are written on. Both under ki_lock.
 */
extern const bool ki_keys;	/* are there any? */
int ki_key_check(const struct ki_site *in);
void ki_keys_lock(void);
void ki_keys_unlock(void);
int ki_key_add(const struct ki_site *in, unsigned long code, u8 *bytes);
void ki_keys_drop(unsigned long addr, unsigned long len);
/* The bytes of a site at an address: nothing, or a jump to another; false: that is out of reach. */
bool ki_arch_key_site(u8 *bytes, unsigned long at, unsigned long to);
/*
 * Asks elsewhere() about each address that a task that went to sleep by itself returns to, from the
 * last call on, until it says no. True if it did not, and these are all: the way up the stack ended
 * where the task came into the kernel from its program, by a system call or an exception, it met no
 * other exception, and each function on it is one that leaves where it returns to where that is
 * looked for.
 */
bool ki_arch_returns(struct task_struct *t, bool (*elsewhere)(const void *arg, unsigned long addr),
		     const void *arg);
/* Where the function begins that an address is in, behind a call; 0: in none that is known as it is. */
unsigned long ki_function_of(unsigned long addr);
/* Registers of a task that does not run: where they are, how many, which is its pc (none: it is on the stack), its sp. */
unsigned long ki_arch_saved(struct task_struct *t, const unsigned long **words,
			    unsigned int *n, const unsigned long **pc);
/* A word of a stack as an address, without what the ISA adds to it. */
unsigned long ki_arch_strip(unsigned long word);
/*
 * Has a task that does not run go on at `to` where a word says another address: one of its stack, which ends at
 * `end`, or one that is in no frame (end is 0). Where it is not known how that is to be said, the word stays.
 */
void ki_arch_readdress(const struct task_struct *t, unsigned long *word, unsigned long to, unsigned long end);

/* arch/<isa>/trap.c */
/* A breakpoint. It is written over the begin of an instruction, which is no shorter. */
extern const u8 ki_arch_trap[];
extern const u32 ki_arch_trap_len;
/* Where the kernel handles one, and what it asks there first, on any CPU, in any context. */
extern const struct ki_handler {
	void *in, *calls;
	void *ours;		/* to be called instead: it calls the other for what is not ours */
} ki_arch_handler;
/*
 * What a kprobe has replaced: old, out, and how many bytes. Where it stands are now these, of
 * which 0 are replaced if they are none of its.
 */
#define KI_PROBE_MAX 8u
u32 ki_arch_unprobe(const struct kprobe *p, const u8 *now, u8 *old);
/* How it calls: KI_ARCH_CALL_LEN bytes; false: that is out of a call's reach. */
bool ki_arch_call(u8 *code, unsigned long at, unsigned long to);
/* Where KI_ARCH_VENEER_LEN is defined: as many bytes of a jump from anywhere to anywhere. */
void ki_arch_veneer(u8 *code, unsigned long to);

/* arch/<isa>/load.c: what patches call, as kerninst.h says */
extern const char ki_loads[];

/* walk.c: called by what stands behind the loads. */
struct pt_regs;
unsigned long ki_walk(struct pt_regs *regs, unsigned long *to, unsigned int n);

/* arch/<isa>/arch.c, only where stopped.o is linked in */
int ki_arch_write_stopped(void *addr, const u8 *bytes, unsigned int len);
void ki_arch_sync_core(void);

#endif /* _KERNINST_MOD_H */
