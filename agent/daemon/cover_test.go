package daemon

import (
	"testing"

	"kerninst/agent/splice"
	"kerninst/agent/wire"
)

// A point is only taken away when nothing but its coverage is asked for.
func TestCovers(t *testing.T) {
	cover, count := &wire.Action{Cover: true}, &wire.Action{}
	for want, all := range map[bool][][]*wire.Action{
		true:  {{cover}, {cover, cover}},
		false: {nil, {count}, {cover, count}, {count, cover}},
	} {
		for _, actions := range all {
			if got := covers(&wire.Point{Actions: actions}); got != want {
				t.Errorf("%v: %v, want %v", actions, got, want)
			}
		}
	}
}

// What is dropped of a set is one splice, with all that is known of it.
func TestDrop(t *testing.T) {
	a, b, c := &splice.Live{}, &splice.Live{}, &splice.Live{}
	s := &set{specs: []string{"a", "b", "c"}, actions: [][]action{{{name: "1"}}, {{name: "2"}}, {{name: "3"}}},
		points: []*wire.Point{{Function: "a"}, {Function: "b"}, {Function: "c"}}, live: []*splice.Live{a, b, c}}
	s.drop(1)
	if len(s.specs) != 2 || s.specs[1] != "c" || s.actions[1][0].name != "3" || s.points[1].Function != "c" || s.live[1] != c || s.live[0] != a {
		t.Errorf("%+v", s)
	}
}
