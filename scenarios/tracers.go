package scenarios

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"kerninst/agent/plan"
	"kerninst/agent/wire"
	"kerninst/lab/report"
	"kerninst/lab/vm"
)

// tracers: what the kernel's own tracers are made of is spliced, each instruction that one
// batch serves, while they are switched on and off and told what to trace: most of it is
// code like any other, and some of that runs whenever any function begins or returns.

// tracersNames are the functions that are called like those that write ftrace sites, which
// are among them and refused, and those that run whenever a traced function begins or
// returns.
const tracersNames = `awk 'NF==3 && ($2=="t"||$2=="T") && $3~/^((arch_|__)?ftrace_|prepare_ftrace_return$|function_(stack_)?(trace_call|graph_enter)|trace_graph_(entry|return)$|trace_function$|ring_buffer_(lock_reserve|unlock_commit)$)/ {n[$3]++; o[++k]=$3}
END {for (i=1;i<=k;i++) if (n[o[i]]==1) print o[i]}' /proc/kallsyms`

// tracersRounds are how often everything is done, tracersFilters how often a filter is
// written first in each, and tracersOpens how often it is opened besides.
const (
	tracersRounds  = 3
	tracersFilters = 5
	tracersOpens   = 7
)

// tracersRound does everything once: few functions are traced, then all, by one tracer and
// the other, then by both; others' filters, triggers, probes, events and instances come and
// go. A tracer that the kernel has given up (ftrace_kill) fails it. riscv64's kprobes stand
// behind an ftrace site only.
const tracersRound = `set -e; cd /sys/kernel/tracing
on() { echo $1 >current_tracer; cat /proc/self/stat; sh -c :; head -c 20000 trace; } >/dev/null
for r in $(seq %d); do
for i in $(seq %d); do echo 'vfs_*' >set_ftrace_filter; done
on function; echo do_sys_openat2 >>set_graph_function; on function_graph; on function; on nop
echo $$ >set_ftrace_pid; on function; echo >set_ftrace_pid; on nop
echo >set_graph_function; cat set_ftrace_filter enabled_functions touched_functions >/dev/null 2>&1 || true
echo 'vfs_read:stacktrace:3' >>set_ftrace_filter; echo 'vfs_read:traceon' >>set_ftrace_filter; cat set_ftrace_filter >/dev/null
echo '!vfs_read:stacktrace:3' >>set_ftrace_filter; echo '!vfs_read:traceon' >>set_ftrace_filter
echo >>set_ftrace_notrace; echo '*lock*' >set_ftrace_notrace; on function; on function_graph
mkdir instances/other; echo function >instances/other/current_tracer; cat /proc/self/stat >/dev/null
echo nop >instances/other/current_tracer; rmdir instances/other; on nop; echo >set_ftrace_notrace
echo sched:sched_switch >set_event; echo 1 >events/syscalls/enable; sh -c :; echo 0 >events/syscalls/enable; echo >set_event
{ echo p:tracers/k do_sys_openat2 || echo p:tracers/k do_sys_openat2+8; } >>kprobe_events; { echo r:tracers/r vfs_read || true; } >>kprobe_events; echo 1 >events/tracers/enable
on function; on nop; echo 0 >events/tracers/enable; echo -:tracers/k >>kprobe_events; { echo -:tracers/r || true; } >>kprobe_events
if grep -q ' f\[:' README; then echo f:tracers/f vfs_read >>dynamic_events; echo 1 >events/tracers/f/enable; on nop; echo 0 >events/tracers/f/enable; echo -:tracers/f >>dynamic_events; echo fprobe; fi
echo 0 >/proc/sys/kernel/ftrace_enabled; echo 1 >/proc/sys/kernel/ftrace_enabled
rmmod ` + someModule + ` && insmod /lib/modules/` + someModule + `.ko
echo >set_ftrace_filter
done`

// stillWell says what the kernel has noted of itself: that it has warned, died, or hung.
const stillWell = "echo $(($(cat /proc/sys/kernel/tainted) & (1 << 7 | 1 << 9 | 1 << 14)))"

func tracers() []Scenario {
	return []Scenario{{
		Name: "tracers", Title: "the kernel's tracers are spliced, and switched on and off", Labels: []string{"counts", "proof"},
		Guests: tracersGuests, Check: checkTracers,
	}}
}

// tracersParts are so many guests, each with some of the functions: the observer has a
// limit of points.
const tracersParts, observed = 4, 4096

// tracersGuests count in parts, in exact time and seen from outside; and all at once, while
// two CPUs run.
func tracersGuests(string) []Guest {
	guest := func(name string, cpus int, t vm.Time, job func([]string) *wire.Job) Guest {
		return Guest{Name: name, CPUs: cpus, Time: t, Oracle: t == vm.Exact, Modules: []string{someModule}, RunTimeout: time.Hour, After: "names",
			Make: func(names *Answer) (*wire.Job, error) {
				functions, err := listed(names)
				return job(strings.Fields(functions)), err
			}}
	}
	out := []Guest{{Name: "names", CPUs: 1, Time: vm.Exact, Job: job(shell("names", tracersNames))}}
	for k := range tracersParts {
		out = append(out, guest(nth("part", k), 1, vm.Exact, func(functions []string) *wire.Job { return tracersPart(functions, k) }))
	}
	return append(out, guest("all", 2, vm.Host, func(functions []string) *wire.Job {
		all := tracersJob(functions)
		all.Steps = append([]*wire.Step{shell("patience", tracersPatience)}, all.Steps...)
		return all
	}))
}

// tracersPatience has the kernel wait for two minutes until it takes a CPU for stuck. Where amd64's rewrites its 45,000 sites it
// never yields (arch/x86/kernel/ftrace.c, ftrace_replace_code), and with breakpoints in what it does that by an emulated CPU
// takes half a minute for it, on a host that has other things to do.
const tracersPatience = "echo 60 >/proc/sys/kernel/watchdog_thresh"

// tracersPart is the job with the functions of one part.
func tracersPart(functions []string, part int) *wire.Job {
	var mine []string
	for k, f := range functions {
		if k%tracersParts == part || contains(openers, f) {
			mine = append(mine, f)
		}
	}
	out := tracersJob(mine)
	for _, s := range out.Steps {
		if s.GetSplice() != nil {
			announced(s).GetSplice().Most = observed
		}
	}
	return out
}

// tracersJob splices functions, and has tracers at work.
func tracersJob(functions []string) *wire.Job {
	var points []*wire.Point
	for _, name := range functions {
		points = append(points, &wire.Point{Function: name, Each: wire.Each_INSTRUCTION})
	}
	work := shell("work", fmt.Sprintf(tracersRound, tracersRounds, tracersFilters))
	work.GetRun().Metered = true
	return job(snapshot("before", ""), skipping("splice", points), work, read("count"), unsplice("splice"),
		snapshot("after", "before"), shell("well", stillWell))
}

// openers are the functions of which the job says how often they are called.
var openers = []string{"ftrace_filter_open"}

// writers are functions of which no instruction may be spliced: one of each kind, that an
// ISA has.
var writers = map[string][]string{
	"amd64":   {"ftrace_caller", "ftrace_regs_caller", "ftrace_stub", "ftrace_replace_code", "ftrace_modify_all_code", "ftrace_make_call"},
	"arm64":   {"ftrace_caller", "ftrace_stub", "ftrace_replace_code", "ftrace_modify_all_code", "ftrace_make_call"},
	"riscv64": {"ftrace_caller", "ftrace_stub", "ftrace_replace_code", "ftrace_modify_all_code", "ftrace_make_call"},
}

// mustTrace are functions that the work comes by, on each ISA.
var mustTrace = []string{"ftrace_startup", "ftrace_check_record", "ftrace_process_locs", "ftrace_event_write", "function_trace_call", "ring_buffer_lock_reserve"}

// mayNotTrap are functions that run before a tracer looks whether it traces itself, and what writes records of
// the handler that a breakpoint calls.
var mayNotTrap = []string{"function_trace_call", "prepare_ftrace_return", "ftrace_return_to_handler", "ftrace_graph_func", "ring_buffer_lock_reserve"}

// fewestTracers is how many points must have been executed in each part, and mostTracers how many are spliced
// at once.
const (
	fewestTracers = 300
	mostTracers   = 5000
)

func checkTracers(t *T) {
	executed, hits := 0, map[string]uint64{}
	for k := range tracersParts {
		c := t.coverage("tracers", nth("part", k))
		t.atLeast(nth("part", k)+": points that were executed", float64(c.executed), fewestTracers)
		executed += c.executed
		maps.Copy(hits, t.traced(nth("part", k)))
	}
	t.Metrics["tracers.executed"] = report.Metric{Value: float64(executed), Unit: "points", N: 1}
	t.traced("all")
	t.atLeast("all: points that are spliced at once", float64(len(t.made("all", "splice"))), mostTracers)
	t.equal("all: ranges of text that differ afterwards", len(t.done("all", "after").Text.Differing), 0)
	t.equal("functions that must have run, and have not",
		slices.DeleteFunc(slices.Clone(mustTrace), func(f string) bool { return hits[f] > 0 }), []string{})
	trapped := []string{}
	for _, p := range t.made("all", "splice") {
		if p.Mechanism == plan.Trap.String() && contains(mayNotTrap, p.Symbol) {
			trapped = append(trapped, p.Spec)
		}
	}
	t.equal("all: breakpoints that would be met on the way to themselves", trapped, []string{})
}

// traced looks at a guest that has come to its end: nothing was warned of, who writes sites
// is not spliced, and what the job says how often it does is counted so often. It says
// how often the busiest instruction of each function ran.
func (t *T) traced(guest string) map[string]uint64 {
	fprobes := strings.Count(string(t.ran(guest, "work")[0]), "fprobe")
	t.equal(guest+": the kernel has warned of nothing", strings.TrimSpace(string(t.ran(guest, "well")[0])), "0")
	most, first := map[string]uint64{}, map[string]uint64{}
	values := t.done(guest, "count").Values
	for _, v := range values {
		if _, ok := first[v.Symbol]; !ok {
			first[v.Symbol] = v.Count
		}
		most[v.Symbol] = max(most[v.Symbol], v.Count)
	}
	for _, f := range writers[t.Arch] {
		_, spliced := first[f]
		t.equal(guest+": "+f+" is spliced", spliced, false)
	}
	for _, f := range openers {
		t.equal(guest+": calls of "+f, first[f], uint64(tracersRounds*(tracersFilters+tracersOpens)))
	}
	t.Metrics["tracers."+guest+".fprobes"] = report.Metric{Value: float64(fprobes), Unit: "fprobes", N: 1}
	t.Metrics["tracers."+guest+".spliced"] = report.Metric{Value: float64(len(values)), Unit: "points", N: 1}
	return most
}
