package images

import (
	"slices"
	"strings"
	"testing"
)

// Each package of each software is locked for each ISA that has it, and no other is.
func TestSoftwareLocked(t *testing.T) {
	lock, err := ReadLock("..")
	if err != nil {
		t.Fatal(err)
	}
	for name, s := range softwares {
		for _, isa := range targets {
			var got []string
			for _, p := range lock[softwareSet(name, isa.name)] {
				got = append(got, p.Name)
				if p.Path == "" {
					t.Errorf("%s for %s: nobody knows where archives have %s", name, isa.name, p)
				}
			}
			slices.Sort(got)
			want := s.of(isa.name)
			if SoftwareUnlocked(name, isa.name) != "" {
				want = nil
			}
			if !slices.Equal(got, want) {
				t.Errorf("%s for %s: %v are locked, want %v", name, isa.name, got, want)
			}
		}
	}
}

// A word that is none is answered with the one that was meant.
func TestCheckSoftware(t *testing.T) {
	for _, name := range Softwares() {
		if err := CheckSoftware(name); err != nil {
			t.Error(err)
		}
	}
	err := CheckSoftware("bpftrase")
	if err == nil || !strings.Contains(err.Error(), "apache, bpftrace, perf, squid, systemtap") || !strings.Contains(err.Error(), "did you mean") {
		t.Errorf("bpftrase: %v", err)
	}
	if m := SoftwareMemory("squid", "bpftrace"); m != softwares["bpftrace"].memory || m == 0 {
		t.Errorf("both need %d MiB", m)
	}
}
