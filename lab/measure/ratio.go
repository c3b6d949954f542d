package measure

import (
	"fmt"
	"slices"

	"golang.org/x/perf/benchmath"
)

// Ratio is how many times as much one arm of an experiment takes as the other.
//
// The unit of replication is the pair: one boot with each arm, close to each
// other in time. What both share, such as how busy the host is, cancels in their
// quotient; samples of one boot say nothing about the next and are one figure.
type Ratio struct {
	// Value is the median of the pairs' ratios.
	Value float64
	// Lo and Hi are two of the pairs' ratios, by rank, between which the true
	// median lies with Confidence. Ranks follow from the binomial distribution
	// (each pair is above the median or below, like a coin); nothing is assumed
	// of how ratios are distributed.
	Lo, Hi     float64
	Confidence float64
	Pairs      []float64 // in the order in which they were measured
}

const (
	// Confidence is what an interval has at least.
	Confidence = 0.95
	// MinPairs is how many pairs such an interval takes: that six lie on one
	// side of the median has probability 2/64, that five do 2/32.
	MinPairs = 6
)

// PairedRatio compares arm b with arm a, pair by pair. Fewer than MinPairs, or an
// observation that is not above zero, make no ratio.
func PairedRatio(a, b []float64) (Ratio, error) {
	if len(a) != len(b) || len(a) < MinPairs {
		return Ratio{}, fmt.Errorf("%d and %d observations: want as many of each, and at least %d", len(a), len(b), MinPairs)
	}
	pairs := make([]float64, len(a))
	for i := range a {
		if !(a[i] > 0 && b[i] > 0) { // nor NaN
			return Ratio{}, fmt.Errorf("pair %d: %g and %g: want times above zero", i, a[i], b[i])
		}
		pairs[i] = b[i] / a[i]
	}
	sample := benchmath.NewSample(slices.Clone(pairs), &benchmath.DefaultThresholds) // sorts
	s := benchmath.AssumeNothing.Summary(sample, Confidence)
	return Ratio{s.Center, s.Lo, s.Hi, s.Confidence, pairs}, nil
}

// Best is the time of one operation, in the unit of the samples: the shortest
// sample of each copy, which least of what else the host did fell into; of all
// copies, the mean.
func Best(copies []*Bench) (sum float64) {
	for _, b := range copies {
		sum += b.Min()
	}
	return sum / float64(len(copies))
}
