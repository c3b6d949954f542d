package scenarios

import (
	"testing"

	"kerninst/lab/runner"
	"kerninst/lab/vm"
)

// A host needs what the guests of a scenario take that run at one time.
func TestNeeds(t *testing.T) {
	const usual = runner.DefaultMemory + besideGuest
	s := Scenario{Guests: func(string) []Guest {
		return []Guest{
			{Name: "small", CPUs: 1, Time: vm.Exact},
			{Name: "turns", CPUs: 2, Time: vm.Exact},
			{Name: "wide", CPUs: 4, Time: vm.Host},
			{Name: "either", CPUs: 2, Memory: 2048},
		}
	}}
	for _, tt := range []struct {
		name           string
		time           vm.Time
		jobs, own, mem int
		want           Needs
	}{
		{"one at a time", vm.Exact, 1, 0, 0, Needs{CPUs: 4, MemMiB: besideAll + 2048 + besideGuest}},
		{"two", vm.Exact, 2, 0, 0, Needs{CPUs: 5, MemMiB: besideAll + 2048 + besideGuest + usual}},
		{"two in host time", vm.Host, 2, 0, 0, Needs{CPUs: 6, MemMiB: besideAll + 2048 + besideGuest + usual}},
		{"more than there are", vm.Exact, 9, 0, 0, Needs{CPUs: 7, MemMiB: besideAll + 2048 + besideGuest + 3*usual}},
		{"the user's CPUs", vm.Exact, 1, 8, 0, Needs{CPUs: 8, MemMiB: besideAll + 2048 + besideGuest}},
		{"the user's memory", vm.Exact, 1, 0, 1024, Needs{CPUs: 4, MemMiB: besideAll + 1024 + besideGuest}},
	} {
		if got := s.Needs("amd64", tt.time, tt.jobs, tt.own, tt.mem); got != tt.want {
			t.Errorf("%s: %+v, want %+v", tt.name, got, tt.want)
		}
	}
}

// What measures host time has a host to itself, and what looks at a whole kernel has memory for it.
func TestNeedsOfKinds(t *testing.T) {
	one := func(g Guest) func(string) []Guest { return func(string) []Guest { return []Guest{g} } }
	if n := (Scenario{Timed: true, Guests: one(Guest{})}).Needs("amd64", vm.Host, 1, 0, 0); !n.Alone {
		t.Error("beside others, what is measured is theirs, too")
	}
	plain := Scenario{Guests: one(Guest{})}.Needs("amd64", vm.Exact, 1, 0, 0)
	for _, g := range []Guest{{Index: true}, {Text: true}, {Executed: 1}} {
		if n := (Scenario{Guests: one(g)}).Needs("amd64", vm.Exact, 1, 0, 0); n.MemMiB != plain.MemMiB+ofAnalysis || n.Alone {
			t.Errorf("%+v: %+v", g, n)
		}
	}
}

// Every scenario says what it needs on every ISA.
func TestEachScenarioHasNeeds(t *testing.T) {
	for _, s := range All() {
		for _, arch := range []string{"amd64", "arm64", "riscv64"} {
			if n := s.Needs(arch, vm.Exact, 1, 0, 0); len(s.Guests(arch)) > 0 && (n.CPUs < 1 || n.MemMiB < runner.DefaultMemory) {
				t.Errorf("%s on %s: %+v", s.Name, arch, n)
			}
		}
	}
}
