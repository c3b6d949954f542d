package metric

import (
	"reflect"
	"testing"

	"kerninst/agent/snippet"
)

func TestRead(t *testing.T) {
	stack := snippet.Cell{Kind: snippet.Stacks, Records: 2, Fields: 1}
	least := []snippet.Cell{{Kind: snippet.Min, Type: snippet.S64}, {Kind: snippet.Sum}}
	for _, c := range []struct {
		name       string
		cells      []snippet.Cell
		now, since []uint64
		want       Reading
	}{
		{"a count since then", []snippet.Cell{{Kind: snippet.Sum}}, []uint64{7}, []uint64{3}, Reading{Count: 4}},
		{"a count that turned over", []snippet.Cell{{Kind: snippet.Sum}}, []uint64{1}, []uint64{1<<64 - 1}, Reading{Count: 2}},
		{"a smallest", least, []uint64{5, 3}, []uint64{9, 1}, Reading{Count: 2, Bounded: true, Bound: 5, Signed: true}},
		{"no smallest yet", least, []uint64{1<<63 - 1, 3}, []uint64{1<<63 - 1, 3}, Reading{Bound: 1<<63 - 1, Signed: true}},
		{"a sum, and loads that came to nothing", []snippet.Cell{{Kind: snippet.Sum}, {Kind: snippet.Faults}}, []uint64{9, 5}, []uint64{1, 2},
			Reading{Count: 8, Faults: 3}},
		{"records", []snippet.Cell{stack}, []uint64{2, 1, 10, 2, 20}, []uint64{0, 0, 0, 0, 0},
			Reading{Stacks: true, Count: 2, Records: []snippet.Record{{0, []uint64{10}}, {1, []uint64{20}}}}},
		{"records since the first, one dropped", []snippet.Cell{stack}, []uint64{3, 1, 10, 2, 20}, []uint64{1, 1, 10, 0, 0},
			Reading{Stacks: true, Count: 2, Dropped: 1, Records: []snippet.Record{{0, []uint64{20}}}}},
		{"one not written to its end", []snippet.Cell{stack}, []uint64{2, 0, 10, 2, 20}, []uint64{0, 0, 0, 0, 0},
			Reading{Stacks: true, Count: 2, Holes: 1, Records: []snippet.Record{{1, []uint64{20}}}}},
		{"full before", []snippet.Cell{stack}, []uint64{9, 1, 10, 2, 20}, []uint64{5, 1, 10, 2, 20}, Reading{Stacks: true, Count: 4, Dropped: 4}},
		{"two sums", []snippet.Cell{{Kind: snippet.Sum}, {Kind: snippet.Sum}}, []uint64{10, 3}, []uint64{4, 1}, Reading{Count: 2, Sums: []uint64{6, 2}}},
		{"an array", []snippet.Cell{{Kind: snippet.Array, Records: 2}}, []uint64{10, 3}, []uint64{4, 1}, Reading{Rows: []Row{{Values: []uint64{6, 2}}}}},
		{"a map", []snippet.Cell{{Kind: snippet.Map, Records: 4, Fields: 1}, {Kind: snippet.Sum}},
			// One whose number was 3, one that came later, one that is being written, and the first's again.
			[]uint64{2, 7, 8, 5, 2, 9, 0, 1, 1, 6, 0, 0, 2, 7, 8, 2, 4}, []uint64{2, 7, 8, 3, 0, 0, 0, 0, 0, 0, 0, 0, 2, 7, 8, 1, 1},
			Reading{Lost: 3, Rows: []Row{{[2]uint64{7, 8}, []uint64{3}}, {[2]uint64{9, 0}, []uint64{1}}}}},
		{"a map of which nothing was used since", []snippet.Cell{{Kind: snippet.Map, Records: 2, Fields: 1}, {Kind: snippet.Sum}},
			[]uint64{2, 7, 8, 3, 0, 0, 0, 0, 0}, []uint64{2, 7, 8, 3, 0, 0, 0, 0, 0}, Reading{}},
	} {
		if got := Read(snippet.Snippet{Cells: c.cells}, c.now, c.since); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}
