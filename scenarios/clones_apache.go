package scenarios

import (
	"fmt"
	"time"
)

// clones-apache: Apache asked by ab while each system call that both make often runs as an instrumented copy, after
// figures 11 and 12 of JIFL (EuroSys 2007), and, after its figure 13, what they take where a clone has room for a part of
// what it executes. JIFL flushed its cache then, and made its copies again; here the originals run of what was
// entered least. So with less room a request takes less, and what there is to pay is that less is counted.

const (
	apacheClonedRequests = 200
	apacheLoadRequests   = 4 * apacheProcesses // enough for each process to answer some
)

// clonedRooms are KiB of each clone: fewer and fewer of the paths that requests take.
var clonedRooms = []int{64, 32, 16, 8, 4}

// apacheClonedMost is what a request takes at the most, times bare, by kind; amd64 alone has been measured. JIFL's took 1.02
// with nothing inserted, 1.05 with system calls counted or calls traced, and 1.2 with blocks counted, of a quarter of the time.
var apacheClonedMost = map[string]float64{"nothing": 1.03, "monitored": 1.04, "counted": 1.06, "traced": 1.4, "blocks": 1.2}

var clonedApache = func() clonedSuite {
	s := clonedSuite{granularSuite: apacheSuite(2, apacheClonedRequests, 2*time.Hour), whose: "requests of Apache", memory: clonedMemory, least: 1000}
	s.rivals, s.known = []string{}, nil
	for _, k := range cloneKinds {
		k.limit = map[string]float64{"amd64": apacheClonedMost[k.name]}
		s.kinds = append(s.kinds, k)
	}
	for _, kib := range clonedRooms {
		s.kinds = append(s.kinds, cloneKind{name: fmt.Sprint("blocks-", kib), title: fmt.Sprintf("blocks counted, %d KiB a clone", kib), rules: eachBlock, most: uint32(kib) << 10})
	}
	return s
}()
