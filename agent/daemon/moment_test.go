package daemon

import (
	"fmt"
	"testing"

	"kerninst/agent/kdev"
)

// TestApart: code that is several units' is cut where any of them begins or ends, and who is
// inside is told of all that have it. A block of which an end is not there has none.
func TestApart(t *testing.T) {
	ranges, of := apart([]stretchOf{{100, 200, 0}, {120, 150, 1}, {150, 160, 2}, {140, 180, 3}, {300, 310, 0}, {200, 0, 4}, {300, 310, 0}})
	const want = "[{0x64 0x78 0} {0x78 0x8c 1} {0x8c 0x96 2} {0x96 0xa0 3} {0xa0 0xb4 4} {0xb4 0xc8 0} {0x12c 0x136 0}] " +
		"[[0] [0 1] [0 1 3] [0 2 3] [0 3]]"
	if got := fmt.Sprint(ranges, " ", of); got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	units := timed{names: []unit{{function: ":f"}, {":f", 20, 50}, {":f", 50, 60}, {":f", 40, 80}}}
	m := units.moment(kdev.Moment{Inside: []kdev.Inside{{Thread: 7, Of: 2, Frames: 3}, {Thread: 8, Of: 0, Frames: 1}}}, of)
	got := ""
	for _, i := range m.Inside {
		got += fmt.Sprintln(i.Thread, i.Function, i.Block.GetBegin(), i.Block.GetEnd(), i.Frames)
	}
	if want := "7 :f 0 0 3\n7 :f 20 50 3\n7 :f 40 80 3\n8 :f 0 0 1\n"; got != want {
		t.Errorf("%swant\n%s", got, want)
	}
}
