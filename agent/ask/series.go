package ask

import (
	"fmt"
	"slices"

	"kerninst/agent/probe"
	"kerninst/agent/wire"
)

// Series is how what one action counts grew while the workload ran.
type Series struct {
	Name string   `json:"name"` // of the point, with the action if there is another than counting; or of the function that is timed
	NS   []uint64 `json:"ns"`   // guest time since the workload began
	Hits []uint64 `json:"hits"` // until then; of a function that is timed, calls that began
	// Inside are the calls that were inside of a function that is timed.
	Inside []int64 `json:"inside,omitempty"`
	timed  bool
	traces bool
}

// Rate is how many hits there were a second between the sample before the k-th, from 1, and
// the k-th.
func (s *Series) Rate(k int) float64 {
	if s.NS[k] <= s.NS[k-1] {
		return 0
	}
	return float64(s.Hits[k]-s.Hits[k-1]) * 1e9 / float64(s.NS[k]-s.NS[k-1])
}

// followed are the series of one run, as far as they have come.
type followed struct {
	r   *Request
	all []*Series
	of  map[string]*Series
	ns  []uint64 // of the samples
	// began is who was inside of what is timed when counting began.
	began *wire.Moment
	// traced is how many records of an action there were until then.
	traced func(v *wire.Value, ns uint64) uint64
}

// add takes one more sample. What is not in it has what it had: a point that was covered is
// there no more.
func (f *followed) add(x *wire.Sample) {
	if f.of == nil {
		f.of, f.began = map[string]*Series{}, x.Began
	}
	f.ns = append(f.ns, x.Ns)
	for _, s := range f.all {
		last := len(s.NS) - 1
		s.NS, s.Hits = append(s.NS, x.Ns), append(s.Hits, s.Hits[last])
		if s.timed {
			s.Inside = append(s.Inside, s.Inside[last])
		}
	}
	seen := map[*Series]bool{}
	for _, v := range x.Values {
		c := f.r.compiled[v.Action]
		if c.Covers() {
			continue
		}
		s := f.series(v)
		k := len(s.NS) - 1
		if !seen[s] { // several points have one series: those of a function
			seen[s], s.Hits[k] = true, 0
			if s.timed {
				s.Inside[k] = c.Inside(f.began, v)
			}
		}
		switch s.traces = c.Traces(); {
		case s.traces:
			s.Hits[k] = f.traced(v, x.Ns)
		case v.Timed == wire.Timed_UNTIMED:
			s.Hits[k] += c.Found(v).Hits
		case v.Timed == wire.Timed_ENTERS:
			s.Hits[k] += passed(v)
			s.Inside[k] += int64(passed(v))
		default:
			s.Inside[k] -= int64(passed(v))
		}
	}
}

// passed is how often a function was entered, or left there: see probe.Times.
func passed(v *wire.Value) (n uint64) {
	for _, r := range v.Rows {
		if len(r.Values) == 2 {
			n += r.Values[1]
		}
	}
	return n
}

// series is the one that a value is of, which may begin with it.
func (f *followed) series(v *wire.Value) *Series {
	timed := v.Timed != wire.Timed_UNTIMED
	name := v.Spec + "  " + v.Action
	if timed && v.Block != nil {
		name = fmt.Sprintf("kinst:%s:%d  %s", v.Function, v.Block.Begin, v.Action)
	} else if timed {
		name = "kinst:" + v.Function + ":entry  " + v.Action
	} else if v.Action == "count" {
		name = v.Spec
	}
	s := f.of[name]
	if s == nil {
		// Nobody had come by yet, or hardly anybody, if it is new: see agent/daemon's samples.
		s = &Series{Name: name, NS: slices.Clone(f.ns), Hits: make([]uint64, len(f.ns)), timed: timed}
		if timed {
			s.Inside = make([]int64, len(f.ns))
		}
		f.of[name], f.all = s, append(f.all, s)
	}
	if asked := probe.AskedAs(v); asked != "" {
		s.Name = "kinst:" + asked + ":entry  " + v.Action
	}
	return s
}

// series fills in how what was found grew, if that was asked for. What was traced is known by
// the records, unless those were written as they came: then it has no series.
func (a *Answer) series(r *Request, samples []*wire.Sample) {
	if len(samples) == 0 {
		return
	}
	came := map[string][]probe.Moment{}
	for _, e := range r.followed.events { // in order of time
		came[e.Spec+"  "+e.Action] = append(came[e.Spec+"  "+e.Action], e.NS)
	}
	f := followed{r: r, traced: func(v *wire.Value, ns uint64) uint64 {
		n, _ := slices.BinarySearch(came[v.Spec+"  "+v.Action], probe.Moment(ns)+1)
		return uint64(n)
	}}
	for _, x := range samples {
		f.add(x)
	}
	for _, s := range f.all {
		if !s.traces || r.TraceTo == "" {
			a.Series = append(a.Series, s)
		}
	}
}
