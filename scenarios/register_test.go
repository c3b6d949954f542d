package scenarios

import (
	"slices"
	"strings"
	"testing"

	"kerninst/lab/report"
	"kerninst/lab/runner"
	"kerninst/lab/session"
	"kerninst/lab/status"
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

// What a check does not say, the scenario does: that it panicked, or that a guest's job had ended before
// its end, or was not asked of it.
func TestIncomplete(t *testing.T) {
	env := &Env{Runner: runner.New(runner.Runner{Progress: func(string, ...any) {}}), Rerun: func(string) string { return "again" }}
	var points []int
	out := report.Scenario{Status: status.Passed}
	env.check(Scenario{Name: "s", Check: func(t *T) { _ = points[len(t.Guests)] }}, nil, &out)
	if out.Status != status.LabFailed || out.Failure == nil || !strings.Contains(out.Failure.Summary, "index out of range") {
		t.Errorf("a check that panics: %s, %+v", out.Status, out.Failure)
	}
	early := &runner.Guest{Request: runner.Request{Name: "s.g"}, Outcome: &session.Outcome{Status: status.Failed, Kind: session.StepFailed, Summary: "the job ended early"}}
	for _, c := range []struct {
		early    *runner.Guest
		notAsked string
		status   status.Status
		says     string
	}{
		{nil, "", status.Passed, ""},
		{early, "", status.Failed, "s.g: the job ended early"},
		{early, "h", status.Failed, "s.g: the job ended early"},
		{nil, "h", status.LabFailed, "h: " + runner.ErrNotAsked.Error()},
	} {
		st, f := env.incomplete(Scenario{Name: "s"}, c.early, c.notAsked)
		if st != c.status || (f == nil) != (c.says == "") || f != nil && f.Summary != c.says {
			t.Errorf("%+v: %s, %+v", c, st, f)
		}
	}
}
