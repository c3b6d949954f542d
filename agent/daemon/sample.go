package daemon

import (
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
	// mostSampled is how many values are in a sample.
	mostSampled = 256
)

// samples are those of a run.
type samples struct {
	d      *Daemon
	began  time.Time
	period time.Duration
	kept   []*wire.Sample
	send   func(*wire.Sample) error // nil: they are kept
}

// sampling notes what has been counted, at once, and until it is told to stop, at which it does
// so once more.
func (d *Daemon) sampling(of *wire.Run, out *stream, res *wire.Result) (stop func()) {
	if of.SampleNs == 0 || d.dev == nil {
		return func() {}
	}
	s := &samples{d: d, began: time.Now(), period: time.Duration(of.SampleNs)}
	if of.Live && out != nil {
		s.send = func(x *wire.Sample) error {
			return out.send(&wire.Record{Body: &wire.Record_Sample{Sample: x}})
		}
	}
	s.take(d.began)
	end, ended := make(chan bool), make(chan bool)
	go func() {
		defer close(ended)
		for {
			select {
			case <-time.After(s.period - time.Since(s.began)%s.period):
				s.take(nil)
			case <-end:
				s.take(nil)
				return
			}
		}
	}()
	return func() {
		close(end)
		<-ended
		res.Samples = s.kept
	}
}

// take is one more sample. Whether sending works is found by the next result.
func (s *samples) take(began *wire.Moment) {
	x := s.d.sample()
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

// sample is what the first of all actions have found.
func (d *Daemon) sample() *wire.Sample {
	d.looking.Lock() // points that cover go meanwhile
	defer d.looking.Unlock()
	out := &wire.Sample{}
	of := d.places()
	for _, l := range d.splicer.Live() {
		if p := of[l]; p.set != nil && len(out.Values) < mostSampled {
			out.Values = append(out.Values, p.set.values(p.at, l, l.Words(), d.base[l], d.text, false)...)
		}
	}
	return out
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
