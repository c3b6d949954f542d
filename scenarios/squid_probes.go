package scenarios

import (
	"math"
	"slices"
	"strconv"

	"kerninst/agent/wire"
	"kerninst/lab/report"
)

// squid-probes: what it costs to count each system call of a kernel, and each function on
// the way to an open file, while clients fetch documents through Squid; by splices, and
// by the kernel's own kprobes at the same places. And whether both count the same.

// probedRequests are those of a client in each phase.
const probedRequests = 4

// squidBegin is when the clients begin, in seconds since the guest was started: after
// the slowest has all its probes.
const squidBegin = 30

// decided are what the documents that are asked for decide, however long that takes:
// connections, to Squid and of Squid to the origin. Files are opened as they happen to be
// in Squid's memory still, or not: functions on that way are compared in one guest.
var decided = []string{"connect", "getsockname", "setsockopt", "socket"}

// betweenReads are system calls of the daemon's runtime that come by while kprobes have
// been read, and splices have not, and by how much the two may differ: several times what
// two ISAs show. tgkill, with the others, is how it preempts its own threads.
var betweenReads = map[string]uint64{"futex": 16, "nanosleep": 64, "sched_yield": 8, "tgkill": 4, "getpid": 4, "rt_sigreturn": 4}

// withoutKprobe are at most how many functions the kernel has no kprobe beside a splice for.
const withoutKprobe = 8

func squidProbes() []Scenario {
	return []Scenario{
		{Name: "squid-probes", Title: "what counting every system call and the way to an open file adds to a request through Squid, by splices and by kprobes, and what they count",
			Labels: []string{"workload", "proof"}, Guests: squidProbesGuests, Check: checkSquidProbes},
		{Name: "squid-probes-equal", Title: "a control: two bare guests, of which one adds nothing to the other",
			Labels: []string{"workload", "proof"}, Guests: squidEqualGuests, Check: checkSquidEqual},
		{Name: "squid-probes-planted", Title: "a control: with kprobes, which take much longer, a request through Squid is over the budget of splices",
			Labels: []string{"workload", "proof"}, Guests: squidPlantedGuests, Check: checkSquidPlanted},
	}
}

// around are the steps before and behind the clients' work.
type around struct {
	before, behind []*wire.Step
}

// squidProbed is a guest with Squid whose job is made when the kernel's symbols are known.
func squidProbed(arch, name string, probes func(points []*wire.Point) around) Guest {
	g := squidGuest(name)
	g.After = "names"
	g.Make = func(names *Answer) (*wire.Job, error) {
		calls, path, err := places(arch, names)
		if err != nil {
			return nil, err
		}
		points := slices.Concat(calls, path)
		p := probes(points)
		return job(slices.Concat(
			[]*wire.Step{noOptprobes(), skipping("place", points), unsplice("place")},
			squidBegins(probedRequests), p.before,
			[]*wire.Step{squidPart("align", "align", strconv.Itoa(squidBegin)), squidWork("drive", probedRequests)}, p.behind,
			[]*wire.Step{squidPart("stop", "stop")})...), nil
	}
	return g
}

func bare([]*wire.Point) around { return around{} }

// kprobed is a guest with a kprobe at each of the places.
func kprobed(arch string) Guest {
	return squidProbed(arch, "kprobed", func([]*wire.Point) around {
		return around{[]*wire.Step{kprobes("kprobes-places", "place")}, []*wire.Step{unkprobes("kprobes-places")}}
	})
}

func squidProbesGuests(arch string) []Guest {
	return []Guest{
		namesGuest(arch),
		squidProbed(arch, "bare", bare),
		squidProbed(arch, "spliced", func(places []*wire.Point) around {
			return around{[]*wire.Step{skipping("places", places)}, []*wire.Step{read("places-counts"), unsplice("places")}}
		}),
		kprobed(arch),
		squidProbed(arch, "both", func(places []*wire.Point) around {
			return around{[]*wire.Step{skipping("both", places), kprobesBeside("kprobes-both", "both")},
				[]*wire.Step{read("both-counts"), unkprobes("kprobes-both"), unsplice("both")}}
		}),
	}
}

func squidEqualGuests(arch string) []Guest {
	return []Guest{namesGuest(arch), squidProbed(arch, "first", bare), squidProbed(arch, "second", bare)}
}

func squidPlantedGuests(arch string) []Guest {
	return []Guest{namesGuest(arch), squidProbed(arch, "bare", bare), kprobed(arch)}
}

// checks -----------------------------------------------------------------------

// squidOps are what a request takes; without kprobes if nothing was measured with them.
// Instructions are those of Squid's task, time is what the clients see.
func squidOps(bare, spliced, kprobed *proxied) (ops []probedOp) {
	op := func(name, unit string, n int, of func(*proxied) float64) {
		o := probedOp{name: ofSquid + name, unit: unit, n: n, bare: of(bare), spliced: of(spliced)}
		if kprobed != nil {
			o.kprobed = of(kprobed)
		}
		ops = append(ops, o)
	}
	op("request", insnsPerOp, bare.asked, func(p *proxied) float64 { return p.nanos / float64(p.asked) })
	for _, phase := range []string{"miss", "mixed"} {
		op(phase+".request", vnsPerOp, bare.asked/2, func(p *proxied) float64 { return p.phases[phase]["ns/op"] })
	}
	return ops
}

// squidCompared files what a request takes in each guest; one without a name is left out.
func (t *T) squidCompared(bare, spliced, kprobed string) []probedOp {
	of := map[string]*proxied{}
	for _, g := range []string{bare, spliced, kprobed} {
		if g != "" {
			of[g] = t.servedProbed(g)
		}
	}
	t.Metrics["requests"] = report.Metric{Value: float64(of[bare].asked), Unit: "requests", N: 1}
	ops := squidOps(of[bare], of[spliced], of[kprobed])
	for _, o := range ops {
		t.fileOp(o, 1)
	}
	return ops
}

// servedProbed is servedBy of a guest that began when all others did.
func (t *T) servedProbed(guest string) *proxied {
	t.ran(guest, "align")
	return t.servedBy(guest, probedRequests)
}

func checkSquidProbes(t *T) {
	ops := t.squidCompared("bare", "spliced", "kprobed")
	t.servedProbed("both")
	t.decidedCounts()
	t.countsOfOneGuest()
	b := t.allowances().suite(true)
	t.equal("operations without a budget, and budgets without an operation", b.unmatched(ops), []string{})
	t.equal("operations over their budget", b.over(ops), []string{})
	t.atMost("part of a request that counters are", t.counters()/ops[0].bare, b.ops[ops[0].name].ratio-1)
}

// decidedCounts compares two guests. All counts are filed; those that the documents decide
// have to be the same.
func (t *T) decidedCounts() {
	spliced, probed := t.accepted("spliced", "places"), t.accepted("kprobed", "place")
	t.equal("both are at the same places", specs(probed), specs(spliced))
	all := t.counted(spliced, t.done("spliced", "places-counts").Values, t.hits("kprobed", "places"))
	t.fileCounted("places", all)
	var found []string
	for _, c := range all {
		if contains(decided, c.function) {
			found = append(found, c.function)
		}
	}
	slices.Sort(found)
	t.equal("places that the documents decide", found, decided)
	t.equal("places that the documents decide, where splices and kprobes count differently", beyond(all, func(c counted) uint64 {
		if contains(decided, c.function) {
			return 0
		}
		return math.MaxUint64
	}), []string{})
}

// counters files how many instructions all splices were, for a request, whoever came by
// them: that is known exactly, while what a request takes is not.
func (t *T) counters() float64 {
	added, insns := map[string]uint32{}, uint64(0)
	for _, p := range t.made("spliced", "places") {
		added[p.Spec] = p.Added
	}
	for _, v := range t.done("spliced", "places-counts").Values {
		insns += v.Count * uint64(added[v.Spec])
	}
	asked := 2 * squidClients * probedRequests
	m := report.Metric{Value: float64(insns) / float64(asked), Unit: insnsPerOp, Better: report.Lower, N: asked}
	t.Metrics["splice.counters"] = m
	return m.Value
}

// countsOfOneGuest compares splices with kprobes that were there at the same time: the first
// beside each that the kernel does not refuse, as it does on riscv64 where functions start.
func (t *T) countsOfOneGuest() {
	made := map[uint64]*wire.PointResult{} // by where functions start, which have several names
	for _, p := range t.accepted("both", "both") {
		made[p.Address-p.Offset] = p
	}
	all := t.hits("both", "both")
	var both []*wire.PointResult
	var theirs []uint64
	for k, p := range t.done("both", "kprobes-both").Points {
		start := p.Address - p.Offset
		if s := made[start]; s != nil && p.Refusal == nil {
			both, theirs = append(both, s), append(theirs, all[k])
			delete(made, start)
		}
	}
	t.atMost("in one guest: functions without a kprobe", float64(len(made)), withoutKprobe)
	found := t.counted(both, t.done("both", "both-counts").Values, theirs)
	t.fileCounted("both", found)
	t.equal("in one guest: places that splices and kprobes count differently, beyond what the daemon does between reading them",
		beyond(found, func(c counted) uint64 { return betweenReads[c.function] }), []string{})
}

func checkSquidEqual(t *T) {
	for _, o := range t.squidCompared("first", "second", "") {
		t.equal(o.name+": added to itself", o.spliced-o.bare, 0.0)
	}
}

// checkSquidPlanted: a budget that kprobes stay in would be none.
func checkSquidPlanted(t *T) {
	op := t.squidCompared("bare", "kprobed", "")[0]
	t.equal("budgets that a request is over", len(t.allowances().suite(true).over([]probedOp{op})), 1)
}
