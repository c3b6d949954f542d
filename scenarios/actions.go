package scenarios

import (
	"fmt"
	"slices"
	"strings"

	"kerninst/agent/probe"
	"kerninst/agent/wire"
)

// Actions at the function that every read goes through, of which only those of the
// workload have lengths from the smaller to the larger of these two: what is counted,
// added up, bounded and traced is known beforehand, on any number of CPUs.
const (
	smallRead, largeRead = 701, 777
	readsOfEach          = 100 // by each copy of the workload
)

var (
	readsOfWorkload = fmt.Sprintf("arg2 >= %d && arg2 <= %d", smallRead, largeRead)
	readActions     = []string{"count", "sum(arg2)", "min(arg2)", "max(int32(arg2))", "trace(arg2, cycles)", "stack(6)"}
	// goes is taken away while the others stay.
	goes = "sum(arg2)"
)

// actionSteps do all of them in one patch, and then all but one.
func actionSteps(copies uint32) []*wire.Step {
	p := somewhere("vfs_read")
	for _, do := range readActions {
		s, err := probe.Compile(readsOfWorkload, do)
		if err != nil {
			panic(err) // of a constant
		}
		p.Actions = append(p.Actions, &wire.Action{Name: do, Snippet: s.String()})
	}
	work := func(name string) *wire.Step {
		var all []string
		for _, n := range []int{smallRead, largeRead} {
			all = append(all, fmt.Sprintf("dd if=/dev/zero of=/dev/null bs=%d count=%d 2>/dev/null", n, readsOfEach))
		}
		s := shell(name, strings.Join(all, " && "))
		s.GetRun().Copies = copies
		return s
	}
	one := unsplice("actions")
	one.Name, one.GetUnsplice().Action = "fewer", goes
	return []*wire.Step{splice("actions", p), work("reads"), read("found"), one, work("more"), read("found more"), unsplice("actions")}
}

// checkActions compares with what the workload did.
func checkActions(t *T, guest string, copies uint64) {
	t.done(guest, "actions")
	t.ran(guest, "reads")
	t.ran(guest, "more")
	of := func(step string, times uint64, names []string) {
		found := map[string]*wire.Value{}
		var got []string
		for _, v := range t.done(guest, step).Values {
			found[v.Action] = v
			got = append(got, v.Action)
		}
		t.equal(guest+": "+step+": actions", got, names)
		hits := 2 * readsOfEach * copies * times
		for _, do := range names {
			want := hits
			if do == goes {
				want = readsOfEach * copies * (smallRead + largeRead)
			}
			t.equal(guest+": "+step+": "+do+": how often, or how much", found[do].GetCount(), want)
		}
		t.equal(guest+": "+step+": the smallest", found["min(arg2)"].GetBound(), uint64(smallRead))
		t.equal(guest+": "+step+": the largest", found["max(int32(arg2))"].GetBound(), uint64(largeRead))
		checkTrace(t, guest+": "+step, found["trace(arg2, cycles)"], hits)
		checkStacks(t, guest+": "+step, found["stack(6)"], hits)
	}
	of("found", 1, readActions)
	of("found more", 2, slices.DeleteFunc(slices.Clone(readActions), func(s string) bool { return s == goes }))
	t.done(guest, "fewer")
}

// stackRoom is how many stacks are kept: the first.
const stackRoom = 128

// checkKept holds what was kept of the workload's reads to be the first of them, so many at
// the most, and all to be as it is to be.
func checkKept(t *T, what string, v *wire.Value, hits, most uint64, right func(*wire.TraceRecord) bool) {
	t.equal(what+": records kept", len(v.GetRecords()), int(min(most, hits)))
	t.equal(what+": records dropped", v.GetDropped(), hits-min(most, hits))
	t.equal(what+": records not finished", v.GetHoles(), uint64(0))
	wrong := 0
	for k, r := range v.GetRecords() {
		if r.Number != uint64(k) || !right(r) {
			wrong++
		}
	}
	t.equal(what+": records of anything but the workload's reads", wrong, 0)
}

func checkTrace(t *T, what string, v *wire.Value, hits uint64) {
	checkKept(t, what, v, hits, hits, func(r *wire.TraceRecord) bool {
		return (r.Fields[0] == smallRead || r.Fields[0] == largeRead) && r.Fields[1] != 0
	})
}

// checkStacks holds every stack to begin at the point, and to come from the system call.
func checkStacks(t *T, what string, v *wire.Value, hits uint64) {
	checkKept(t, what+": stacks", v, hits, stackRoom, func(r *wire.TraceRecord) bool {
		return strings.HasPrefix(r.Symbols[0], "vfs_read+") && cameFrom(r, "sys_read+")
	})
}

// cameFrom reports whether a stack has a function whose name ends so.
func cameFrom(r *wire.TraceRecord, name string) bool {
	return slices.ContainsFunc(r.Symbols, func(s string) bool { return strings.Contains(s, name) })
}
