package main

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"kerninst/agent/probe"
	"kerninst/agent/wire"
	"kerninst/lab/runner"
	"kerninst/lab/session"
	"kerninst/lab/status"
)

// A workload whose output is cut says so; one whose is whole has no such key.
func TestProbeTruncated(t *testing.T) {
	for _, cut := range []bool{false, true} {
		f := &probeFlags{}
		d := f.document(&runner.Guest{Outcome: &session.Outcome{Status: status.Passed, Records: []*wire.Record{
			{Body: &wire.Record_Result{Result: &wire.Result{Step: "workload", Runs: []*wire.RunResult{{Stdout: []byte("x"), Truncated: cut}}}}},
		}}})
		text, err := json.Marshal(d)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(string(text), `"truncated":true`); got != cut || strings.Contains(string(text), "truncated") != cut {
			t.Errorf("cut %v: %s", cut, text)
		}
	}
}

// What actions found comes as numbers with their sign; the smallest of nothing is none.
func TestProbeActions(t *testing.T) {
	f := &probeFlags{do: []string{"min(int32(arg0))", "max(arg0)", "trace(arg1)", "sum(load8(arg0))"}, specs: []string{"kinst::p:8"}, runString: "true"}
	if _, err := f.job(); err != nil {
		t.Fatal(err)
	}
	values := []*wire.Value{
		{Spec: "p", Action: f.do[0], Count: 2, Bounded: true, Bound: 1<<64 - 5, Signed: true},
		{Spec: "p", Action: f.do[1]},
		{Spec: "p", Action: f.do[2], Count: 3, Dropped: 2, Records: []*wire.TraceRecord{{Fields: []uint64{1<<64 - 1}}}},
		{Spec: "p", Action: f.do[3], Count: 7, Faults: 3},
	}
	d := f.document(&runner.Guest{Outcome: &session.Outcome{Status: status.Passed, Records: []*wire.Record{
		{Body: &wire.Record_Result{Result: &wire.Result{Step: "splice", Points: []*wire.PointResult{{Spec: "p"}}}}},
		{Body: &wire.Record_Result{Result: &wire.Result{Step: "read", Values: values}}},
	}}})
	text, err := json.Marshal(d.Points[0])
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`"value":-5,`, `{"action":"min(int32(arg0))","value":-5,"hits":2}`, `{"action":"max(arg0)","hits":0}`,
		`"hits":3,"records":[{"number":0,"fields":[18446744073709551615]}],"dropped":2`,
		`{"action":"sum(load8(arg0))","value":7,"hits":7,"faults":3}`,
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("%s\nhas no %s", text, want)
		}
	}
}

// TestProbeOwn: a specification has its own predicate and action, or those that are given for
// all.
func TestProbeOwn(t *testing.T) {
	f := &probeFlags{do: []string{"count", "max(arg1)"}, predicate: "arg0 > 1", runString: "true",
		specs: []string{"kinst::a:8", "kinst::b:8 sum(arg2)", "kinst::c:8 /arg3 > 1/", "kinst::d:8 /arg3 > 1/ sum(arg2)"}}
	job, err := f.job()
	if err != nil {
		t.Fatal(err)
	}
	compiled := func(predicate string, do ...string) (out []string) {
		for _, a := range do {
			s, err := probe.Compile(predicate, a)
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, s.String())
		}
		return out
	}
	for k, want := range [][]string{
		compiled("arg0 > 1", "count", "max(arg1)"), compiled("arg0 > 1", "sum(arg2)"), compiled("arg3 > 1", "count", "max(arg1)"), compiled("arg3 > 1", "sum(arg2)"),
	} {
		var got []string
		for _, a := range job.Steps[0].GetSplice().Points[k].Actions {
			got = append(got, a.Snippet)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", f.specs[k], got, want)
		}
	}
	for _, bad := range []string{"kinst::a:8 sum(argh)", "kinst::a:8 /argh/"} {
		if _, err := (&probeFlags{do: []string{"count"}, runString: "true", specs: []string{bad}}).job(); err == nil {
			t.Errorf("%s: no error", bad)
		}
	}
}
