package main

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"

	"golang.org/x/sys/unix"

	"kerninst/agent/gen"
	"kerninst/agent/index"
	"kerninst/agent/isa"
	"kerninst/agent/isa/all"
	"kerninst/agent/kdev"
	"kerninst/agent/kpoke"
	"kerninst/agent/ktext"
	"kerninst/agent/pad"
	"kerninst/agent/place"
	"kerninst/agent/plan"
	"kerninst/agent/snippet"
	"kerninst/agent/splice"
)

// busy are functions that the load runs, in calls, faults, interrupts, the scheduler and
// timers. Not each kernel has each, for compilers inline.
var busy = []string{
	"vfs_read", "vfs_write", "new_sync_read", "rw_verify_area", "ksys_read", "ksys_write", "do_iter_readv_writev",
	"pipe_read", "pipe_write", "pipe_poll", "pipe_release", "alloc_pipe_info", "free_pipe_info", "do_pipe2",
	"do_sys_openat2", "do_filp_open", "path_openat", "link_path_walk", "walk_component", "lookup_fast", "step_into", "dput", "d_alloc", "d_lookup", "__d_lookup_rcu",
	"do_dentry_open", "alloc_empty_file", "__fput", "filp_close", "do_unlinkat", "vfs_unlink", "vfs_rename", "do_renameat2", "getname_flags", "complete_walk", "terminate_walk", "may_open", "inode_permission", "generic_permission",
	"shmem_get_folio_gfp", "shmem_write_begin", "shmem_write_end", "shmem_file_read_iter", "shmem_unlink", "generic_perform_write", "simple_write_begin", "simple_write_end", "filemap_read", "filemap_get_pages", "__filemap_get_folio", "folio_mark_accessed", "truncate_inode_pages_range",
	"kernel_clone", "copy_process", "dup_mm", "dup_task_struct", "copy_page_range", "copy_files", "wake_up_new_task", "do_exit", "exit_mmap", "exit_mm", "release_task", "wait_consider_task", "do_wait", "free_pgtables", "unmap_page_range", "mm_release",
	"do_execveat_common", "bprm_execve", "load_elf_binary", "begin_new_exec", "setup_arg_pages", "copy_strings", "elf_load", "load_script",
	"handle_mm_fault", "__handle_mm_fault", "do_anonymous_page", "do_wp_page", "filemap_map_pages", "do_mmap", "mmap_region", "__mmap_region", "vma_merge", "vma_link", "get_unmapped_area", "do_munmap", "mprotect_fixup", "do_brk_flags", "alloc_pages_mpol", "get_page_from_freelist", "free_unref_page", "lru_add", "folio_batch_move_lru",
	"kmem_cache_alloc_noprof", "kmem_cache_free", "__kmalloc_noprof", "kfree", "___slab_alloc", "__slab_free",
	"try_to_wake_up", "ttwu_do_activate", "enqueue_task_fair", "dequeue_task_fair", "pick_next_task_fair", "update_curr", "set_next_entity", "put_prev_entity", "place_entity", "update_load_avg", "select_task_rq_fair", "sched_balance_newidle", "task_tick_fair", "sched_tick",
	"hrtimer_interrupt", "__hrtimer_run_queues", "hrtimer_start_range_ns", "tick_nohz_handler", "tick_nohz_idle_enter", "run_timer_softirq", "__run_timers", "call_timer_fn", "update_process_times", "handle_softirqs", "rcu_core", "rcu_do_batch",
	"tcp_sendmsg_locked", "tcp_recvmsg_locked", "tcp_write_xmit", "__tcp_transmit_skb", "tcp_rcv_established", "tcp_ack", "tcp_v4_rcv", "tcp_v4_do_rcv", "tcp_rcv_state_process", "tcp_v4_connect", "tcp_close", "tcp_poll", "tcp_clean_rtx_queue", "tcp_data_queue",
	"ip_queue_xmit", "__ip_queue_xmit", "ip_output", "ip_finish_output2", "ip_rcv", "ip_rcv_core", "ip_local_deliver_finish", "__netif_receive_skb_core", "process_backlog", "net_rx_action", "loopback_xmit", "dev_hard_start_xmit", "__dev_queue_xmit",
	"__alloc_skb", "skb_release_data", "__skb_clone", "skb_copy_datagram_iter", "sock_recvmsg", "sock_sendmsg", "__sock_create", "inet_create", "inet_accept", "inet_release",
	"ep_poll", "ep_send_events", "do_epoll_wait", "ep_poll_callback", "futex_wake", "futex_wait", "__futex_wait", "do_futex", "hash_futex", "do_nanosleep", "do_signal_stop", "get_signal", "send_signal_locked",
	"load_module", "simplify_symbols", "find_symbol", "apply_relocations", "post_relocation", "do_init_module", "free_module", "try_stop_module", "resolve_symbol", "layout_and_allocate", "finish_module_init", "move_module",
	"seq_read_iter", "proc_reg_read_iter", "show_map_vma", "cap_capable", "security_file_permission", "fdget_pos", "__fdget_pos", "close_fd", "alloc_fd", "do_fcntl", "vfs_statx", "cp_new_stat", "wp_page_copy", "finish_fault", "do_fault",
}

// reaching are functions that the load runs, in which what reaches for a program's memory stands early: such an access may
// fault, so that it has a patch where a fault is come back from.
var reaching = []string{"strncpy_from_user", "strnlen_user"}

// threads splice, each with patch memory of its own: the module does their calls in turn.
const threads = 3

// kernel is the opened device, and what its threads splice.
type kernel struct {
	dev     *kdev.Device
	info    kdev.Info
	arch    *isa.Arch
	text    *ktext.Text
	padding *pad.Finder
	facts   func(ktext.Func) (plan.Facts, error)
	known   *plan.Functions
	threads []*thread
	all     plan.Set // of all threads, and nothing of two of them clashes
	loads   snippet.Snippet
	annexed bool // the first thread has patches for what may fault
	tried   int  // how many points were tried
}

// loadText counts, and reads memory: the task's, which is there, and what is not, so that the patch is left by a fault and come back
// to, in whatever context that is.
const loadText = "c0 sum\nc1 faults\nv0 u64 = current\nv1 u64 = load 8 v0 0 c1\nv2 u64 = load 8 0x100 0 c1\ncount c0 1"

// open loads the module if it is not there, and plans for each thread.
func open(points int, seed uint64) (*kernel, error) {
	kallsyms, err := os.ReadFile("/proc/kallsyms")
	if err != nil {
		return nil, err
	}
	if err := kdev.LoadOnce(kdev.ModuleFile, bytes.NewReader(kallsyms)); err != nil {
		return nil, err
	}
	k := &kernel{known: &plan.Functions{}}
	if k.dev, err = kdev.Open(); err != nil {
		return nil, err
	}
	if err := k.prepare(kallsyms, points, rand.New(rand.NewPCG(seed, 0))); err != nil {
		return nil, errors.Join(err, k.dev.Close())
	}
	return k, nil
}

func (k *kernel) prepare(kallsyms []byte, points int, rng *rand.Rand) (err error) {
	if k.info, err = k.dev.Info(); err != nil {
		return err
	}
	if k.arch, err = all.Lookup(k.info.Arch); err != nil {
		return err
	}
	if k.text, err = ktext.New(k.arch, bytes.NewReader(kallsyms), k.dev.Read, ktext.Options{}); err != nil {
		return err
	}
	if k.loads, err = snippet.Parse(loadText); err != nil {
		return err
	}
	k.padding = pad.New(k.text)
	view, err := index.NewView(nil, k.text)
	if err != nil {
		return err
	}
	k.facts = func(f ktext.Func) (plan.Facts, error) {
		fn, err := view.Function(f)
		if err != nil {
			return plan.Facts{}, err
		}
		return plan.Facts{Source: plan.SourceFunction, Free: fn.Free, Rebases: fn.Rebases()}, nil
	}
	poker := kpoke.New(k.dev, k.info, nil)
	for n := range threads {
		t, err := k.thread(poker, n, rng)
		if err != nil {
			return fmt.Errorf("thread %d: %w", n, err)
		}
		k.threads = append(k.threads, t)
	}
	return k.share(points, rng)
}

// firstArea and otherArea are the code of the threads' patch memory, in bytes. The first has
// what the daemon's splicer has; the others have none of what there is once.
var firstArea = map[string]int{"amd64": kdev.ArenaLen, "arm64": 512 << 10, "riscv64": 512 << 10}[runtime.GOARCH]

const otherArea = 256 << 10

// thread makes the n-th's splicer, with the plans of its victim.
func (k *kernel) thread(poker *kpoke.Poker, n int, rng *rand.Rand) (*thread, error) {
	t := &thread{k: k, splicer: splice.New(k.arch, poker), rng: rand.New(rand.NewPCG(rng.Uint64(), uint64(n))), live: map[*group][]*splice.Live{}, fresh: map[*plan.Plan]bool{}}
	lo, hi := k.info.TextStart, k.info.TextEnd
	if n > 0 {
		if err := t.splicer.Reserve(lo, hi, otherArea); err != nil {
			return nil, err
		}
	} else {
		if err := t.splicer.Reserve(lo, hi, firstArea); err != nil {
			return nil, err
		}
		t.splicer.ReservePages(place.PageRoom(k.arch, lo))
		err := t.splicer.ReserveAnnex()
		if err != nil && !errors.Is(err, unix.ENOSPC) {
			return nil, err
		}
		k.annexed = err == nil
		_ = t.splicer.ReserveLocal() // cells that all CPUs share will do
	}
	t.victim = &victims[n]
	name := ktext.Syscall(runtime.GOARCH, t.victim.name)
	for _, m := range plan.Ladder(k.arch.Name) {
		req := k.request(t)
		req.Function, req.Mechanism = name, m
		if p, refusal := plan.Entry(k.text, req); refusal == nil {
			t.ways = append(t.ways, p)
		}
	}
	if len(t.ways) == 0 {
		return nil, fmt.Errorf("%s cannot be spliced by any mechanism", name)
	}
	for _, p := range t.ways { // of which one at a time is live
		k.all.Add(p)
		t.fresh[p] = true
	}
	return t, nil
}

func (k *kernel) request(t *thread) plan.Request {
	return plan.Request{
		Features: gen.Features{LSE: k.info.LSE(), NoWindows: k.info.NoWindows(), Preempted: k.info.Preempted(), NoTraps: !k.info.Traps()}, Loads: k.info.Loads,
		Facts: k.facts, Known: k.known, Heap: t.splicer.Heap(), Padding: k.padding, Terse: true,
		Taken: k.all.Touches, Asked: k.all.Asked,
	}
}

// group is the plans of one function: some complete each other's jumps, or have springboards
// in what was moved away for others, so they come and go together.
type group struct {
	function string
	plans    []*plan.Plan
	came     bool // somebody came by one of them
}

// share gives the first thread a point by each mechanism, and each busy function to one of the threads, until there are so many points
// besides, those that reach for a program's memory to the first. Of a mechanism that the ladder seldom comes to, it has every eighth point tried first.
func (k *kernel) share(points int, rng *rand.Rand) error {
	names := slices.Clone(busy)
	rng.Shuffle(len(names), func(a, b int) { names[a], names[b] = names[b], names[a] })
	before := k.all.Len()
	k.oneOfEach(k.threads[0]) // of the functions that all run, where a small batch has else none by some that is come by
	points += k.all.Len() - before
	n := 0
	for m, name := range append(slices.Clone(reaching), names...) {
		if k.all.Len() >= points {
			break
		}
		f, err := k.text.Function("", name)
		if err != nil {
			continue // this kernel has none
		}
		t := k.threads[n%threads]
		if m < len(reaching) {
			t = k.threads[0]
		}
		g, err := k.group(t, f, points, rng)
		if err != nil {
			return err
		}
		if len(g.plans) > 0 {
			t.groups = append(t.groups, g)
			n++
		}
		*k.known = plan.Functions{}
	}
	if n < 2*threads {
		return fmt.Errorf("only %d functions can be spliced", n)
	}
	return nil
}

// mostOfOne is how many points of one function there are, so that they are of many.
func mostOfOne(points int) int { return min(48, points/12) }

// usable are the mechanisms that this kernel lets be used.
func (k *kernel) usable() []plan.Mechanism {
	return slices.DeleteFunc(slices.Clone(plan.Ladder(k.arch.Name)), func(m plan.Mechanism) bool {
		return m == plan.Quiesced && k.info.NoWindows() || m == plan.Trap && !k.info.Traps()
	})
}

// group plans instructions of a function, one by one: what a plan takes, the next cannot.
func (k *kernel) group(t *thread, f ktext.Func, points int, rng *rand.Rand) (*group, error) {
	code, err := k.text.Code(f)
	if err != nil {
		return nil, err
	}
	usable := k.usable()
	g := &group{function: f.Name}
	for off := 0; off < len(code) && k.all.Len() < points && len(g.plans) < mostOfOne(points); off += k.arch.Decode(code[off:], f.Addr+isa.Addr(off)).Len {
		req := k.request(t)
		req.Offset = isa.Off(off)
		if rng.IntN(8) == 0 {
			req.Mechanism = usable[rng.IntN(len(usable))]
		}
		if k.tried++; k.tried%7 == 0 && k.atomic() {
			req.Snippet = k.loads
		}
		if p, refusal := plan.At(k.text, f, req); refusal == nil {
			g.plans = append(g.plans, p)
			k.all.Add(p)
			t.fresh[p] = true
		}
	}
	return g, nil
}

// atomic reports whether the CPU adds in one instruction, without which a snippet counts and does no more.
func (k *kernel) atomic() bool { return k.arch.Name != "arm64" || k.info.LSE() }

// oneOfEach gives a thread a point more by each mechanism, so that a small batch has all.
func (k *kernel) oneOfEach(t *thread) {
	for _, m := range k.usable() {
		for _, name := range busy {
			req := k.request(t)
			req.Function, req.Mechanism = name, m
			if p, refusal := plan.Entry(k.text, req); refusal == nil {
				k.give(t, p)
				break
			}
		}
	}
	k.oneFaulting(t)
}

// oneFaulting gives it one of what may fault, at the first place that takes one.
func (k *kernel) oneFaulting(t *thread) {
	for _, name := range reaching {
		f, err := k.text.Function("", name)
		if err != nil || !k.annexed {
			continue
		}
		faults, _ := k.text.Faults("", f.Addr, f.End()) // none is none by each mechanism, which is looked at
		for _, x := range faults {
			req := k.request(t)
			req.Offset = isa.Off(x.Site - f.Addr)
			if p, refusal := plan.At(k.text, f, req); refusal == nil {
				k.give(t, p)
				return
			}
		}
	}
}

// give has a thread have a point of its own.
func (k *kernel) give(t *thread, p *plan.Plan) {
	t.groups = append(t.groups, &group{function: p.Symbol, plans: []*plan.Plan{p}})
	k.all.Add(p)
	t.fresh[p] = true
}

// loading is how many of some points load from memory.
func (k *kernel) loading(plans []*plan.Plan) (n int) {
	for _, p := range plans {
		if len(p.Snippet.Cells) == len(k.loads.Cells) {
			n++
		}
	}
	return n
}

// mechanisms is how many points there are of each, also of those that this kernel lets be used and nobody has. An annex is for
// what may fault, and a mechanism's besides.
func (k *kernel) mechanisms(plans []*plan.Plan) map[string]int {
	out := map[string]int{}
	for _, m := range k.usable() {
		out[m.String()] = 0
	}
	if k.annexed {
		out["annex"] = 0
	}
	for _, p := range plans {
		out[p.Mechanism.String()]++
		if p.Fault != 0 {
			out["annex"]++
		}
	}
	return out
}
