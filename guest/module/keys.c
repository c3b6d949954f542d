// SPDX-License-Identifier: GPL-2.0
/*
 * keys.c - static keys in copies of kernel code.
 *
 * A static key's site is a nop or a jump, and the kernel rewrites all sites of a key when
 * that changes (kernel/jump_label.c). It finds them in its own table and, for each module that
 * has some, by a node in the key's list, as jump_label_add_module() puts them there. A site in
 * a copy gets a node as well: so it is rewritten with the others, by the same steps, and costs
 * what they do.
 *
 * A node says from which entry on and, by its module, up to which the key's are. Ours are
 * each followed by one that is no key's. The module that they name is none, and has nothing but
 * the bounds of all entries; nobody but the writer of sites reads it.
 *
 * Only sites of the kernel's own text: the keys of others could go before ours do.
 */
#include <linux/jump_label.h>
#include <linux/module.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <linux/version.h>

#include "faults.h"
#include "internals.h"
#include "kerninst_mod.h"

/* Older kernels do not tell keys that are read-only. */
const bool ki_keys = LINUX_VERSION_CODE >= KERNEL_VERSION(6, 10, 0);

/* As kernel/jump_label.c has it: no header does. */
struct static_key_mod {
	struct static_key_mod *next;
	struct jump_entry *entries;
	struct module *mod;
};

struct site {
	struct jump_entry entry, none;
	struct static_key_mod node;
	unsigned long code;	/* 0: free */
	bool linked;
};

static struct site sites[KI_MAX_KEYS];	/* in the module's memory: entries are 32 bits from code and key */
static struct module bounds = {
	.jump_entries = &sites[0].entry,
	.num_jump_entries = sizeof(sites) / (sizeof(struct jump_entry)),	/* whose range is all of sites */
};

static struct static_key_mod *first_of(const struct static_key *key)
{
	return (void *)((unsigned long)key->next & ~JUMP_TYPE_MASK);
}

static void set_first(struct static_key *key, struct static_key_mod *node)
{
	key->type = (unsigned long)node | (key->type & JUMP_TYPE_TRUE) | JUMP_TYPE_LINKED;
}

/* Keys that can change no more have no list (jump_label_init_ro). */
static bool sealed(const struct static_key *key)
{
	return (key->type & JUMP_TYPE_LINKED) && !(key->type & ~JUMP_TYPE_MASK);
}

/* The kernel's own entries become a node of their own, which it may free. */
static int make_list(struct static_key *key)
{
	struct static_key_mod *own;

	if (key->type & JUMP_TYPE_LINKED)
		return 0;
	own = ki_try(kzalloc(sizeof(*own), GFP_KERNEL));
	if (!own)
		return -ENOMEM;
	own->entries = (void *)((unsigned long)key->entries & ~JUMP_TYPE_MASK);
	set_first(key, own);
	return 0;
}

static int link(struct site *s)
{
	struct static_key *key = jump_entry_key(&s->entry);
	int err;

	if (sealed(key))
		return 0;
	err = make_list(key);
	if (err)
		return err;
	s->node = (struct static_key_mod){ first_of(key), &s->entry, &bounds };
	set_first(key, &s->node);
	s->linked = true;
	return 0;
}

static void unlink(struct site *s)
{
	struct static_key *key = jump_entry_key(&s->entry);
	struct static_key_mod *n, *last;

	if (!s->linked)
		return;
	s->linked = false;
	n = first_of(key);
	if (n == &s->node) {
		set_first(key, s->node.next);
	} else {
		while (n && n->next != &s->node)
			n = n->next;
		if (WARN_ON_ONCE(!n))
			return;
		n->next = s->node.next;
	}
	last = first_of(key);
	if (last && !last->next) {	/* the kernel's own alone: as it was */
		key->type = (unsigned long)last->entries | (key->type & JUMP_TYPE_TRUE);
		kfree(last);
	}
}

static bool good(const struct ki_site *in)
{
	unsigned long at = in->entry - ki_marks.jump_table;
	const struct jump_entry *e = (void *)(unsigned long)in->entry;

	return in->entry >= ki_marks.jump_table && in->entry < ki_marks.jump_end &&
	       at % sizeof(*e) == 0 && jump_entry_code(e) == in->orig && !jump_entry_is_init(e) &&
	       !__module_address((unsigned long)jump_entry_key(e));
}

int ki_key_check(const struct ki_site *in)
{
	bool yes;

	if (!ki_keys)
		return -EOPNOTSUPP;
	preempt_disable();	/* __module_address() walks modules under RCU */
	yes = good(in);
	preempt_enable();
	return yes ? 0 : -EINVAL;
}

static struct site *unused(void)
{
	u32 k;

	for (k = 0; k < ARRAY_SIZE(sites); k++)
		if (!sites[k].code)
			return &sites[k];
	return NULL;
}

static bool jumps(const struct jump_entry *e)
{
	return static_key_enabled(jump_entry_key(e)) ^ jump_entry_is_branch(e);
}

void ki_keys_lock(void)
{
	jump_label_lock();
}

void ki_keys_unlock(void)
{
	jump_label_unlock();
}

/*
 * The site that will be at `code`, and its bytes as they have to be now. Until keys are unlocked
 * the key does not change.
 */
int ki_key_add(const struct ki_site *in, unsigned long code, u8 *bytes)
{
	const struct jump_entry *orig = (void *)(unsigned long)in->entry;
	unsigned long to = in->to ? in->to : jump_entry_target(orig);
	struct site *s = unused();
	int err;

	if (!s)
		return -ENOSPC;
	if (!ki_arch_key_site(bytes, code, to) || !ki_in_reach(code, sites, sizeof(sites)) ||
	    !ki_in_reach(to, sites, sizeof(sites)))
		return -ERANGE;
	s->entry.code = code - (unsigned long)&s->entry.code;
	s->entry.target = to - (unsigned long)&s->entry.target;
	s->entry.key = ((unsigned long)jump_entry_key(orig) - (unsigned long)&s->entry.key) |
		       (jump_entry_is_branch(orig) ? 1 : 0);
	s->none = (struct jump_entry){ };	/* of the key at its own address */
	err = link(s);
	if (err)
		return err;
	s->code = code;
	if (!jumps(&s->entry))
		ki_arch_key_site(bytes, code, 0);
	return 0;
}

/* Nobody is at the sites in a range of code any more, nor comes there. */
void ki_keys_drop(unsigned long addr, unsigned long len)
{
	u32 k;

	for (k = 0; k < ARRAY_SIZE(sites); k++)
		if (sites[k].code && sites[k].code < addr + len && sites[k].code + KI_ARCH_KEY_LEN > addr) {
			unlink(&sites[k]);
			sites[k].code = 0;
		}
}
