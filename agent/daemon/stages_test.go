package daemon

import (
	"testing"
	"time"
)

// What a stage within another takes is its own, not the other's.
func TestStages(t *testing.T) {
	var s stages
	s.enter(stagePlan)
	s.since = s.since.Add(-3 * time.Hour)
	former := s.enter(stageLiveness)
	s.since = s.since.Add(-2 * time.Hour)
	s.enter(former)
	s.since = s.since.Add(-time.Hour)
	if s.enter(""); s.now != "" {
		t.Errorf("stage %q is under way", s.now)
	}
	want := []struct {
		name  string
		hours uint64
	}{{stagePlan, 4}, {stageLiveness, 2}}
	for i, w := range want {
		if g := s.all[i]; g.Name != w.name || g.Ns/uint64(time.Hour) != w.hours {
			t.Errorf("stage %d is %s of %v, want %s of %d hours", i, g.Name, time.Duration(g.Ns), w.name, w.hours)
		}
	}
}
