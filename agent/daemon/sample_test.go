package daemon

import (
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
