package qemu

import (
	"slices"
	"testing"
)

// Packets are told from what is between them, and from those that have not come yet.
func TestPackets(t *testing.T) {
	for said, want := range map[string][]string{
		"":                       nil,
		"++":                     nil,
		"+$OK#9a":                {"OK"},
		"+$OK#9a+$#00":           {"OK", ""},
		"$OK#9":                  nil,
		"$OK#9a+$m<x>#6":         {"OK"},
		"$OK#9a+$mab#30+$l#6c++": {"OK", "mab", "l"},
	} {
		if got, err := packets([]byte(said)); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %q, %v, want %q", said, got, err, want)
		}
	}
	for _, said := range []string{"$OK#9b", "#9a$OK#9a", "$OK#zz"} {
		if got, err := packets([]byte(said)); err == nil {
			t.Errorf("%q: %q", said, got)
		}
	}
}
