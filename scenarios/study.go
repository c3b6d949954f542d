package scenarios

import (
	"strconv"

	"kerninst/agent/wire"
)

// squid-study: where the time goes that Squid spends in the kernel, found by a program that asks
// as KernInst's authors did (OSDI '99, section 4.2), and what becomes of it by two remedies.

const detectivePackage = "guest/detective"

// studyRequests are those of a client in each phase; studyWindow is how long is looked at once.
const (
	studyRequests = 90
	studyWindow   = "300ms"
)

func studies() []Scenario {
	return []Scenario{{Name: "squid-study", Title: "where Squid's time in the kernel goes, found top down, and what two remedies make of it",
		Labels: []string{"workload", "proof"}, Guests: studyGuests, Check: checkStudy}}
}

// store is how Squid keeps documents.
type store struct {
	mount string // options of the file system's
	dir   string // Squid's cache_dir; empty: ufs
}

func studied(name string, s store) Guest {
	g := squidGuest(name)
	g.Programs = []string{detectivePackage}
	megabytes := 128 + squidClients*studyRequests/4
	g.Job = job(
		squidPart("disk", "disk", strconv.Itoa(megabytes), s.mount),
		squidPart("start", "start", "", s.dir),
		squidPart("serve", "serve", strconv.Itoa(squidDelay)),
		module("unload", wire.Module_UNLOAD),
		squidPart("daemon", "daemon"),
		squidPart("begin", "drive_on", strconv.Itoa(squidClients), strconv.Itoa(studyRequests), "1"),
		squidPart("levels", "detective", "-nice", "0", "-window", studyWindow),
		squidPart("work", "drive_ends"),
		squidPart("undaemon", "undaemon"),
		module("load", wire.Module_LOAD),
		squidPart("stop", "stop"),
	)
	return g
}

func studyGuests(string) []Guest {
	return []Guest{studied("before", store{})}
}

func checkStudy(t *T) {
	t.ran("before", "levels")
}
