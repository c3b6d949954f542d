// SPDX-License-Identifier: Apache-2.0
/*
 * The operations, in the order in which they are measured and printed.
 *
 * The number of calls is fixed and the same for every run, host and ISA, since
 * what is adjusted to a clock would make two runs different. It is such that a
 * sample takes some 500,000 instructions where an operation takes fewer: longer
 * than a thousand ticks of the coarsest guest clock (100 ns), shorter than the
 * time between two timer interrupts (4 ms), so that most samples have none.
 *
 * Where an operation is a few system calls, samples have a multiple of 48: on arm64
 * and riscv64, a kernel moves its stack by 16 random bits at each, and fetches those
 * of 48 calls at once, in some 3,000 instructions. All samples have as many of these.
 */
#include "lmbench.h"

#define RING(p, k) { "Ctx/" #p "p/" #k "K", (k < 64 ? 96 : 24) / p, .per = p, .setup = ring_setup, .call = ring_call, \
		     .overhead = ring_overhead, .own = ring_own, .processes = p, .size = k * KIB }
#define LATENCY(n, how) { n, 48, .setup = pair_setup, .call = pair_call, .connect = how, .size = 1 }
#define STREAM(n, how) { n, 1, .moves = MIB, .setup = pair_setup, .call = pair_call, .connect = how, .size = MIB }
#define CREATE(k) { "FileCreate/" #k "K", 48, .setup = files_setup, .call = create_call, \
		    .after = files_remove, .size = k * KIB }
#define DELETE(k) { "FileDelete/" #k "K", 48, .setup = files_setup, .before = files_make, \
		    .call = delete_call, .size = k * KIB }

const struct operation operations[] = {
	{ "Control",	1440, .call = nothing },
	{ "Null",	1440, .call = null_call },
	{ "Read",	960, .setup = read_setup,	.call = read_call },
	{ "Write",	960, .setup = write_setup,	.call = write_call },
	{ "Stat",	384, .call = stat_call },
	{ "Fstat",	768, .setup = fstat_setup,	.call = fstat_call },
	{ "OpenClose",	192, .call = open_call },
	{ "Select100",	48, .setup = select_setup,	.call = select_call, .size = 100 },
	{ "SigInstall",	960, .call = install_call },
	{ "SigCatch",	240, .setup = catch_setup,	.call = catch_call },
	{ "ProtFault",	240, .setup = fault_setup,	.call = fault_call },
	LATENCY("PipeLatency", by_pipe),
	LATENCY("UnixLatency", by_unix),
	LATENCY("TCPLatency", by_tcp),
	{ "ForkExit",	5, .setup = process_setup,	.call = process_call },
	{ "ForkExec",	2, .setup = process_setup,	.call = process_call, .argv = LIST("nop") },
	{ "ForkSh",	1, .setup = process_setup,	.call = process_call, .argv = LIST("/bin/sh", "-c", "nop") },
	{ "Mmap",	8, .setup = mmap_setup,	.call = mmap_call, .size = 512 * KIB },
	{ "PageFault",	192, .setup = mapped_setup,	.before = mapped_before, .call = page_call, .after = pages_after },
	{ "PageFaultAnon", 192, .before = anonymous_before, .call = page_call, .after = pages_after },
	RING(2, 0), RING(2, 16), RING(2, 64), RING(8, 0), RING(8, 16), RING(16, 0), RING(16, 16),
	CREATE(0), DELETE(0), CREATE(10), DELETE(10),
	{ "MemRead",	2, .moves = MIB, .setup = memory_setup,	.call = memory_read },
	{ "MemWrite",	2, .moves = MIB, .setup = memory_setup,	.call = memory_write },
	{ "MemCopy",	2, .moves = MIB, .setup = memory_setup,	.call = memory_copy },
	{ "FileRead",	2, .moves = MIB, .setup = file_setup,	.call = file_read },
	{ "FileMmapRead", 1, .moves = MIB, .setup = file_setup,	.call = file_map },
	STREAM("PipeStream", by_pipe),
	STREAM("UnixStream", by_unix),
	STREAM("TCPStream", by_tcp),
	{ NULL },
};
