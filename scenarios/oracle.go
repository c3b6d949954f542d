package scenarios

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"kerninst/agent/isa"
	"kerninst/agent/ktext"
	"kerninst/agent/plan"
	"kerninst/agent/wire"
	"kerninst/lab/report"
	"kerninst/lab/vm"
)

// oracles: points drawn by the seed from all that the kernel executes under a load,
// wherever that is: system calls, interrupts, timers, the scheduler. All are spliced
// at once; each counter equals the arrivals that an observer outside counted from
// the same moment to the same moment, with one CPU and with two.
func oracles() []Scenario {
	return []Scenario{
		drawn("oracle-slice", "counts", "counters equal what an observer outside saw, and what is called free may be overwritten", 300, 3, slice),
		drawn("oracle", "proof", "counters equal what an observer outside saw", 2000, proofRounds, usual),
		drawn("oracle-variants", "proof", "the same on kernels and CPUs that show what a stock guest hides", 300, proofRounds, variants),
		drawn("poison", "proof", "registers and flags that are called free are overwritten, and nothing comes to anything else", 2000, proofRounds, poisoned),
	}
}

func drawn(name, label, shows string, points, rounds int, guests func(arch string) []variant) Scenario {
	return Scenario{
		Name: name, Title: fmt.Sprintf("%d points drawn from what a load executes: %s", points, shows), Labels: []string{label},
		Guests: func(arch string) []Guest { return oracleGuests(points, rounds, guests(arch)) },
		Check:  func(t *T) { checkOracle(t, points, guests(t.Arch)) },
	}
}

// executedOften is how many arrivals at an instruction make it a point to draw: once
// is not often enough for a count that is off by a part to be off by one.
const executedOften = 10

// drawnFor one point that is wanted: instructions that have no plan, or lie in the
// window of one that was drawn before, are left out.
const drawnFor = 5

// drawnModules are loaded in the guests of which points are drawn: one that starts
// programs, and a driver whose disk answers from softirqs.
var drawnModules = []string{someModule, "null_blk"}

// oracleLoad touches many parts of a kernel and the modules above, each often enough.
// What it prints is the sum of what is the same wherever it runs. It wants the number of
// rounds.
const oracleLoad = `cd /tmp; d=$(mktemp -d); cd $d; me=k$$
mkdir f; mount -t binfmt_misc b f; printf '#kern' >p; chmod +x p
{ for i in $(seq %d); do
echo ":$me:M::#kern::/bin/true:OC" >f/register && cat f/$me f/status && echo 0 >f/$me && echo 1 >f/$me && ./p && echo -1 >f/$me || echo bad
dd if=/dev/nullb0 of=/dev/null bs=4k count=8 iflag=direct 2>/dev/null && dd if=/dev/zero of=/dev/nullb0 bs=4k count=8 conv=fsync 2>/dev/null || echo bad
find /sys/class /etc -type f | head -n 30 | xargs cat >/dev/null 2>&1
cat /proc/self/stat /proc/self/maps /proc/meminfo /proc/interrupts /proc/net/* >/dev/null 2>&1
dd if=/dev/zero of=x bs=4k count=20 2>/dev/null; cp x y; mv y z; ln -s z l; ls -lR . >/dev/null; md5sum x z l; rm x z l
mkdir m; mount -t tmpfs t m; echo x >m/x; umount m; rmdir m
sleep 9 & kill $!; wait
seq 1000 | tr 1 b | sort | uniq | md5sum; find /bin -type f | sort | head -n 20 | xargs cat | md5sum; ls -l /bin | wc
done
for b in null read write stat open pipe msg; do /lib/kerninst/bench/bench $b 20 2 >/dev/null || echo $b: $?; done; } | md5sum`

// proofRounds is how many there are where there is time.
const proofRounds = 10

func oracleGuests(points, rounds int, variants []variant) []Guest {
	load := func(copies uint32) *wire.Step {
		s := shell("load", fmt.Sprintf(oracleLoad, rounds))
		s.GetRun().Copies, s.GetRun().Metered = copies, true
		return s
	}
	look := func(name, against string) *wire.Step {
		s := snapshot(name, against)
		s.GetSnapshot().Modules = drawnModules
		return s
	}
	spliced := func(v variant) func(*Answer) (*wire.Job, error) {
		return func(seen *Answer) (*wire.Job, error) {
			all, err := draw(seen, points)
			if err != nil {
				return nil, err
			}
			var wanted []*wire.Point
			for _, d := range all {
				wanted = append(wanted, d.point(v))
			}
			step := announced(splice("splice", wanted...))
			step.GetSplice().SkipRefused, step.GetSplice().Most = true, uint32(points)
			return job(shell("holds", v.holds), look("before", ""), step, load(uint32(v.cpus)), read("count"), unsplice("splice"), look("after", "before")), nil
		}
	}
	const long = 20 * time.Minute
	guests := []Guest{{Name: "seen", CPUs: 1, Time: vm.Exact, Oracle: true, Executed: executedOften, Modules: drawnModules, Job: job(load(1)), RunTimeout: long}}
	for _, v := range variants {
		guests = append(guests, Guest{Name: v.name, CPUs: v.cpus, CPU: v.cpu, Time: v.time, Append: v.append, Oracle: true,
			After: "seen", Make: spliced(v), Index: v.index, Modules: drawnModules, RunTimeout: long})
	}
	return guests
}

// drawnPoint is an instruction of the kernel's own text, or of a module's function.
type drawnPoint struct {
	module, function string // empty: the kernel's text
	off              uint64 // from the start of either
	class            string
	n                uint64 // executions, with the iterations of what repeats itself
}

// point asks for what is drawn, wherever kernel and modules lie this time.
func (d drawnPoint) point(v variant) *wire.Point {
	p := &wire.Point{Actions: v.actions, Without: v.without}
	if d.module == "" {
		p.Text = d.off + 1
	} else {
		p.Module, p.Function, p.Offset = d.module, d.function, d.off
	}
	return p
}

// draw picks instructions by the guest's seed, more than the points that are wanted:
// some of the rare classes first, then any.
func draw(seen *Answer, points int) ([]drawnPoint, error) {
	all, err := executed(seen)
	if err != nil {
		return nil, err
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("the load executed nothing %d times", executedOften)
	}
	slices.SortFunc(all, func(x, y drawnPoint) int {
		return cmp.Or(cmp.Compare(x.module, y.module), cmp.Compare(x.function, y.function), cmp.Compare(x.off, y.off))
	})
	rand.New(rand.NewPCG(seen.Seed, 0)).Shuffle(len(all), func(i, k int) { all[i], all[k] = all[k], all[i] })
	var first, rest []drawnPoint
	have := map[string]int{}
	for _, d := range all {
		if contains(drawnFirst, d.class) && have[d.class] < points/firstShare {
			have[d.class]++
			first = append(first, d)
		} else {
			rest = append(rest, d)
		}
	}
	all = append(first, rest...)
	return all[:min(points*drawnFor, len(all))], nil
}

// executed lists what a guest executed in the kernel's text, and in the modules that
// were loaded for the load.
func executed(seen *Answer) (all []drawnPoint, err error) {
	if lo, hi := seen.Text.Bounds(); uint64(hi-lo) != seen.Hello.TextEnd-seen.Hello.TextStart {
		return nil, fmt.Errorf("the guest's kernel has %d bytes of text, its dump %d", seen.Hello.TextEnd-seen.Hello.TextStart, hi-lo)
	}
	modules, err := ktext.ReadModuleFunctions(seen.Hello.ModuleFunctions)
	if err != nil {
		return nil, err
	}
	for a, n := range seen.Oracle {
		if a >= seen.Hello.TextStart && a < seen.Hello.TextEnd {
			d := drawnPoint{off: a - seen.Hello.TextStart, n: n.Total}
			if d.class, err = classify(seen.Text, d.off); err != nil {
				return nil, err
			}
			all = append(all, d)
		} else if d, ok := inModules(modules, isa.Addr(a)); ok {
			d.n = n.Total
			all = append(all, d)
		}
	}
	return all, nil
}

// inModules finds the function of a module that an address is in, if the module is one
// of those that were loaded for the load: kerninst.ko, too, is one.
func inModules(modules []*ktext.Functions, a isa.Addr) (drawnPoint, bool) {
	for _, m := range modules {
		if a < m.Lo || a >= m.Hi || !contains(drawnModules, m.Module) {
			continue
		}
		k, found := slices.BinarySearch(m.At, a)
		if !found {
			k--
		}
		if k >= 0 {
			return drawnPoint{module: m.Module, function: m.Names[k], off: uint64(a - m.At[k]), class: moduleClass}, true
		}
	}
	return drawnPoint{}, false
}

func checkOracle(t *T, points int, variants []variant) {
	want := string(t.ran("seen", "load")[0])
	t.Metrics["oracle.population"] = report.Metric{Value: float64(len(t.Guests["seen"].Oracle)), Unit: "instructions", N: 1}
	drawn, err := draw(t.Guests["seen"], points)
	if err != nil {
		panic(err) // the guests' jobs were made of it
	}
	for _, v := range variants {
		guest := v.name
		t.ran(guest, "holds")
		for i, out := range t.ran(guest, "load") {
			t.equal(fmt.Sprintf("%s: what the load of CPU %d came to", guest, i), string(out), want)
		}
		t.arrivals(v, drawn, points)
		t.equal(guest+": ranges of text that differ afterwards", len(t.done(guest, "after").Text.Differing), 0)
	}
}

// arrivals compares each counter with what was seen outside. The points' results are in
// the order in which they were drawn.
func (t *T) arrivals(v variant, drawn []drawnPoint, points int) {
	guest := v.name
	counts := t.done(guest, "count").Values
	refused, classes, often, arrivals := map[string]int{}, map[string]*tally{}, 0, uint64(0)
	var spliced, known, once []*wire.PointResult // once: those whose executions are arrivals
	for k, p := range t.done(guest, "splice").Points {
		class := classes[drawn[k].class]
		if class == nil {
			class = &tally{}
			classes[drawn[k].class] = class
		}
		if p.Refusal != nil {
			refused[p.Refusal.Reason]++
			class.refused++
			continue
		}
		c := &wire.Value{}
		if len(spliced) < len(counts) {
			c = counts[len(spliced)]
		}
		spliced = append(spliced, p)
		if drawn[k].class != repClass && drawn[k].class != handledClass {
			once = append(once, p)
		}
		if drawn[k].module == "" { // no index knows a module's functions
			known = append(known, p)
		}
		n := t.Guests[guest].Oracle[p.WrittenAt].Total
		if c.Count != n || c.Spec != p.Spec {
			class.wrong = append(class.wrong, fmt.Sprintf("%s (%s) counted %d of %d", p.Spec, p.Displaced[0], c.Count, n))
		}
		class.spliced, class.arrivals, class.seen = class.spliced+1, class.arrivals+n, class.seen+drawn[k].n
		if n >= executedOften {
			often++
		}
		arrivals += n
	}
	t.equal(guest+": counters", len(counts), len(spliced))
	t.ways(v, spliced)
	if v.actions == nil && v.without == nil { // what does more than to count stands at its own instruction
		t.asOften(guest, once, spliced, counts)
	}
	t.atLeast(guest+": points", float64(len(spliced)), float64(points))
	t.classes(guest, classes)
	t.Metrics["oracle."+guest+".points"] = report.Metric{Value: float64(len(spliced)), Unit: "points", N: 1}
	t.Metrics["oracle."+guest+".often"] = report.Metric{Value: float64(often), Unit: "points", N: 1}
	t.count("oracle."+guest+".arrivals", arrivals)
	if v.without == nil {
		t.added("oracle."+guest+".added", known, v.index && v.actions == nil)
	}
	for reason, n := range refused {
		t.Metrics["oracle."+guest+".refused."+strings.ReplaceAll(reason, " ", "-")] = report.Metric{Value: float64(n), Unit: "points", N: 1}
	}
}

// fewestOf is how many points of a hundred each mechanism must have. Puns are two to five
// of a hundred, as the kernel's addresses have it: lists shorter than tellsPuns have none by
// chance now and then.
const (
	fewestOf  = 1
	tellsPuns = 1000
)

// fewestMoved is of how many points one at least is reached by what was moved away for it.
const fewestMoved = 500

// ways files how many points each mechanism reached: each has to be seen counting, the
// last resort where it is the only one.
func (t *T) ways(v variant, points []*wire.PointResult) {
	n, moved := map[string]int{}, 0
	for _, p := range points {
		n[p.Mechanism]++
		if p.Moved != "" {
			moved++
		}
	}
	if t.Arch != "arm64" && t.windows() && v.without == nil { // there nothing is ever moved away
		t.Metrics["oracle."+v.name+".moved"] = report.Metric{Value: float64(moved), Unit: "points", N: 1}
		t.atLeast(v.name+": points by what was moved away for them", float64(moved), float64(len(points)/fewestMoved))
	}
	for _, m := range plan.Ladder(t.Arch) {
		got, least := n[m.String()], len(points)*fewestOf/100
		t.Metrics["oracle."+v.name+"."+m.String()] = report.Metric{Value: float64(got), Unit: "points", N: 1}
		switch {
		case contains(v.without, m.String()):
			t.equal(v.name+": points by "+m.String(), got, 0)
		case m == plan.Pun && len(points) < tellsPuns, !t.windows():
		case m != plan.Trap || v.without != nil:
			t.atLeast(v.name+": points by "+m.String(), float64(got), float64(least))
		}
	}
}

// asOften compares the counters of points that are counted at another instruction with
// the arrivals at the points themselves, as far as those run where they were, each
// execution is an arrival, and the observer saw any. It may miss some: of what no splice
// writes to, the emulator keeps what it translated before the observer knew the points,
// until it needs the room. It sees none that is not there, and of most points all.
func (t *T) asOften(guest string, once, points []*wire.PointResult, counts []*wire.Value) {
	n, missed, wrong := 0, 0, []string(nil)
	moved := map[uint64]bool{}
	for _, q := range points {
		for b := range q.OldBytes {
			moved[q.WrittenAt+uint64(b)] = true
		}
	}
	for k, p := range points {
		want := t.Guests[guest].Oracle[p.Address].Total
		if p.RunsAt == 0 || want == 0 || moved[p.Address] || !slices.Contains(once, p) || k >= len(counts) {
			continue
		}
		n++
		switch c := counts[k].Count; {
		case c > want:
			missed++
		case c < want:
			wrong = append(wrong, fmt.Sprintf("%s counted %d at %#x of %d", p.Spec, c, p.RunsAt, want))
		}
	}
	t.Metrics["oracle."+guest+".as-often"] = report.Metric{Value: float64(n), Unit: "points", N: 1}
	t.atLeast(guest+": points counted elsewhere", float64(n), float64(len(points)/500))
	t.equal(guest+": points whose counter elsewhere is less than what was seen at them", wrong, []string(nil))
	t.atMost(guest+": of them, points at which not all was seen", float64(missed), float64(max(1, n/mostMissed)))
}

// mostMissed is one in how many points counted elsewhere may not have been seen from the
// beginning.
const mostMissed = 10

// addedMost are the medians of what a counter may add to a hit where the whole kernel
// is known, in instructions: at all points, and at those that have to save nothing.
var addedMost = map[string]map[string]float64{
	"amd64":   {".all": 4, ".free": 3},
	"arm64":   {".all": 5, ".free": 5},
	"riscv64": {".all": 8, ".free": 7},
}

// judged is how many points a median is of that is held to addedMost.
const judged = 200

// added files the median of what the patches add to a hit: of all of them, and of those
// that had to save nothing.
func (t *T) added(name string, points []*wire.PointResult, judge bool) {
	var all, free []float64
	for _, p := range points {
		all = append(all, float64(p.Added))
		if p.Spilled == 0 {
			free = append(free, float64(p.Added))
		}
	}
	for _, of := range []struct {
		what string
		list []float64
	}{{".all", all}, {".free", free}} {
		if len(of.list) == 0 {
			continue
		}
		slices.Sort(of.list)
		m := of.list[len(of.list)/2]
		t.Metrics[name+of.what] = report.Metric{Value: m, Unit: "insns", Better: "lower", N: len(of.list)}
		if judge && len(of.list) >= judged {
			t.atMost(fmt.Sprintf("%s%s: median of %d points", name, of.what, len(of.list)), m, addedMost[t.Arch][of.what])
		}
	}
}
