package scenarios

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"kerninst/agent/wire"
	"kerninst/lab/report"
	"kerninst/lab/vm"
)

// tracers: what the kernel's own tracers are made of is spliced, each instruction that one
// batch serves, while they are switched on and off and told what to trace: most of it is
// code like any other, and some of that runs whenever any function begins or returns.

// tracersNames are the functions that only their names have in common with those that write
// ftrace sites. Those are among them: that they are refused is seen, too.
const tracersNames = `awk 'NF==3 && ($2=="t"||$2=="T") && $3~/^(arch_|__)?ftrace_/ {n[$3]++; o[++k]=$3}
END {for (i=1;i<=k;i++) if (n[o[i]]==1) print o[i]}' /proc/kallsyms`

// tracersRounds are how often everything is done, tracersFilters how often a filter is
// written first in each, and tracersOpens how often it is opened besides.
const (
	tracersRounds  = 4
	tracersFilters = 5
	tracersOpens   = 7
)

// tracersRound does everything once: few functions are traced, then all, by one tracer and
// the other, then by both; others' filters, triggers, probes, events and instances come and
// go. A tracer that the kernel has given up (ftrace_kill) fails it.
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
echo p:tracers/k do_sys_openat2 >>kprobe_events; echo r:tracers/r vfs_read >>kprobe_events; echo 1 >events/tracers/enable
on function; on nop; echo 0 >events/tracers/enable; echo -:tracers/k >>kprobe_events; echo -:tracers/r >>kprobe_events
if grep -q '\tf\[' README; then echo f:tracers/f vfs_read >>dynamic_events; echo 1 >events/tracers/f/enable; on nop; echo 0 >events/tracers/f/enable; echo -:tracers/f >>dynamic_events; echo fprobe; fi
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

func tracersGuests(string) []Guest {
	names := Guest{Name: "names", CPUs: 1, Time: vm.Exact, Job: job(shell("names", tracersNames))}
	guest := func(name string, cpus int, t vm.Time) Guest {
		return Guest{Name: name, CPUs: cpus, Time: t, Oracle: true, Modules: []string{someModule}, RunTimeout: time.Hour, After: "names", Make: tracersJob}
	}
	return []Guest{names, guest("1cpu", 1, vm.Exact), guest("2cpu", 2, vm.Host)}
}

func tracersJob(names *Answer) (*wire.Job, error) {
	functions, err := listed(names)
	if err != nil {
		return nil, err
	}
	var points []*wire.Point
	for name := range strings.FieldsSeq(functions) {
		points = append(points, &wire.Point{Function: name, Every: true})
	}
	work := shell("work", fmt.Sprintf(tracersRound, tracersRounds, tracersFilters))
	work.GetRun().Metered = true
	return job(snapshot("before", ""), announced(skipping("splice", points)), work, read("count"), unsplice("splice"),
		snapshot("after", "before"), shell("well", stillWell)), nil
}

// writers are functions of which no instruction may be spliced: one of each kind, that an
// ISA has.
var writers = map[string][]string{
	"amd64":   {"ftrace_caller", "ftrace_regs_caller", "ftrace_stub", "ftrace_replace_code", "ftrace_modify_all_code", "ftrace_make_call"},
	"arm64":   {"ftrace_caller", "ftrace_stub", "ftrace_replace_code", "ftrace_modify_all_code", "ftrace_make_call"},
	"riscv64": {"ftrace_caller", "ftrace_stub", "ftrace_replace_code", "ftrace_modify_all_code", "ftrace_make_call"},
}

// mustTrace are functions that the work comes by.
var mustTrace = []string{"ftrace_startup", "ftrace_check_record", "ftrace_process_locs", "ftrace_set_hash", "ftrace_event_write"}

// fewestTracers is how many points must have been executed.
const fewestTracers = 500

func checkTracers(t *T) {
	for _, g := range []string{"1cpu", "2cpu"} {
		fprobes := strings.Count(string(t.ran(g, "work")[0]), "fprobe")
		t.Metrics["tracers."+g+".fprobes"] = report.Metric{Value: float64(fprobes), Unit: "fprobes", N: 1}
		c := t.coverage("tracers", g)
		t.atLeast(g+": points that were executed", float64(c.executed), fewestTracers)
		t.equal(g+": the kernel has warned of nothing", strings.TrimSpace(string(t.ran(g, "well")[0])), "0")
		spliced, first := map[string]bool{}, map[string]uint64{}
		hits := map[string]uint64{}
		for _, v := range t.done(g, "count").Values {
			spliced[v.Symbol] = true
			hits[v.Symbol] = max(hits[v.Symbol], v.Count)
			if _, ok := first[v.Symbol]; !ok {
				first[v.Symbol] = v.Count
			}
		}
		for _, f := range writers[t.Arch] {
			t.equal(g+": "+f+" is spliced", spliced[f], false)
		}
		for _, f := range mustTrace {
			t.atLeast(g+": most hits of an instruction of "+f, float64(hits[f]), 1)
		}
		t.equal(g+": times that a filter was opened", strconv.FormatUint(first["ftrace_filter_open"], 10), strconv.Itoa(tracersRounds*(tracersFilters+tracersOpens)))
	}
}
