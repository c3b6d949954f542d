package scenarios

import (
	"cmp"
	"strconv"

	"kerninst/agent/wire"
)

// squid-broken: what squid says when a part of it does not work. Each guest has one thing
// wrong with it, and the part that comes upon that has to say so, with what Squid has in
// its log; what squid does when all is well is another scenario.

// brokenRequests are those of a client in each phase: few, for a guest that fails.
const brokenRequests = 2

// squidPatience is how long a client waits for an answer, in milliseconds (guest/bench/wpb.c).
const squidPatience = 60_000

// breakage is one thing that is wrong, and what comes of it.
type breakage struct {
	name      string
	modules   []string // squid's own if nil
	megabytes int      // of the disk
	delay     int      // of the origin, in milliseconds
	before    string   // what a shell does before the clients begin
	fails     string   // the part that does
	says      []string // on stderr
}

var breakages = []breakage{
	{name: "no-null_blk", modules: []string{"ext4"}, fails: "disk", says: []string{"this kernel has no null_blk"}},
	{name: "no-room-to-start", megabytes: 8, fails: "start", says: []string{"Squid does not start:", "No space left on device"}},
	{name: "full", before: "dd if=/dev/zero of=/var/spool/squid/much bs=1M; true", fails: "work", says: []string{"Squid's own words:", "No space left on device"}},
	{name: "late", delay: squidPatience + 1000, fails: "work", says: []string{"no answer in time"}},
	{name: "dead", before: "kill -9 $(cat /run/squid.pid)", fails: "work", says: []string{"Squid was gone.", "Squid's own words:"}},
	{name: "dies", before: "{ sleep 0.3; kill -9 $(cat /run/squid.pid); } </dev/null >/dev/null 2>&1 &", fails: "work", says: []string{"Squid was gone.", "Squid's own words:"}},
}

func squidBroken() []Scenario {
	return []Scenario{{Name: "squid-broken", Title: "what is wrong with Squid's guest is said by the part that comes upon it: no null_blk, a full disk, clients that time out, Squid gone",
		Labels: []string{"workload", "proof"}, Guests: squidBrokenGuests, Check: checkSquidBroken}}
}

func squidBrokenGuests(string) (all []Guest) {
	for _, b := range breakages {
		all = append(all, b.guest())
	}
	return all
}

// guest does all parts up to the one that fails.
func (b breakage) guest() Guest {
	g := squidGuest(b.name)
	if b.modules != nil {
		g.Modules = b.modules
	}
	steps := []*wire.Step{
		squidPart("disk", "disk", strconv.Itoa(cmp.Or(b.megabytes, 64))),
		squidPart("start", "start", ""),
		squidPart("serve", "serve", strconv.Itoa(cmp.Or(b.delay, squidDelay))),
		shell("before", b.before),
		squidWork("drive", brokenRequests),
	}
	g.Job = job(upTo(b.fails, steps)...)
	return g
}

func checkSquidBroken(t *T) { t.saysWhatIsWrong(squidSaid()) }

func squidSaid() (all []said) {
	for _, b := range breakages {
		all = append(all, said{b.name, b.fails, b.says})
	}
	return all
}
