// Churn splices and unsplices random batches of points that all CPUs execute, in several
// threads, while programs fork, execute, write files, talk through pipes and loopback, and load
// and unload a module. It runs in a guest, has /dev/kerninst for itself, and prints one JSON
// record for each check.
//
//	churn -rounds N -seed N      each thread makes so many batches, and takes them back
//	churn -for TIME -seed N      as many as there is time for
//	churn -points N fails        each allocation of each call fails, one by one
//	churn -points N kills        a caller is killed at each step of its calls
//	churn load KIND              one of those programs, until standard input ends
//
// Each batch has a function that nothing else in the guest calls: how often it is called is
// known, so its counter has to be exact.
package main

import (
	"errors"
	"flag"
	"fmt"
	"time"

	"kerninst/guest/check"
)

// limit is how long threads go on: for a time, or else for so many rounds each.
type limit struct {
	time   time.Duration
	rounds int
}

// half is that of one of two parts.
func (l limit) half() limit { return limit{l.time / 2, (l.rounds + 1) / 2} }

// over reports whether a thread that has made so many rounds since has reached it.
func (l limit) over(since time.Time, rounds int) bool {
	if l.time > 0 {
		return time.Since(since) >= l.time
	}
	return rounds >= l.rounds
}

func main() {
	var l limit
	flag.DurationVar(&l.time, "for", 0, "how long; 0: so many rounds")
	flag.IntVar(&l.rounds, "rounds", 4, "of each thread")
	points := flag.Int("points", 3000, "the most that are planned, of all threads")
	stride := flag.Int("stride", 1, "of all steps, each so manyth is one at which a caller is killed")
	seed := flag.Uint64("seed", 1, "of what is in batches")
	flag.Parse()
	var err error
	switch flag.Arg(0) {
	case "":
		err = everything(l, *points, *seed)
	case "load":
		err = load(flag.Arg(1))
	case "fails":
		err = watched(func() error { return fails(*points, *seed) })
	case "kills":
		err = watched(func() error { return kills(*points, *stride, *seed) })
	case "victim":
		err = die(flag.Arg(1), *points, *seed)
	default:
		err = fmt.Errorf("unknown role %q", flag.Arg(0))
	}
	check.Exit("churn", err)
}

// mayGrow is by how much what the kernel holds may differ between the ends of two equal parts,
// in KiB of what others hold as well; and pieces of virtual memory are the module's own. Pages
// that nobody gives account of are not compared: the load's make more of a difference. Scenario
// device does, without a load.
var mayGrow = map[string]int{"SUnreclaim": 2048, "VmallocUsed": 2048, "Percpu": 128, "pieces": 0}

// everything is two equal parts, each with the device opened for itself: what the kernel holds
// behind the second is no more than behind the first.
func everything(l limit, points int, seed uint64) error {
	without, err := check.Without()
	if err != nil {
		return err
	}
	log, err := check.WatchLog()
	if err != nil {
		return err
	}
	sum := tally{}
	var held []map[string]int
	for part := range uint64(2) {
		if err := sum.part(l.half(), points, seed+part); err != nil {
			return err
		}
		time.Sleep(settling)
		now, err := check.Kept()
		if err != nil {
			return err
		}
		held = append(held, now)
	}
	sum.report()
	check.Grown(held[0], held[1], mayGrow)
	lines, bad, err := log.End()
	check.Report("the kernel's log has nothing wrong", lines, err == nil && len(bad) == 0, "%q, %v", bad, err)
	return check.Left(without)
}

// settling is how long the kernel has to free what it frees in its own time.
const settling = 2 * time.Second

// part opens the device, has threads splice under load, and closes it.
func (t *tally) part(l limit, points int, seed uint64) error {
	k, err := open(points, seed)
	if err != nil {
		return err
	}
	loads, err := startLoads()
	if err != nil {
		return errors.Join(err, k.dev.Close())
	}
	err = k.churn(l, seed, t)
	err = errors.Join(err, loads.stop(t))
	s, statsErr := k.dev.Stats()
	check.Report("nothing is live when all is undone", int(s.Spliced), statsErr == nil && s.Splices == 0 && s.Spliced == s.Unspliced, "%+v, %v", s, statsErr)
	t.written += int(s.Spliced + s.Unspliced)
	return errors.Join(err, k.dev.Close())
}
