// SPDX-License-Identifier: GPL-2.0
/*
 * core.c - the device: who may open it, what may be asked, and what happens
 * when the one who asked is gone.
 *
 * The module owns nothing of its own accord. Everything that is spliced or
 * allocated belongs to the one open file, and its release undoes it: closing,
 * exit and kill -9 are the same path. What cannot be undone (someone put a
 * kprobe on a splice; a task is in a patch, or a word on its stack looks like it)
 * stays, with the memory that its patches are in or have cells in, and pins the module
 * until a later try succeeds.
 */
#include <linux/capability.h>
#include <linux/compat.h>
#include <linux/cpumask.h>
#include <linux/fs.h>
#include <linux/init.h>
#include <linux/memory.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/preempt.h>
#include <linux/security.h>
#include <linux/slab.h>
#include <linux/sort.h>
#include <linux/string.h>
#include <linux/uaccess.h>
#include <linux/workqueue.h>

#include "faults.h"
#include "internals.h"
#include "kerninst_mod.h"
#include "probes.h"

#define READ_MAX	(64u << 20)
#define SWITCH		"kerninst.lab="
#define TOKEN		SWITCH "1"

static bool i_accept_the_risk;
module_param(i_accept_the_risk, bool, 0444);
MODULE_PARM_DESC(i_accept_the_risk, "load although the kernel command line does not hold " TOKEN);

DEFINE_MUTEX(ki_lock);
static DEFINE_MUTEX(call_lock);
struct ki_caller ki_caller;	/* under call_lock, or with the file's only user */

static unsigned long opened;	/* bit 0: somebody has the device */
static bool pinned;		/* under ki_lock: leftovers hold the module */
u32 ki_session;			/* under ki_lock */

void ki_image(unsigned long *start, unsigned long *end)
{
	/*
	 * Mapped in units of 2 MiB. riscv64 has two pages of boot code before
	 * _text, the other two begin with it.
	 */
	*start = round_down(ki_marks.image, 2ul << 20);
	*end = round_up(ki_marks.image_end, 2ul << 20);
}

static long do_info(void __user *arg)
{
	unsigned long start, end, lo, hi;
	struct ki_info in = {
		.abi = KI_ABI_VERSION,
		.arch = ki_arch_id,
		.text_start = ki_marks.text,
		.text_end = ki_marks.text_end,
		.page_size = PAGE_SIZE,
		.cpus = num_possible_cpus(),
		.features = ki_arch_features(),
		.task_cpu = KI_ARCH_TASK_CPU,
		.loads = (unsigned long)ki_loads,
	};

	ki_image(&start, &end);
	ki_arch_area_range(&lo, &hi);
	in.image_start = start;
	in.image_end = end;
	in.area_lo = lo;
	in.area_hi = hi;
	if (!ki_text_windows())
		in.features |= KI_FEAT_NO_WINDOWS;
	if (ki_traps_work())
		in.features |= KI_FEAT_TRAP;
	if (IS_ENABLED(CONFIG_PREEMPTION))
		in.features |= KI_FEAT_PREEMPTED;
	if (ki_keys)
		in.features |= KI_FEAT_KEYS;
	if (ki_area_named)
		in.features |= KI_FEAT_SITED;
	return copy_to_user(arg, &in, sizeof(in)) ? -EFAULT : 0;
}

/*
 * That the caller's memory takes the answer is tried first: local cells and rings are not
 * given back before the device is closed, as somebody may have mapped them meanwhile.
 */
static long do_area(void __user *arg)
{
	struct ki_area a;
	int err;

	if (copy_from_user(&a, arg, sizeof(a)) || copy_to_user(arg, &a, sizeof(a)))
		return -EFAULT;
	mutex_lock(&ki_lock);
	err = ki_area_alloc(&a);
	mutex_unlock(&ki_lock);
	if (err)
		return err;
	if (copy_to_user(arg, &a, sizeof(a))) {
		mutex_lock(&ki_lock);
		ki_area_free(a.id);
		mutex_unlock(&ki_lock);
		return -EFAULT;
	}
	return 0;
}

static long do_area_free(void __user *arg)
{
	struct ki_area_free f;
	int err;

	if (copy_from_user(&f, arg, sizeof(f)))
		return -EFAULT;
	if (f.reserved)
		return -EINVAL;
	mutex_lock(&ki_lock);
	err = ki_area_free(f.id);
	mutex_unlock(&ki_lock);
	return err;
}

/*
 * Part of one page into a kernel buffer. Only memory that is ordinary memory:
 * a device register read by mistake would have side effects. The page may
 * vanish (initialisation code, a module on its way out): the copy tolerates
 * faults, and a module's memory is not reused before preemption was on again.
 */
static int read_page(void *to, unsigned long addr, unsigned long len)
{
	int err;

	preempt_disable();
	if ((addr >= ki_marks.image && addr + len <= ki_marks.image_end) ||
	    ki_area_has(addr, len) || __module_address(addr))
		err = copy_from_kernel_nofault(to, (void *)addr, len);
	else
		err = -EACCES;
	preempt_enable();
	return err == -ERANGE ? -EACCES : err;
}

/* The same as it is without kprobes: who adds, arms or takes away one holds their lock. */
static int read_unprobed(void *to, unsigned long addr, unsigned long len)
{
	int err;

	mutex_lock(&kprobe_mutex);
	mutex_lock(&text_mutex);
	err = read_page(to, addr, len);
	if (!err)
		err = ki_unprobe(to, addr, len);
	mutex_unlock(&text_mutex);
	mutex_unlock(&kprobe_mutex);
	return err;
}

static long do_read(void __user *arg)
{
	struct ki_read r;
	void *page;
	int err = 0;

	if (copy_from_user(&r, arg, sizeof(r)))
		return -EFAULT;
	if (!r.len || r.len > READ_MAX || r.addr + r.len < r.addr ||
	    (r.flags & ~KI_READ_UNPROBED) || r.reserved)
		return -EINVAL;
	page = ki_try((void *)__get_free_page(GFP_KERNEL));
	if (!page)
		return -ENOMEM;
	while (r.len && !err) {
		unsigned long n = min_t(u64, r.len, PAGE_SIZE - offset_in_page(r.addr));

		mutex_lock(&ki_lock);
		if (r.flags & KI_READ_UNPROBED)
			err = read_unprobed(page, r.addr, n);
		else
			err = read_page(page, r.addr, n);
		mutex_unlock(&ki_lock);
		if (!err && copy_to_user(u64_to_user_ptr(r.buf), page, n))
			err = -EFAULT;
		r.addr += n;
		r.buf += n;
		r.len -= n;
		if (fatal_signal_pending(current))
			err = -EINTR;
		cond_resched();
	}
	free_page((unsigned long)page);
	return err;
}

static long do_code(void __user *arg)
{
	struct ki_frame *frames = NULL;
	struct ki_site *sites = NULL;
	struct ki_code c;
	void *code;
	int err;

	if (copy_from_user(&c, arg, sizeof(c)))
		return -EFAULT;
	if (!c.len || c.len > KI_MAX_AREA || c.addr + c.len < c.addr ||
	    c.n > KI_MAX_FRAMES || c.n_sites > KI_MAX_SITES)
		return -EINVAL;
	code = ki_try_err(vmemdup_user(u64_to_user_ptr(c.buf), c.len));
	if (IS_ERR(code))
		return PTR_ERR(code);
	if (c.n)
		frames = ki_try_err(vmemdup_user(u64_to_user_ptr(c.frames), array_size(c.n, sizeof(*frames))));
	if (!IS_ERR(frames) && c.n_sites)
		sites = ki_try_err(vmemdup_user(u64_to_user_ptr(c.sites), array_size(c.n_sites, sizeof(*sites))));
	err = PTR_ERR_OR_ZERO(IS_ERR(frames) ? (void *)frames : (void *)sites);
	if (!err) {
		mutex_lock(&ki_lock);
		err = ki_text_write_code(&(struct ki_text_code){ c.addr, c.len, code, frames, sites, c.n, c.n_sites });
		mutex_unlock(&ki_lock);
	}
	if (!IS_ERR(sites))
		kvfree(sites);
	if (!IS_ERR(frames))
		kvfree(frames);
	kvfree(code);
	return err;
}

/*
 * Names are given, and written to the caller's memory, before anything is
 * spliced: a caller whose memory went away has then lost nothing.
 */
static int name_splices(struct ki_splice __user *to, struct ki_splice *s, u32 n)
{
	static u32 last;	/* under call_lock */
	u32 i;

	for (i = 0; i < n; i++)
		s[i].id = ++last;
	return copy_to_user(to, s, array_size(n, sizeof(*s))) ? -EFAULT : 0;
}

static long do_splice(void __user *arg)
{
	struct ki_splice __user *list;
	struct ki_copied *copied = NULL;
	struct ki_resume *resumes = NULL;
	struct ki_splice *s;
	struct ki_batch b;
	int err;

	if (copy_from_user(&b, arg, sizeof(b)))
		return -EFAULT;
	if (!b.n || b.n > KI_MAX_BATCH || b.n_copied > KI_MAX_COPIED || b.n_resumes > KI_MAX_RESUMES)
		return -EINVAL;
	list = u64_to_user_ptr(b.splices);
	s = ki_try_err(vmemdup_user(list, array_size(b.n, sizeof(*s))));
	if (IS_ERR(s))
		return PTR_ERR(s);
	if (b.n_copied)
		copied = ki_try_err(vmemdup_user(u64_to_user_ptr(b.copied), array_size(b.n_copied, sizeof(*copied))));
	if (!IS_ERR(copied) && b.n_resumes)
		resumes = ki_try_err(vmemdup_user(u64_to_user_ptr(b.resumes), array_size(b.n_resumes, sizeof(*resumes))));
	err = PTR_ERR_OR_ZERO(IS_ERR(copied) ? (void *)copied : (void *)resumes);
	b.failed = b.n;
	ki_step();
	if (!err)
		err = name_splices(list, s, b.n);
	ki_step();
	if (!err) {
		mutex_lock(&ki_lock);
		err = ki_text_splice(&(struct ki_text_batch){ s, copied, resumes, b.n, b.n_copied, b.n_resumes }, &b.failed);
		mutex_unlock(&ki_lock);
	}
	if (!IS_ERR(resumes))
		kvfree(resumes);
	if (!IS_ERR(copied))
		kvfree(copied);
	kvfree(s);
	if (err && copy_to_user(arg, &b, sizeof(b)))
		return -EFAULT;
	return err;
}

static long do_undo(void __user *arg)
{
	struct ki_undo u;
	u32 *ids;
	int err;

	if (copy_from_user(&u, arg, sizeof(u)))
		return -EFAULT;
	if (!u.n || u.n > KI_MAX_BATCH || u.reserved || (u.flags & ~KI_UNDO_NO_WAIT))
		return -EINVAL;
	ids = ki_try_err(vmemdup_user(u64_to_user_ptr(u.ids), array_size(u.n, sizeof(*ids))));
	if (IS_ERR(ids))
		return PTR_ERR(ids);
	u.failed = u.n;
	mutex_lock(&ki_lock);
	err = ki_text_undo(ids, u.n, u.flags, &u.failed);
	mutex_unlock(&ki_lock);
	kvfree(ids);
	if (err && copy_to_user(arg, &u, sizeof(u)))
		return -EFAULT;
	return err;
}

static long do_stats(void __user *arg)
{
	struct ki_stats st = {};

	mutex_lock(&ki_lock);
	st.areas = ki_area_count();
	ki_text_stats(&st);
	mutex_unlock(&ki_lock);
	st.cycles = get_cycles();
	st.ns = ktime_get_ns();
	return copy_to_user(arg, &st, sizeof(st)) ? -EFAULT : 0;
}

/*
 * In the function at the bottom of our part of the stack: it holds no patch address. Where
 * it returns to may be in one, and is looked at.
 */
#define SET_CALLER()							\
	(ki_caller = (struct ki_caller){ current,			\
		(unsigned long)__builtin_frame_address(0) - KI_ARCH_RETURN_BELOW })

static const struct {
	unsigned int cmd;
	long (*run)(void __user *arg);
	bool beside;	/* others: it changes nothing that they do */
} calls[] = {
	[_IOC_NR(KI_IOC_INFO)]      = { KI_IOC_INFO, do_info },
	[_IOC_NR(KI_IOC_AREA)]      = { KI_IOC_AREA, do_area },
	[_IOC_NR(KI_IOC_AREA_FREE)] = { KI_IOC_AREA_FREE, do_area_free },
	[_IOC_NR(KI_IOC_READ)]      = { KI_IOC_READ, do_read },
	[_IOC_NR(KI_IOC_CODE)]      = { KI_IOC_CODE, do_code },
	[_IOC_NR(KI_IOC_SPLICE)]    = { KI_IOC_SPLICE, do_splice },
	[_IOC_NR(KI_IOC_UNDO)]      = { KI_IOC_UNDO, do_undo },
	[_IOC_NR(KI_IOC_STATS)]     = { KI_IOC_STATS, do_stats },
	[_IOC_NR(KI_IOC_MOMENT)]    = { KI_IOC_MOMENT, ki_moment },
	[_IOC_NR(KI_IOC_WAIT)]      = { KI_IOC_WAIT, ki_wait, true },
	[_IOC_NR(KI_IOC_WAKE)]      = { KI_IOC_WAKE, ki_wake, true },
};

static long ki_ioctl(struct file *file, unsigned int cmd, unsigned long arg)
{
	unsigned int nr = _IOC_NR(cmd);
	long err;

	if (nr >= ARRAY_SIZE(calls) || calls[nr].cmd != cmd)
		return -ENOTTY;
	if (calls[nr].beside)
		return calls[nr].run((void __user *)arg);
	/* Another call may wait for its user's memory for as long as that likes. */
	if (mutex_lock_killable(&call_lock))
		return -EINTR;
	SET_CALLER();
	ki_step();
	err = calls[nr].run((void __user *)arg);
	ki_step();
	mutex_unlock(&call_lock);
	return err;
}

static void try_again(struct work_struct *work);
static DECLARE_DELAYED_WORK(again, try_again);

/*
 * Undo, free, and either let the module go or keep it for another try. Called with
 * nobody using the device. The file that is being opened or closed keeps the module
 * from going away under us, and ki_exit() waits for the work.
 */
static noinline void clean_up(void)
{
	static unsigned long wait;
	const struct ki_text_holder *holder = ki_text_holder();
	struct ki_stats left = {};

	if (ki_text_undo_all()) {
		ki_area_free_all();
		if (pinned)
			module_put(THIS_MODULE);
		pinned = false;
		return;
	}
	ki_area_free_unused();
	/* Each try stops all CPUs for a moment: seldom, if it takes long. */
	wait = pinned ? min(2 * wait, 60ul * HZ) : HZ;
	mod_delayed_work(system_wq, &again, wait);
	if (pinned)
		return;
	__module_get(THIS_MODULE);
	pinned = true;
	ki_text_stats(&left);
	if (left.splices)
		pr_warn(KI_NAME ": %u splices stay, and this module with them: a kprobe sits on them. Remove it: this is tried again, at least every minute\n",
			left.splices);
	else if (holder->point)
		pr_warn(KI_NAME ": text is as it was; %llu bytes of patches stay, and this module with them: the stack of %s (%d) has an address in that of %pS, or of others. This is tried again, at least every minute\n",
			left.quarantined, holder->comm, holder->pid, (void *)holder->point);
	else
		pr_warn(KI_NAME ": text is as it was; %llu bytes of patches stay, and this module with them: a task that ends may be asleep in there. This is tried again, at least every minute\n",
			left.quarantined);
}

/*
 * Somebody may open the device meanwhile, and say that he is the caller: then the
 * scan looks at more of a stack than it has to.
 */
static void try_again(struct work_struct *work)
{
	mutex_lock(&ki_lock);
	if (pinned && !test_bit(0, &opened)) {
		SET_CALLER();
		clean_up();
	}
	mutex_unlock(&ki_lock);
}

/*
 * Lockdown: the device writes kernel text, as /dev/mem could, so what forbids
 * that forbids this; it is an integrity matter, not one of confidentiality
 * (LOCKDOWN_KPROBES is, because probes read).
 */
static int ki_open(struct inode *inode, struct file *file)
{
	int err;

	if (!capable(CAP_SYS_MODULE) || !capable(CAP_SYS_RAWIO))
		return -EPERM;
	err = security_locked_down(LOCKDOWN_DEV_MEM);
	if (err)
		return err;
	if (test_and_set_bit_lock(0, &opened))
		return -EBUSY;
	mutex_lock(&ki_lock);
	SET_CALLER();	/* not before: what had us wait may be spliced, and undone meanwhile */
	if (pinned)
		clean_up();
	ki_text_unbar();
	ki_session++;
	mutex_unlock(&ki_lock);
	return nonseekable_open(inode, file);
}

/*
 * The last descriptor and the last mapping of the cells are gone. An exiting
 * task gets here too; it may sleep, and tasks-RCU does not wait for it.
 */
static int ki_release(struct inode *inode, struct file *file)
{
	ki_step();
	mutex_lock(&ki_lock);
	SET_CALLER();
	clean_up();
	mutex_unlock(&ki_lock);
	clear_bit_unlock(0, &opened);
	return 0;
}

static int ki_mmap(struct file *file, struct vm_area_struct *vma)
{
	return ki_area_mmap(vma);
}

static const struct file_operations ki_fops = {
	.owner = THIS_MODULE,
	.open = ki_open,
	.release = ki_release,
	.unlocked_ioctl = ki_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
	.mmap = ki_mmap,
};

static struct miscdevice ki_device = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = KI_NAME,
	.mode = 0600,
	.fops = &ki_fops,
};

/*
 * Of words that begin with the switch, the last decides, as it does for the kernel's
 * own. "nokerninst.lab=1" is none, and "kerninst.lab=10" says no.
 */
static bool in_the_lab(void)
{
	const char *p = saved_command_line;
	size_t n = strlen(SWITCH);
	bool yes = false;

	for (; (p = strstr(p, SWITCH)); p += n)
		if (p == saved_command_line || p[-1] == ' ')
			yes = p[n] == '1' && (!p[n + 1] || p[n + 1] == ' ');
	return yes;
}

static int __init ki_init(void)
{
	int err = ki_internals_check();

	if (err)
		return err;
	if (!in_the_lab() && !i_accept_the_risk) {
		pr_err(KI_NAME ": this module rewrites the running kernel. Boot with " TOKEN " on the kernel command line, or load it with i_accept_the_risk=1\n");
		return -EPERM;
	}
	err = ki_annex_init();
	if (!err)
		err = ki_arch_frames_init();
	if (!err)
		err = ki_sites_init();
	if (err)
		return err;
	ki_traps_init();
	err = ki_patches_init();
	if (err)
		goto traps;
	err = misc_register(&ki_device);
	if (err)
		goto patches;
	return 0;
patches:
	ki_patches_exit();
traps:
	ki_traps_exit();
	ki_sites_exit();
	return err;
}

/* The file operations hold a reference: nothing is open, hence nothing live. */
static void __exit ki_exit(void)
{
	misc_deregister(&ki_device);
	cancel_delayed_work_sync(&again);
	if (!ki_text_unbar())
		pr_warn(KI_NAME ": the kernel makes no jumps of kprobes, as some have come to spliced text and are still there: debug.kprobes-optimization=1 allows it, when they are gone\n");
	ki_patches_exit();
	ki_traps_exit();
	ki_sites_exit();
}

module_init(ki_init);
module_exit(ki_exit);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("Splices code patches into the running kernel, for kerninstd");
