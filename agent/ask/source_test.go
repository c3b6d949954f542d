package ask

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"kerninst/agent/probe"
)

// TestTell: points, the stacks that were there and what is traced are told with their lines; of a stack
// all but the first are calls. A module's are asked for with its name.
func TestTell(t *testing.T) {
	value := probe.Number{Bits: 5}
	a := Answer{
		Points: []Point{
			{Spec: "kinst::f#2:16", Offset: 16, Mechanism: "jump", Value: &value},
			{Spec: "kinst:ext4:g:8", Offset: 8, Mechanism: "jump", Value: &value},
			{Spec: "kinst::h:entry", Mechanism: "jump", Actions: []probe.Finding{{Action: "stack", Hits: 1, Stacks: []probe.Backtrace{{Symbols: []string{"h+0x0", "ext4:g+0x4", "f#2+0x21"}}}}}},
		},
		Trace: &Trace{Events: []probe.Event{{NS: 1000, Spec: "kinst::f#2:16", Fields: []uint64{7}}, {NS: 2000, Spec: "kinst:ext4:g:8", Fields: []uint64{9}}}},
	}
	var asked []string
	a.Tell(func(place string, returned bool) string {
		asked = append(asked, fmt.Sprint(place, returned))
		return map[string]string{"f#2+0x10false": "f.c:1 in < f", "h+0x0false": "h.c:2", "f#2+0x21true": "f.c:3", "ext4:g+0x8false": "g.c:4"}[asked[len(asked)-1]]
	})
	if want := []string{"f#2+0x10false", "ext4:g+0x8false", "h+0x0false", "h+0x0false", "ext4:g+0x4true", "f#2+0x21true"}; !slices.Equal(asked, want) {
		t.Errorf("asked for %q, want %q", asked, want)
	}
	var b strings.Builder
	(&Request{}).Print(&b, a)
	const want = `kinst::f#2:16   jump  5      f.c:1 in < f
kinst:ext4:g:8  jump  5      g.c:4
kinst::h:entry  jump  stack  1 stacks, 0 of them dropped, 0 unfinished
                             1 times
                               h+0x0 h.c:2
                               ext4:g+0x4
                               f#2+0x21 f.c:3
0.000001000 s  CPU 0  kinst::f#2:16   f.c:1 in < f  7
0.000002000 s  CPU 0  kinst:ext4:g:8  g.c:4         9
`
	if b.String() != want {
		t.Errorf("%swant\n%s", b.String(), want)
	}
}
