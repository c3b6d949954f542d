/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KI_LMBENCH_H
#define KI_LMBENCH_H

#include <stddef.h>
#include <stdint.h>

#define KIB		1024u
#define MIB		(1024u * KIB)
#define LIST(...)	((const char *const []){ __VA_ARGS__, NULL })

/* Two processes' ends of what connects them: what is written to out of one is
 * read from in of the other. */
struct end { int in, out; };

/* One row of the table (table.c). Sizes are in bytes. */
struct operation {
	const char *name;
	uint32_t calls;		/* in a sample */
	uint32_t per;		/* operations in a call; 0: one */
	uint32_t moves;		/* bytes that an operation moves; 0: it is a latency */
	void (*setup)(const struct operation *);	/* once */
	void (*before)(uint32_t calls);	/* each sample, not timed */
	void (*call)(uint32_t turn);	/* turn counts from 0 in each sample */
	void (*after)(uint32_t calls);	/* each sample, not timed */
	/* What a call does besides the operation, in as many calls; it is timed
	 * in the same way and subtracted. NULL: the loop and the clock alone. */
	void (*overhead)(uint32_t turn);
	/* As much of the overhead as is no system call; NULL: as NULL there. */
	void (*own)(uint32_t turn);
	/* What setup makes of it; each is explained where it is used. */
	uint32_t size;
	uint32_t processes;
	void (*connect)(struct end ends[2]);
	const char *const *argv;
};

extern const struct operation operations[];	/* the last has no name */

/* measure.c: times a row and prints its lines; none but samples of nothing. */
void nothing(uint32_t);

/* How operations are sampled; whole: what system calls take for overhead is left in. */
struct sampling { long samples; int whole; };
void measure(const struct operation *, struct sampling, long cpus);

/* help.c */
void die(const char *what) __attribute__((noreturn));
void *memory(size_t size);		/* zeroed, touched, of pages of its own */
uint64_t sum(const void *p, size_t size);
void fill(void *p, size_t size, uint64_t value);
void keep(uint64_t value);		/* the compiler has to compute it */
int helper(void);			/* forks; 1 in the helper, 0 in the caller */
void end_helpers(void);
void write_all(int fd, const void *p, size_t n);
void read_all(int fd, void *p, size_t n);

/* occupy.c */
void occupy(void);			/* memory in pieces */
void give_back(void);

/* calls.c */
void null_call(uint32_t);
void read_setup(const struct operation *);
void read_call(uint32_t);
void write_setup(const struct operation *);
void write_call(uint32_t);
void stat_call(uint32_t);
void fstat_setup(const struct operation *);
void fstat_call(uint32_t);
void open_call(uint32_t);
void select_setup(const struct operation *);
void select_call(uint32_t);

/* signals.c */
void install_call(uint32_t);
void catch_setup(const struct operation *);
void catch_call(uint32_t);
void fault_setup(const struct operation *);
void fault_call(uint32_t);

/* pairs.c */
void by_pipe(struct end ends[2]);
void by_unix(struct end ends[2]);
void by_tcp(struct end ends[2]);
void pair_setup(const struct operation *);
void pair_call(uint32_t);

/* ring.c */
void ring_setup(const struct operation *);
void ring_call(uint32_t);
void ring_overhead(uint32_t);
void ring_own(uint32_t);

/* process.c */
void process_setup(const struct operation *);
void process_call(uint32_t);

/* pages.c */
void mmap_setup(const struct operation *);
void mmap_call(uint32_t);
void anonymous_before(uint32_t);
void mapped_setup(const struct operation *);
void mapped_before(uint32_t);
void page_call(uint32_t);
void pages_after(uint32_t);

/* files.c */
int scratch_file(size_t size);		/* in /tmp, without a name, of ones */
void files_setup(const struct operation *);
void files_make(uint32_t calls);
void files_remove(uint32_t calls);
void create_call(uint32_t);
void delete_call(uint32_t);

/* bandwidth.c */
void memory_setup(const struct operation *);
void memory_read(uint32_t);
void memory_write(uint32_t);
void memory_copy(uint32_t);
void file_setup(const struct operation *);
void file_read(uint32_t);
void file_map(uint32_t);

#endif
