package main

import (
	"testing"

	"kerninst/lab/status"
	"kerninst/scenarios"
)

func TestRead(t *testing.T) {
	for _, tt := range []struct{ text, want string }{
		{`[{"scenarios": [{"status": "passed", "metrics": {"m": {"value": 7}}}]}]`, "proof p amd64 7 3 passed"},
		{`[{"scenarios": [{"status": "crashed"}]}]`, "proof p amd64 0 3 crashed"},
		{`[{"scenarios": [{"status": "passed", "metrics": {"m": {"value": 0}}}]}]`, "proof p amd64 0 3 failed"},
		{`[{"scenarios": [{"status": "passed"}]}]`, "proof p amd64 0 3 failed"},
		{`[]`, "proof p amd64 0 3 lab_failed"},
		{``, "proof p amd64 0 3 lab_failed"},
	} {
		l := line{"p", "amd64", 0, 3, status.LabFailed}
		l.read([]byte(tt.text), "m")
		if l.String() != tt.want {
			t.Errorf("%s: got %q, want %q", tt.text, l, tt.want)
		}
	}
}

// Every proof is a scenario, and every scenario of that label a proof.
func TestTable(t *testing.T) {
	labelled, err := scenarios.Select("proof")
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]bool{}
	for _, p := range proofs {
		rows[p.name] = true
	}
	for _, s := range labelled {
		if !rows[s.Name] {
			t.Errorf("scenario %s is labelled proof and has no row", s.Name)
		}
		delete(rows, s.Name)
	}
	for name := range rows {
		t.Errorf("row %s has no scenario of that label", name)
	}
}
