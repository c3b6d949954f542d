package daemon

import (
	"cmp"
	"slices"
	"time"

	"kerninst/agent/splice"
	"kerninst/agent/wire"
)

// What is counted can be followed while programs run: it is noted now and then, from memory
// that is shared with the patches, so nothing stops for it. Who waits meanwhile and who sends
// is the daemon, and comes by points as everybody does.

const (
	// mostSamples is how many are kept. When there are more, every other one is forgotten,
	// and from then on they are taken half as often: a second and an hour have as many.
	mostSamples = 512
	// mostSampled is of how many points there are values in a sample, unless more are timed.
	mostSampled = 256
)

// samples are those of a run.
type samples struct {
	d      *Daemon
	began  time.Time
	period time.Duration
	kept   []*wire.Sample
	send   func(*wire.Sample) error // nil: they are kept

	res        *wire.Result // has those that are kept, in the end
	end, ended chan bool    // of who takes them now and then
}

// sampling notes what has been counted, at once, and until it is told to stop. It is nil if
// nobody wants that.
func (d *Daemon) sampling(of *wire.Run, out *stream, res *wire.Result) *samples {
	if of.SampleNs == 0 || d.dev == nil {
		return nil
	}
	s := &samples{d: d, began: time.Now(), period: time.Duration(of.SampleNs), res: res, end: make(chan bool), ended: make(chan bool)}
	if of.Live && out != nil {
		s.send = func(x *wire.Sample) error {
			return out.send(&wire.Record{Body: &wire.Record_Sample{Sample: x}})
		}
	}
	s.take(d.began, nil)
	go func() {
		defer close(s.ended)
		for {
			select {
			case <-time.After(s.period - time.Since(s.began)%s.period):
				s.take(nil, nil)
			case <-s.end:
				return
			}
		}
	}()
	return s
}

// stop ends what is taken now and then.
func (s *samples) stop() {
	if s == nil {
		return
	}
	close(s.end)
	<-s.ended
	s.res.Samples = s.kept
}

// last is taken when all is read that is told later, records of what is traced included: of just
// that, so that who draws it as the last ends with what is found.
func (s *samples) last() {
	if s == nil {
		return
	}
	s.take(nil, s.d.counts)
	s.res.Samples = s.kept
}

// take is one more sample, of what is counted now or of what was read. Whether sending works is
// found by the next result.
func (s *samples) take(began *wire.Moment, counts map[*splice.Live][]uint64) {
	x := s.d.sample(counts)
	x.Ns, x.Began = uint64(time.Since(s.began)), began
	if s.send != nil {
		_ = s.send(x)
		return
	}
	s.keep(x)
}

func (s *samples) keep(x *wire.Sample) {
	if len(s.kept) == mostSamples {
		for k := range mostSamples / 2 {
			s.kept[k] = s.kept[2*k]
		}
		s.kept = s.kept[:mostSamples/2]
		s.period *= 2
	}
	s.kept = append(s.kept, x)
}

// sample is what actions have found, by what was read or, without that, until now: those of all
// functions that are timed, of which a part would say nothing, and of so many of the others, those
// that are come by most.
func (d *Daemon) sample(counts map[*splice.Live][]uint64) *wire.Sample {
	d.looking.Lock() // points that cover go meanwhile
	defer d.looking.Unlock()
	out := &wire.Sample{}
	of, code := d.places(), d.names()
	live := slices.DeleteFunc(d.splicer.Live(), func(l *splice.Live) bool { return of[l].set == nil })
	if len(live) > mostSampled {
		weights := map[*splice.Live]uint64{}
		for _, l := range live {
			weights[l] = d.weight(l, of[l])
		}
		live = mostOf(live, weights)
	}
	for _, l := range live {
		p, words := of[l], counts[l]
		if words == nil {
			words = l.Words()
		}
		out.Values = append(out.Values, p.set.values(p.at, l, words, d.base[l], code, false)...)
	}
	return out
}

// What is always sampled, and what comes before all that only counts.
const (
	always = ^uint64(0)
	nearly = always - 1
)

// weight is how often a point was come by, as far as that is told by a look.
func (d *Daemon) weight(l *splice.Live, p placed) uint64 {
	switch {
	case timing(p.set.points[p.at]):
		return always
	case l.Plan.Snippet.IsCounter():
		return l.Words()[0] - d.base[l][0]
	case l.Came():
		return nearly
	}
	return 0
}

// mostOf are those that are always sampled, and the heaviest of the others, until there are
// mostSampled.
func mostOf[T comparable](all []T, weights map[T]uint64) []T {
	slices.SortStableFunc(all, func(a, b T) int { return cmp.Compare(weights[b], weights[a]) })
	n := mostSampled
	for n < len(all) && weights[all[n]] == always {
		n++
	}
	return all[:n]
}

// placed is where a splice is among those of a step.
type placed struct {
	set *set
	at  int
}

func (d *Daemon) places() map[*splice.Live]placed {
	out := map[*splice.Live]placed{}
	for _, s := range d.sets {
		for i, l := range s.live {
			out[l] = placed{s, i}
		}
	}
	return out
}
