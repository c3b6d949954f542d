package daemon

import (
	"reflect"
	"testing"
)

func TestDifferences(t *testing.T) {
	flip := func(at ...int) []byte {
		b := make([]byte, 3*page+100)
		for _, i := range at {
			b[i] ^= 1
		}
		return b
	}
	for _, tt := range []struct {
		name string
		b    []byte
		want []span
	}{
		{"equal", flip(), nil},
		{"first and last", flip(0, 3*page+99), []span{{0, 1}, {3*page + 99, 3*page + 100}}},
		{"near ones are one", flip(10, 13, 20), []span{{10, 21}}},
		{"far ones are two", flip(10, 40), []span{{10, 11}, {40, 41}}},
		{"across pages", flip(page-1, page), []span{{page - 1, page + 1}}},
	} {
		if got := differences(flip(), tt.b); !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%s: got %v, want %v", tt.name, got, tt.want)
		}
	}
}
