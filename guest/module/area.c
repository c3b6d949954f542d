// SPDX-License-Identifier: GPL-2.0
/*
 * area.c - executable memory at addresses that the daemon needs, with the
 * cells of its counters behind it.
 *
 * Method. vmalloc can place memory in a range, but its tree of free addresses
 * is not the whole truth: on amd64 and riscv64 the kernel's image is not in
 * it, so that a range across the image would be granted on top of text, and
 * freeing would unmap it. Therefore the image is cut out of the window first,
 * and only stretches whose page tables are empty are offered to vmalloc.
 *
 * Invariant. The code half is never writable and executable at once in its
 * mapping: it is filled while it is writable and not executable, then turned
 * read-only and executable for good; later writes go through the kernel's own
 * temporary alias. Nothing leads into an area before its first splice, so no
 * CPU, interrupt or NMI can observe any of this.
 */
#include <linux/cacheflush.h>
#include <linux/interval_tree.h>
#include <linux/list.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/percpu.h>
#include <linux/sched/signal.h>
#include <linux/set_memory.h>
#include <linux/slab.h>
#include <linux/vmalloc.h>

#include "compat.h"
#include "faults.h"
#include "internals.h"
#include "kerninst_mod.h"

#define MAX_AREAS	16384u
#define MAX_BYTES	(256ul << 20)	/* of code, in all areas */

struct area {
	struct list_head link;
	struct interval_tree_node in_codes, in_cells;	/* if it has code */
#if KI_ARCH_NAMED
	struct bpf_prog_aux *as;	/* makes text of the code */
#endif
	unsigned long addr;	/* code */
	unsigned long cells;	/* behind it, but for what is in the module's text */
	void __percpu *local;	/* cells of each CPU, and nothing else */
	/* Rings, which are at cells, and nothing else: what leads to them is one of these. */
	unsigned long __percpu *each;
	unsigned long *list;
	u32 code_len;
	u32 id;
	u32 session;		/* that it was made in */
};

static LIST_HEAD(areas);
/*
 * The list and what its entries say, for who maps cells: that comes with mmap_lock, which others
 * wait for who keep CPUs from going, and who has ki_lock may wait for these.
 */
static DEFINE_MUTEX(list_lock);
/*
 * Code, and the cells behind it, by address: each splice asks where it leads to, and areas may be
 * thousands. No two overlap.
 */
static struct rb_root_cached codes = RB_ROOT_CACHED;
static struct rb_root_cached cells = RB_ROOT_CACHED;
static u32 area_count;
static unsigned long area_bytes;
static u32 last_id;

/* vmalloc keeps one page unmapped behind every allocation. */
#define GUARD PAGE_SIZE

static unsigned long first_mapped(unsigned long from, unsigned long to)
{
	for (; from < to; from += PAGE_SIZE)
		if (vmalloc_to_page((void *)from))
			break;
	return from;
}

/*
 * First fit in [lo, end), of which every page may be used. Each stretch of
 * empty page tables is offered whole: vmalloc knows addresses that are taken
 * without being mapped. Someone else may take the stretch at the same time;
 * that too is decided in vmalloc's tree.
 */
static void *place(unsigned long lo, unsigned long end, unsigned long size)
{
	unsigned long need = size + GUARD, stop, b;
	unsigned long span = max(2 * need, 4ul << 20);
	void *p;

	while (lo < end && end - lo >= need && !fatal_signal_pending(current)) {
		stop = end - lo > span ? lo + span : end;
		b = first_mapped(lo, stop);
		if (b - lo >= need) {
			p = ki_try(__vmalloc_node_range_noprof(size, PAGE_SIZE, lo, b,
					GFP_KERNEL | __GFP_ZERO | __GFP_NOWARN,
					PAGE_KERNEL, VM_FLUSH_RESET_PERMS,
					NUMA_NO_NODE, __builtin_return_address(0)));
			if (p)
				return p;
		}
		lo = b < stop ? b + PAGE_SIZE : b - need + PAGE_SIZE;
		cond_resched();
	}
	return NULL;
}

/*
 * The window without what no area may overlap. The arch's range leaves out the
 * direct map, vmemmap, cpu_entry_area, EFI and fixmap by construction; the
 * image is what remains to be cut out. The guard page may lie behind the
 * window, but neither in the image nor outside the range.
 */
static void *place_in_window(unsigned long lo, unsigned long hi, unsigned long size,
			     bool *possible)
{
	unsigned long image, image_end, min, max, end;
	void *p = NULL;

	ki_image(&image, &image_end);
	ki_arch_area_range(&min, &max);
	*possible = false;
	if (PAGE_ALIGN(lo) < lo)	/* the last page of all: nothing is above it */
		return NULL;
	lo = max(PAGE_ALIGN(lo), min);
	hi = min(hi & PAGE_MASK, max);
	if (lo < image) {
		end = min3(hi + GUARD, image, max);
		if (end > lo && end - lo >= size + GUARD) {
			*possible = true;
			p = place(lo, end, size);
		}
	}
	lo = max(lo, image_end);
	end = min(hi + GUARD, max);
	if (!p && end > lo && end - lo >= size + GUARD) {
		*possible = true;
		p = place(lo, end, size);
	}
	return p;
}

static int make_code(void *code, u32 len)
{
	ki_arch_fill_traps(code, len);
	flush_icache_range((unsigned long)code, (unsigned long)code + len);
	return set_memory_rox((unsigned long)code, len >> PAGE_SHIFT);
}

void *ki_area_page(unsigned long lo, unsigned long hi)
{
	bool possible;
	void *p = place_in_window(lo, hi, PAGE_SIZE, &possible);

	if (p && make_code(p, PAGE_SIZE)) {
		vfree(p);
		return NULL;
	}
	return p;
}

static bool rings(const struct area *a)
{
	return a->each || a->list;
}

static bool has_code(const struct area *a)
{
	return !a->local && !rings(a);
}

/* Its code is in the module's text. */
static bool built_in(const struct area *a)
{
	if (!has_code(a))
		return false;
	return ki_annex_has(a->addr) || (KI_ARCH_ARENA && a->addr == ki_arena_addr());
}

#if KI_ARCH_NAMED
const bool ki_area_named = true;

/*
 * As a program of BPF's has it: with a name, for who walks stacks and who writes static keys, and
 * with an exception table (search_bpf_extables()). Readers are under RCU. Who looks for a program of
 * BPF's up a stack, as bpf_throw() does, would take code of ours for one; that comes only to what
 * programs call.
 */
static int give_name(struct area *a)
{
	struct bpf_ksym *name;

	if (!has_code(a) || built_in(a))
		return 0;	/* no code, or a module's, which is text */
	a->as = ki_try(kzalloc(sizeof(*a->as), GFP_KERNEL));
	if (!a->as)
		return -ENOMEM;
	name = &a->as->ksym;
	INIT_LIST_HEAD_RCU(&name->lnode);
	name->start = a->addr;
	name->end = a->addr + a->code_len;
	name->prog = true;
	strscpy(name->name, "kerninst_patches", sizeof(name->name));
	ki_annex_serves(a->as);
	bpf_ksym_add(name);
	return 0;
}

static void take_name(struct area *a)
{
	if (!a->as)
		return;
	bpf_ksym_del(&a->as->ksym);
	synchronize_rcu();
	kfree(a->as);
}
#else
const bool ki_area_named;

static int give_name(struct area *a)
{
	return 0;
}

static void take_name(struct area *a) { }
#endif

/* The cells of code in the module's text, as near as the ISA wants them. */
static void *cells_near(unsigned long at, unsigned long len)
{
	unsigned long lo, hi;
	bool possible;

	ki_arch_area_range(&lo, &hi);
	if (at > lo && at - lo > KI_ARCH_CELL_REACH)
		lo = at - KI_ARCH_CELL_REACH;
	if (hi > at && hi - at > KI_ARCH_CELL_REACH)
		hi = at + KI_ARCH_CELL_REACH;
	return place_in_window(lo, hi, len, &possible);
}

static int get_built_in(struct area *new, unsigned long at, unsigned long len)
{
	struct area *a;

	list_for_each_entry(a, &areas, link)
		if (a->addr == at)
			return -ENOSPC;
	new->addr = at;
	new->cells = (unsigned long)cells_near(at, len);
	return new->cells ? 0 : -ENOSPC;
}

/* Is the arena what is asked for? */
static bool arena_fits(const struct ki_area *a)
{
	return KI_ARCH_ARENA && a->code_len == KI_ARCH_ARENA &&
	       ki_arena_addr() >= a->lo && ki_arena_addr() + KI_ARCH_ARENA <= a->hi;
}

/*
 * A page of each CPU's memory. Only its first chunk is in an instruction's reach;
 * whoever asks for per-CPU memory once that is full gets it from elsewhere.
 */
static int get_local(struct area *new)
{
	if (!KI_ARCH_LOCAL)
		return -EOPNOTSUPP;
	new->local = ki_fails() ? NULL : __alloc_percpu(PAGE_SIZE, PAGE_SIZE);
	if (!new->local)
		return -ENOMEM;
	new->cells = (unsigned long)new->local;
	if (KI_ARCH_LOCAL_REACHES(new->cells) && KI_ARCH_LOCAL_REACHES(new->cells + PAGE_SIZE - 8))
		return 0;
	free_percpu(new->local);
	return -ENOSPC;
}

/*
 * Rings for all CPUs in one piece, and what says to each CPU where its own is: that is
 * written before any patch reads it, and never again. A CPU that is not there has one, too:
 * it may come.
 */
static int get_rings(struct area *new, u32 len)
{
	unsigned long at;
	int cpu;

	new->cells = (unsigned long)ki_try(__vmalloc(1ul * len * num_possible_cpus(),
						     GFP_KERNEL | __GFP_ZERO | __GFP_NOWARN));
	if (KI_ARCH_RING_LIST)
		new->list = ki_try(kcalloc(nr_cpu_ids, sizeof(*new->list), GFP_KERNEL));
	else
		new->each = ki_fails() ? NULL : alloc_percpu(unsigned long);
	if (!new->cells || !rings(new)) {
		vfree((void *)new->cells);
		kfree(new->list);
		free_percpu(new->each);
		return -ENOMEM;
	}
	at = new->cells;
	for_each_possible_cpu(cpu) {
		if (KI_ARCH_RING_LIST)
			new->list[cpu] = at;
		else
			*per_cpu_ptr(new->each, cpu) = at;
		at += len;
	}
	at = KI_ARCH_RING_LIST ? (unsigned long)new->list : (__force unsigned long)new->each;
	new->addr = KI_ARCH_RINGS_FOUND(at) ? at : 0;
	return 0;
}

/* Where code and cells are; the code is filled with traps. */
static int get_memory(struct area *new, const struct ki_area *a)
{
	bool possible;
	void *mem;

	if (a->kind == KI_AREA_LOCAL)
		return get_local(new);
	if (a->kind == KI_AREA_RINGS)
		return get_rings(new, a->code_len);
	if (a->kind == KI_AREA_ANNEX)
		return get_built_in(new, ki_annex_addr(), KI_ANNEX_LEN);
	if (arena_fits(a) && !get_built_in(new, ki_arena_addr(), KI_ARCH_ARENA))
		return 0;
	mem = place_in_window(a->lo, a->hi, 2ul * a->code_len, &possible);
	if (!mem)
		return possible ? -ENOSPC : -EACCES;
	if (ki_fails() || make_code(mem, a->code_len)) {
		vfree(mem);
		return -ENOMEM;
	}
	new->addr = (unsigned long)mem;
	new->cells = new->addr + a->code_len;
	return 0;
}

static bool good_form(const struct ki_area *a)
{
	if (a->reserved)
		return false;
	if (a->kind == KI_AREA_ANNEX)
		return a->code_len == KI_ANNEX_LEN && !a->lo && !a->hi;
	if (a->kind == KI_AREA_LOCAL)
		return a->code_len == PAGE_SIZE && !a->lo && !a->hi;
	if (a->kind == KI_AREA_RINGS)
		return a->code_len && PAGE_ALIGNED(a->code_len) && !a->lo && !a->hi &&
		       a->code_len <= KI_MAX_AREA / num_possible_cpus();
	return a->kind == KI_AREA_WINDOW && a->code_len && PAGE_ALIGNED(a->code_len) &&
	       a->code_len <= KI_MAX_AREA / 2 && a->lo < a->hi;
}

/* Bytes of memory that cells have, as they are mapped. */
static unsigned long cells_len(const struct area *a)
{
	if (a->local)
		return num_possible_cpus() * PAGE_SIZE;
	return rings(a) ? num_possible_cpus() * (unsigned long)a->code_len : a->code_len;
}

static void insert(struct area *a)
{
	mutex_lock(&list_lock);
	list_add(&a->link, &areas);
	mutex_unlock(&list_lock);
	area_count++;
	area_bytes += cells_len(a);
	if (!has_code(a))
		return;
	a->in_codes.start = a->addr;
	a->in_codes.last = a->addr + a->code_len - 1;
	a->in_cells.start = a->cells;
	a->in_cells.last = a->cells + a->code_len - 1;
	interval_tree_insert(&a->in_codes, &codes);
	interval_tree_insert(&a->in_cells, &cells);
}

static void erase(struct area *a)
{
	mutex_lock(&list_lock);
	list_del(&a->link);
	mutex_unlock(&list_lock);
	area_count--;
	area_bytes -= cells_len(a);
	if (!has_code(a))
		return;
	interval_tree_remove(&a->in_codes, &codes);
	interval_tree_remove(&a->in_cells, &cells);
}

/*
 * Pages that a process still has mapped live until it unmaps them. Those of
 * local cells do not: they go with the device, which a mapping holds open.
 */
static void release(struct area *a)
{
	if (a->local)
		free_percpu(a->local);
	else
		vfree((void *)(built_in(a) || rings(a) ? a->cells : a->addr));
	free_percpu(a->each);
	kfree(a->list);
	kfree(a);
}

int ki_area_alloc(struct ki_area *a)
{
	struct area *new;
	int err;

	if (!good_form(a))
		return -EINVAL;
	if (area_count >= MAX_AREAS || area_bytes + a->code_len > MAX_BYTES)
		return -ENOMEM;
	new = ki_try(kzalloc(sizeof(*new), GFP_KERNEL));
	if (!new)
		return -ENOMEM;
	ki_step();
	err = get_memory(new, a);
	ki_step();
	if (err) {
		kfree(new);
		return err;
	}
	new->code_len = a->code_len;
	new->id = ++last_id;
	new->session = ki_session;
	err = give_name(new);
	if (err) {
		release(new);
		return err;
	}
	insert(new);
	a->id = new->id;
	a->addr = new->addr;
	a->cells = new->cells;
	a->mmap_offset = (u64)new->id * KI_MAX_AREA;
	return 0;
}

/* Of code that stays when its area goes: what was written is traps again. */
static void clear_built_in(const struct area *a)
{
	static u8 traps[PAGE_SIZE];
	unsigned long at;

	ki_text_forget_sites(a->addr, a->code_len);	/* first: the kernel looks at what is there */
	ki_arch_fill_traps(traps, sizeof(traps));
	for (at = a->addr; at < a->addr + a->code_len; at += PAGE_SIZE)
		if (memcmp((void *)at, traps, PAGE_SIZE))
			WARN_ON(ki_arch_write_code((void *)at, traps, PAGE_SIZE));
	ki_arch_frames(a->addr, a->code_len, NULL, 0);
}

/* Nobody is in its code any more. */
static void drop(struct area *a)
{
	if (built_in(a))
		clear_built_in(a);
	else if (has_code(a))
		ki_text_forget_sites(a->addr, a->code_len);
	erase(a);
	take_name(a);
	release(a);
}

int ki_area_free(u32 id)
{
	struct area *a;

	list_for_each_entry(a, &areas, link) {
		if (a->id != id)
			continue;
		if (!has_code(a) || ki_text_in_use(a->addr, a->code_len))
			return -EBUSY;
		drop(a);
		return 0;
	}
	return -ENOENT;
}

/*
 * Behind ki_text_undo_all(), which has just looked what is left.
 * Patches are in areas, mostly of their own session, and write cells and rings of that one.
 * Nobody has mapped any: a mapping holds the device open.
 */
void ki_area_free_unused(void)
{
	struct area *a, *next;

	list_for_each_entry_safe(a, next, &areas, link)
		if (!(has_code(a) && ki_text_has(a->addr, a->code_len)) &&
		    !ki_text_left_of(a->session))
			drop(a);
}

void ki_area_free_all(void)
{
	struct area *a, *next;

	list_for_each_entry_safe(a, next, &areas, link)
		drop(a);
}

u32 ki_area_count(void)
{
	return area_count;
}

static bool within(unsigned long addr, unsigned long len,
		   unsigned long start, unsigned long size)
{
	return len <= size && addr >= start && addr - start <= size - len;
}

/* Are all of some bytes, of which there is one, in one range of a tree? */
static bool in_tree(struct rb_root_cached *tree, unsigned long addr, unsigned long len)
{
	struct interval_tree_node *n = interval_tree_iter_first(tree, addr, addr);

	return n && len - 1 <= n->last - addr;
}

bool ki_area_has_code(unsigned long addr, unsigned long len)
{
	return len && in_tree(&codes, addr, len);
}

bool ki_area_sited(unsigned long addr, unsigned long len)
{
	return ki_annex_own(addr, len) || (ki_area_named && ki_area_has_code(addr, len));
}

bool ki_area_has(unsigned long addr, unsigned long len)
{
	return len && (in_tree(&codes, addr, len) || in_tree(&cells, addr, len));
}

bool ki_area_cells(u64 addr, u32 words, bool local, struct ki_cell_source *s)
{
	u64 len = 8ull * words;
	struct area *a;

	if (!words || addr % 8 || len > KI_MAX_AREA)
		return false;
	if (!local) {
		*s = (struct ki_cell_source){ .at = (const u64 *)(unsigned long)addr };
		return in_tree(&cells, addr, len);
	}
	list_for_each_entry(a, &areas, link) {
		if (!a->local || !within(addr, len, a->cells, PAGE_SIZE))
			continue;
		*s = (struct ki_cell_source){ .local = a->local + (addr - a->cells) };
		return true;
	}
	return false;
}

const u64 *ki_area_rings(u64 addr, u32 words)
{
	struct area *a;

	if (!words || addr % 8)
		return NULL;
	list_for_each_entry(a, &areas, link)
		if (rings(a) && within(addr, 8ul * words, a->cells, cells_len(a)))
			return (const u64 *)(unsigned long)addr;
	return NULL;
}

/* A page of them. */
static struct page *cells_page(const struct area *a, unsigned long n)
{
	void *p = NULL;
	int cpu;

	/* Not by its address: areas are also where is_vmalloc_addr() does not look. */
	if (!a->local)
		return vmalloc_to_page((void *)(a->cells + n * PAGE_SIZE));
	for_each_possible_cpu(cpu) {
		p = per_cpu_ptr(a->local, cpu);
		if (!n--)
			break;
	}
	return is_vmalloc_addr(p) ? vmalloc_to_page(p) : virt_to_page(p);
}

static struct area *area_at(u64 offset)
{
	struct area *a;

	list_for_each_entry(a, &areas, link)
		if ((u64)a->id * KI_MAX_AREA == offset)
			return a;
	return NULL;
}

/*
 * Cells, and nothing else, shared with the daemon. VM_IO keeps direct I/O and
 * ptrace away from pages whose other mapping is code's neighbour. The caller
 * holds mmap_lock: see list_lock.
 */
int ki_area_mmap(struct vm_area_struct *vma)
{
	unsigned long size = vma->vm_end - vma->vm_start, off;
	struct area *a;
	int err = 0;

	if (!(vma->vm_flags & VM_SHARED) || (vma->vm_flags & VM_EXEC))
		return -EACCES;
	mutex_lock(&list_lock);
	a = area_at((u64)vma->vm_pgoff << PAGE_SHIFT);
	if (!a)
		err = -ENOENT;
	else if (size > cells_len(a))
		err = -EINVAL;
	else
		vm_flags_mod(vma, VM_IO | VM_DONTEXPAND | VM_DONTDUMP | VM_DONTCOPY, VM_MAYEXEC);
	for (off = 0; off < size && !err; off += PAGE_SIZE)
		err = vm_insert_page(vma, vma->vm_start + off, cells_page(a, off >> PAGE_SHIFT));
	mutex_unlock(&list_lock);
	return err;
}
