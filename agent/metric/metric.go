// Package metric says what the cells of a snippet mean: what is read back, since
// when, and what is not there yet.
package metric

import (
	"slices"

	"kerninst/agent/snippet"
)

// Reading is what an action has found.
type Reading struct {
	Count uint64   // of a sum; of other actions how often they were done
	Sums  []uint64 // all sums, if there are several
	Rows  []Row    // of an array, or of a map
	Lost  uint64   // of a map: how many came when it had no room
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

// Row is what was found for some keys: of an array, for none.
type Row struct {
	Keys   [2]uint64
	Values []uint64
}

// Read makes a reading of an action's cells from their words now and at the time
// since when it is asked for. A bound cannot be had since some time, only from
// where it was put back to its start. What is in rings is read while it comes:
// snippet.Reader.
func Read(s snippet.Snippet, now, since []uint64) (r Reading) {
	at := 0
	for k, c := range s.Cells {
		w, was := now[at:at+c.Words()], since[at:at+c.Words()]
		switch c.Kind {
		case snippet.Sum:
			r.Count = w[0] - was[0]
			r.Sums = append(r.Sums, r.Count)
		case snippet.Faults:
			r.Faults += w[0] - was[0]
		case snippet.Min, snippet.Max:
			r.Bound, r.Signed, r.Bounded = w[0], c.Type == snippet.S64, true
		case snippet.Array:
			r.Rows = []Row{{Values: change(w, was, nil)}}
		case snippet.Map:
			r.rows(c, w, was, s.Tops(k))
		case snippet.Stacks:
			r.records(c, w, was[0])
			r.Stacks = true
		}
		at += c.Words()
	}
	r.Bounded = r.Bounded && r.Count > 0
	if len(r.Sums) < 2 {
		r.Sums = nil
	}
	if slices.ContainsFunc(s.Cells, func(c snippet.Cell) bool { return c.Kind == snippet.Map }) {
		r.Lost, r.Count = r.Count, 0
	}
	return r
}

// change is how much numbers have grown. What is the largest that came by has none since
// some time: it is put back to its start then.
func change(now, since []uint64, tops []int) []uint64 {
	out := slices.Clone(now)
	for k := range out {
		if !slices.Contains(tops, k) {
			out[k] -= since[k]
		}
	}
	return out
}

// rows adds up the records of each key. Those that nobody came by since then are left out.
func (r *Reading) rows(c snippet.Cell, now, since []uint64, tops []int) {
	of := map[[2]uint64]int{}
	for k := range c.Records {
		w, was := now[k*c.Stride():], since[k*c.Stride():]
		if w[0] != snippet.Known {
			continue
		}
		keys := [2]uint64{w[1], w[2]}
		values := change(w[snippet.MapHead:snippet.MapHead+c.Fields], was[snippet.MapHead:], tops)
		if !slices.ContainsFunc(values, func(v uint64) bool { return v != 0 }) {
			continue
		}
		n, ok := of[keys]
		if !ok {
			of[keys] = len(r.Rows)
			r.Rows = append(r.Rows, Row{keys, values})
			continue
		}
		for k, v := range values {
			if all := r.Rows[n].Values; slices.Contains(tops, k) {
				all[k] = max(all[k], v)
			} else {
				all[k] += v
			}
		}
	}
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
