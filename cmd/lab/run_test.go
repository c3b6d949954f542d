package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"kerninst/scenarios"
)

func TestListScenarios(t *testing.T) {
	var text, doc bytes.Buffer
	if err := listScenarios(&text, false); err != nil {
		t.Fatal(err)
	}
	if err := listScenarios(&doc, true); err != nil {
		t.Fatal(err)
	}
	var got struct {
		Schema    int
		Scenarios []listed
	}
	if err := json.Unmarshal(doc.Bytes(), &got); err != nil || got.Schema != 1 {
		t.Fatalf("%v: %s", err, doc.String())
	}
	all, lines := scenarios.All(), strings.Split(strings.TrimSpace(text.String()), "\n")
	if len(got.Scenarios) != len(all) || len(lines) != len(all) {
		t.Fatalf("%d scenarios, %d lines; want %d", len(got.Scenarios), len(lines), len(all))
	}
	for k, s := range all {
		if l := got.Scenarios[k]; l.Name != s.Name || l.Title != s.Title || l.Timed != s.Timed || l.Labels == nil {
			t.Errorf("got %+v for %s", l, s.Name)
		}
		if !strings.HasPrefix(lines[k], s.Name+" ") || !strings.HasSuffix(lines[k], s.Title) {
			t.Errorf("line %q for %s", lines[k], s.Name)
		}
	}
}
