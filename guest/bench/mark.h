/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KI_MARK_H
#define KI_MARK_H

/* Where the linker puts .kimark; lab/oracle holds the same number. */
#define MARK_BASE	0x7ab00000ul
#define MARK_STRIDE	16	/* bytes between two nibble marks */

void ki_mark_begin(void);	/* measurement begins; nests */
void ki_mark_end(void);		/* measurement ends; the last one reports */
void ki_mark_point(void);	/* the last 16 nibbles are a point's address */
void ki_mark_reset(void);	/* all counts are 0 from here on */
void ki_mark_report(void);	/* the counts of this moment are the report */
void ki_mark_nibble(void);	/* first of 16 */
void ki_mark_calls(void);	/* first of those below */

/* What one task calls (lab/oracle/plugin/calls.c): marks behind ki_mark_calls. */
enum ki_calls {
	KI_WATCH,	/* the task that executes this is the one */
	KI_TOLD,	/* all of the following has been said */
	KI_FUNCTION,	/* the last 16 nibbles are where a function begins */
	KI_VECTOR,	/* the last 32 are a range: exceptions enter the kernel in it, */
	KI_ENTRY,	/* or: code of the entry, in which symbols are not all functions, */
	KI_SWITCHES,	/* or: the function that switches tasks, */
	KI_DIES,	/* or: one that a task ends in */
};

#endif
