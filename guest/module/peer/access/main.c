// SPDX-License-Identifier: GPL-2.0
/*
 * access.ko - one function for each form of instruction whose faults have a fixup.
 *
 *   insmod access.ko
 *   cat /dev/access	a line for each form: its name, the type of its entry in the
 *			exception table, and which registers hold addresses of a
 *			user's memory, small numbers, and distances in the kernel's
 *			memory (masks, hexadecimal)
 *   ioctl ACCESS_RUN	runs one from given registers and flags, and says which
 *			there are afterwards, and whether it faulted
 *
 * Of each form NAME there are functions access_at_NAME, access_at_NAME_free and, on
 * riscv64, access_at_NAME_tight that begin with the instruction (one file for each ISA).
 * Behind the first every register and flag is read; behind the others some are
 * overwritten first, so that a snippet need not save them, and behind the last what
 * must stay where it is comes before that. The program is guest/bench/access.c.
 *
 * The kernel's memory is a page of each opener's, with none behind it.
 */
#include <linux/extable.h>
#include <linux/fs.h>
#include <linux/miscdevice.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/seq_file.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include <linux/vmalloc.h>

#include <asm/extable.h>

#include "access.h"

#define USER_ROOM	2048	/* bytes from a user's address that a form may touch */

static size_t form_count(void)
{
	return access_forms_end - access_forms;
}

static int type_of(const void *at)
{
	const struct exception_table_entry *e = THIS_MODULE->extable;
	const struct exception_table_entry *end = e + THIS_MODULE->num_exentries;

	for (; e < end; e++)
		if ((void *)&e->insn + e->insn == at)
#ifdef CONFIG_X86
			return e->data & 0xff;
#else
			return e->type;
#endif
	return -1;
}

static int show(struct seq_file *m, void *unused)
{
	const struct form *f;

	for (f = access_forms; f < access_forms_end; f++)
		seq_printf(m, "%s %d %llx %llx %llx\n", f->name, type_of(f->at), f->user, f->small, f->kernel);
	return 0;
}

static int access_open(struct inode *inode, struct file *file)
{
	void *page = vmalloc(PAGE_SIZE);
	int err;

	if (!page)
		return -ENOMEM;
	file->private_data = NULL;	/* the device's, by the misc driver; now the lines' */
	err = single_open(file, show, page);
	if (err)
		vfree(page);
	return err;
}

static int access_release(struct inode *inode, struct file *file)
{
	vfree(((struct seq_file *)file->private_data)->private);
	return single_release(inode, file);
}

/* Whoever may open the device shall reach no memory but his own and the page. */
static bool allowed(const struct form *f, const struct access *s)
{
	int r;

	for (r = 0; r < ACCESS_REGS; r++) {
		u64 v = s->reg[r], bit = 1ull << r;

		if ((f->user & bit && !access_ok((void __user *)v, USER_ROOM)) ||
		    (f->small & bit && v > ACCESS_SMALL) || (f->kernel & bit && v >= PAGE_SIZE + ACCESS_BEYOND))
			return false;
	}
	return !(s->flags & ~access_flags);
}

/* Addresses of the kernel's memory are no result: they differ each time. */
static void move(const struct form *f, struct access *s, u64 by)
{
	int r;

	for (r = 0; r < ACCESS_REGS; r++)
		if (f->kernel >> r & 1)
			s->reg[r] += by;
}

static long access_ioctl(struct file *file, unsigned int cmd, unsigned long arg)
{
	void *page = ((struct seq_file *)file->private_data)->private;
	void *tail = page + PAGE_SIZE - ACCESS_TAIL;
	struct access_call *c;
	const struct form *f;
	long err = -EINVAL;

	if (cmd != ACCESS_RUN)
		return -ENOTTY;
	c = memdup_user((void __user *)arg, sizeof(*c));
	if (IS_ERR(c))
		return PTR_ERR(c);
	if (c->form >= form_count())
		goto out;
	f = &access_forms[c->form];
	if (!allowed(f, &c->s))
		goto out;
	memcpy(tail, c->tail, ACCESS_TAIL);
	move(f, &c->s, (u64)page);
	f->run(&c->s);
	move(f, &c->s, -(u64)page);
	memcpy(c->tail, tail, ACCESS_TAIL);
	err = copy_to_user((void __user *)arg, c, sizeof(*c)) ? -EFAULT : 0;
out:
	kfree(c);
	return err;
}

static const struct file_operations access_fops = {
	.owner		= THIS_MODULE,
	.open		= access_open,
	.read		= seq_read,
	.llseek		= seq_lseek,
	.release	= access_release,
	.unlocked_ioctl	= access_ioctl,
};

static struct miscdevice access_device = {
	.minor	= MISC_DYNAMIC_MINOR,
	.name	= "access",
	.mode	= 0600,
	.fops	= &access_fops,
};

static int __init access_init(void)
{
	BUILD_BUG_ON(offsetof(struct access, flags) != OFF_FLAGS);
	BUILD_BUG_ON(offsetof(struct access, faulted) != OFF_FAULTED);
	BUILD_BUG_ON(offsetof(struct access, stack) != OFF_STACK);
	return misc_register(&access_device);
}

static void __exit access_exit(void)
{
	misc_deregister(&access_device);
}

module_init(access_init);
module_exit(access_exit);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("Instructions whose faults have a fixup, one by one");
