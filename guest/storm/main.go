// Storm tries to break the module: it toggles splices under load, asks for what
// must be refused, and lets others put their probes where a splice is. It runs
// in a guest, has /dev/kerninst for itself, and prints one JSON record for each
// check; whoever reads them asserts them one by one.
//
//	storm -toggles N -seed N     all checks
//	storm loop CPU               call getppid on that CPU until standard input ends
//	storm call CPU N             call getppid N times
//	storm umask                  call umask twice
//	storm spin FUNCTION          have a function of the kernel never return
//	storm masks                  call umask until killed
//	storm hold                   make a splice and wait to be killed
//	storm register ADDRESS       wait in a call with that in a register
//	storm weak CAPABILITY        open the device without it; prints the errno
//	storm locked                 open the device before and under lockdown
//
// The function under test is the one behind getppid: nothing else in the guest
// makes that call meanwhile, so counts are exact.
package main

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"

	"kerninst/guest/check"
)

func main() {
	toggles := flag.Int("toggles", 200, "changes of each length under load")
	calls := flag.Int("calls", 1000, "arrivals on each CPU for an exact count")
	seed := flag.Uint64("seed", 1, "order of the checks")
	flag.Parse()
	var err error
	switch flag.Arg(0) {
	case "":
		err = everything(*toggles, *calls, rand.New(rand.NewPCG(*seed, 0)))
	case "loop":
		err = loop(flag.Arg(1))
	case "call":
		err = call(flag.Arg(1), flag.Arg(2))
	case "umask":
		err = umask()
	case "spin":
		err = spin(flag.Arg(1))
	case "hold":
		err = hold()
	case "masks":
		err = masks()
	case "register":
		err = register(flag.Arg(1))
	case "weak":
		err = weaken(flag.Arg(1))
	case "opens":
		err = opens()
	case "locked":
		err = locked()
	default:
		err = fmt.Errorf("unknown role %q", flag.Arg(0))
	}
	check.Exit("storm", err)
}

// everything runs every group of checks. An error is the program's own: what it tests
// is in the records. The seed shuffles the rows inside a group, so that none
// passes only because of the one before it.
func everything(toggles, calls int, rng *rand.Rand) error {
	e, err := open()
	if err != nil {
		return err
	}
	before, err := e.snapshot()
	if err != nil {
		return err
	}
	for _, group := range []func() error{
		func() error { return e.refusals(rng) },
		e.waits,
		func() error { return e.foreigners(rng, calls) },
		func() error { return e.moves(calls) },
		func() error { return e.storms(toggles, calls) },
		func() error { return e.puns(toggles, calls) },
		e.sleepers,
		e.faulters,
		e.table,
		e.anew,
	} {
		if err := group(); err != nil {
			return errors.Join(err, e.dev.Close())
		}
		if err := e.unchanged(before); err != nil {
			return errors.Join(err, e.dev.Close())
		}
	}
	if err := e.dev.Close(); err != nil {
		return err
	}
	return killed(before)
}
