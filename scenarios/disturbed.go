package scenarios

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/onsi/gomega"

	"kerninst/agent/wire"
	"kerninst/lab/report"
	"kerninst/lab/vm"
)

// rewrites, arms, traces, attaches, unloads: while batches are written and undone, windows among them, the kernel
// rewrites sites beside what they write, kprobes, tracers or BPF's programs come and go there, or a module that they
// are in comes and goes. A batch is made whole, or refused whole with what was in its way.

// disturbance is something that another does again and again meanwhile.
type disturbance struct {
	name, title string
	again       string   // shell: once; it succeeds if it did it
	atLast      string   // shell: what must hold when it has stopped
	module      string   // that the points are in
	software    []string // Debian's, that it takes
	functions   []string // each instruction of these
	beside      string   // class of text that some of their instructions must have
}

// rounds are the batches that are made meanwhile, and least how often it is done at least: bpftrace begins slowly.
func (d disturbance) rounds() (rounds, least int) {
	if d.software != nil {
		return 3 * disturbedRounds, 2
	}
	return disturbedRounds, disturbedRounds / 4
}

// scheduling are functions with the static key of scheduler statistics in them, which
// /proc/sys/kernel/sched_schedstats turns.
var scheduling = []string{"try_to_wake_up", "enqueue_task_fair", "dequeue_entity", "dequeue_entities", "set_next_entity", "enqueue_entity", "put_prev_entity", "enqueue_task", "activate_task"}

const schedstats = "/proc/sys/kernel/sched_schedstats"

// What is slept for between is what lets a batch be planned and written meanwhile, now and then: on a busy host that takes longer, and
// the module stays longer the more often it has come.
var disturbances = []disturbance{
	{name: "rewrites", title: "the kernel turns static keys beside what is spliced, while it is spliced",
		again: "echo 1 >" + schedstats + " && echo 0 >" + schedstats, atLast: "echo 0 >" + schedstats, functions: scheduling, beside: "static key site"},
	{name: "arms", title: "kprobes come to what is spliced, and go, while it is spliced",
		again: arming, atLast: "true", functions: scheduling, beside: "static key site"},
	{name: "traces", title: "the kernel's tracers come to what is spliced, and go, while it is spliced",
		again: tracing, atLast: untraced, functions: scheduling, beside: "ftrace site"},
	{name: "attaches", title: "BPF's programs come to what is spliced, and go, while it is spliced",
		again: attaching(), atLast: untraced, software: []string{"bpftrace"}, functions: scheduling, beside: "ftrace site"},
	{name: "unloads", title: "a module comes and goes while it is spliced",
		again:  "rmmod " + someModule + " 2>/dev/null && insmod /lib/modules/" + someModule + ".ko && sleep $((n % 6 * (1 + n / 6)))",
		atLast: "grep -q " + someModule + " /proc/modules", module: someModule, functions: moduleFunctions},
}

// arming has kprobes come to functions that are spliced, and go. Whoever reads their code meanwhile
// finds breakpoints in it, behind which nothing begins where it seems to. There are none now and then, so that
// a small batch is made.
const arming = `{ cd /sys/kernel/tracing; for f in try_to_wake_up enqueue_task_fair set_next_entity; do for o in 4 5 8 9 12 13 16 19 20 24 28 36 44 52; do
	[ $((RANDOM % 2)) = 0 ] || echo "p:arms/$f$o $f+$o" >>kprobe_events; done; done
	echo 1 >events/arms/enable && sleep 0.0$((RANDOM % 9)) && echo 0 >events/arms/enable && echo >kprobe_events && sleep 0.$((RANDOM % 6)); }`

// untraced holds that nothing is left of them. Such a file's size is none, whatever is in it.
const untraced = `[ -z "$(cat /sys/kernel/tracing/enabled_functions)" ]`

// tracing has calls of the functions traced, by one tracer and the other.
var tracing = `{ cd /sys/kernel/tracing; for f in ` + strings.Join(scheduling, " ") + `; do echo $f >>set_ftrace_filter; done 2>/dev/null
	grep -qv '^#' set_ftrace_filter && for t in function function_graph; do echo $t >current_tracer && sleep 0.0$((RANDOM % 9)) && echo nop >current_tracer || break; done && ! grep -qv nop current_tracer; }`

// attaching has BPF's programs at the begins and ends of some, while /bin/true runs.
func attaching() string {
	var program strings.Builder
	for _, f := range []string{"try_to_wake_up", "enqueue_task_fair"} {
		fmt.Fprintf(&program, "fentry:%s { @ = count(); } fexit:%[1]s { @ = count(); } ", f)
	}
	return "/usr/bin/bpftrace -e '" + program.String() + "' -c /bin/true"
}

// disturbedRounds are the batches. Each other one is small: it is planned before anything has come.
const (
	disturbedPatience = 20 * time.Minute
	disturbedRounds   = 12
	smallBatch        = 20
	largeBatch        = 400
)

func disturbed() (out []Scenario) {
	for _, d := range disturbances {
		out = append(out, Scenario{Name: d.name, Title: d.title, Labels: []string{"counts", "proof"},
			Guests: d.guests, Check: d.check})
	}
	return out
}

// begin starts it, and ended ends it and prints how often it was done. Somebody else than
// who is asked must find time for it. The number's file is there at once with the number in it.
func (d disturbance) begin() string {
	return `touch /tmp/go; { n=0; while [ -e /tmp/go ]; do ` + d.again + ` && n=$((n+1)); done; echo $n >/tmp/n; mv /tmp/n /tmp/times; } </dev/null >/dev/null 2>&1 &`
}

// unexplained are errors that no disturbance explains.
const unexplained = `\((ENOMEM|ENOSPC|EINVAL|EFAULT|EPROTO|EEXIST)\)`

const ended = "rm /tmp/go; while [ ! -e /tmp/times ]; do sleep 0.1; done; cat /tmp/times"

func (d disturbance) guests(arch string) []Guest {
	null := syscallEntry(arch, "getppid")
	points := []*wire.Point{entry(null)}
	for _, f := range d.functions {
		points = append(points, &wire.Point{Module: d.module, Function: f, Each: wire.Each_INSTRUCTION})
	}
	steps := append(evenSteps(points[0]), snapshot("before", ""), shell("begin", d.begin()))
	rounds, _ := d.rounds()
	for k := range rounds {
		s := nth("splice", k)
		batch := briefly(skipping(s, points))
		batch.GetSplice().Most = largeBatch
		if k%2 == 1 {
			batch.GetSplice().Most = smallBatch
		}
		steps = append(steps, mayFail(batch), bench(nth("work", k), "null", 1), mayFail(readStill(nth("count", k))), mayFail(unsplice(s)))
	}
	last := skipping("last", points)
	last.GetSplice().Most = largeBatch
	guest := Guest{Name: "guest", CPUs: 2, Time: vm.Host, Software: d.software, Boots: d.software != nil, RunTimeout: disturbedPatience, Job: job(append(steps, shell("stop", ended), shell("at last", d.atLast),
		last, unsplice("last"), snapshot("after", "before"))...)}
	if d.module != "" {
		guest.Modules = []string{d.module}
	}
	return []Guest{guest}
}

func (d disturbance) check(t *T) {
	const g = "guest"
	times, err := strconv.Atoi(strings.TrimSpace(string(t.ran(g, "stop")[0])))
	t.expect("how often it was done is a number", err, "no error", gomega.Succeed())
	rounds, least := d.rounds()
	t.atLeast("times that it was done", float64(times), float64(least))
	t.ran(g, "at last")
	made, refused, points, beside := 0, 0, 0, 0
	var even *even // of a module that comes again elsewhere there is no graph
	if d.module == "" {
		even = t.evenOf(g)
	}
	for k := range rounds {
		res := t.Guests[g].Results[nth("splice", k)]
		t.g.Expect(res).NotTo(gomega.BeNil(), "step splice %d has no answer", k)
		if res.Error != "" {
			refused++
			t.expect(nth("a batch that was refused names what was in its way", k), res.Error, "an address, or a module, and no fault of the call's",
				gomega.And(gomega.Or(gomega.ContainSubstring("0x"), gomega.ContainSubstring(someModule)), gomega.Not(gomega.MatchRegexp(unexplained))))
			continue
		}
		made++
		t.done(g, unsplice(nth("splice", k)).Name)
		t.equal(nth("counter = what the workload did", k), t.stillCounts(g, nth("count", k))[res.Points[0].Address], t.benches(g, nth("work", k))[0].TotalOp)
		if even != nil {
			even.hold(t, g, nth("count", k))
		}
		for _, p := range res.Points[1:] {
			switch {
			case p.Refusal == nil:
				points++
			case p.Refusal.Class == d.beside:
				beside++
			}
		}
	}
	for _, p := range t.done(g, "last").Points {
		if p.Refusal.GetClass() == d.beside {
			beside++
		}
	}
	if even != nil {
		even.found(t, d.name)
	}
	t.atLeast("batches that were made", float64(made), 1) // how many more is for the host's load to say
	t.atLeast("points of these", float64(points), 1)
	t.atLeast("points, when it has stopped", float64(len(t.made(g, "last"))), 2)
	if d.beside != "" {
		t.atLeast("instructions beside them that are a "+d.beside, float64(beside), 1)
	}
	t.equal("ranges of text that differ afterwards", len(t.done(g, "after").Text.Differing), 0)
	for name, n := range map[string]int{"times": times, "made": made, "refused": refused, "points": points} {
		t.Metrics[d.name+"."+name] = report.Metric{Value: float64(n), Unit: name, N: 1}
	}
}
