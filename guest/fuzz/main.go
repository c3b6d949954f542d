// Fuzz calls the module's device with what is nearly right, and with what is not: each call
// with values that it takes, of which some are replaced by ones that lie at a border, belong
// to something else or nobody. It runs in a guest, has /dev/kerninst for itself, and prints
// one JSON record for each check.
//
//	fuzz -calls N -seed N      all checks
//	fuzz -calls N user         calls by a user, with the device as file 3
//	fuzz openers               several who want the device at once
//
// What is spliced are system calls that nothing in the guest makes: what is written there may
// be any bytes that the module accepts, for it does not know what code means.
package main

import (
	"flag"
	"fmt"

	"kerninst/guest/check"
)

func main() {
	calls := flag.Int("calls", 100_000, "calls of the device")
	seed := flag.Uint64("seed", 1, "of what is called")
	flag.IntVar(&dear, "dear", dear, "how many calls there are for each that the kernel takes long for")
	flag.Parse()
	var err error
	switch flag.Arg(0) {
	case "":
		err = everything(*calls, *seed)
	case "user":
		err = asUser(*calls, *seed)
	case "openers":
		err = asOpeners(*seed)
	default:
		err = fmt.Errorf("unknown role %q", flag.Arg(0))
	}
	check.Exit("fuzz", err)
}
