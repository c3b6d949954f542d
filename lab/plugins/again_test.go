package plugins

import (
	"slices"
	"testing"

	"kerninst/agent/wire"
)

func TestAgain(t *testing.T) {
	for _, c := range []struct {
		functions []string
		uses      []uint64
		want      []string
	}{
		{nil, nil, nil},
		{[]string{"entry"}, []uint64{7}, nil},
		{[]string{"entry", "seldom", "often", "seldom too"}, []uint64{0, 1, 9, 1}, []string{"often", "seldom", "seldom too"}},
		{[]string{"entry", "one", "other"}, nil, []string{"one", "other"}}, // of an agent that has not counted
	} {
		led := []*wire.Led{{Function: "one", Offset: 4, To: []string{"other"}}}
		got := Again(&wire.Clone{Entry: "entry", Functions: c.functions, Uses: c.uses, Links: led})
		if got.Entry != "entry" || !slices.Equal(got.Functions, c.want) || !slices.Equal(got.Links, led) {
			t.Errorf("%v, entered %v: %v", c.functions, c.uses, got)
		}
	}
}
