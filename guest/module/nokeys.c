// SPDX-License-Identifier: GPL-2.0
/*
 * nokeys.c - ISAs whose copies of kernel code have no sites of static keys.
 */
#include <linux/errno.h>

#include "kerninst_mod.h"

const bool ki_keys = false;

int ki_key_check(const struct ki_site *in)
{
	return -EOPNOTSUPP;
}

void ki_keys_lock(void)
{
}

void ki_keys_unlock(void)
{
}

int ki_key_add(const struct ki_site *in, unsigned long code, u8 *bytes)
{
	return -EOPNOTSUPP;
}

void ki_keys_drop(unsigned long addr, unsigned long len)
{
}
