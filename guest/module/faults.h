/* SPDX-License-Identifier: GPL-2.0 */
/*
 * faults.h - what goes wrong when the module is told to have it go wrong, so that each way
 * out of each call can be tried: stock kernels are built without fault injection.
 */
#ifndef _KERNINST_FAULTS_H
#define _KERNINST_FAULTS_H

#include <linux/err.h>
#include <linux/types.h>

/* Is this the allocation that is to fail? Each is asked about once, before it is made. */
bool ki_fails(void);
/* The caller is killed here, if it is this step; that shows when he notices signals. */
void ki_step(void);

#define ki_try(allocation)	(ki_fails() ? NULL : (allocation))
#define ki_try_err(allocation)	(ki_fails() ? ERR_PTR(-ENOMEM) : (allocation))

#endif /* _KERNINST_FAULTS_H */
