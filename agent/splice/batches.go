package splice

import (
	"errors"
	"fmt"
	"slices"

	"kerninst/agent/plan"
)

// MostWrites is the most points that are written, or undone, in one batch of the kernel's: with
// springboards and what is moved away it is no more than kdev.MaxBatch takes. What is asked for
// at once may be more: then it is several batches, of which all are made or none.
const MostWrites = 4096

// stuckError says that what was made could not be taken back: it is live, and its slots are not
// free.
type stuckError struct{ err error }

func (e *stuckError) Error() string { return "what was spliced before it stays: " + e.err.Error() }

func (e *stuckError) Unwrap() error { return e.err }

// pokeAll makes all splices, in their order, or none. A springboard, and what completes a jump,
// comes before what needs it, in the same batch or in an earlier one, which is as good.
func (s *Splicer) pokeAll(batch []Splice, of []*plan.Plan) error {
	for lo := 0; lo < len(batch); lo += s.most {
		hi := min(lo+s.most, len(batch))
		if err := s.poker.Splice(batch[lo:hi]); err != nil {
			return s.takenBack(batch[:lo], blame(of[lo:hi], err))
		}
	}
	return nil
}

// takenBack takes batches back, the newest splices first, after one of them was refused for err.
func (s *Splicer) takenBack(batch []Splice, err error) error {
	var ids []uint32
	for _, b := range slices.Backward(batch) {
		ids = append(ids, b.ID)
	}
	for some := range slices.Chunk(ids, s.most) {
		if back := s.poker.Undo(some); back != nil {
			return errors.Join(err, &stuckError{fmt.Errorf("%d splices: %w", len(some), back)})
		}
	}
	return err
}
