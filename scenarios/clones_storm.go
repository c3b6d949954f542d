package scenarios

import (
	"fmt"
	"strings"
	"time"

	"kerninst/agent/wire"
	"kerninst/lab/report"
	"kerninst/lab/vm"
)

// clones-storm: clones of what most programs do come, grow and go while two CPUs do that all the time,
// tasks sleep in them, some for ever, and the kernel turns static keys that are in them.

// stormCalls are the system calls that are cloned.
var stormCalls = strings.Fields("read write openat newfstatat close pipe2 poll clock_nanosleep getppid mmap wait4 execve exit_group")

// cloneLoad runs until told, says of each loop that it has ended, and leaves two tasks behind that sleep in a read.
const cloneLoad = `mkfifo /run/never; exec >/dev/null 2>&1 </dev/null
(while [ ! -e /run/stop ]; do cat /proc/version; ls -l /; (:); echo x >/run/x; cat /run/x; rm /run/x; sleep 0.01; done; >/run/ended.1) &
(while [ ! -e /run/stop ]; do yes | head -c 20000; sleep 0.05; done; >/run/ended.2) &
cd /sys/kernel/tracing/events
(while [ ! -e /run/stop ]; do for e in sched kmem filemap; do echo 1 >$e/enable; sleep 0.02; echo 0 >$e/enable; sleep 0.02; done; done; >/run/ended.3) &
cat 0<>/run/never & cat 0<>/run/never &
sleep 0.2`

const cloneWork = `cat /proc/version >/run/y; ls / >/run/y; (:); yes | head -c 5000 >/run/y; sleep 0.01`

// endCloneLoad waits for the loops, each of which may have a tracepoint's many sites to turn first, and wakes the
// sleepers, in whichever clone they are.
const endCloneLoad = `touch /run/stop
until [ -e /run/ended.1 ] && [ -e /run/ended.2 ] && [ -e /run/ended.3 ]; do sleep 0.1; done
echo >/run/never; echo >/run/never; killall cat
for k in $(seq 100); do pidof cat yes >/dev/null || break; sleep 0.1; done; sleep 1`

type cloneStorm struct {
	rounds   int
	patience time.Duration
}

func (s cloneStorm) guests(arch string) []Guest {
	steps := []*wire.Step{snapshot("before", ""), shell("taints", "cat /proc/sys/kernel/tainted"), shell("load", cloneLoad)}
	rules := [][]*wire.Rule{nil, {{}}, {{Each: wire.Each_BLOCK}}}
	for k := range s.rounds {
		name := fmt.Sprintf("clones %d", k)
		sp := &wire.Splice{SkipRefused: true, Brief: true}
		for n, call := range stormCalls {
			if (n+k)%3 != 0 { // others each time
				sp.Clones = append(sp.Clones, &wire.Cloning{Entry: syscallEntry(arch, call), Rules: rules[k%len(rules)], Most: 24 << 10})
			}
		}
		found := read(name + " found")
		found.GetRead().Brief = true
		steps = append(steps, &wire.Step{Name: name, Do: &wire.Step_Splice{Splice: sp}},
			&wire.Step{Name: name + " grown", Do: &wire.Step_Grow{Grow: &wire.Grow{Splice: name, Rounds: 3, Run: &wire.Run{Argv: []string{"/bin/sh", "-c", cloneWork}}}}},
			found, unsplice(name))
	}
	steps = append(steps, shell("end", endCloneLoad), snapshot("after", "before"), module("unload", wire.Module_UNLOAD),
		shell("taints behind", "cat /proc/sys/kernel/tainted"))
	return []Guest{{Name: "storm", CPUs: 2, Time: vm.Host, Index: true, RunTimeout: s.patience, Job: job(steps...)}}
}

func (s cloneStorm) check(t *T) {
	const g = "storm"
	functions, came := 0, uint64(0)
	for k := range s.rounds {
		name := fmt.Sprintf("clones %d", k)
		t.ran(g, name+" grown")
		for _, c := range t.done(g, name+" grown").Clones {
			functions += len(c.Functions)
		}
		for _, n := range t.done(g, name+" found").Counts {
			came += n
		}
		t.done(g, "un"+name)
	}
	t.unharmed("", g, map[string]int{"unload": 1})
	t.equal("the module has gone", t.result(g, "unload").Error, "")
	t.atLeast("functions that were copied, all rounds together", float64(functions), float64(20*s.rounds))
	t.atLeast("arrivals in clones", float64(came), float64(1000*s.rounds/2))
	t.Metrics["clones.storm.functions"] = report.Metric{Value: float64(functions), Unit: "functions", N: s.rounds}
	t.Metrics["clones.storm.rounds"] = report.Metric{Value: float64(s.rounds), Unit: "rounds", N: 1}
}
