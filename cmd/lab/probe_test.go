package main

import (
	"encoding/json"
	"strings"
	"testing"

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
