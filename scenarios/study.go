package scenarios

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"kerninst/agent/wire"
	"kerninst/lab/oracle"
	"kerninst/lab/report"
)

// squid-study: where the time goes that Squid spends in the kernel, found by a program that asks
// as KernInst's authors did by hand (OSDI '99, section 4.2), and what becomes of it by remedies.
//
// A guest has no splices, and Squid's calls are followed outside it. In another, the detective
// goes from system calls down, at each level to what has most of the time, while the same clients
// ask for the same documents. It has to name what the other guest's profile has most of, at each
// level, and the clients must hardly notice: they come as often as in a guest that is the same but for
// the detective.
//
// A third guest follows the time that Squid has a CPU. In a fourth something has been planted: a
// function that the seed draws from the profile takes 200 microseconds longer to call another.
//
// Then come the remedies, each beside the original:
//
//   - The directories' changes are written later, not before a file's creation ends: the store is
//     mounted without dirsync, as Linux does unless told otherwise. In 1999, UFS wrote them at once.
//   - Squid keeps all documents in one file, as the paper suggests: its rock store.
func studies() []Scenario {
	one := func(name, title, label string, s squidStudy) Scenario {
		return Scenario{Name: name, Title: title, Labels: strings.Fields(label), Guests: s.guests, Check: s.check}
	}
	return []Scenario{
		one("squid-study", "where Squid's time in the kernel goes, found top down while it serves, and what two remedies make of it", "workload proof", squidStudy{followings: followings, planted: true, remedies: remedies, rest: 5, requests: 480}),
		one("squid-study-slice", "where Squid's elapsed time in the kernel goes, found top down while it serves, and what the larger remedy makes of it", "workload", squidStudy{followings: followings[:1], requests: 130, remedies: slices.DeleteFunc(slices.Clone(remedies), func(r remedy) bool { return r.name == "again" || r.name == "later" })}),
	}
}

// squidStudy is which of the guests there are, beside that with the profile.
type squidStudy struct {
	followings []following
	planted    bool
	remedies   []remedy
	// rest is how many times as long as a question took the detective waits before the next, and
	// requests are those of a client in each phase: enough for it to come to its end. What it takes
	// of the CPU nobody has to spare, so who goes without a rest takes a tenth of the requests away,
	// and nothing is held of them.
	rest     int
	requests int
}

// following is a guest in which the detective goes down from system calls, and by which time.
type following struct {
	guest, by string
	in        func(*oracle.Call) uint64 // what the profile has of it
}

var followings = []following{
	{"diagnosed", "elapsed", elapsedIn},
	{"virtual", "virtual", virtualIn},
}

func elapsedIn(c *oracle.Call) uint64 { return c.NS }
func virtualIn(c *oracle.Call) uint64 { return c.Insns }

// follows is the detective's way down, by one kind of time.
func (s squidStudy) follows(by string) *wire.Step {
	return squidPart("levels", "detective", "-window", studyWindow, "-rest", strconv.Itoa(s.rest), "-by", by)
}

// profileGuest is the one that is followed from outside; in unaskedGuest all is as where the detective
// is, who does not come.
const profileGuest, unaskedGuest = "profile", "unasked"

const detectivePackage = "guest/detective"

// Who only looks at opens needs fewer requests, and so does a profile.
const (
	seenRequests   = 100
	remedyRequests = 60
	studyWindow    = "200ms"
	studyMemory    = 2048 // MiB: the disk is in it, with all documents
	remedyWindow   = "1500ms"
)

// store is how Squid keeps documents.
type store struct {
	mount string // options of the file system's; empty: dirsync
	dir   string // Squid's cache_dir; empty: ufs
}

// remedy is what is done about what is found.
type remedy struct {
	name  string
	seed  uint64 // added to the run's
	store store
	least float64 // how many times less of the time it leaves for opening files
}

// The first two are nothing, twice.
var remedies = []remedy{
	{"before", 0, store{}, 0},
	{"again", 1, store{}, 0},
	{"later", 0, store{mount: "data=ordered"}, 3},
	{"rock", 0, store{dir: "rock /var/spool/squid 160"}, 5},
}

// studied is a guest in which clients ask Squid while something looks at it.
func studied(name string, s store, requests int, looks ...*wire.Step) Guest {
	g := squidGuest(name)
	g.Programs, g.RunTimeout, g.Memory = []string{detectivePackage}, time.Hour, studyMemory
	g.Job = job(slices.Concat(
		storeBegins(s, requests, ""),
		[]*wire.Step{
			module("unload", wire.Module_UNLOAD),
			squidPart("daemon", "daemon"),
			squidPart("begin", "drive_on", strconv.Itoa(squidClients), strconv.Itoa(requests), "1"),
		},
		looks,
		[]*wire.Step{
			squidPart("work", "drive_ends"),
			squidPart("undaemon", "undaemon"),
			module("load", wire.Module_LOAD),
			squidPart("stop", "stop"),
		})...)
	return g
}

// storeBegins is all that comes before the clients; by is what starts Squid.
func storeBegins(s store, requests int, by string) []*wire.Step {
	megabytes := 128 + max(squidClients*requests/4, 200)
	return []*wire.Step{
		squidPart("disk", "disk", strconv.Itoa(megabytes), s.mount),
		squidPart("start", "start", "", s.dir, by),
		squidPart("serve", "serve", strconv.Itoa(squidDelay)),
	}
}

// profiled is a guest in which Squid's calls are followed from outside.
func profiled() Guest {
	g := squidGuest(profileGuest)
	g.Calls = true
	g.Job = job(slices.Concat(
		[]*wire.Step{watchCalls()},
		storeBegins(store{}, seenRequests, markProgram+" watch"),
		[]*wire.Step{
			sendNames("names"),
			run("begin", markProgram, "begin"), squidWork("drive", seenRequests), run("end", markProgram, "end"),
			squidPart("stop", "stop"),
		})...)
	return g
}

func (s squidStudy) guests(arch string) []Guest {
	guests := []Guest{profiled()}
	if s.rest > 0 {
		guests = append(guests, studied(unaskedGuest, store{}, s.requests, run("wait", "/bin/sleep", "60")))
	}
	if s.planted {
		planted := studied("planted", store{}, s.requests)
		planted.Job, planted.After, planted.Make = nil, profileGuest, s.plantedJob(arch)
		guests = append(guests, planted)
	}
	for _, w := range s.followings {
		guests = append(guests, studied(w.guest, store{}, s.requests, s.follows(w.by)))
	}
	for _, r := range s.remedies {
		g := studied(r.name, r.store, remedyRequests, squidPart("levels", "detective", "-window", remedyWindow, "-from", syscallEntry(arch, "openat"), "-deep", "1"))
		g.Seed = r.seed
		guests = append(guests, g)
	}
	return guests
}

// level is one of guest/detective's.
type level struct {
	Function string
	Inside   threads
	Callees  []struct {
		Function string
		threads
		Here    uint64
		Share   float64
		Refused string
	}
	Next, Why string
}

// threads are those that are inside a function.
type threads struct {
	PerSecond            float64 `json:"per_second"`
	Concurrency, Virtual float64
}

// levels are what the detective found in each guest that it was in; filed as it said it, also of a
// guest that is not right.
func (t *T) levels() map[string][]level {
	asked := slices.DeleteFunc(slices.Sorted(maps.Keys(t.Guests)), func(guest string) bool { return guest == profileGuest || guest == unaskedGuest })
	for _, guest := range asked {
		for _, r := range t.Guests[guest].Results["levels"].GetRuns() {
			t.Files[guest+".json"] = append(r.Stdout, r.Stderr...)
		}
	}
	all := map[string][]level{}
	for _, guest := range asked {
		text := t.ran(guest, "levels")[0]
		t.Files[guest+".json"] = text
		t.cpuTaken(guest)
		var found []level
		t.noError(guest+": levels", json.Unmarshal(text, &found))
		t.atLeast(guest+": levels", float64(len(found)), 1)
		all[guest] = found
	}
	return all
}

// cpuTaken files how long the detective had a CPU, with kinst and the daemon: what it says last.
func (t *T) cpuTaken(guest string) {
	var s float64
	said := t.Guests[guest].Results["levels"].GetRuns()[0].Stderr
	_, err := fmt.Sscanf(string(said[max(0, bytes.LastIndex(said, []byte("detective: "))):]), "detective: %f s of CPU", &s)
	t.noError(guest+": the time that the detective had a CPU", err)
	t.Metrics["study."+guest+".cpu"] = report.Metric{Value: s, Unit: "s", N: 1}
	t.Files[guest+".txt"] = said
}

// checks -----------------------------------------------------------------------

// leastKept is what of the requests per second is left while the detective asks.
const leastKept = 0.97

// unchanged is by how much two runs of nothing may differ, as a part.
const unchanged = 0.15

func (s squidStudy) check(t *T) {
	tree, names := t.Guests[profileGuest].Calls, t.names(profileGuest, "names")
	t.callsFile(tree, names)
	found := t.levels()
	t.Grid = &report.Grid{Title: "Squid's time in the kernel, from its system calls down", Rows: "function",
		Columns: []string{"calls a second", "share of elapsed time, by splices", "with a CPU", "share of the time followed, by splices", "seen outside"}}
	for _, w := range s.followings {
		t.sameWay(w.guest, found[w.guest], callProfile{tree, names, t.Arch, w.in})
		if s.rest > 0 {
			t.undisturbed(w.guest)
		}
	}
	if s.planted {
		t.foundPlanted(found["planted"], callProfile{tree, names, t.Arch, virtualIn})
	}
	t.remedies(s.remedies, found)
}

// leastLevels is how far down the detective has to go.
const leastLevels = 6

// sameWay holds that what comes next at each level is what the profile has most of, and files
// what was found.
func (t *T) sameWay(guest string, found []level, p callProfile) {
	at := p.systemCalls()
	for k, l := range found {
		seen := p.called(at)
		t.fileLevel(guest, l, seen, float64(p.tree.NS))
		if k == 0 && guest == "diagnosed" {
			maps.DeleteFunc(seen, func(f string, _ uint64) bool {
				return slices.Contains(waitingCalls, strings.TrimPrefix(f, syscallEntry(t.Arch, "")))
			})
		}
		if k < len(found)-1 {
			most := mostOf(seen)
			t.equal(fmt.Sprintf("%s: what %s spends most time in", guest, orAll(l.Function)), withoutModule(l.Next), most)
			at = p.next(at, most)
		}
	}
	t.wentDown(guest, len(found), leastLevels)
}

func (t *T) wentDown(guest string, levels, least int) {
	t.Metrics["study."+guest+".levels"] = report.Metric{Value: float64(levels), Unit: "levels", N: 1}
	t.atLeast(guest+": levels that the detective went down", float64(levels), float64(least))
}

// waitingCalls are system calls of Squid's in which it waits for others: where elapsed time is
// followed, theirs is nobody's.
var waitingCalls = []string{"epoll_wait", "epoll_pwait"}

// fileLevel files what was found of a level, and of what it calls; all is elapsed time.
func (t *T) fileLevel(guest string, l level, seen map[string]uint64, all float64) {
	for _, c := range l.Callees {
		share := float64(seen[withoutModule(c.Function)]) / all
		if c.Function != l.Next && max(share, c.Share) < 0.01 {
			continue
		}
		row := report.GridRow{Name: guest + ": " + orAll(l.Function) + " → " + c.Function}
		for _, v := range []float64{c.PerSecond, c.Concurrency, c.Virtual, c.Share} {
			if c.Refused != "" {
				row.Cells = append(row.Cells, report.GridCell{Why: c.Refused})
				continue
			}
			row.Cells = append(row.Cells, report.GridCell{Value: &v})
		}
		row.Cells = append(row.Cells, report.GridCell{Value: &share})
		t.Grid.Lines = append(t.Grid.Lines, row)
	}
}

func orAll(function string) string {
	if function == "" {
		return "system calls"
	}
	return function
}

func withoutModule(function string) string { return function[strings.IndexByte(function, ':')+1:] }

// undisturbed holds how many requests there were each second while the detective asked.
func (t *T) undisturbed(guest string) {
	bare, asked := t.proxied(unaskedGuest), t.proxied(guest)
	for _, phase := range squidPhases {
		kept := asked.phases[phase.name]["req/s"] / bare.phases[phase.name]["req/s"]
		t.Metrics["study."+guest+"."+phase.name+".kept"] = report.Metric{Value: kept, Unit: "ratio", N: bare.asked / 2}
		t.atLeast(guest+": "+phase.name+": requests per second while the detective asks, of those without", kept, leastKept)
	}
}

// remedies holds what becomes of the time in which files are opened.
func (t *T) remedies(all []remedy, found map[string][]level) {
	share := map[string]float64{}
	for _, r := range all {
		l := found[r.name][0]
		share[r.name] = l.Inside.Concurrency
		t.Metrics["study.openat."+r.name] = report.Metric{Value: l.Inside.Concurrency, Unit: "ratio", N: 1}
		for phase, units := range t.proxied(r.name).phases {
			t.Metrics["study."+r.name+"."+phase+".rate"] = report.Metric{Value: units["req/s"], Unit: "req/s", N: 1}
		}
	}
	t.atLeast("part of the time in which Squid opens files", share["before"], 0.01)
	for _, r := range all {
		of := share["before"] / share[r.name]
		switch {
		case r.name == "again":
			t.atMost("the same again: what it changes by, of itself", max(of, 1/of)-1, unchanged)
		case r.least > 0:
			t.atLeast(r.name+": how many times less", of, r.least)
		}
	}
}
