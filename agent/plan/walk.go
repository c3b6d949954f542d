package plan

import (
	"slices"

	"kerninst/agent/cfg"
	"kerninst/agent/isa"
	"kerninst/agent/ktext"
)

// walkers are the functions that the module walks a stack with, and those of them that
// are called through pointers (kernel/stacktrace.c, arch/*/kernel/stacktrace.c). Not
// each kernel has all.
var walkers = []string{
	"stack_trace_save_regs", "stack_trace_consume_entry", "stack_trace_consume_entry_nosched",
	"arch_kunwind_consume_entry",
}

// exceptions are functions that are called only when something is wrong or out of turn:
// behind them is most of the kernel, and nothing that a walk needs. So is what compilers
// call cold. A walk that comes there and to its own point is not begun a second time: its
// record is a hole.
var exceptions = []string{
	"_printk", "_printk_deferred", "__warn_printk", "printk_deferred", "panic", "__stack_chk_fail", "dump_stack",
	"__ubsan_handle_out_of_bounds", "rcu_read_unlock_special", "unwind_dump",
	// Called where RCU watches, or where preemption is not off as it is in a walk.
	"__rcu_irq_enter_check_tick", "preempt_schedule", "preempt_schedule_notrace",
	"preempt_schedule_thunk", "preempt_schedule_notrace_thunk",
}

// walks are the functions that a walk of the stack may come by: a snippet that walks
// would come by itself there.
func walks(text *ktext.Text) (map[isa.Addr]bool, error) {
	return reached(text, walkers, func(ktext.Func, []byte) bool { return true })
}

// reached are functions by their names, and what they call, and so on, as far as a function
// goes on by its code.
func reached(text *ktext.Text, from []string, goesOn func(ktext.Func, []byte) bool) (map[isa.Addr]bool, error) {
	out := map[isa.Addr]bool{}
	var todo []ktext.Func
	add := func(f ktext.Func) {
		if !out[f.Addr] && !slices.Contains(exceptions, f.Name) && !Half(f.Name) {
			out[f.Addr] = true
			todo = append(todo, f)
		}
	}
	for _, name := range from {
		if f, err := text.Function("", name); err == nil {
			add(f)
		}
	}
	for len(todo) > 0 {
		f := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		code, err := text.Code(f)
		if err != nil {
			return nil, err
		}
		if !goesOn(f, code) {
			continue
		}
		for _, to := range leads(text, f, code) {
			add(to)
		}
	}
	return out, nil
}

// leads are the functions that a function's code calls or jumps to, itself among them if it jumps. Where a
// way takes two instructions, as nearly each call of riscv64 does (auipc, jalr), only both together tell. Who traces
// the function is called by its site: not by the function.
func leads(text *ktext.Text, f ktext.Func, code []byte) (out []ktext.Func) {
	begin := 0
	if text.Compiled(f.Addr, code) {
		begin = text.FtraceSite(f.Addr, code)
	}
	before := begin // of the instruction in front
	for k := begin; k+text.Arch.MinLen <= len(code); {
		i := text.Arch.Decode(code[k:], f.Addr+isa.Addr(k))
		target, ok := i.Target, i.Target != 0
		if !ok && text.Arch.Op != nil && (i.Flow == isa.FlowIndirectCall || i.Flow == isa.FlowIndirectJump) {
			op := text.Arch.Op
			target, ok = cfg.JoinedTarget(op(code[k:], i.Addr), op(code[before:], f.Addr+isa.Addr(before)))
		}
		if to, known := text.Locate(target); ok && known && !to.Generated() { // such as what runs a program of BPF
			out = append(out, to)
		}
		before, k = k, k+i.Len
	}
	return out
}

// recurs reports why a snippet that walks the stack cannot be in a function.
func (fn *function) recurs(req Request) *Refusal {
	if !req.Snippet.Walks() {
		return nil
	}
	all, err := req.Known.walks(fn.text)
	if err != nil {
		return unreadable(err)
	}
	if all[fn.Addr] {
		return refuse(Recursion, "%v is what a stack is walked with: the snippet would come by itself", fn.Func)
	}
	return nil
}

// walks is what walks tells of a text, found out once.
func (f *Functions) walks(text *ktext.Text) (map[isa.Addr]bool, error) {
	if f == nil {
		return walks(text)
	}
	return f.walked.of(text, walks)
}

// traced is what tracedBy tells, likewise.
func (f *Functions) traced(text *ktext.Text) (map[isa.Addr]bool, error) {
	if f == nil {
		return tracedBy(text)
	}
	return f.tracing.of(text, tracedBy)
}

// closure are functions of a text, found out once.
type closure struct {
	all map[isa.Addr]bool
	in  *ktext.Text
}

func (c *closure) of(text *ktext.Text, find func(*ktext.Text) (map[isa.Addr]bool, error)) (map[isa.Addr]bool, error) {
	if c.all == nil || c.in != text {
		all, err := find(text)
		if err != nil {
			return nil, err
		}
		*c = closure{all, text}
	}
	return c.all, nil
}
