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
// in instructions, or asleep.
var mixedCalls = []struct {
	function string
	n        uint64
	long     bool
}{
	{"ksys_read", 2, false},
	{"vfs_read", 2, true},
	{"hrtimer_nanosleep", 1, true},
}

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
		p, err := callsPoints(in, c.function, c.long)
		if err != nil {
			return nil, err
		}
		points = append(points, p...)
	}
	return job(
		watchCalls(),
		splice("splice", points...),
		shell("names", "grep -E '^[0-9a-f]+ [tTwW] ' /proc/kallsyms | gzip"),
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
	t.ran(guest, "work")
	names := t.names(guest, "names")
	tree := t.Guests[guest].Calls
	var b bytes.Buffer
	tree.Print(&b, names.Of, 0)
	t.Files["calls.txt"] = b.Bytes()
	p := t.done(guest, "splice").Points
	for _, x := range p {
		fmt.Println(x.Symbol, x.Offset, x.Address, names.Of(x.Address-x.Offset), tree.Total(x.Address-x.Offset))
	}
	for _, v := range t.done(guest, "found").Values {
		fmt.Println(v.Symbol, v.Offset, v.Action, v.Count)
	}
	a, _ := probe.At{Types: t.Guests[guest].Types}.Compile(ofBench, "time")
	for _, x := range a.Times(t.done(guest, "found").Values, t.done(guest, "found").Moments) {
		fmt.Println(x.Function, x.Action, x.Rows)
	}
	fmt.Println(tree.Insns, tree.NS)
	_ = strings.TrimSpace
	_ = gomega.Equal
	_ = report.Metric{}
	_ = oracle.Call{}
}

// names are those that a guest has sent of its kernel's code, packed.
func (t *T) names(guest, step string) oracle.Names {
	r, err := gzip.NewReader(bytes.NewReader(t.ran(guest, step)[0]))
	t.noError(guest+": names", err)
	names, err := oracle.ReadNames(r)
	t.noError(guest+": names", err)
	return names
}
