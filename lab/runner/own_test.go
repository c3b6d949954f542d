package runner

import (
	"testing"
	"time"

	"kerninst/agent/wire"
	"kerninst/lab/session"
	"kerninst/lab/status"
	"kerninst/lab/vm"
)

// What a user lets a program take in a guest says how long he waits for a guest that
// ends none: not for minutes if it is seconds, nor less than a scenario wants.
func TestTimeout(t *testing.T) {
	program := func(limit time.Duration) *wire.Step {
		return &wire.Step{Do: &wire.Step_Run{Run: &wire.Run{Argv: []string{"true"}, TimeoutNs: uint64(limit)}}}
	}
	for _, tt := range []struct {
		name   string
		of     Request
		lo, hi time.Duration // of host time
	}{
		// An emulated CPU of exact time was seen to take 7 s for 1 s.
		{"a program", Request{Time: vm.Exact, Job: &wire.Job{Steps: []*wire.Step{program(0)}}}, 55 * time.Second, 100 * time.Second},
		{"two, one with a limit of its own", Request{Time: vm.Exact, Job: &wire.Job{Steps: []*wire.Step{program(0), program(time.Minute)}}}, 900 * time.Second, 1000 * time.Second},
		{"host time", Request{Time: vm.Host, Job: &wire.Job{Steps: []*wire.Step{program(0)}}}, 25 * time.Second, 50 * time.Second},
		{"a scenario's own", Request{Time: vm.Exact, RunTimeout: time.Hour, Job: &wire.Job{Steps: []*wire.Step{program(0)}}}, time.Hour, time.Hour},
	} {
		q := Own{Timeout: 5 * time.Second}.of(tt.of)
		if q.RunTimeout < tt.lo || q.RunTimeout > tt.hi {
			t.Errorf("%s: given up after %v, want %v to %v", tt.name, q.RunTimeout, tt.lo, tt.hi)
		}
		if got := q.Job.Steps[0].GetRun().TimeoutNs; got != uint64(5*time.Second) {
			t.Errorf("%s: the program has %d ns", tt.name, got)
		}
	}
	if q := (Own{}).of(Request{Time: vm.Exact, Job: &wire.Job{Steps: []*wire.Step{program(0)}}}); q.RunTimeout != 0 {
		t.Errorf("nobody asked: %v", q.RunTimeout)
	}
}

// TestWord: a guest that spliced nothing of what it was asked for did not just pass; one that was
// to plan, or to fail, did.
func TestWord(t *testing.T) {
	bad, good := &wire.PointResult{Refusal: &wire.Refusal{Reason: "no such function"}}, &wire.PointResult{}
	for _, c := range []struct {
		of   *wire.Result
		want string
	}{
		{&wire.Result{Step: "splice", Points: []*wire.PointResult{bad, bad}}, "every point of splice was refused"},
		{&wire.Result{Step: "splice", Points: []*wire.PointResult{bad, good}}, "passed"},
		{&wire.Result{Step: "splice", Points: []*wire.PointResult{bad}, Planned: &wire.Planned{}}, "passed"},
		{&wire.Result{Step: "splice", Points: []*wire.PointResult{bad}, Error: "no such function"}, "passed"},
		{&wire.Result{Step: "read"}, "passed"},
	} {
		g := &Guest{Outcome: &session.Outcome{Status: status.Passed, Records: []*wire.Record{{Body: &wire.Record_Result{Result: c.of}}}}}
		if got := g.word(); got != c.want {
			t.Errorf("%v: %q, want %q", c.of, got, c.want)
		}
	}
}
