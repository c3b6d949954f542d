package peers

import (
	"fmt"
	"maps"
	"math/bits"
	"slices"
	"strings"
)

// Answer is what one tool found out. Each question has one of these filled in.
type Answer struct {
	Number  *uint64           // a count, or a sum
	Buckets map[uint64]uint64 // how many, by the smallest number of the bucket: 0, 1, 2, 4, 8…
	Keyed   map[string]uint64 // how many, by key
	Records [][]uint64        // in the order in which they came
}

// Bucket is the smallest number in the bucket of n: those of a power of two up to the next.
func Bucket(n uint64) uint64 {
	if n == 0 {
		return 0
	}
	return 1 << (bits.Len64(n) - 1)
}

// shown bounds what String says of records.
const shown = 8

// String is all of an answer in one line, for who compares two by eye; records are so many,
// and the first.
func (a Answer) String() string {
	var out []string
	if a.Number != nil {
		out = append(out, fmt.Sprint(*a.Number))
	}
	for _, lo := range slices.Sorted(maps.Keys(a.Buckets)) {
		out = append(out, fmt.Sprintf("[%d…) %d", lo, a.Buckets[lo]))
	}
	for _, k := range slices.Sorted(maps.Keys(a.Keyed)) {
		out = append(out, fmt.Sprintf("%s %d", k, a.Keyed[k]))
	}
	if n := len(a.Records); n > 0 {
		out = append(out, fmt.Sprintf("%d records: %v", n, a.Records[:min(n, shown)]))
	}
	return strings.Join(out, ", ")
}

// Equal says whether two tools say the same.
func (a Answer) Equal(o Answer) bool {
	number := func(n *uint64) (uint64, bool) {
		if n == nil {
			return 0, false
		}
		return *n, true
	}
	an, aok := number(a.Number)
	on, ook := number(o.Number)
	return an == on && aok == ook && maps.Equal(a.Buckets, o.Buckets) && maps.Equal(a.Keyed, o.Keyed) &&
		slices.EqualFunc(a.Records, o.Records, slices.Equal[[]uint64])
}
