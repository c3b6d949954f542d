package scenarios

import (
	"slices"
	"testing"
)

// TestClonedOperations: what is measured of clones is of LMbench's operations.
func TestClonedOperations(t *testing.T) {
	for _, s := range []clonedSuite{clonedSlice, clonedWhole} {
		for _, o := range s.operations {
			if !slices.Contains(allOps(), o) {
				t.Errorf("%s is none of %v", o, allOps())
			}
		}
	}
}
