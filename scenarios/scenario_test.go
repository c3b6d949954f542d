package scenarios

import (
	"slices"
	"testing"
)

// TestAllIsTheEvaluation: "all" selects what is listed, each once, and nothing that measures host time
// or fails on purpose.
func TestAllIsTheEvaluation(t *testing.T) {
	list, err := Select("all")
	if err != nil {
		t.Fatal(err)
	}
	if len(list) != len(evaluation) {
		t.Errorf("%d scenarios of %d that are listed", len(list), len(evaluation))
	}
	for _, s := range list {
		if s.Timed || contains(s.Labels, "fault") {
			t.Errorf("%s is among them", s.Name)
		}
	}
}

// TestJobsOfGuests: each guest has a job, or one is made of what an earlier guest has found.
func TestJobsOfGuests(t *testing.T) {
	made := 0
	for _, s := range All() {
		for _, arch := range []string{"amd64", "arm64", "riscv64"} {
			guests := s.Guests(arch)
			for k, g := range guests {
				earlier := slices.ContainsFunc(guests[:k], func(o Guest) bool { return o.Name == g.After })
				if g.Make != nil {
					made++
				}
				if (g.Make != nil) == (g.Job != nil) || (g.Make != nil) != earlier {
					t.Errorf("%s on %s: guest %s has a job: %v, and makes one: %v, of what an earlier one has found: %v", s.Name, arch, g.Name, g.Job != nil, g.Make != nil, earlier)
				}
			}
		}
	}
	if made < 50 {
		t.Errorf("%d guests make a job", made)
	}
}
