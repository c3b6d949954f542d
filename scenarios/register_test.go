package scenarios

import (
	"slices"
	"testing"

	"kerninst/lab/vm"
)

// Scenarios that take long begin first; among equals the order stays.
func TestLongestFirst(t *testing.T) {
	guests := [][]Guest{
		{{CPUs: 1}},
		{{CPUs: 1, Time: vm.Host}},
		{{CPUs: 1, Time: vm.Exact}, {CPUs: 2, Time: vm.Host}},
		{{CPUs: 2, Time: vm.Exact}},
		{{CPUs: 2}},
	}
	for in, want := range map[vm.Time][]int{vm.Exact: {2, 1, 0, 3, 4}, vm.Host: {2, 4, 0, 1, 3}} {
		if got := (&Env{Time: in}).longestFirst(guests); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", in, got, want)
		}
	}
}
