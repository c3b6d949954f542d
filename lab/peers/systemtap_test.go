package peers

import (
	"strings"
	"testing"
)

const tapText = `value |-------------------------------------------------- count
    0 |                                                     0
    1 |@                                                  126
    2 |@@                                                 252
    4 |@@@@                                               504
      ~
   64 |@                                                  126
  128 |                                                     0

`

// What SystemTap's scripts print is read whole.
func TestSystemTap(t *testing.T) {
	for name, tt := range map[string]struct {
		read func([]byte) (Answer, error)
		text string
		want Answer
	}{
		"number":    {TapNumber, "8064\n", number(8064)},
		"by name":   {TapKeyed, "bench 8064\na b 5\n", Answer{Keyed: map[string]uint64{"bench": 8064, "a b": 5}}},
		"histogram": {TapHistogram, tapText, Answer{Buckets: map[uint64]uint64{1: 126, 2: 252, 4: 504, 64: 126}}},
		"records":   {TapRecords, "4849736 1\n4849736 2\n", Answer{Records: [][]uint64{{4849736, 1}, {4849736, 2}}}},
	} {
		if got, err := tt.read([]byte(tt.text)); err != nil || !got.Equal(tt.want) {
			t.Errorf("%s: %v, %v, want %v", name, got, err, tt.want)
		}
	}
}

// Each text with one thing in it changed is no answer.
func TestSystemTapRefuses(t *testing.T) {
	for _, tt := range []struct {
		read           func([]byte) (Answer, error)
		text, old, new string
	}{
		{TapNumber, "8064\n", "8064", "-1"},
		{TapNumber, "8064\n", "8064", ""},
		{TapNumber, "8064\n", "8064", "8064 1"},
		{TapKeyed, "bench 8064\nother 5\n", "other", "bench"},
		{TapKeyed, "bench 8064\n", "8064", "many"},
		{TapKeyed, "bench 8064\n", "bench ", ""},
		{TapHistogram, tapText, "   64 |", "   65 |"},
		{TapHistogram, tapText, "   64 |", "  <64 |"},
		{TapHistogram, tapText, "@@@@  ", "lost  "},
		{TapRecords, "4849736 1\n", "1\n", "one\n"},
		{TapRecords, "1\n2\n", "2", ""},
	} {
		text := strings.Replace(tt.text, tt.old, tt.new, 1)
		if a, err := tt.read([]byte(text)); err == nil {
			t.Errorf("with %q for %q there was the answer %v", tt.new, tt.old, a)
		}
	}
}
