// Package bisect finds where in a list something begins to be otherwise, by asking about as few of
// its elements as it can. It knows nothing of what they are.
package bisect

import (
	"context"
	"fmt"
)

// Answer is what is found of one element.
type Answer int

const (
	Unknown Answer = iota // it cannot be told: another one is asked about
	No
	Yes
)

// Found is where it begins: two elements of which the answers differ, neighbours but for Between.
type Found struct {
	Before int    // the last that is as the first of all
	After  int    // the first that is as the last of all
	First  Answer // of the first of all, and so of Before
	// Between are those of which nothing can be told: each of them may be where it begins.
	Between []int
}

// EndsError says that there is nothing to look for.
type EndsError struct {
	First, Last Answer
	Unknown     int // the end that cannot be told; -1: they are alike
}

func (e *EndsError) Error() string {
	if e.Unknown >= 0 {
		return fmt.Sprintf("of number %d, which is an end, nothing can be told", e.Unknown+1)
	}
	return "both ends are alike"
}

// Search looks among n elements, two or more. ask is called once for each that is asked about; an
// error of its own ends the search.
func Search(ctx context.Context, n int, ask func(ctx context.Context, i int) (Answer, error)) (Found, error) {
	answers := map[int]Answer{}
	for _, i := range []int{0, n - 1} {
		a, err := ask(ctx, i)
		if err != nil {
			return Found{}, err
		}
		if answers[i] = a; a == Unknown {
			return Found{}, &EndsError{answers[0], answers[n-1], i}
		}
	}
	f := Found{Before: 0, After: n - 1, First: answers[0]}
	if answers[0] == answers[n-1] {
		return Found{}, &EndsError{answers[0], answers[n-1], -1}
	}
	for {
		i, left := middle(f.Before, f.After, answers)
		if !left {
			break
		}
		a, err := ask(ctx, i)
		if err != nil {
			return Found{}, err
		}
		switch answers[i] = a; a {
		case Unknown:
		case f.First:
			f.Before = i
		default:
			f.After = i
		}
	}
	for i := f.Before + 1; i < f.After; i++ {
		f.Between = append(f.Between, i)
	}
	return f, nil
}

// middle is the element nearest to the middle between two that nobody has asked about.
func middle(before, after int, asked map[int]Answer) (nearest int, is bool) {
	at := before + (after-before)/2
	for d := 0; at-d > before || at+d < after; d++ {
		for _, i := range []int{at - d, at + d} {
			if _, known := asked[i]; !known && i > before && i < after {
				return i, true
			}
		}
	}
	return 0, false
}
