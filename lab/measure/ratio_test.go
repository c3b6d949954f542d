package measure

import (
	"math"
	"reflect"
	"testing"
)

func times(values []float64, factors ...float64) []float64 {
	out := make([]float64, len(values))
	for i, v := range values {
		out[i] = v * factors[i%len(factors)]
	}
	return out
}

// count is 1, 2, … n.
func count(n int) (out []float64) {
	for i := range n {
		out = append(out, float64(i+1))
	}
	return out
}

func TestPairedRatio(t *testing.T) {
	six := count(6)
	// 1 - 2/64: the interval of six is all of them.
	want := Ratio{3.5, 1, 9, 0.96875, []float64{2, 3, 4, 9, 1, 5}}
	if r, err := PairedRatio(six, times(six, want.Pairs...)); err != nil || !reflect.DeepEqual(r, want) {
		t.Errorf("%+v, %v; want %+v", r, err, want)
	}
	// Pairs cancel what both arms share: a host that slows down tenfold each time.
	slower := []float64{1, 10, 100, 1000, 1e4, 1e5}
	if r, err := PairedRatio(slower, times(slower, 2)); err != nil || r.Value != 2 || r.Lo != 2 || r.Hi != 2 {
		t.Errorf("%+v, %v", r, err)
	}
	// Of 24 pairs, the 8th and the 18th: of 24 coins at most 7 are heads with
	// probability 0.03196, at least 18 with 0.01133.
	ones := times(count(24), 1)
	for i := range ones {
		ones[i] = 1
	}
	r, err := PairedRatio(ones, count(24))
	if err != nil || r.Value != 12.5 || r.Lo != 8 || r.Hi != 18 || math.Abs(r.Confidence-(1-0.03195733-0.01132792)) > 1e-6 {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestNoRatio(t *testing.T) {
	six := count(6)
	for name, bad := range map[string][2][]float64{
		"few":      {six[:5], six[:5]},
		"uneven":   {six, count(7)},
		"zero":     {six, {0, 1, 1, 1, 1, 1}},
		"negative": {{1, 1, 1, -1, 1, 1}, six},
		"NaN":      {{1, 1, math.NaN(), 1, 1, 1}, six},
	} {
		if r, err := PairedRatio(bad[0], bad[1]); err == nil {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

func TestBest(t *testing.T) {
	copies := []*Bench{{Ops: 10, NS: []uint64{100, 900, 110}}, {Ops: 10, NS: []uint64{90, 120}}}
	if got := Best(copies); got != 9.5 {
		t.Errorf("got %g, want 9.5", got)
	}
}
