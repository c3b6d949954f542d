// SPDX-License-Identifier: GPL-2.0
/*
 * internals.c - proves that user space gave the module the kernel's symbols
 * and not something else, before one of them is called.
 *
 * Everything is read-only until the device exists: a wrong address found here
 * costs a failed insmod.
 */
#include <linux/extable.h>
#include <linux/init.h>
#include <linux/jump_label.h>
#include <linux/kallsyms.h>
#include <linux/kprobes.h>
#include <linux/ftrace.h>
#include <linux/memory.h>
#include <linux/module.h>
#include <linux/sched/task_stack.h>
#include <linux/set_memory.h>
#include <linux/stacktrace.h>
#include <linux/static_call.h>
#include <linux/stringify.h>
#include <linux/stop_machine.h>
#include <linux/vmalloc.h>

#include <asm/sections.h>

#include "internals.h"
#include "kerninst_mod.h"

struct internal {
	const char *name;
	const void *addr;
	bool mark, maybe;
};

/* By the names that this kernel has: compat.h may give them others. */
#define SYMBOL(s)	{ __stringify(s), &(s) },
#define MARKED(s)	{ __stringify(s), &(s), .mark = true },
#define PERHAPS(s)	{ __stringify(s), &(s), .maybe = true },
static const struct internal internals[] = {
	KI_INTERNALS(SYMBOL, SYMBOL, MARKED)
	KI_ARCH_MAYBE(PERHAPS)
};

/* One NUL-terminated name after the other, for the loader. */
#define NAME(s) __stringify(s) "\0"
#define QUERY(s) "?" __stringify(s) "\0"
static const char names[] __used __aligned(1) __section(".kerninst.internals") =
	KI_INTERNALS(NAME, NAME, NAME) KI_ARCH_MAYBE(QUERY);

static int check_symbol(const struct internal *in)
{
	char found[KSYM_SYMBOL_LEN];
	size_t n = strlen(in->name);

	sprint_symbol(found, (unsigned long)in->addr);
	if (!strncmp(found, in->name, n) && !strncmp(found + n, "+0x0/", 5))
		return 0;
	pr_err(KI_NAME ": the loader gave %s an address that is %s; load this module with kerninstd\n",
	       in->name, found);
	return -ENOEXEC;
}

/* Not constant, or the compiler would fold it into the code after all. */
struct ki_marks ki_marks = {
	.image = (unsigned long)_text,
	.image_end = (unsigned long)_end,
	.text = (unsigned long)_stext,
	.text_end = (unsigned long)_etext,
	.jump_table = (unsigned long)__start___jump_table,
	.jump_end = (unsigned long)__stop___jump_table,
	.init = (unsigned long)__init_begin,
};

static int check_marks(void)
{
	if (ki_marks.image <= ki_marks.text && ki_marks.text < ki_marks.text_end &&
	    ki_marks.text_end < ki_marks.image_end &&
	    ki_marks.text_end < ki_marks.init && ki_marks.init < ki_marks.image_end &&
	    core_kernel_text(ki_marks.text) && core_kernel_text(ki_marks.text_end - 1) &&
	    !core_kernel_text(ki_marks.text_end) &&
	    ki_marks.jump_table < ki_marks.jump_end &&
	    ki_marks.jump_table > ki_marks.image && ki_marks.jump_end < ki_marks.image_end &&
	    (ki_marks.jump_end - ki_marks.jump_table) % sizeof(struct jump_entry) == 0)
		return 0;
	pr_err(KI_NAME ": the loader gave _text, _stext, _etext, _end, __init_begin or a bound of the jump table a wrong address\n");
	return -ENOEXEC;
}

int ki_internals_check(void)
{
	int i, err;

	for (i = 0; i < ARRAY_SIZE(internals); i++) {
		if (internals[i].mark ||
		    (internals[i].maybe && (unsigned long)internals[i].addr == ki_marks.image))
			continue;
		err = check_symbol(&internals[i]);
		if (err)
			return err;
	}
	return check_marks();
}
