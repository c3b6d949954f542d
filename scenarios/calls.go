package scenarios

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"strings"

	"github.com/onsi/gomega"

	"kerninst/agent/probe"
	"kerninst/agent/wire"
	"kerninst/lab/oracle"
	"kerninst/lab/report"
	"kerninst/lab/vm"
)

// calls: what one task calls in the kernel, followed outside the guest, beside splices
// that count and time the same. Where both are right they agree: to a call, and but for
// what a splice itself takes, to the instruction and to the nanosecond.
func followed() []Scenario {
	return []Scenario{{
		Name: "calls", Title: "the calls of one task, followed outside the guest, are as many and take as long as splices find", Labels: []string{"workload"},
		Guests: callsGuests, Check: checkCalls,
	}}
}

const markProgram = "/lib/kerninst/bench/mark"

// WatchCalls tells the observer what it has to know of the kernel, modules that are loaded
// included: once, before the task starts.
func watchCalls() *wire.Step { return run("mark calls", markProgram, "calls") }

// watched runs a program as the task whose calls are followed, between its own marks of
// begin and end.
func watched(name string, argv ...string) *wire.Step {
	return run(name, append([]string{markProgram, "watch"}, argv...)...)
}

// mixed are operations of `bench mix`, in batches of which one is to warm up.
const mixed, mixedBatches = 20, 2

// mixedCalls are functions, and how many calls of each are in an operation. Some take long:
// in instructions, or asleep; then there is by how much two may differ that see that, as a
// part. A splice begins its time behind the function's first instruction, and its own code
// runs in between.
var mixedCalls = []struct {
	function    string
	n           uint64
	time, vtime float64
}{
	{"ksys_read", 2, 0, 0},
	{"vfs_read", 2, 0.015, 0.015},
	{"hrtimer_nanosleep", 1, 0.001, 0.05},
}

// callsGuests are one that tells the kernel's types, and the one that is looked at.
func callsGuests(arch string) []Guest {
	return []Guest{
		{Name: "types", CPUs: 1, Time: vm.Exact, Job: job(shell("uname", "uname -r"))},
		{Name: "followed", CPUs: 1, Time: vm.Exact, Calls: true, After: "types",
			Make: func(a *Answer) (*wire.Job, error) { return callsJob(probe.At{Types: a.Types}) }},
	}
}

func callsJob(in probe.At) (*wire.Job, error) {
	var points []*wire.Point
	for _, c := range mixedCalls {
		p, err := callsPoints(in, c.function, c.time > 0)
		if err != nil {
			return nil, err
		}
		points = append(points, p...)
	}
	return job(
		watchCalls(),
		splice("splice", points...),
		sendNames("names"),
		watched("work", benchProgram, "mix", fmt.Sprint(mixed), fmt.Sprint(mixedBatches-1)),
		read("found"),
	), nil
}

// ofBench holds for the task that is followed.
const ofBench = `comm == "bench"`

// callsPoints count a function's calls, and find how long they take.
func callsPoints(in probe.At, function string, long bool) ([]*wire.Point, error) {
	begins, ends := entry(function), &wire.Point{Function: function, Each: wire.Each_RETURN}
	for _, name := range []string{"count", "time", "vtime"} {
		a, err := in.Compile(ofBench, name)
		if err != nil {
			return nil, err
		}
		text := a.Snippet.String()
		if name == "count" {
			begins.Actions = append(begins.Actions, &wire.Action{Name: name, Snippet: text})
		} else if long {
			begins.Actions = append(begins.Actions, &wire.Action{Name: name, Snippet: text, Timed: wire.Timed_ENTERS})
			ends.Actions = append(ends.Actions, &wire.Action{Name: name, Snippet: text, Timed: wire.Timed_LEAVES})
		}
	}
	if !long {
		return []*wire.Point{begins}, nil
	}
	return []*wire.Point{begins, ends}, nil
}

func checkCalls(t *T) {
	const guest = "followed"
	b := t.benches(guest, "work")[0]
	t.equal("operations", b.TotalOp, uint64(mixed*mixedBatches))
	names, tree := t.names(guest, "names"), t.Guests[guest].Calls
	t.callsFile(tree, names)
	for _, c := range mixedCalls {
		seen := tree.Total(t.begins(guest, c.function))
		t.count("calls."+c.function, seen.Calls)
		t.equal(c.function+": calls seen outside = what the workload did", seen.Calls, c.n*b.TotalOp)
		t.equal(c.function+": what a splice counted", t.counts(guest, c.function), seen.Calls)
		if c.time > 0 {
			t.as(c.function+".time", float64(seen.NS), t.time(guest, c.function, "time"), c.time)
			t.as(c.function+".vtime", float64(seen.Insns), t.time(guest, c.function, "vtime"), c.vtime)
		}
	}
	t.atLeast("hrtimer_nanosleep: nanoseconds of a call", float64(tree.Total(t.begins(guest, "hrtimer_nanosleep")).NS)/float64(b.TotalOp), 1e6)
	for _, m := range mixedPaths {
		t.equal("calls by "+strings.Join(m.path, " > "), along(tree, names, m.path), m.n*b.TotalOp)
	}
	t.addsUp(tree, names)
}

// mixedPaths are parts of paths, and how many calls of each there are in an operation.
var mixedPaths = []struct {
	path []string
	n    uint64
}{
	{[]string{"ksys_read", "vfs_read"}, 2},
	{[]string{"ksys_read", "vfs_read", "read_zero"}, 1},
	{[]string{"ksys_write", "vfs_write"}, 1},
	{[]string{"hrtimer_nanosleep", "do_nanosleep", "schedule", "__schedule"}, 1},
}

// callsFile is the tree for people, with times of each path that was seen.
func (t *T) callsFile(tree *oracle.Call, names oracle.Names) {
	var b bytes.Buffer
	fmt.Fprintf(&b, "function calls instructions nanoseconds\n%d %d\n", tree.Insns, tree.NS)
	tree.Print(&b, names.Of, 0)
	t.Files["calls.txt"] = b.Bytes()
}

// begins is where a function begins that has been spliced.
func (t *T) begins(guest, function string) uint64 {
	for _, p := range t.done(guest, "splice").Points {
		if p.Symbol == function {
			return p.Address - p.Offset
		}
	}
	t.g.Expect(function).To(gomega.BeEmpty(), "a function without a splice")
	return 0
}

// counts is what a function's counter has, at its entry.
func (t *T) counts(guest, function string) uint64 {
	var n uint64
	for _, v := range t.done(guest, "found").Values {
		if v.Symbol == function && v.Action == "count" {
			n += v.Count
		}
	}
	return n
}

// time is what splices found of a function, in nanoseconds.
func (t *T) time(guest, function, action string) float64 {
	a, err := probe.At{Types: t.Guests[guest].Types}.Compile(ofBench, action)
	t.noError(action, err)
	found := t.done(guest, "found")
	var values []*wire.Value
	for _, v := range found.Values {
		if v.Symbol == function && v.Action == action {
			values = append(values, v)
		}
	}
	all := a.Times(values, found.Moments)
	t.equal(function+": functions with "+action, len(all), 1)
	t.equal(function+": calls that are missing from "+action, all[0].Rows[0].Missing, int64(0))
	return all[0].Rows[0].NS
}

// as holds that what was seen of a function outside is what splices found, but for what
// these take.
func (t *T) as(name string, seen, found, apart float64) {
	t.Metrics["calls."+name] = report.Metric{Value: seen / found, Unit: "ratio", N: mixed * mixedBatches}
	t.atLeast(name+": seen outside, of what splices found", seen/found, 1-apart)
	t.atMost(name+": seen outside, of what splices found", seen/found, 1+apart)
}

// along counts the calls of the last function of a path by the ones before it.
func along(tree *oracle.Call, names oracle.Names, path []string) (n uint64) {
	tree.Walk(func(p []*oracle.Call) {
		if len(p) < len(path) {
			return
		}
		for k, c := range p[len(p)-len(path):] {
			if names.Of(c.Addr) != path[k] {
				return
			}
		}
		n += p[len(p)-1].Calls
	})
	return n
}

// addsUp holds that no function takes less than what it calls, nor longer asleep than awake.
func (t *T) addsUp(tree *oracle.Call, names oracle.Names) {
	var wrong []string
	check := func(c *oracle.Call) {
		insns, ns := c.Insns, c.NS
		for _, d := range c.Children {
			insns, ns = insns-d.Insns, ns-d.NS
		}
		if int64(insns) < 0 || int64(ns) < 0 || c.NS < c.Insns {
			wrong = append(wrong, fmt.Sprintf("%s: %d instructions and %d ns, %d and %d of its own", names.Of(c.Addr), c.Insns, c.NS, int64(insns), int64(ns)))
		}
	}
	check(tree)
	paths := 0
	tree.Walk(func(p []*oracle.Call) { check(p[len(p)-1]); paths++ })
	t.Metrics["calls.paths"] = report.Metric{Value: float64(paths), Unit: "paths", N: 1}
	t.equal("paths that do not add up", strings.Join(wrong, "; "), "")
}

// sendNames has a guest send the names of its kernel's code, packed: what a program may
// write has a bound. Those of padding are a third of amd64's.
func sendNames(step string) *wire.Step {
	return shell(step, "grep -E '^[0-9a-f]+ [tTwW] ' /proc/kallsyms | grep -v ' __pfx_' | gzip")
}

// names are those that a guest has sent.
func (t *T) names(guest, step string) oracle.Names {
	names, err := readNames(t.ran(guest, step)[0])
	t.noError(guest+": names", err)
	return names
}

func readNames(packed []byte) (oracle.Names, error) {
	r, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, err
	}
	return oracle.ReadNames(r)
}
