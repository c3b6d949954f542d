package daemon

import (
	"slices"
	"time"

	"kerninst/agent/splice"
	"kerninst/agent/wire"
)

// Coverage takes itself away (KernInst §2): a point that has been come by says all that is
// asked of it, and is unspliced while the program runs on. So what is run again and again
// soon runs as if nothing were there, and what is left are points that nobody comes by.

// How long there is between two looks: at first, and again when something was found, and at
// most, when nothing is found for long. In between it doubles.
const (
	shortestLook = 20 * time.Millisecond
	longestLook  = 2 * time.Second
)

// covering looks for points that have been come by, until it is told to stop.
func (d *Daemon) covering() (stop func()) {
	if !slices.ContainsFunc(d.allPoints(), covers) {
		return func() {}
	}
	began := time.Now()
	end, ended := make(chan bool), make(chan bool)
	go func() { // who started it waits for programs meanwhile, and for this
		wait := shortestLook
		for {
			select {
			case <-time.After(wait):
				if d.uncover(began) > 0 {
					wait = shortestLook
				} else {
					wait = min(2*wait, longestLook)
				}
			case <-end:
				d.uncover(began)
				close(ended)
				return
			}
		}
	}()
	return func() {
		close(end)
		<-ended
	}
}

func (d *Daemon) allPoints() (out []*wire.Point) {
	for _, s := range d.sets {
		out = append(out, s.points...)
	}
	return out
}

// covers reports whether nothing is done at a point but to see whether something comes.
func covers(p *wire.Point) bool {
	return len(p.Actions) > 0 && !slices.ContainsFunc(p.Actions, func(a *wire.Action) bool { return !a.Cover })
}

// uncover takes the points away that have been come by, and says how many there were.
func (d *Daemon) uncover(began time.Time) (n int) {
	d.looking.Lock()
	defer d.looking.Unlock()
	for _, s := range d.sets {
		var came []*splice.Live
		for i, l := range s.live {
			if l.Came() && covers(s.points[i]) {
				came = append(came, l)
			}
		}
		at, code := max(1, time.Since(began)), d.names()
		for _, l := range d.undoSome(came) {
			i := slices.Index(s.live, l)
			values := s.values(i, l, l.Plan.Snippet.Starts(), l.Plan.Snippet.Starts(), code, false)
			for _, v := range values {
				v.CoveredNs = uint64(at)
			}
			d.covered = append(d.covered, values...)
			s.drop(i)
			n++
		}
	}
	return n
}

// undoSome takes back those that can be: what a newer splice ends in, or somebody has a kprobe
// on, stays. Which of many it is, is found by halves, the newer first.
func (d *Daemon) undoSome(all []*splice.Live) (gone []*splice.Live) {
	if len(all) == 0 {
		return nil
	}
	if d.splicer.Undo(all) == nil {
		return all
	}
	if len(all) == 1 {
		return nil
	}
	half := len(all) / 2
	return append(d.undoSome(all[half:]), d.undoSome(all[:half])...)
}

// drop forgets a splice that is gone.
func (s *set) drop(i int) {
	s.specs, s.actions = slices.Delete(s.specs, i, i+1), slices.Delete(s.actions, i, i+1)
	s.points, s.live = slices.Delete(s.points, i, i+1), slices.Delete(s.live, i, i+1)
}
