package plugins

import (
	"cmp"
	"slices"

	"kerninst/agent/wire"
)

// Again asks for a clone that has grown, whole from the begin. Those functions come first that were entered
// most, after the first, for what is inserted may leave no room for the last.
func Again(c *wire.Clone) *wire.Cloning {
	order := make([]int, len(c.Functions))
	for k := range order {
		order[k] = k
	}
	order = order[min(1, len(order)):]
	if len(c.Uses) == len(c.Functions) {
		slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(c.Uses[b], c.Uses[a]) })
	}
	out := &wire.Cloning{Entry: c.Entry, Links: c.Links}
	for _, k := range order {
		out.Functions = append(out.Functions, c.Functions[k])
	}
	return out
}
