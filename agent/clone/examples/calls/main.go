// Command calls prints which functions were called on behalf of a system call, one below the other, as
// JIFL's figure 14 does.
package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"kerninst/agent/clone/plugin"
)

// most is how many lines are printed.
const most = 200

// event is that a routine was entered or left.
type event struct {
	name  string
	leave bool
	point *plugin.Point
}

func main() {
	var events []event
	plugin.Main(plugin.Plugin{
		Routine: func(r *plugin.Routine) {
			events = append(events, event{r.Name, false, r.Insert("trace(tid)")})
			for _, p := range r.Returns("trace(tid)") {
				events = append(events, event{r.Name, true, p})
			}
		},
		Report: func(w io.Writer) { report(w, events) },
	})
}

// record is one of an event's.
type record struct {
	plugin.Record
	of event
}

func report(w io.Writer, events []event) {
	var all []record
	for _, e := range events {
		for _, r := range e.point.Found().Records {
			all = append(all, record{r, e})
		}
	}
	slices.SortFunc(all, func(a, b record) int { return cmp.Compare(a.Number, b.Number) })
	depth := map[uint64]int{} // of each thread
	for k, r := range all {
		if k == most {
			fmt.Fprintf(w, "and %d more\n", len(all)-most)
			break
		}
		tid := r.Fields[0]
		if r.of.leave {
			depth[tid] = max(0, depth[tid]-1)
			continue
		}
		fmt.Fprintf(w, "%6d  %s%s\n", tid, strings.Repeat("  ", depth[tid]), r.of.name)
		depth[tid]++
	}
}
