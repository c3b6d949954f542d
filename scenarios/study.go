package scenarios

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/onsi/gomega"

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
		return Scenario{Name: name, Title: title, Labels: strings.Fields(label), Partial: true, Guests: s.guests, Check: s.check}
	}
	return []Scenario{
		one("squid-study", "where Squid's time in the kernel goes, found top down while it serves, and what two remedies make of it", "workload proof", squidStudy{followings: followings, planted: true, remedies: remedies, rests: true, requests: 680}),
		one("squid-study-slice", "where Squid's elapsed time in the kernel goes, found top down while it serves, and what the larger remedy makes of it", "workload", squidStudy{followings: followings[:1], requests: 130, remedies: slices.DeleteFunc(slices.Clone(remedies), func(r remedy) bool { return r.name == "again" || r.name == "later" })}),
	}
}

// squidStudy is which of the guests there are, beside that with the profile.
type squidStudy struct {
	followings []following
	planted    bool
	remedies   []remedy
	// rests has the detective wait before the next question for some times as long as one took; and
	// requests are those of a client in each phase: enough for it to come to its end. What it takes
	// of the CPU nobody has to spare, so who goes without a rest takes a tenth of the requests away,
	// and nothing is held of them.
	rests    bool
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

// studyRest is for how many times as long as a question took the detective rests, where it does: so it asks for as long as the
// clients do.
const studyRest = 6

func elapsedIn(c *oracle.Call) uint64 { return c.NS }
func virtualIn(c *oracle.Call) uint64 { return c.Insns }

// follows is the detective's way down, by one kind of time.
func follows(by string, rest int) *wire.Step {
	return squidPart("levels", "detective", "-window", studyWindow, "-rest", strconv.Itoa(rest), "-by", by)
}

// profileGuest is the one that is followed from outside; in unaskedGuest all is as where the detective
// is, who does not come.
const profileGuest, unaskedGuest = "profile", "unasked"

// plantedGuest has a delay in one function.
const plantedGuest = "planted"

const detectivePackage = "guest/detective"

// Who only looks at opens needs fewer requests, and so does a profile.
const (
	seenRequests   = 100
	remedyRequests = 60
	// Nothing is held of what is left to clients who wait for a delay, so that nobody rests.
	plantedRequests = 160
	studyWindow     = "200ms"
	studyMemory     = 2048 // MiB: the disk is in it, with all documents
	remedyWindow    = "1500ms"
)

// linear has directories searched from their begin, as UFS's were: they are all alike then, however many files have come and gone.
const linear = "^dir_index"

// store is how Squid keeps documents.
type store struct {
	mount string // options of the file system's; empty: dirsync
	dir   string // Squid's cache_dir; empty: ufs
}

// remedy is what is done about what is found.
type remedy struct {
	name   string
	seed   uint64 // added to the run's
	store  store
	least  float64 // how many times less of the time it leaves for opening files
	figure string  // KernInst's of the like
}

// The first two are nothing, twice.
var remedies = []remedy{
	{"before", 0, store{}, 0, "figure 11"},
	{"again", 1, store{}, 0, "figure 11, once more"},
	{"later", 0, store{mount: "data=ordered"}, 3, "figure 15"},
	{"rock", 0, store{dir: "rock /var/spool/squid 160"}, 5, "figures 14 and 16"},
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
		squidPart("disk", "disk", strconv.Itoa(megabytes), s.mount, linear),
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
	if s.rests {
		guests = append(guests, studied(unaskedGuest, store{}, s.requests, run("wait", "/bin/sleep", "60")))
	}
	if s.planted {
		planted := studied(plantedGuest, store{}, plantedRequests)
		planted.Job, planted.After, planted.Make = nil, profileGuest, plantedJob(arch)
		guests = append(guests, planted)
	}
	for _, w := range s.followings {
		rest := 0
		if s.rests {
			rest = studyRest
		}
		guests = append(guests, studied(w.guest, store{}, s.requests, follows(w.by, rest)))
	}
	for _, r := range s.remedies {
		g := studied(r.name, r.store, remedyRequests, squidPart("levels", "detective", "-window", remedyWindow, "-from", syscallEntry(arch, "openat"), "-deep", "1"))
		g.Seed = r.seed
		guests = append(guests, g)
	}
	return guests
}

// requestsOf are those of a client, in each phase, in a studied guest.
func (s squidStudy) requestsOf(guest string) int {
	switch {
	case guest == plantedGuest:
		return plantedRequests
	case slices.ContainsFunc(s.remedies, func(r remedy) bool { return r.name == guest }):
		return remedyRequests
	}
	return s.requests
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

// levels are what the detective found in a guest, also in one where something went wrong then.
func (t *T) levels(guest string) (found []level) {
	runs := t.Guests[guest].Results["levels"].GetRuns()
	t.atLeast(guest+": detectives", float64(len(runs)), 1)
	t.Files[guest+".json"], t.Files[guest+".txt"] = runs[0].Stdout, runs[0].Stderr
	t.noError(guest+": levels", json.Unmarshal(runs[0].Stdout, &found))
	t.atLeast(guest+": levels", float64(len(found)), 1)
	return found
}

// cpuTaken holds that the detective came to its end while the clients asked, and files how long the detective had a CPU, with kinst and the daemon, and how long it was there: what it says last.
func (t *T) cpuTaken(guest string) {
	var had, there float64
	t.ran(guest, "levels")
	said := t.Guests[guest].Results["levels"].GetRuns()[0].Stderr
	_, err := fmt.Sscanf(string(said[max(0, bytes.LastIndex(said, []byte("detective: "))):]), "detective: %f s of CPU in %f s", &had, &there)
	t.noError(guest+": the time that the detective had a CPU", err)
	t.Metrics["study."+guest+".cpu"] = report.Metric{Value: had, Unit: "s", N: 1}
	t.Metrics["study."+guest+".there"] = report.Metric{Value: there, Unit: "s", N: 1}
}

// checks -----------------------------------------------------------------------

// leastKept is what of the requests per second is left while the detective asks.
const leastKept = 0.97

// leastThere is for which part of the clients' time the detective is there at least, where it is held what is left to them.
const leastThere = 0.8

// unchanged is by how much two runs of nothing may differ, as a part.
const unchanged = 0.15

func (s squidStudy) check(t *T) {
	found := map[string][]level{}
	for _, guest := range slices.Sorted(maps.Keys(t.Guests)) {
		if guest != profileGuest {
			t.part(func() { t.requested(guest, t.proxied(guest), s.requestsOf(guest)) })
		}
		if guest != profileGuest && guest != unaskedGuest {
			t.part(func() { found[guest] = t.levels(guest) })
			t.part(func() { t.cpuTaken(guest) })
		}
	}
	var profile callProfile
	t.part(func() {
		profile = callProfile{t.Guests[profileGuest].Calls, t.names(profileGuest, "names"), t.Arch, virtualIn}
		t.callsFile(profile.tree, profile.names)
	}, profileGuest)
	t.Grid = &report.Grid{Title: "Squid's time in the kernel, from its system calls down", Rows: "function",
		Columns: []string{"calls a second", "share of elapsed time, by splices", "with a CPU", "share of the time followed, by splices", "rank by it", "share, seen outside", "rank there"}}
	for _, w := range s.followings {
		profile.in = w.in
		t.part(func() { t.sameWay(w.guest, found[w.guest], profile) }, w.guest, profileGuest)
		if s.rests {
			t.part(func() { t.undisturbed(w.guest) }, w.guest, unaskedGuest)
		}
	}
	if s.planted {
		profile.in = virtualIn
		t.part(func() { t.foundPlanted(found[plantedGuest], profile) }, plantedGuest, profileGuest)
	}
	for _, r := range s.remedies {
		t.part(func() { t.remedy(r, found[r.name]) }, r.name)
	}
	t.part(func() { t.remedied(s.remedies) })
	t.parts()
}

// studyColumns are those of them that are by splices.
const studyColumns = 5

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
		} else {
			t.endsAt(guest, l, seen, float64(p.sum(at)))
		}
	}
	t.wentDown(guest, len(found), leastLevels)
}

// endsAt holds that there is no further way down from a level, seen from outside, either: the detective follows what has half of
// a function's time, and no task in its sleep.
func (t *T) endsAt(guest string, l level, seen map[string]uint64, all float64) {
	most := mostOf(seen)
	if in, sleeps := strings.CutPrefix(l.Why, "it sleeps, in "); sleeps {
		t.equal(fmt.Sprintf("%s: in what %s sleeps", guest, orAll(l.Function)), withoutModule(in), most)
		return
	}
	t.atMost(fmt.Sprintf("%s: the part that %s has of the time of %s, where it ends: %s", guest, most, orAll(l.Function), l.Why), float64(seen[most])/max(all, 1), clear/2)
}

func (t *T) wentDown(guest string, levels, least int) {
	t.Metrics["study."+guest+".levels"] = report.Metric{Value: float64(levels), Unit: "levels", N: 1}
	t.atLeast(guest+": levels that the detective went down", float64(levels), float64(least))
}

// waitingCalls are system calls of Squid's in which it waits for others: where elapsed time is
// followed, theirs is nobody's.
var waitingCalls = []string{"epoll_wait", "epoll_pwait"}

// figures are KernInst's (OSDI '99, section 4.2) that show what the detective finds at a level: that opening files takes the
// time; what of it does, down to the file system's own; and what of the file system.
const (
	figureOpen   = 11
	figureParts  = 12
	figureLookup = 13
)

// studyFigure is the one of a level.
func studyFigure(function string) int {
	switch {
	case function == "":
		return figureOpen
	case strings.Contains(function, "ext4") || strings.Contains(function, "jbd2"):
		return figureLookup
	}
	return figureParts
}

// fileLevel files what was found of a level, and of what it calls, by splices and outside, each with its rank there; all is
// elapsed time.
func (t *T) fileLevel(guest string, l level, seen map[string]uint64, all float64) {
	outside := slices.SortedFunc(maps.Keys(seen), func(a, b string) int { return cmp.Or(cmp.Compare(seen[b], seen[a]), cmp.Compare(a, b)) })
	row := func(function string, cells []report.GridCell) {
		name, n := withoutModule(function), float64(seen[withoutModule(function)])
		of, rank := n/all, float64(slices.Index(outside, name)+1)
		cells = append(cells, report.GridCell{Value: &of}, report.GridCell{Value: &rank})
		if n == 0 {
			cells[len(cells)-2] = report.GridCell{Why: "not seen outside"}
			cells[len(cells)-1] = cells[len(cells)-2]
		}
		t.Grid.Lines = append(t.Grid.Lines, report.GridRow{
			Name:  fmt.Sprintf("%s (figure %d): %s → %s", guest, studyFigure(l.Function), orAll(l.Function), function),
			Cells: cells,
		})
	}
	found := map[string]bool{}
	for k, c := range l.Callees { // the one with the most first
		found[withoutModule(c.Function)] = true
		if c.Function != l.Next && max(float64(seen[withoutModule(c.Function)])/all, c.Share) < leastShown {
			continue
		}
		rank := float64(k + 1)
		cells := slices.Repeat([]report.GridCell{{Why: c.Refused}}, studyColumns)
		if c.Refused == "" {
			for k, v := range []float64{c.PerSecond, c.Concurrency, c.Virtual, c.Share, rank} {
				cells[k] = report.GridCell{Value: &v}
			}
		}
		row(c.Function, cells)
	}
	for _, f := range outside {
		if !found[f] && float64(seen[f])/all >= leastShown {
			row(f, slices.Repeat([]report.GridCell{{Why: "not seen by splices"}}, studyColumns))
		}
	}
}

// leastShown is which part of the time a function has at least that comes into the table.
const leastShown = 0.01

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
	seconds := 0.0
	for _, phase := range squidPhases {
		seconds += float64(asked.asked) / float64(len(squidPhases)) / asked.phases[phase.name]["req/s"]
	}
	there := t.Metrics["study."+guest+".there"].Value / seconds
	t.Metrics["study."+guest+".there.of"] = report.Metric{Value: there, Unit: "ratio", N: 1}
	t.atLeast(guest+": part of the clients' time for which the detective is there", there, leastThere)
	for _, phase := range squidPhases {
		kept := asked.phases[phase.name]["req/s"] / bare.phases[phase.name]["req/s"]
		t.Metrics["study."+guest+"."+phase.name+".kept"] = report.Metric{Value: kept, Unit: "ratio", N: bare.asked / 2}
		t.atLeast(guest+": "+phase.name+": requests per second while the detective asks, of those without", kept, leastKept)
	}
}

// fileRemedy files what a remedy leaves of the time in which files are opened.
func (t *T) fileRemedy(r remedy, l level) {
	var cells []report.GridCell
	for _, v := range []float64{l.Inside.PerSecond, l.Inside.Concurrency, l.Inside.Virtual, l.Inside.Concurrency} {
		cells = append(cells, report.GridCell{Value: &v})
	}
	none := report.GridCell{Why: "nobody looks from outside, and at nothing else"}
	t.Grid.Lines = append(t.Grid.Lines, report.GridRow{Name: r.name + " (" + r.figure + "): " + l.Function, Cells: append(cells, none, none, none)})
}

// remedy files what is left of the time in which files are opened, and how many requests there are.
func (t *T) remedy(r remedy, found []level) {
	t.g.Expect(found).NotTo(gomega.BeEmpty(), "%s: the detective said nothing", r.name)
	l := found[0]
	t.Metrics["study.openat."+r.name] = report.Metric{Value: l.Inside.Concurrency, Unit: "ratio", N: 1}
	t.fileRemedy(r, l)
	for phase, units := range t.proxied(r.name).phases {
		t.Metrics["study."+r.name+"."+phase+".rate"] = report.Metric{Value: units["req/s"], Unit: "req/s", N: 1}
	}
}

// remedied holds what becomes of the time in which files are opened.
func (t *T) remedied(all []remedy) {
	filed := func(name string) float64 {
		t.g.Expect(t.Metrics).To(gomega.HaveKey(name), "no such figure")
		return t.Metrics[name].Value
	}
	share := func(r string) float64 { return filed("study.openat." + r) }
	t.atLeast("part of the time in which Squid opens files", share("before"), 0.01)
	for _, r := range all {
		of := share("before") / share(r.name)
		if r.name == "again" {
			t.atMost("the same again: what it changes by, of itself", max(of, 1/of)-1, unchanged)
		}
		if r.least == 0 {
			continue
		}
		t.atLeast(r.name+": how many times less", of, r.least)
		for _, phase := range squidPhases {
			rate := func(guest string) float64 { return filed("study." + guest + "." + phase.name + ".rate") }
			t.atLeast(r.name+": "+phase.name+": requests per second, of those before, or the time is spent elsewhere", rate(r.name)/rate("before"), leastKept)
		}
	}
}
