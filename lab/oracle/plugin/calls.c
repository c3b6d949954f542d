/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * calls: which kernel functions one task calls, on which path, and for how long.
 *
 *   -plugin calls.so,out=FILE
 *
 * A guest program tells by marks (guest/bench/mark.S) where functions begin, where
 * exceptions enter the kernel, which code is the entry's, what switches tasks and what a
 * task ends in. `told` has all code translated anew, now watched; `watch` says that the
 * task that executes it is the one, whatever program it executes later. Between the first
 * `begin` and the matching `end` its calls are noted; then FILE gets one line for each
 * path on which a function was called, behind that of the path that leads there:
 *
 *   calls
 *   call NUMBER PARENT ADDRESS CALLS INSNS NS call|exception
 *   end
 *
 * Number 0 is the task itself. At the end of the run there is the line `done`. Later
 * trees replace earlier ones: all is cumulative.
 *
 * Nothing is read of the guest but code, addresses of code that is executed, and one
 * address of data: that from which the next task's stack pointer comes tells tasks
 * apart. Calls and returns are told by the last instruction of a translated block, and
 * a return by where it leads: to where the shadow stack has it from a call. A jump to
 * where a function begins replaces the one that jumped. A call of what begins no function (a
 * thunk, a trampoline) is one as soon as a function is reached, and until then a part of the caller.
 *
 * Time is QEMU's: its count of instructions, and its virtual clock, which goes on while
 * the guest sleeps. Both are read when a function of the task's begins or ends.
 * For machines with one vCPU that count instructions (-icount shift=0).
 *
 * Freestanding, as plugin.h has it.
 */
#include "output.h"

/* As guest/bench/mark.S has them. */
#define MARK_END	(MARK_BASE + 0x40)
#define MARK_NIBBLE	(MARK_BASE + 0x100)
#define MARK_STRIDE	16
#define MARK_CALLS	(MARK_NIBBLE + 16 * MARK_STRIDE)

#define MAX_FUNCTIONS	(1u << 18)
#define MAX_BLOCKS	(1u << 18)
#define MAX_NODES	(1u << 19)
#define MAX_DEPTH	512
#define MAX_RANGES	1024
#define SWITCH_BYTES	256	/* of the function that switches tasks, at most */

/* What is used of QEMU beside its interface for plugins. */
#define VIRTUAL_CLOCK	1

enum qemu_plugin_mem_rw { QEMU_PLUGIN_MEM_RW = 3 };
typedef void (*mem_cb)(unsigned int vcpu, unsigned int info, u64 vaddr, void *userdata);
typedef void (*simple_cb)(qemu_plugin_id_t);

void qemu_plugin_register_vcpu_tb_exec_cb(struct qemu_plugin_tb *, udata_cb,
					  enum qemu_plugin_cb_flags, void *);
void qemu_plugin_register_vcpu_mem_cb(struct qemu_plugin_insn *, mem_cb, enum qemu_plugin_cb_flags,
				      enum qemu_plugin_mem_rw, void *);
/* One function: the interface's third version copies where those before gave a pointer. */
const void *qemu_plugin_insn_data(const struct qemu_plugin_insn *);
unsigned long copy_data(const struct qemu_plugin_insn *, void *, unsigned long) __asm__("qemu_plugin_insn_data");
_Bool qemu_plugin_mem_is_store(unsigned int info);
void qemu_plugin_reset(qemu_plugin_id_t, simple_cb);

__attribute__((weak)) long long qemu_clock_get_ns(int type);
__attribute__((weak)) long long icount_get_raw(void);
__attribute__((weak)) void icount_update(void *cpu);
extern __thread void *current_cpu;

/* How a block ends. What jumps, perhaps, is told by where the next begins. */
enum ending { OTHER, CALL, RETURN, BACK /* from an exception */ };

enum { FUNCTION = 1, VECTOR = 2, ENTRY = 4, SWITCHES = 8, DIES = 16 };

struct block {
	u64 start, end;
	u64 target;		/* of a call, if the instruction says it */
	unsigned short insns;
	unsigned char ending, what;
};

struct node {
	u64 addr, calls, insns, ns;
	unsigned int parent;
	unsigned char exception;
};

struct moment { u64 insns, ns; };	/* of the task's, and of the guest's */

struct frame {
	unsigned int node;	/* 0: no function yet, and a part of the one below */
	unsigned char exception;
	u64 back;		/* where the call returns to; 0: nobody knows */
	const struct block *last; /* before an exception */
	struct moment since;
};

struct range { u64 from, to; unsigned char what; };

static struct block blocks[2 * MAX_BLOCKS];
static unsigned int nblocks;
static u64 functions[2 * MAX_FUNCTIONS];
static unsigned int nfunctions;
static struct range ranges[MAX_RANGES];
static unsigned int nranges;
static struct node nodes[MAX_NODES];
static unsigned int nnodes = 1;		/* 0 is the task itself */
static unsigned int by_path[2 * MAX_NODES];
static struct frame frames[MAX_DEPTH];
static int depth;

static unsigned __int128 nibbles;	/* the last 32, shifted in from the right */
static int watching;			/* blocks, since `told` */
static int active;			/* measurements under way */
static struct moment began;

static u64 task, watched;		/* by the address that its stack pointer comes from */
static int switching;			/* the next load says which task it is */
static int ours;			/* the task that is watched runs */
static int in_user;
static const struct block *last;	/* of the task's in the kernel; 0: none that leads anywhere */
static u64 left_at, elsewhere;		/* instructions: when it was left; of all others */

static int broken;
static int interface;			/* version of it that QEMU has */
static enum ending (*ending_of)(const unsigned char *code, struct block *b);

/* output ------------------------------------------------------------------ */

/* Once: what is told afterwards would be of no use. */
static void fail(const char *why)
{
	if (broken)
		return;
	broken = 1;
	put("error: ");
	put(why);
	put("\n");
	flush();
}

static void report(void)
{
	put("calls\n");
	for (unsigned int i = 0; i < nnodes; i++) {
		const struct node *n = &nodes[i];

		put_number("call ", i, 10);
		put_number(" ", n->parent, 10);
		put_number(" 0x", n->addr, 16);
		put_number(" ", n->calls, 10);
		put_number(" ", n->insns, 10);
		put_number(" ", n->ns, 10);
		put(n->exception ? " exception\n" : " call\n");
	}
	put("end\n");
	flush();
}

/* time -------------------------------------------------------------------- */

/*
 * QEMU counts a block when it begins: ahead is what it has counted already, and what has
 * not been executed. It refuses to tell the time of a CPU in the middle of a block, as
 * nobody might know how far that has come; here it is known.
 */
static struct moment read_clocks(void)
{
	void *cpu = current_cpu;
	struct moment m;

	icount_update(cpu);
	current_cpu = 0;
	m.insns = icount_get_raw();
	m.ns = qemu_clock_get_ns(VIRTUAL_CLOCK);
	current_cpu = cpu;
	return m;
}

static struct moment now(unsigned int ahead)
{
	struct moment m = read_clocks();

	m.insns -= ahead;
	m.ns -= ahead;
	if (!ours)
		m.insns = left_at;
	m.insns -= elsewhere;
	return m;
}

/* the tree ---------------------------------------------------------------- */

static unsigned int hash(u64 x)
{
	return x * 0x9e3779b97f4a7c15ull >> 40;
}

static unsigned int child(unsigned int parent, u64 addr, int exception)
{
	for (unsigned int h = hash(addr + parent);; h++) {
		unsigned int *at = &by_path[h % (2 * MAX_NODES)];
		struct node *n = &nodes[*at];

		if (*at && n->parent == parent && n->addr == addr && n->exception == exception)
			return *at;
		if (*at)
			continue;
		if (nnodes == MAX_NODES) {
			fail("more than 524288 paths");
			return 0;
		}
		*at = nnodes;
		nodes[nnodes] = (struct node){ .addr = addr, .parent = parent, .exception = exception };
		return nnodes++;
	}
}

/* The function that runs below frame k. */
static unsigned int caller(int k)
{
	while (--k >= 0)
		if (frames[k].node)
			return frames[k].node;
	return 0;
}

static void add(unsigned int node, struct moment since, struct moment m)
{
	nodes[node].insns += m.insns - since.insns;
	nodes[node].ns += m.ns - since.ns;
}

static void leave(struct frame *f, struct moment m)
{
	if (f->node && active)
		add(f->node, f->since, m);
	f->node = 0;
}

/* Whatever is above k frames has ended. */
static void leave_above(int k, struct moment m)
{
	while (depth > k)
		leave(&frames[--depth], m);
}

static struct frame *push(u64 back)
{
	if (depth == MAX_DEPTH) {
		fail("more than 512 frames");
		depth--;
	}
	frames[depth] = (struct frame){ .back = back };
	return &frames[depth++];
}

/* The frame on top is of the function from here on. */
static void enter(const struct block *b, struct moment m)
{
	struct frame *f = &frames[depth - 1];

	leave(f, m);
	f->node = child(caller(depth - 1), b->start, f->exception);
	f->since = m;
	if (active)
		nodes[f->node].calls++;
}

/* The frame that is called from where control would return to this address, or -1. */
static int called_from(u64 addr)
{
	int k = depth - 1;

	while (k >= 0 && frames[k].back != addr)
		k--;
	return k;
}

/* transitions from one block to the next ---------------------------------- */

/*
 * A jump to a function, unless it is a loop. Code of the entry jumps from one symbol to
 * another, and is one function.
 */
static void jump(const struct block *b)
{
	const struct frame *f = &frames[depth - 1];

	if (!(b->what & FUNCTION) || (f->node && nodes[f->node].addr == b->start))
		return;
	if (f->node && (b->what & ENTRY) && last && (last->what & ENTRY))
		return;
	enter(b, now(b->insns));
}

static void call(const struct block *b)
{
	if (last->target && last->target != b->start)
		return;		/* it was not executed */
	push(last->end);
	if (b->what & FUNCTION)
		enter(b, now(b->insns));
}

/*
 * A return that leads to no caller is a jump by way of the stack, as retpolines are: what it
 * takes from there was put there by a call.
 */
static void back(const struct block *b)
{
	int k = called_from(b->start);

	if (k >= 0)
		leave_above(k, now(b->insns));
	if (k >= 0 || !(b->what & FUNCTION))
		return;
	if (depth > 1 && !frames[depth - 1].node && !frames[depth - 1].exception)
		depth--;
	jump(b);
}

static void step(const struct block *b);

/*
 * The exception is over, and what it interrupted goes on: in the middle of a block, or
 * behind one, and then to where that leads.
 */
static void resume(const struct block *b)
{
	int k = depth - 1;

	if (b->start == last->end)
		return;		/* to itself, to be in step with what was written */
	while (k >= 0 && !frames[k].exception)
		k--;
	if (k < 0)
		return;
	last = frames[k].last;
	leave_above(k, now(b->insns));
	if (last && (b->start < last->start || b->start >= last->end))
		step(b);
}

static void step(const struct block *b)
{
	if (!last)
		jump(b);
	else if (last->ending == CALL)
		call(b);
	else if (last->ending == RETURN)
		back(b);
	else if (last->ending == BACK)
		resume(b);
	else if (b->start != last->end)
		jump(b);
}

/* Whether an exception enters the kernel here, and not code of the entry's own. */
static int excepted(const struct block *b)
{
	if (!(b->what & VECTOR) || !last || (last->what & ENTRY))
		return 0;
	if (last->ending == CALL)
		return last->target != b->start;
	return last->ending != RETURN || called_from(b->start) < 0;
}

static void forget(struct moment m)
{
	leave_above(0, m);
	ours = 0;
	watched = 0;
	left_at = m.insns + elsewhere;
}

static void on_kernel(unsigned int vcpu, void *data)
{
	const struct block *b = data;

	if (b->what & SWITCHES)
		switching = 1;
	if (!ours)
		return;
	if (in_user) {
		in_user = 0;
		push(0);
		last = 0;
	}
	if (excepted(b)) {
		struct frame *f = push(0);

		f->exception = 1;
		f->last = last;
		last = 0;
	}
	step(b);
	last = b;
	if (b->what & DIES)
		forget(now(b->insns));
}

static void on_user(unsigned int vcpu, void *insns)
{
	if (!ours || in_user)
		return;
	in_user = 1;
	if (depth)
		leave_above(0, now((u64)insns));
}

static void run_ours(int now_ours, const struct block *b)
{
	if (ours == now_ours)
		return;
	if (ours) {
		left_at = now(0).insns + elsewhere;
		ours = 0;
	} else {
		ours = 1;
		elsewhere += now(0).insns - (left_at - elsewhere);
		last = b;
	}
}

/* Asked for loads alone, QEMU 7.2 tells of stores as well. */
static void on_access(unsigned int vcpu, unsigned int info, u64 vaddr, void *data)
{
	if (!switching || qemu_plugin_mem_is_store(info))
		return;
	switching = 0;
	task = vaddr;
	run_ours(watched && task == watched, data);
}

/* marks ------------------------------------------------------------------- */

static void on_begin(unsigned int vcpu, void *data)
{
	if (active++)
		return;
	began = now(1);
	for (int k = 0; k < depth; k++)
		frames[k].since = began;
}

static void on_end(unsigned int vcpu, void *data)
{
	struct moment m = now(1);

	if (!active || --active)
		return;
	for (int k = 0; k < depth; k++)
		if (frames[k].node)
			add(frames[k].node, frames[k].since, m);
	add(0, began, m);
	report();
}

static void on_nibble(unsigned int vcpu, void *data)
{
	nibbles = nibbles << 4 | (u64)data;
}

static u64 *function_at(u64 addr)
{
	for (unsigned int h = hash(addr);; h++) {
		u64 *at = &functions[h % (2 * MAX_FUNCTIONS)];

		if (!*at || *at == addr)
			return at;
	}
}

static void on_function(unsigned int vcpu, void *data)
{
	u64 *at = function_at(nibbles);

	if (*at)
		return;
	if (nfunctions == MAX_FUNCTIONS) {
		fail("more than 262144 functions");
		return;
	}
	nfunctions++;
	*at = nibbles;
}

/* The two last addresses are a range; of what begins in it is known what it is. */
static void on_range(unsigned int vcpu, void *what)
{
	if (nranges == MAX_RANGES) {
		fail("more than 1024 ranges");
		return;
	}
	ranges[nranges++] = (struct range){ nibbles >> 64, nibbles, (u64)what };
}

static void on_watch(unsigned int vcpu, void *data)
{
	if (!task) {
		fail("a task was to be watched before it was seen that any was switched to");
		return;
	}
	leave_above(0, now(1));
	run_ours(0, 0);
	watched = task;
	in_user = 1;
	run_ours(1, 0);
}

static void set_up(qemu_plugin_id_t id);
static qemu_plugin_id_t self;

static void on_told(unsigned int vcpu, void *data)
{
	if (!read_clocks().insns)
		fail("instructions are not counted: start QEMU with -icount shift=0");
	watching = 1;
	qemu_plugin_reset(self, set_up);
}

static const struct mark { u64 at; udata_cb cb; u64 data; } marks[] = {
	{ MARK_BASE, on_begin },
	{ MARK_END, on_end },
	{ MARK_CALLS, on_watch },
	{ MARK_CALLS + 0x10, on_told },
	{ MARK_CALLS + 0x20, on_function },
	{ MARK_CALLS + 0x30, on_range, VECTOR },
	{ MARK_CALLS + 0x40, on_range, ENTRY },
	{ MARK_CALLS + 0x50, on_range, SWITCHES },
	{ MARK_CALLS + 0x60, on_range, DIES },
};

#define MARK_LIMIT	(MARK_CALLS + 0x70)

static void watch(struct qemu_plugin_insn *insn, udata_cb cb, void *data)
{
	qemu_plugin_register_vcpu_insn_exec_cb(insn, cb, QEMU_PLUGIN_CB_NO_REGS, data);
}

static void watch_mark(struct qemu_plugin_insn *insn, u64 addr)
{
	u64 nibble = (addr - MARK_NIBBLE) / MARK_STRIDE;

	if (addr >= MARK_NIBBLE && addr < MARK_CALLS && addr % MARK_STRIDE == 0)
		watch(insn, on_nibble, (void *)nibble);
	for (unsigned int i = 0; i < sizeof(marks) / sizeof(*marks); i++)
		if (marks[i].at == addr)
			watch(insn, marks[i].cb, (void *)marks[i].data);
}

/* code -------------------------------------------------------------------- */

static unsigned int word(const unsigned char *c)
{
	return c[0] | c[1] << 8 | c[2] << 16 | (unsigned int)c[3] << 24;
}

static long long sign_extend(u64 x, unsigned int bits)
{
	return (long long)(x << (64 - bits)) >> (64 - bits);
}

/* Prefixes that calls, jumps and returns have, for their length or for hardware. */
static int is_prefix(unsigned char c)
{
	return c == 0x66 || c == 0xf2 || c == 0xf3 || c == 0x2e || c == 0x3e || c == 0x65 || (c & 0xf0) == 0x40;
}

static enum ending amd64(const unsigned char *c, struct block *b)
{
	while (is_prefix(*c))
		c++;
	if (*c == 0xe8)
		b->target = b->end + sign_extend(word(c + 1), 32);
	if (*c == 0xe8 || (*c == 0xff && (c[1] & 0x38) == 0x10))
		return CALL;
	if (*c == 0xc3 || *c == 0xc2)
		return RETURN;
	return *c == 0xcf ? BACK : OTHER;
}

static enum ending arm64(const unsigned char *c, struct block *b)
{
	unsigned int i = word(c);

	if (i >> 26 == 0x25) {
		b->target = b->end - 4 + sign_extend((u64)i << 2, 28);
		return CALL;
	}
	if ((i & 0xfefff000) == 0xd63f0000)	/* blr, and with authentication */
		return CALL;
	if ((i & 0xfefff000) == 0xd65f0000)
		return RETURN;
	return (i & 0xfffff000) == 0xd69f0000 ? BACK : OTHER;
}

static int is_link(unsigned int reg)
{
	return reg == 1 || reg == 5;
}

static enum ending riscv64_short(unsigned int i)
{
	unsigned int rs1 = i >> 7 & 31;

	if ((i & 0xf07f) == 0x9002 && rs1)
		return CALL;
	return (i & 0xf07f) == 0x8002 && is_link(rs1) ? RETURN : OTHER;
}

static u64 jal_offset(unsigned int i)
{
	return sign_extend((u64)(i >> 31) << 20 | (i & 0xff000) | (i >> 9 & 0x800) | (i >> 20 & 0x7fe), 21);
}

static enum ending riscv64(const unsigned char *c, struct block *b)
{
	unsigned int i = (c[0] & 3) == 3 ? word(c) : c[0] | c[1] << 8, rd = i >> 7 & 31;

	if ((i & 3) != 3)
		return riscv64_short(i);
	if (i == 0x10200073)
		return BACK;
	if ((i & 0x7f) == 0x6f && is_link(rd)) {
		b->target = b->end - 4 + jal_offset(i);
		return CALL;
	}
	if ((i & 0x707f) != 0x67)
		return OTHER;
	if (is_link(rd))
		return CALL;
	return !rd && is_link(i >> 15 & 31) ? RETURN : OTHER;
}

static enum ending ending(const struct qemu_plugin_insn *insn, struct block *b)
{
	static unsigned char code[16];

	if (interface < 3)
		return ending_of(qemu_plugin_insn_data(insn), b);
	copy_data(insn, code, sizeof(code));
	return ending_of(code, b);
}

/* Ranges are where something begins, but of code of the entry's and of what switches. */
static unsigned char what_is(u64 addr)
{
	unsigned char what = *function_at(addr) ? FUNCTION : 0;

	for (unsigned int i = 0; i < nranges; i++) {
		const struct range *r = &ranges[i];
		int first = r->what == SWITCHES || r->what == DIES;

		if (first ? addr == r->from : addr >= r->from && addr < r->to)
			what |= r->what;
	}
	return what;
}

static int switches(u64 addr)
{
	for (unsigned int i = 0; i < nranges; i++)
		if (ranges[i].what == SWITCHES && addr >= ranges[i].from && addr < ranges[i].to)
			return 1;
	return 0;
}

static int same(const struct block *a, const struct block *b)
{
	return a->start == b->start && a->end == b->end && a->target == b->target &&
	       a->insns == b->insns && a->ending == b->ending && a->what == b->what;
}

/* Blocks are never moved: translated code points to them. */
static struct block *kept(const struct block *b)
{
	for (unsigned int h = hash(b->start);; h++) {
		struct block *at = &blocks[h % (2 * MAX_BLOCKS)];

		if (at->start && !same(at, b))
			continue;
		if (at->start)
			return at;
		if (nblocks == MAX_BLOCKS) {
			fail("more than 262144 blocks");
			return 0;
		}
		nblocks++;
		*at = *b;
		return at;
	}
}

static void watch_kernel(struct qemu_plugin_tb *tb, u64 start, unsigned long count)
{
	struct qemu_plugin_insn *end = qemu_plugin_tb_get_insn(tb, count - 1);
	struct block b = { .start = start, .insns = count };
	struct block *k;

	b.end = qemu_plugin_insn_vaddr(end) + qemu_plugin_insn_size(end);
	b.ending = ending(end, &b);
	b.what = what_is(start);
	k = kept(&b);
	if (!k)
		return;
	qemu_plugin_register_vcpu_tb_exec_cb(tb, on_kernel, QEMU_PLUGIN_CB_NO_REGS, k);
	for (unsigned long i = 0; switches(start) && i < count; i++)
		qemu_plugin_register_vcpu_mem_cb(qemu_plugin_tb_get_insn(tb, i), on_access,
			QEMU_PLUGIN_CB_NO_REGS, QEMU_PLUGIN_MEM_RW, k);
}

static void on_translate(qemu_plugin_id_t id, struct qemu_plugin_tb *tb)
{
	unsigned long count = qemu_plugin_tb_n_insns(tb);
	u64 start = qemu_plugin_insn_vaddr(qemu_plugin_tb_get_insn(tb, 0));

	if (watching && start >> 63)
		watch_kernel(tb, start, count);
	else if (watching)
		qemu_plugin_register_vcpu_tb_exec_cb(tb, on_user, QEMU_PLUGIN_CB_NO_REGS, (void *)count);
	if (start < MARK_BASE || start >= MARK_LIMIT)
		return;
	for (unsigned long i = 0; i < count; i++) {
		struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(tb, i);

		watch_mark(insn, qemu_plugin_insn_vaddr(insn));
	}
}

static void on_exit(qemu_plugin_id_t id, void *data)
{
	put("done\n");
	flush();
}

static void set_up(qemu_plugin_id_t id)
{
	qemu_plugin_register_vcpu_tb_trans_cb(id, on_translate);
	qemu_plugin_register_atexit_cb(id, on_exit, 0);
}

/* starting ---------------------------------------------------------------- */

static int begins(const char *s, const char *with)
{
	while (*with)
		if (*s++ != *with++)
			return 0;
	return 1;
}

static const struct isa {
	const char *name;
	enum ending (*ending)(const unsigned char *, struct block *);
} isas[] = {
	{ "x86_64", amd64 },
	{ "aarch64", arm64 },
	{ "riscv64", riscv64 },
};

static void complain(const char *why)
{
	unsigned long n = 0;

	while (why[n])
		n++;
	if (write(2, why, n) < 0)
		return;
}

EXPORT int qemu_plugin_install(qemu_plugin_id_t id, const qemu_info_t *info,
			       int argc, char **argv)
{
	for (unsigned int i = 0; i < sizeof(isas) / sizeof(*isas); i++)
		if (begins(info->target_name, isas[i].name))
			ending_of = isas[i].ending;
	if (argc != 1 || !begins(argv[0], "out=") || !ending_of ||
	    !info->system_emulation || info->system.max_vcpus != 1) {
		complain("calls: wants out=FILE, a machine of amd64, arm64 or riscv64, and one vCPU\n");
		return -1;
	}
	if (!qemu_clock_get_ns || !icount_get_raw || !icount_update) {
		complain("calls: this QEMU does not export its clock (qemu_clock_get_ns, icount_get_raw, icount_update)\n");
		return -1;
	}
	out = open(argv[0] + 4, O_WRONLY_CREAT_TRUNC_CLOEXEC, 0600);
	if (out < 0)
		return -1;
	self = id;
	interface = info->version.cur;
	set_up(id);
	return 0;
}
