// SPDX-License-Identifier: GPL-2.0
/*
 * livepatch.c - no live patch comes while functions run as copies.
 *
 * Before the kernel has a task go over to new functions it looks for the old ones on the
 * task's stack (kernel/livepatch/transition.c, klp_check_stack_func()). Who sleeps in a copy
 * of one has the copy's address there, and would go over in the middle of the old one. So
 * as long as there are copies, or tasks in some that were undone, a module that is a live
 * patch is not loaded; and none are made while one is on its way in. Once it is, there is
 * something at the ftrace sites of what it replaces, and that is not copied: who asks for a
 * copy has looked when he planned it, and looks again before he does (agent/splice).
 *
 * Not known of are one that comes and is in between that second look, which is the last
 * thing before the call, and the call; and one that is loading when this module comes.
 */
#include <linux/module.h>
#include <linux/notifier.h>

#include "kerninst_mod.h"

#define COMING_MAX	8u

static struct module *coming[COMING_MAX];	/* live patches that are; NULL: none */

bool ki_patch_comes(void)
{
	u32 k;

	lockdep_assert_held(&ki_lock);
	for (k = 0; k < COMING_MAX; k++)
		if (coming[k])
			return true;
	return false;
}

static int comes(struct module *mod)
{
	u32 k;

	if (ki_text_copies()) {
		pr_warn_ratelimited(KI_NAME ": %s is a live patch and not let in, as functions run as copies, in which it does not see who sleeps: undo these clones first, and what tasks slept in goes with the next thing that is undone, or when the device is closed\n",
			mod->name);
		return -EBUSY;
	}
	for (k = 0; k < COMING_MAX; k++) {
		if (!coming[k]) {
			coming[k] = mod;
			return 0;
		}
	}
	pr_warn_ratelimited(KI_NAME ": %s is a live patch and not let in, as %u others are on their way: try again\n",
			    mod->name, COMING_MAX);
	return -EBUSY;
}

/* It is in, or has not come. One that goes was in. */
static void came(struct module *mod)
{
	u32 k;

	for (k = 0; k < COMING_MAX; k++)
		if (coming[k] == mod)
			coming[k] = NULL;
}

static int on_module(struct notifier_block *nb, unsigned long state, void *data)
{
	struct module *mod = data;
	int err = 0;

	if (!is_livepatch_module(mod))
		return NOTIFY_DONE;
	mutex_lock(&ki_lock);
	if (state == MODULE_STATE_COMING)
		err = comes(mod);
	else
		came(mod);
	mutex_unlock(&ki_lock);
	return notifier_from_errno(err);
}

static struct notifier_block modules = { .notifier_call = on_module };

int ki_patches_init(void)
{
	return register_module_notifier(&modules);
}

void ki_patches_exit(void)
{
	unregister_module_notifier(&modules);
}
