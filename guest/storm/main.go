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
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"

	"golang.org/x/sys/unix"
)

// record is one check. Its keys are what scenarios read.
type record struct {
	Name   string `json:"name"`
	N      int    `json:"n"` // how often it was tried
	OK     bool   `json:"ok"`
	Detail string `json:"detail"` // what came out
}

func report(name string, n int, ok bool, format string, args ...any) {
	b, err := json.Marshal(record{name, n, ok, fmt.Sprintf(format, args...)})
	if err != nil {
		panic(err) // strings and numbers
	}
	fmt.Println(string(b))
}

// reportErrno is a check of what a call answers; 0 is success.
func reportErrno(name string, err error, want unix.Errno) {
	var got unix.Errno
	ok := want == 0 && err == nil || want != 0 && errors.As(err, &got) && got == want
	expected := "success"
	if want != 0 {
		expected = unix.ErrnoName(want)
	}
	report(name, 1, ok, "want %s, got %v", expected, err)
}

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
	if err != nil {
		fmt.Fprintln(os.Stderr, "storm:", err)
		os.Exit(1)
	}
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
		e.notifiers,
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
