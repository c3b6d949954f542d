package plan

import (
	"slices"

	"kerninst/agent/isa"
	"kerninst/agent/ktext"
)

// What handles breakpoints can be traced, on each ISA: its functions have ftrace sites. So
// a breakpoint in what a tracer runs before it looks whether it traces itself would be met
// on the way to itself while functions are traced, without end. The kernel is as careful:
// it has no kprobe events in functions without an ftrace site (within_notrace_func()).

// tracers are what ftrace's trampolines call, and what those call through pointers
// (kernel/trace/fgraph.c, arch/*/kernel/ftrace.c). Not each kernel has all.
var tracers = []string{
	"function_trace_call", "function_stack_trace_call", "function_no_repeats_trace_call", "function_stack_no_repeats_trace_call",
	"ftrace_ops_nop_func", "ftrace_pid_func", "perf_ftrace_function_call", "stack_trace_call", "wakeup_tracer_call", "klp_ftrace_handler",
	"ftrace_graph_func", "prepare_ftrace_return", "function_graph_enter", "function_graph_enter_regs", "ftrace_return_to_handler",
	"trace_graph_entry", "trace_graph_return", "trace_graph_thresh_return", "fgraph_pid_func", "ftrace_graph_entry_stub", "ftrace_graph_ret_stub",
}

// programmed are what BPF's trampolines call before and behind each program, also when that is not run as it
// runs already (kernel/bpf/trampoline.c), and what these call each time. The kernel lets no program be attached to
// the latter (btf_id_deny in kernel/bpf/verifier.c), though they can be traced. Not each kernel has all.
var programmed = []string{
	"__bpf_prog_enter", "__bpf_prog_enter_recur", "__bpf_prog_enter_sleepable", "__bpf_prog_enter_sleepable_recur", "__bpf_prog_enter_lsm_cgroup",
	"__bpf_prog_exit", "__bpf_prog_exit_recur", "__bpf_prog_exit_sleepable", "__bpf_prog_exit_sleepable_recur", "__bpf_prog_exit_lsm_cgroup",
	"__bpf_tramp_enter", "__bpf_tramp_exit", "bpf_prog_inc_misses_counter",
	"migrate_disable", "migrate_enable", "rcu_read_unlock_strict", "preempt_count_add", "preempt_count_sub", "__rcu_read_lock", "__rcu_read_unlock", "rcu_read_unlock_special",
}

// always are functions that run whenever something is traced, whether it is what traces or not.
var always = slices.Concat(tracers, programmed)

// tracedBy are those and what they call that is not traced itself: what is, the kernel has
// made sure comes behind that look.
func tracedBy(text *ktext.Text) (map[isa.Addr]bool, error) {
	return reached(text, always, func(f ktext.Func, code []byte) bool { return !text.Compiled(f.Addr, code) })
}

// tracing reports whether a function is one of always.
func (fn *function) tracing() bool { return fn.Module == "" && slices.Contains(always, fn.Name) }

// waited refuses a window, in such a function and in one that CPUs come by that cannot handle
// breakpoints yet, where one would stand until nobody is inside what is to be replaced: on
// other ISAs that is written while all CPUs stand still.
func (fn *function) waited() *Refusal {
	switch {
	case fn.text.Arch.Name != "amd64":
		return nil
	case fn.tracing():
		return fn.onItsWay()
	}
	return fn.untrapped()
}

// metTracing refuses a breakpoint where tracers run.
func (fn *function) metTracing(req Request) *Refusal {
	met := fn.tracing()
	if !met && !fn.traceable {
		all, err := req.Known.traced(fn.text)
		if err != nil {
			return unreadable(err)
		}
		met = all[fn.Addr]
	}
	if met {
		return fn.onItsWay()
	}
	return nil
}

func (fn *function) onItsWay() *Refusal {
	return refuse(Recursion, "%v runs when functions are traced, breakpoints' handlers too: one in it would be met on the way to itself", fn.Func)
}
