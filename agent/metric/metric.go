// Package metric says what the cells of a snippet mean: what is read back, since
// when, and what is not there yet.
package metric

import "kerninst/agent/snippet"

// Reading is what an action has found.
type Reading struct {
	Count uint64 // of a sum; of other actions how often they were done
	// Bounded is true of a smallest or largest of which at least one came by.
	Bounded bool
	Bound   uint64
	Signed  bool // Bound has a sign
	Records []snippet.Record
	Stacks  bool // each is what a stack was, from the point outwards
	Holes   uint64
	Dropped uint64
	Faults  uint64 // loads that came to nothing: 0 was taken for what is there
}

// Read makes a reading of an action's cells from their words now and at the time
// since when it is asked for. A bound cannot be had since some time, only from
// where it was put back to its start.
func Read(cells []snippet.Cell, now, since []uint64) (r Reading) {
	at := 0
	for _, c := range cells {
		w, was := now[at:at+c.Words()], since[at:at+c.Words()]
		switch c.Kind {
		case snippet.Sum:
			r.Count += w[0] - was[0]
		case snippet.Faults:
			r.Faults += w[0] - was[0]
		case snippet.Min, snippet.Max:
			r.Bound, r.Signed, r.Bounded = w[0], c.Type == snippet.S64, true
		case snippet.Buffer, snippet.Stacks:
			r.records(c, w, was[0])
			r.Stacks = c.Kind == snippet.Stacks
		}
		at += c.Words()
	}
	r.Bounded = r.Bounded && r.Count > 0
	return r
}

// records keeps those that came after the first so many.
func (r *Reading) records(c snippet.Cell, w []uint64, since uint64) {
	all, _, _ := c.Read(w)
	for _, rec := range all {
		if rec.Number >= since {
			rec.Number -= since
			r.Records = append(r.Records, rec)
		}
	}
	r.Count += w[0] - since
	room := uint64(c.Records) - min(since, uint64(c.Records))
	came := min(r.Count, room)
	r.Dropped, r.Holes = r.Count-came, came-uint64(len(r.Records))
}
