package main

import (
	"testing"

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
