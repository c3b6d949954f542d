package measure

import (
	"math"
	"slices"
	"sort"
)

// Shift is how much further up one sample lies than another, of which nothing else
// is assumed: Mann and Whitney's test, and Hodges and Lehmann's estimate.
type Shift struct {
	// P is how probable it is that two samples from one population lie apart as far as
	// these, in either direction.
	P float64
	// Value is the median of all differences between one of the second and one of the
	// first.
	Value float64
	// Lo and Hi are two of these differences, by rank, between which the true shift lies
	// with Confidence. That is 0 if so few samples bound it at no such confidence.
	Lo, Hi     float64
	Confidence float64
}

// exactSamples is up to how many samples, of both together, probabilities are counted out.
// With more of them, the normal distribution is as good.
const exactSamples = 50

// Shifted compares two samples, of which neither is empty. The interval has at least the
// confidence asked for.
//
// The library that has PairedRatio's interval has this test, too; with equal values it
// returns probabilities above 1, hence this one.
func Shifted(a, b []float64, confidence float64) Shift {
	a, b = slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b))
	n := len(a) * len(b)
	s := Shift{P: rankSumP(a, b), Value: middle(difference(a, b, (n+1)/2), difference(a, b, n/2+1))}
	k, p := outside(len(a), len(b), 1-confidence)
	if k > 0 {
		s.Lo, s.Hi, s.Confidence = difference(a, b, k), difference(a, b, n+1-k), 1-p
	}
	return s
}

// LeastP is the smallest P that samples of two sizes can come to: that all of one are
// above all of the other. If it is not small enough, there are too few.
func LeastP(n, m int) float64 {
	p := 2.0
	for k := 1; k <= min(n, m); k++ {
		p *= float64(k) / float64(max(n, m)+k)
	}
	return min(1, p)
}

// Median is the middle value of a sample that is not empty.
func Median(of []float64) float64 {
	s := slices.Sorted(slices.Values(of))
	return middle(s[(len(s)-1)/2], s[len(s)/2])
}

// middle does not overflow.
func middle(a, b float64) float64 {
	if a == b {
		return a
	}
	return a/2 + b/2
}

// rankSumP is the two-sided probability of the first sample's ranks.
func rankSumP(a, b []float64) float64 {
	ranks, sum := doubleRanks(a, b)
	n, m := len(a), len(b)
	// The sum of doubled ranks is n(N+1) in the mean: a whole number.
	off := sum - n*(n+m+1)
	if off < 0 {
		off = -off
	}
	if n+m > exactSamples {
		return normalP(ranks, n, off)
	}
	beyond, all := 0.0, 0.0
	for s, ways := range rankSums(ranks, n) {
		all += ways
		if d := s - n*(n+m+1); d <= -off || off <= d {
			beyond += ways
		}
	}
	return beyond / all
}

// doubleRanks are twice the ranks of both samples together, and the sum of the first's.
// Equal values share the mean of their ranks, which doubled is a whole number.
func doubleRanks(a, b []float64) (ranks []int, sum int) {
	all := slices.Sorted(slices.Values(slices.Concat(a, b)))
	of := map[float64]int{}
	for i := 0; i < len(all); {
		j := i
		for j < len(all) && all[j] == all[i] {
			j++
		}
		for k := i; k < j; k++ {
			ranks = append(ranks, i+j+1) // of i+1 to j, twice the mean
		}
		of[all[i]], i = i+j+1, j
	}
	for _, v := range a {
		sum += of[v]
	}
	return ranks, sum
}

// rankSums counts in how many ways n of the ranks have each sum. Up to exactSamples a
// float64 holds each number exactly.
func rankSums(ranks []int, n int) []float64 {
	most := 0
	for _, r := range ranks {
		most += r
	}
	ways := make([][]float64, n+1) // by how many were chosen, and their sum
	for k := range ways {
		ways[k] = make([]float64, most+1)
	}
	ways[0][0] = 1
	for _, r := range ranks {
		for k := n; k > 0; k-- {
			for s := most; s >= r; s-- {
				ways[k][s] += ways[k-1][s-r]
			}
		}
	}
	return ways[n]
}

// normalP is the probability that n ranks' doubled sum is that far off its mean, with
// half a step taken for what lies between whole ranks. What is equal makes the
// distribution narrower.
func normalP(ranks []int, n, off int) float64 {
	all := float64(len(ranks))
	variance := 0.0
	for _, r := range ranks {
		d := float64(r)/2 - (all+1)/2
		variance += d * d
	}
	variance *= float64(n) * (all - float64(n)) / (all * (all - 1))
	if variance == 0 {
		return 1 // all values are one
	}
	z := max(0, float64(off)/2-0.5) / math.Sqrt(variance)
	return math.Erfc(z / math.Sqrt2)
}

// outside is how many of the differences between samples of two sizes may lie outside an
// interval on either side, plus one, if the true shift is to lie outside with a probability
// of at most alpha; and that probability. 0: there is no such interval.
func outside(n, m int, alpha float64) (k int, p float64) {
	tail := tails(n, m)
	k = sort.Search(n*m/2, func(u int) bool { return 2*tail(u) > alpha })
	if k > 0 {
		p = 2 * tail(k-1)
	}
	return k, p
}

// tails is the probability that at most u pairs are in the other order, where nothing is
// equal: Mann and Whitney's U.
func tails(n, m int) func(u int) float64 {
	if n+m > exactSamples {
		mean := float64(n) * float64(m) / 2
		deviation := math.Sqrt(mean * float64(n+m+1) / 6)
		return func(u int) float64 { return math.Erfc((mean-float64(u)-0.5)/deviation/math.Sqrt2) / 2 }
	}
	ranks := make([]int, n+m)
	for i := range ranks {
		ranks[i] = i + 1
	}
	ways, all := rankSums(ranks, n), 0.0
	for _, w := range ways {
		all += w
	}
	least := n * (n + 1) / 2
	var sums []float64 // up to the middle
	for u, sum := 0, 0.0; u <= n*m/2; u++ {
		sum += ways[least+u] / all
		sums = append(sums, sum)
	}
	return func(u int) float64 { return sums[u] }
}

// difference is the k-th smallest, from 1, of all differences between one of b and one
// of a, which are both in order. It looks for the number, bit by bit, that k of them are
// at or below, so that two long samples take no more memory than they have.
func difference(a, b []float64, k int) float64 {
	lo, hi := ordered(minus(b[0], a[len(a)-1])), ordered(minus(b[len(b)-1], a[0]))
	for lo < hi {
		mid := lo + (hi-lo)/2
		if atOrBelow(a, b, unordered(mid)) >= k {
			hi = mid
		} else {
			lo = mid + 1
		}
	}
	return unordered(lo) + 0 // -0 is as small as 0, and has a smaller number
}

// atOrBelow counts differences. In order of a, the limit in b only goes up.
func atOrBelow(a, b []float64, v float64) (n int) {
	j := 0
	for _, x := range a {
		for j < len(b) && minus(b[j], x) <= v {
			j++
		}
		n += j
	}
	return n
}

// minus is b - a as far as there are numbers: never an infinity, and 0 has one form.
func minus(b, a float64) float64 {
	return max(-math.MaxFloat64, min(math.MaxFloat64, b-a)) + 0
}

// ordered numbers floats in their own order; unordered is its inverse.
func ordered(v float64) uint64 {
	bits := math.Float64bits(v)
	if bits>>63 == 1 {
		return ^bits
	}
	return bits | 1<<63
}

func unordered(n uint64) float64 {
	if n>>63 == 1 {
		return math.Float64frombits(n &^ (1 << 63))
	}
	return math.Float64frombits(^n)
}
