package bisect

import (
	"context"
	"errors"
	"math/bits"
	"math/rand/v2"
	"slices"
	"testing"
)

// search looks among answers, and holds that none is asked about twice.
func search(t *testing.T, answers []Answer) (f Found, asked int, err error) {
	t.Helper()
	times := map[int]int{}
	f, err = Search(context.Background(), len(answers), func(_ context.Context, i int) (Answer, error) {
		if times[i]++; times[i] > 1 {
			t.Errorf("%v: asked about %d again", answers, i)
		}
		return answers[i], nil
	})
	return f, len(times), err
}

// Wherever it begins it is found, in as many questions as halving takes, and both ways round.
func TestEveryPlace(t *testing.T) {
	for n := 2; n < 40; n++ {
		for at := 1; at < n; at++ {
			for _, first := range []Answer{Yes, No} {
				answers := make([]Answer, n)
				for i := range answers {
					if answers[i] = first; i >= at {
						answers[i] = Yes + No - first
					}
				}
				f, asked, err := search(t, answers)
				if err != nil || f.Before != at-1 || f.After != at || f.First != first || len(f.Between) > 0 {
					t.Fatalf("%v: %+v, %v", answers, f, err)
				}
				if most := 2 + bits.Len(uint(n-2)); asked > most {
					t.Fatalf("%d of %d: asked about %d, %d are enough", at, n, asked, most)
				}
			}
		}
	}
}

// What nothing can be told of is passed by, and said where it may be the place.
func TestUnknown(t *testing.T) {
	for seed := range uint64(500) {
		r := rand.New(rand.NewPCG(seed, 1))
		n := 2 + r.IntN(30)
		at := 1 + r.IntN(n-1)
		answers := make([]Answer, n)
		for i := range answers {
			switch {
			case i > 0 && i < n-1 && r.IntN(3) == 0:
			case i < at:
				answers[i] = Yes
			default:
				answers[i] = No
			}
		}
		var want Found
		want.First, want.After = Yes, slices.Index(answers, No)
		for i := range want.After {
			if answers[i] == Yes {
				want.Before = i
			}
		}
		for i := want.Before + 1; i < want.After; i++ {
			want.Between = append(want.Between, i)
		}
		f, _, err := search(t, answers)
		if err != nil || f.Before != want.Before || f.After != want.After || f.First != Yes || !slices.Equal(f.Between, want.Between) {
			t.Fatalf("%v: %+v, %v, want %+v", answers, f, err, want)
		}
	}
}

func TestNothingToLookFor(t *testing.T) {
	for _, tt := range []struct {
		answers []Answer
		want    EndsError
		asked   int
	}{
		{[]Answer{Yes, No, Yes}, EndsError{Yes, Yes, -1}, 2},
		{[]Answer{No, No}, EndsError{No, No, -1}, 2},
		{[]Answer{Unknown, Yes, No}, EndsError{Unknown, Unknown, 0}, 1},
		{[]Answer{Yes, Yes, Unknown}, EndsError{Yes, Unknown, 2}, 2},
	} {
		_, asked, err := search(t, tt.answers)
		var ends *EndsError
		if !errors.As(err, &ends) || *ends != tt.want || asked != tt.asked {
			t.Errorf("%v: %v after %d questions, want %+v", tt.answers, err, asked, tt.want)
		}
	}
}

// An error of who is asked ends the search.
func TestAskFails(t *testing.T) {
	broken := errors.New("broken")
	for at := range 3 {
		n := 0
		_, err := Search(context.Background(), 9, func(_ context.Context, i int) (Answer, error) {
			if n++; n > at {
				return Unknown, broken
			}
			return map[bool]Answer{true: Yes, false: No}[i < 4], nil
		})
		if !errors.Is(err, broken) || n != at+1 {
			t.Errorf("at question %d: %v after %d", at+1, err, n)
		}
	}
}
