package main

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"kerninst/lab/report"
	"kerninst/lab/status"
	"kerninst/scenarios"
)

// TestSuiteLimit: no scenario is ended before its guests' own limits end it.
func TestSuiteLimit(t *testing.T) {
	suite, _ := suiteConfiguration()
	for _, s := range scenarios.All() {
		for _, g := range s.Guests("amd64") {
			if limit := g.BootTimeout + g.RunTimeout; limit >= suite.Timeout {
				t.Errorf("%s: guest %s has %v, all scenarios together %v", s.Name, g.Name, limit, suite.Timeout)
			}
		}
	}
}

// TestFinish: a scenario that says nothing of itself, and by which ginkgo has failed, fails the run.
func TestFinish(t *testing.T) {
	for failed, want := range map[bool]int{false: 0, true: status.ExitLabFailed} {
		f := runFlags{}
		f.out = t.TempDir()
		env := &scenarios.Env{Results: []report.Scenario{{Name: "good", Status: status.Passed}}}
		err := f.finish(env, failed, report.Results{Schema: report.Schema, Arch: "amd64", Time: "exact"}, json.RawMessage(`{"schema":1}`), time.Now(), 0)
		var code *exit
		if got := errors.As(err, &code); got != (want != 0) || got && code.code != want {
			t.Errorf("failed %v: %v, want exit status %d", failed, err, want)
		}
		b, err := os.ReadFile(filepath.Join(f.out, report.ResultsFile))
		if err != nil || strings.Contains(string(b), `"status": "lab_failed"`) != failed {
			t.Errorf("failed %v: %v: %s", failed, err, b)
		}
	}
}
