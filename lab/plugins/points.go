package plugins

import (
	"fmt"
	"strconv"
	"strings"

	"kerninst/agent/clone/plugin"
	"kerninst/agent/plan"
	"kerninst/agent/probe"
	"kerninst/agent/wire"
)

// Points makes points of what a plugin wants inserted. Each does one action, which is named by its number, as
// results are.
func Points(out *plugin.Output, at probe.At) ([]*wire.Point, probe.Compiled, error) {
	compiled := probe.Compiled{}
	same := map[string]probe.Action{}
	var points []*wire.Point
	for k, p := range out.Points {
		a, ok := same[p.Action]
		if !ok {
			_, predicate, action, err := probe.Parts("kinst " + p.Action)
			if err == nil {
				a, err = at.Compile(predicate, action)
			}
			if err != nil {
				return nil, nil, fmt.Errorf("%s+%#x: %q: %w", p.Function, p.Offset, p.Action, err)
			}
			if a.Timed() || a.Covers() {
				return nil, nil, fmt.Errorf("%s+%#x: %q: clones have no times and no coverage", p.Function, p.Offset, p.Action)
			}
			same[p.Action] = a
		}
		name := strconv.Itoa(k)
		compiled[name] = a
		points = append(points, &wire.Point{
			Module: p.Module, Function: p.Function, Offset: p.Offset, Entry: p.Entry, Place: wire.Place(p.Where), Within: p.Within,
			Mechanism: plan.Clone.String(), Actions: []*wire.Action{{Name: name, Snippet: a.Snippet.String()}},
		})
	}
	return points, compiled, nil
}

// Found is what each of so many points has found, by what a guest's daemon says of the points, of their values and
// of what was traced.
func Found(n int, points []*wire.PointResult, values []*wire.Value, events []probe.Event) []plugin.Found {
	out := make([]plugin.Found, n)
	of := func(name string) *plugin.Found {
		k, err := strconv.Atoi(name)
		if err != nil || k < 0 || k >= n {
			return &plugin.Found{}
		}
		return &out[k]
	}
	for _, p := range points {
		for _, a := range p.Actions {
			if r := p.Refusal; r != nil {
				of(a).Refused = r.Reason + ": " + r.Detail
			}
		}
	}
	for _, v := range values {
		f := of(v.Action)
		f.Value = v.Count
		if v.Bounded {
			f.Value = v.Bound
		}
		for _, r := range v.Rows {
			f.Rows = append(f.Rows, plugin.Row{Keys: r.Keys, Values: r.Values})
		}
	}
	for k, e := range events {
		f := of(e.Action)
		f.Records = append(f.Records, plugin.Record{Number: uint64(k), CPU: e.CPU, Fields: e.Fields})
	}
	return out
}

// Refusals counts, by reason, what could not be inserted.
func Refusals(found []plugin.Found) map[string]int {
	out := map[string]int{}
	for _, f := range found {
		if f.Refused != "" {
			reason, _, _ := strings.Cut(f.Refused, ":")
			out[reason]++
		}
	}
	return out
}
