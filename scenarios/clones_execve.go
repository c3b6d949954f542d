package scenarios

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"kerninst/agent/wire"
	"kerninst/lab/oracle"
	"kerninst/lab/plugins"
	"kerninst/lab/report"
	"kerninst/lab/vm"
)

// clones-execve: what is allocated on behalf of execve, and of nothing else, is counted where execve runs as a clone with a
// counter at each function's begin. As often as an observer outside sees the allocators called below execve, in a guest
// without clones, they were counted in one that has them; in one in which another process allocates on another CPU all the
// while (on riscv64 in turns on the same), too; and who opens files while the clone is there takes what he takes without.
//
// Both count what more programs take than few: the first is begun by the daemon in one and by the observer's mark in the other.

const (
	execveFile = "/run/again.sh"
	// One program executes the next, so it is one task; the last tells the observer that it is the last.
	execveScript = `[ "$1" = 0 ] && exec ` + markProgram + ` end; exec /bin/sh ` + execveFile + ` $(($1 - 1))`
	execveSeen   = markProgram + ` begin; exec /bin/sh ` + execveFile + ` $0`
	execveFew    = 4
	execveMany   = 24
	// Whoever else allocates opens a file, for its name and what is open of it, and executes no program.
	execveHammer = `exec >/dev/null 2>&1 </dev/null; sh -c 'while :; do : <` + execveFile + `; done' & echo $! >/run/hammer`
	execveOther  = "do_sys_openat2"
)

// leastCovered is which part of what is seen below execve is by ways that are in the clone as a whole, and so counted.
const leastCovered = 0.5

// leastOpened are so many files that the other process has opened most of them: what is executed opens three each time, of which
// there are less than a hundred.
const leastOpened = 250

// execveClone is how large the clone may become, in bytes: on amd64 all that is executed takes some 300 KiB.
const execveClone = 448 << 10

// allocators are the kernel's, by the names they have since 6.10 and had before.
var allocators = []string{"__kmalloc_noprof", "__kmalloc_cache_noprof", "kmem_cache_alloc_noprof", "__kmalloc", "kmalloc_trace", "kmem_cache_alloc"}

func clonesExecve() Scenario {
	return Scenario{
		Name: "clones-execve", Title: "allocations on behalf of execve alone, while others allocate, are as many as are seen outside", Labels: []string{"workload", "proof"},
		Guests: execveGuests, Check: checkExecve,
	}
}

// seenExecving is the guest in which so many programs are seen.
func seenExecving(n int) string { return fmt.Sprint("seen ", n) }

func execves(name string, n int) *wire.Step {
	return run(name, "/bin/sh", execveFile, strconv.Itoa(n))
}

func execveGuests(arch string) (out []Guest) {
	for _, n := range []int{execveFew, execveMany} {
		out = append(out, Guest{Name: seenExecving(n), CPUs: 1, Time: vm.Exact, Calls: true, Text: true,
			Job: job(script(execveFile, execveScript), watchCalls(), watched("work", "/bin/sh", "-c", execveSeen, strconv.Itoa(n)))})
	}
	opens := run("", lmbenchProgram, "-whole", "-roomy", "2", "OpenClose").GetRun()
	step := func(name string) *wire.Step { return &wire.Step{Name: name, Do: &wire.Step_Run{Run: opens}} }
	cloned := func(name string, cpus int, begins, ends []*wire.Step) Guest {
		c := &wire.Cloning{Entry: syscallEntry(arch, "execve"), Rules: []*wire.Rule{{}}, Most: execveClone}
		return Guest{Name: name, CPUs: cpus, Time: vm.Exact, Index: true, RunTimeout: 20 * time.Minute, Job: job(slices.Concat(
			[]*wire.Step{script(execveFile, execveScript)}, begins, []*wire.Step{
				{Name: "clone", Do: &wire.Step_Splice{Splice: &wire.Splice{SkipRefused: true, Clones: []*wire.Cloning{c}}}},
				{Name: "grown", Do: &wire.Step_Grow{Grow: &wire.Grow{Splice: "clone", Rounds: 30, Run: execves("", execveFew).GetRun()}}},
				read("begin"), execves("few", execveFew), read("between"), execves("many", execveMany), read("end"),
			}, ends, []*wire.Step{unsplice("clone")})...)}
	}
	beside := 2
	if arch == "riscv64" { // which has one in exact time: both take turns
		beside = 1
	}
	return append(out,
		cloned("alone", 1, []*wire.Step{step("bare")}, []*wire.Step{step("beside")}),
		cloned("beside another", beside, []*wire.Step{shell("hammer", execveHammer), splice("other", entry(execveOther))},
			[]*wire.Step{shell("hammered", "kill $(cat /run/hammer)"), unsplice("other")}))
}

func checkExecve(t *T) {
	for _, guest := range []string{"alone", "beside another"} {
		for _, n := range []int{execveFew, execveMany} {
			t.ran(seenExecving(n), "work")
		}
		t.ran(guest, "many")
		t.execveAllocations(guest)
	}
	other := t.came("beside another", "begin", "end", symbolOf)[execveOther]
	t.count("clones.execve.other", other)
	t.atLeast("files that were opened meanwhile", float64(other), leastOpened)
	suite := granularSuite{operations: []string{"OpenClose"}}
	bare, beside := t.suite(suite, "alone", "bare")[0].NS, t.suite(suite, "alone", "beside")[0].NS
	t.Metrics["clones.execve.others"] = report.Metric{Value: beside / bare, Unit: "x", N: 1}
	t.atMost("what opening a file takes while execve is a clone, times bare", beside/bare, 1.001)
}

// execveAllocations compares how often allocators were counted with how often they were seen called by the way of functions
// that are in the clone.
func (t *T) execveAllocations(guest string) {
	grown := t.done(guest, "grown").Clones[0]
	t.Files["clones-execve-"+slug(guest)+".txt"] = composition([]*wire.Clone{grown})
	in, err := plugins.Describe(t.Guests[seenExecving(execveFew)].Text, []*wire.Clone{grown}, nil)
	t.noError(guest+": what is in the clone", err)
	few, many := t.came(guest, "begin", "between", symbolOf), t.came(guest, "between", "end", symbolOf)
	found, all := 0, uint64(0)
	var whole [2]uint64 // of all ways below execve, of few programs and of many
	for _, name := range allocators {
		if !slices.ContainsFunc(grown.Functions, func(f string) bool { return f == name }) {
			continue
		}
		found++
		var seen [2]uint64
		for k, n := range []int{execveFew, execveMany} {
			g, inside, roots := seenExecving(n), map[uint64]bool{}, map[uint64]bool{}
			for _, r := range in.Syscalls[0].Routines {
				if !r.Part {
					inside[t.addressIn(g, r.Name)] = true
				}
				// What the system call leaves by a jump to is called by its caller, to who looks from outside.
				if r.Name == syscallEntry(t.Arch, "execve") || strings.HasPrefix(r.Name, "do_execveat_common") {
					roots[t.addressIn(g, r.Name)] = true
				}
			}
			at := t.addressIn(g, name)
			seen[k] = calledBelow(t.Guests[g].Calls, roots, inside, at)
			whole[k] += calledBelow(t.Guests[g].Calls, roots, nil, at)
		}
		t.equal(fmt.Sprintf("%s: calls of %s on behalf of %d execves, counted", guest, name, execveMany-execveFew), many[name]-few[name], seen[1]-seen[0])
		all += many[name] - few[name]
	}
	t.atLeast(guest+": allocators in the clone", float64(found), 2)
	t.atLeast(guest+": allocations of an execve", float64(all)/(execveMany-execveFew), 5)
	t.Metrics["clones.execve."+slug(guest)+".covered"] = report.Metric{Value: float64(all) / float64(whole[1]-whole[0]), Unit: "ratio", N: int(whole[1] - whole[0])}
	t.atLeast(guest+": part of all that these allocators were called for below execve", float64(all)/float64(whole[1]-whole[0]), leastCovered)
	t.Metrics["clones.execve."+slug(guest)] = report.Metric{Value: float64(all) / (execveMany - execveFew), Unit: "calls/execve", N: execveMany - execveFew}
}

// came is how often counters came by between two steps that read them, together those that have one name.
func (t *T) came(guest, from, to string, name func(*wire.Value) string) map[string]uint64 {
	out := map[string]uint64{}
	for _, v := range t.done(guest, to).Values {
		out[name(v)] += v.Count
	}
	for _, v := range t.done(guest, from).Values {
		out[name(v)] -= v.Count
	}
	return out
}

func symbolOf(v *wire.Value) string { return v.Symbol }

// calledBelow is how often a function was called by a way on which, from one of the roots on, there are functions of some
// alone (nil: of any), without interrupts and faults.
func calledBelow(tree *oracle.Call, roots, inside map[uint64]bool, function uint64) (calls uint64) {
	tree.Walk(func(path []*oracle.Call) {
		last := path[len(path)-1]
		if last.Addr != function || last.Exception {
			return
		}
		k := slices.IndexFunc(path, func(c *oracle.Call) bool { return roots[c.Addr] })
		if k >= 0 && !slices.ContainsFunc(path[k:], func(c *oracle.Call) bool { return c.Exception || inside != nil && !inside[c.Addr] }) {
			calls += last.Calls
		}
	})
	return calls
}
