package scenarios

import "testing"

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
