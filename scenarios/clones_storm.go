package scenarios

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"kerninst/agent/wire"
	"kerninst/lab/report"
	"kerninst/lab/vm"
)

// clones-storm: clones of what most programs do come, grow and go while two CPUs do that all the time,
// tasks sleep in them, one of each clone of read until the next has come, and the kernel turns static keys
// that are in them.

// stormCalls are the system calls that are cloned.
var stormCalls = strings.Fields("read write openat newfstatat close pipe2 poll clock_nanosleep getppid mmap wait4 execve exit_group")

// cloneLoad runs until told, says of each loop that it has ended, and leaves two tasks behind that sleep in the
// original of read all the time.
const cloneLoad = `mkfifo /run/never; exec >/dev/null 2>&1 </dev/null
(while [ ! -e /run/stop ]; do cat /proc/version; ls -l /; (:); echo x >/run/x; cat /run/x; rm /run/x; sleep 0.01; done; >/run/ended.1) &
(while [ ! -e /run/stop ]; do yes | head -c 20000; sleep 0.05; done; >/run/ended.2) &
cd /sys/kernel/tracing/events
(n=0; while [ ! -e /run/stop ]; do for e in sched kmem filemap; do echo 1 >$e/enable && sleep 0.02 && echo 0 >$e/enable && n=$((n + 1)); sleep 0.02; done; done; echo $n >/run/turned; >/run/ended.3) &
cat 0<>/run/never & cat 0<>/run/never &
sleep 0.2`

// Somebody comes to sleep in the clone of read that there is, and wakes when it has been undone.
const (
	cloneSleeper = `exec >/dev/null 2>&1 </dev/null; [ -p /run/inside ] || mkfifo /run/inside; head -n 1 0<>/run/inside >/run/inside.read & sleep 0.2`
	cloneWaker   = `echo woken >/run/inside; until [ -s /run/inside.read ]; do sleep 0.1; done; cat /run/inside.read; rm /run/inside.read`
)

const cloneWork = `cat /proc/version >/run/y; ls / >/run/y; (:); yes | head -c 5000 >/run/y; sleep 0.01`

// endCloneLoad waits for the loops, each of which may have a tracepoint's many sites to turn first, wakes the
// sleepers, and says how often tracepoints were turned on and off.
const endCloneLoad = `touch /run/stop
until [ -e /run/ended.1 ] && [ -e /run/ended.2 ] && [ -e /run/ended.3 ]; do sleep 0.1; done
echo >/run/never; echo >/run/never; killall cat
for k in $(seq 100); do pidof cat yes >/dev/null || break; sleep 0.1; done; sleep 1; cat /run/turned`

// Who looks with the kernel's own walk finds him who sleeps in a copy that was undone, in what has no name or the module's; and in
// the end nobody, unless the module keeps something for somebody (a thread that waits in read since there was a clone of that).
const (
	cloneWalk   = `for t in /proc/[0-9]*/task/*; do read c <$t/comm && echo "$c:" && cat $t/stack; done 2>/dev/null; true`
	leastWalked = 50
)

type cloneStorm struct {
	rounds   int
	patience time.Duration
	variants bool // of the kernel, instead of Debian's as it boots here
}

// stay reports whether who sleeps in a round's clones when they are undone keeps them; else he goes on in the originals.
func (s cloneStorm) stay(round int) bool { return round%3 == 2 }

// clones reports whether a round clones a call: others each time.
func (s cloneStorm) clones(round int, call string) bool {
	return (slices.Index(stormCalls, call)+round)%3 != 0
}

func (s cloneStorm) guests(arch string) (out []Guest) {
	if !s.variants {
		return []Guest{s.guest(arch, "storm")}
	}
	for _, v := range variants(arch) {
		g := s.guest(arch, v.name)
		g.Append, g.CPU, g.CPUs = v.append, v.cpu, v.cpus
		g.Job.Steps = append([]*wire.Step{shell("holds", v.holds)}, g.Job.Steps...)
		out = append(out, g)
	}
	return out
}

func (s cloneStorm) guest(arch, name string) Guest {
	steps := []*wire.Step{snapshot("before", ""), shell("taints", "cat /proc/sys/kernel/tainted"), shell("load", cloneLoad)}
	rules := [][]*wire.Rule{nil, {{}}, {{Each: wire.Each_BLOCK}}}
	for k := range s.rounds {
		name := fmt.Sprintf("clones %d", k)
		sp := &wire.Splice{SkipRefused: true, Brief: true}
		for _, call := range stormCalls {
			if s.clones(k, call) {
				sp.Clones = append(sp.Clones, &wire.Cloning{Entry: syscallEntry(arch, call), Rules: rules[k%len(rules)], Most: 24 << 10, NoResuming: s.stay(k)})
			}
		}
		found := read(name + " found")
		found.GetRead().Brief = true
		steps = append(steps, &wire.Step{Name: name, Do: &wire.Step_Splice{Splice: sp}},
			&wire.Step{Name: name + " grown", Do: &wire.Step_Grow{Grow: &wire.Grow{Splice: name, Rounds: 3, Run: &wire.Run{Argv: []string{"/bin/sh", "-c", cloneWork}}}}},
			found)
		if s.clones(k, "read") {
			steps = append(steps, shell(name+" sleeper", cloneSleeper), unsplice(name), shell(name+" asleep", cloneWalk), shell(name+" waker", cloneWaker))
		} else {
			steps = append(steps, unsplice(name))
		}
	}
	steps = append(steps, shell("end", endCloneLoad), splice("last", entry(syscallEntry(arch, "getppid"))), unsplice("last"), shell("walked", cloneWalk), snapshot("after", "before"), module("unload", wire.Module_UNLOAD),
		shell("taints behind", "cat /proc/sys/kernel/tainted"))
	return Guest{Name: name, CPUs: 2, Time: vm.Host, Index: true, RunTimeout: s.patience, Job: job(steps...)}
}

func (s cloneStorm) check(t *T) {
	var all stormed
	for _, g := range slices.Sorted(maps.Keys(t.Guests)) {
		if s.variants {
			t.ran(g, "holds")
		}
		all = all.and(s.checkGuest(t, g))
	}
	t.Metrics["clones.storm.functions"] = report.Metric{Value: float64(all.functions), Unit: "functions", N: all.rounds}
	t.Metrics["clones.storm.sleepers"] = report.Metric{Value: float64(all.asleep), Unit: "tasks", N: all.rounds}
	t.Metrics["clones.storm.turned"] = report.Metric{Value: float64(all.turned), Unit: "times", N: all.rounds}
	t.Metrics["clones.storm.rounds"] = report.Metric{Value: float64(all.rounds), Unit: "rounds", N: len(t.Guests)}
}

// mostAlike is how many addresses may stay that look the same when they are signed, of which nobody knows whether they are: of
// arm64's one in 2,048 does.
var mostAlike = map[string]float64{"arm64": 2}

// walkedBy is what the kernel found on the stacks of tasks with a name.
func walkedBy(walked, name string) (out string) {
	of := ""
	for line := range strings.Lines(walked) {
		if !strings.HasPrefix(line, "[") {
			of = strings.TrimSuffix(line, ":\n")
		} else if of == name {
			out += line
		}
	}
	return out
}

// inCopies is how many of the addresses that the kernel found on stacks are of no code of its own.
func inCopies(walked string) int { return len(patchedAddress.FindAllString(walked, -1)) }

// patchedAddress is what the kernel calls patch memory: nothing, or what the module calls its parts. (arm64's walk ends at 0x1 on
// the stack of a thread that runs.)
var patchedAddress = regexp.MustCompile(`(?m)^\[<0>\] (0xffff|kerninst_patches\+|ki_annex\+|.*\[kerninst\])`)

// stormed is what there was of it.
type stormed struct{ rounds, functions, asleep, turned int }

func (s stormed) and(o stormed) stormed {
	return stormed{s.rounds + o.rounds, s.functions + o.functions, s.asleep + o.asleep, s.turned + o.turned}
}

func (s cloneStorm) checkGuest(t *T, g string) stormed {
	functions, came, asleep := 0, uint64(0), 0
	for k := range s.rounds {
		name := fmt.Sprintf("clones %d", k)
		t.ran(g, name+" grown")
		for _, c := range t.done(g, name+" grown").Clones {
			functions += len(c.Functions)
		}
		for _, n := range t.done(g, name+" found").Counts {
			came += n
		}
		undone := t.done(g, "un"+name)
		if s.clones(k, "read") {
			asleep++
			t.equal(name+": what who slept in it has read", string(t.ran(g, name+" waker")[0]), "woken\n")
			walked := string(t.ran(g, name+" asleep")[0])
			t.Files["clones-storm-"+g+".asleep.txt"] = []byte(walked)
			if s.stay(k) {
				t.atLeast(name+": addresses of copies on the stacks of all tasks", float64(inCopies(walked)), 1)
				t.atLeast(name+": bytes that stay for who sleeps in it", float64(undone.PatchMemory.GetKept()), 1)
				continue
			}
			if s.variants || k > 2 { // who was preempted in one may have gone to sleep there since; somebody may have stayed
				walked = walkedBy(walked, "head")
			}
			t.atLeast(name+": addresses on stacks", float64(strings.Count(walked, "[<0>]")), 5)
			t.atMost(name+": addresses of copies on stacks, of which all go on in the originals", float64(inCopies(walked)), mostAlike[t.Arch])
		}
	}
	turned, err := strconv.Atoi(strings.TrimSpace(string(t.ran(g, "end")[0])))
	t.noError("how often tracepoints were turned", err)
	t.atLeast("times that tracepoints were turned on and off", float64(turned), float64(s.rounds))
	walked := string(t.ran(g, "walked")[0])
	t.atLeast("addresses on the stacks of all tasks", float64(strings.Count(walked, "[<0>]")), leastWalked)
	kept := t.done(g, "unlast").PatchMemory.GetKept()
	t.Files["clones-storm-"+g+".walked.txt"] = []byte(walked)
	t.equal("somebody is in a copy of which the module keeps nothing", inCopies(walked) > 0 && kept == 0, false) // who was kept may have gone
	t.untouched("", g)
	t.equal("the module has gone", t.result(g, "unload").Error, "")
	t.atLeast("functions that were copied, all rounds together", float64(functions), float64(20*s.rounds))
	t.atLeast("arrivals in clones", float64(came), float64(1000*s.rounds/2))
	return stormed{s.rounds, functions, asleep, turned}
}
