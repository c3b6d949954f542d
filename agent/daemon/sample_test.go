package daemon

import (
	"slices"
	"testing"
	"time"

	"kerninst/agent/wire"
)

// However long a program runs, what is kept of it is its begin, its end and what is equally
// far apart in between.
func TestKeepSamples(t *testing.T) {
	s := &samples{period: time.Millisecond}
	last := uint64(0)
	for at := time.Duration(0); at < 10*time.Second; at += s.period {
		last = uint64(at)
		s.keep(&wire.Sample{Ns: last})
	}
	if n := len(s.kept); n > mostSamples || n < mostSamples/2 {
		t.Errorf("%d samples of %d are kept", n, mostSamples)
	}
	if s.kept[0].Ns != 0 || s.kept[len(s.kept)-1].Ns != last {
		t.Errorf("from %d to %d, want 0 to %d", s.kept[0].Ns, s.kept[len(s.kept)-1].Ns, last)
	}
	for k, x := range s.kept {
		if x.Ns != uint64(k)*uint64(s.period) {
			t.Fatalf("sample %d is of %d, want every %v", k, x.Ns, s.period)
		}
	}
}

// TestMostOf: of many points those are sampled that are come by most, and all that are timed.
func TestMostOf(t *testing.T) {
	weights := map[int]uint64{}
	var all []int
	for k := range 2 * mostSampled {
		all = append(all, k)
		weights[k] = uint64(k)
	}
	got := mostOf(slices.Clone(all), weights)
	if len(got) != mostSampled || slices.Min(got) != mostSampled {
		t.Errorf("%d, from %d, want %[3]d, from %[3]d", len(got), slices.Min(got), mostSampled)
	}
	for _, k := range all[:mostSampled+1] {
		weights[k] = always
	}
	if got := mostOf(slices.Clone(all), weights); !slices.Equal(got, all[:mostSampled+1]) {
		t.Errorf("%d, want the %d that are timed", len(got), mostSampled+1)
	}
}
