package measure

import (
	"math"
	"math/bits"
	"math/rand/v2"
	"slices"
	"testing"
)

// critical are the largest U at which two samples of these sizes differ at 5 %, both
// directions together, as tables of Mann and Whitney's test print them; -1: at none.
var critical = []struct{ n, m, u int }{
	{3, 3, -1}, {2, 7, -1}, {2, 8, 0}, {3, 4, -1}, {3, 5, 0}, {4, 4, 0}, {4, 5, 1}, {5, 5, 2}, {6, 6, 5}, {5, 8, 6}, {7, 7, 8},
	{8, 8, 13}, {9, 9, 17}, {10, 10, 23}, {8, 12, 22}, {12, 12, 37}, {15, 15, 64}, {10, 20, 55}, {20, 20, 127},
}

// apart are two samples without equal values, of which u pairs are in the other order.
func apart(n, m, u int) (a, b []float64) {
	for j := range m {
		b = append(b, float64(2*j))
	}
	for range n { // each goes above as many of b as are left
		above := min(u, m)
		u -= above
		a = append(a, float64(2*above-1))
	}
	for i := range a {
		a[i] += float64(i) / float64(2*n) // not equal
	}
	return a, b
}

func TestMannWhitneyTables(t *testing.T) {
	for _, c := range critical {
		for u := range c.n * c.m / 2 {
			a, b := apart(c.n, c.m, u)
			got := Shifted(a, b, 0.95)
			if (got.P <= 0.05) != (u <= c.u) {
				t.Errorf("%d and %d samples, U %d: P %.4f, and the table has %d", c.n, c.m, u, got.P, c.u)
			}
			if one := Shifted(b, a, 0.95); math.Abs(one.P-got.P) > 1e-12 || one.Value != -got.Value || one.Lo != -got.Hi || one.Hi != -got.Lo {
				t.Errorf("%d and %d samples, U %d: %+v, and the other way round %+v", c.n, c.m, u, got, one)
			}
		}
		if few := LeastP(c.n, c.m) > 0.05; few != (c.u < 0) {
			t.Errorf("%d and %d samples: least P %.4f", c.n, c.m, LeastP(c.n, c.m))
		}
	}
}

// Hollander and Wolfe, Nonparametric Statistical Methods, example 4.1: U of 15 is 15 of
// 50, one-sided 0.1272, and the estimate 0.305; the interval is of 96 %.
func TestHollanderWolfe(t *testing.T) {
	term := []float64{0.80, 0.83, 1.89, 1.04, 1.45, 1.38, 1.91, 1.64, 0.73, 1.46}
	early := []float64{1.15, 0.88, 0.90, 0.74, 1.21}
	got := Shifted(early, term, 0.95)
	for what, v := range map[string][2]float64{
		"P": {got.P, 0.2544}, "estimate": {got.Value, 0.305}, "from": {got.Lo, -0.15}, "to": {got.Hi, 0.76}, "confidence": {got.Confidence, 0.96},
	} {
		if math.Abs(v[0]-v[1]) > 6e-4 {
			t.Errorf("%s %g, want %g", what, v[0], v[1])
		}
	}
}

// brute is P by its definition: of all ways to call as many of the values the first sample,
// how many lie apart as far.
func brute(a, b []float64) float64 {
	all, n := slices.Concat(a, b), len(a)
	off := func(first uint) float64 {
		u := 0.0
		for i := range all {
			for j := range all {
				if first>>i&1 == 1 && first>>j&1 == 0 {
					switch {
					case all[i] > all[j]:
						u++
					case all[i] == all[j]:
						u += 0.5
					}
				}
			}
		}
		return math.Abs(u - float64(n*len(b))/2)
	}
	far, ways := 0, 0
	for first := range uint(1) << len(all) {
		if bits.OnesCount(first) == n {
			ways++
			if off(first) >= off(1<<n-1) {
				far++
			}
		}
	}
	return float64(far) / float64(ways)
}

func TestEqualValues(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	drawn := func(n, values int) (s []float64) {
		for range n {
			s = append(s, float64(r.IntN(values)))
		}
		return s
	}
	for range 300 {
		values := 1 + r.IntN(6)
		a, b := drawn(1+r.IntN(5), values), drawn(1+r.IntN(5), values)
		if got, want := Shifted(a, b, 0.95).P, brute(a, b); math.Abs(got-want) > 1e-12 {
			t.Fatalf("%v %v: P %g, want %g", a, b, got, want)
		}
	}
}

// Where the normal distribution takes over, it is close to what is counted out.
func TestManySamples(t *testing.T) {
	for _, u := range []int{150, 200, 250, 300} {
		a, b := apart(25, 25, u)
		ranks, sum := doubleRanks(a, b)
		counted := rankSumP(a, b)
		if approx := normalP(ranks, 25, 25*51-sum); math.Abs(approx-counted) > 0.005 {
			t.Errorf("U %d: P %g, counted out %g", u, approx, counted)
		}
	}
	// Equal values among them: all but one, and all.
	one := make([]float64, 40)
	if got := Shifted(one, one, 0.95); got.P != 1 || got.Value != 0 || got.Lo != 0 || got.Hi != 0 {
		t.Errorf("all equal: %+v", got)
	}
	other := slices.Clone(one)
	other[0] = 1
	if got := Shifted(one, other, 0.95); got.P < 0.3 || got.P > 1 || got.Value != 0 {
		t.Errorf("one differs: %+v", got)
	}
	a, b := apart(40, 40, 400)
	if got := Shifted(a, b, 0.95); got.P > 0.001 || got.Lo > got.Value || got.Value > got.Hi || got.Confidence < 0.95 || got.Confidence > 0.96 {
		t.Errorf("%+v", got)
	}
}

// The estimate and its interval are those of all differences, written down.
func TestShiftIsOfAllDifferences(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 200 {
		var a, b, all []float64
		for range 4 + r.IntN(20) {
			a, b = append(a, math.Round(r.NormFloat64()*20)), append(b, math.Round(r.NormFloat64()*20+5))
		}
		for _, x := range a {
			for _, y := range b {
				all = append(all, y-x)
			}
		}
		slices.Sort(all)
		got := Shifted(a, b, 0.95)
		k, _ := outside(len(a), len(b), 0.05)
		if got.Value != Median(all) || got.Lo != all[k-1] || got.Hi != all[len(all)-k] {
			t.Fatalf("%v %v: %+v", a, b, got)
		}
	}
}

// An interval has the shift in it as often as it says, or more often.
func TestIntervalHoldsTheShift(t *testing.T) {
	const tries, shift = 2000, 3.0
	r := rand.New(rand.NewPCG(5, 6))
	held := 0
	for range tries {
		var a, b []float64
		for range 6 {
			a, b = append(a, r.ExpFloat64()), append(b, r.ExpFloat64()+shift)
		}
		if got := Shifted(a, b, 0.95); got.Lo <= shift && shift <= got.Hi {
			held++
		}
	}
	if part := float64(held) / tries; part < 0.94 || part > 0.98 { // 0.959 is what six and six come to
		t.Errorf("%g of intervals hold the shift", part)
	}
}

func TestFewSamples(t *testing.T) {
	got := Shifted([]float64{1}, []float64{2}, 0.95)
	if got.P != 1 || got.Value != 1 || got.Confidence != 0 || LeastP(1, 1) != 1 {
		t.Errorf("%+v, least P %g", got, LeastP(1, 1))
	}
	// Numbers at the end of all numbers.
	far := Shifted([]float64{-math.MaxFloat64}, []float64{math.MaxFloat64}, 0.95)
	if far.Value != math.MaxFloat64 {
		t.Errorf("%+v", far)
	}
	if got := Shifted([]float64{0}, []float64{math.Copysign(0, -1)}, 0.95); math.Signbit(got.Value) {
		t.Errorf("%+v", got)
	}
	if got := Shifted([]float64{1, 2}, []float64{1, 2}, 0.95); got.Value != 0 || math.Signbit(got.Value) {
		t.Errorf("%+v", got)
	}
	for v, want := range map[float64][]float64{2: {3, 1, 2}, 1.5: {2, 1}, math.MaxFloat64: {math.MaxFloat64, math.MaxFloat64}, 1.5e308: {1.4e308, 1.6e308}} {
		if got := Median(want); got != v {
			t.Errorf("median of %v: %g", want, got)
		}
	}
}
