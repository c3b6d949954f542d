package main

import (
	"strings"
	"testing"
	"time"

	"kerninst/scenarios"
)

// Each way to die is a scenario of one guest, which says its mark unless the kernel
// says it.
func TestDeaths(t *testing.T) {
	for _, d := range deaths {
		list, err := scenarios.Select(d.scenario)
		if err != nil {
			t.Error(err)
			continue
		}
		guests := list[0].Guests("riscv64")
		if len(guests) != 1 || guests[0].Name != "guest" {
			t.Errorf("%s: guests %+v", d.scenario, guests)
		}
		if said := guests[0].Job.String(); d.mark == scenarios.FaultMark && !strings.Contains(said, d.mark) {
			t.Errorf("%s does not say %q: %s", d.scenario, d.mark, said)
		}
	}
}

// The clock stops at the lab's first line that says how its guest came out.
func TestTell(t *testing.T) {
	for text, want := range map[string]bool{
		"riscv64: s: crashed\ns.guest: crashed after 3.1 s\n":     true,
		"s.guest: Kernel panic\nother.guest: crashed after 1 s\n": false,
		"": false,
	} {
		told := make(chan time.Time, 1)
		tell(strings.NewReader(text), "s", told)
		if at := <-told; at.IsZero() == want {
			t.Errorf("%q: told at %v", text, at)
		}
	}
}
