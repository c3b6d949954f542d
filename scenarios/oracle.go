package scenarios

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

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

// oracleLoad touches many parts of a kernel, each often enough. What it prints is the
// sum of what is the same wherever it runs. It wants the number of rounds.
const oracleLoad = `cd /tmp; d=$(mktemp -d); cd $d
{ for i in $(seq %d); do
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
	spliced := func(v variant) func(*Answer) (*wire.Job, error) {
		return func(seen *Answer) (*wire.Job, error) {
			all, err := draw(seen, points*drawnFor, v.actions)
			if err != nil {
				return nil, err
			}
			step := announced(splice("splice", all...))
			step.GetSplice().SkipRefused, step.GetSplice().Most = true, uint32(points)
			return job(shell("holds", v.holds), snapshot("before", ""), step, load(uint32(v.cpus)), read("count"), unsplice("splice"), snapshot("after", "before")), nil
		}
	}
	const long = 20 * time.Minute
	guests := []Guest{{Name: "seen", CPUs: 1, Time: vm.Exact, Oracle: true, Executed: executedOften, Job: job(load(1)), RunTimeout: long}}
	for _, v := range variants {
		guests = append(guests, Guest{Name: v.name, CPUs: v.cpus, CPU: v.cpu, Time: v.time, Append: v.append, Oracle: true,
			After: "seen", Make: spliced(v), Index: v.index, RunTimeout: long})
	}
	return guests
}

// draw picks instructions of the kernel's own text by the guest's seed: all of them
// in some order, or so many.
func draw(seen *Answer, n int, actions []*wire.Action) ([]*wire.Point, error) {
	var at []uint64
	for a := range seen.Oracle {
		if a >= seen.Hello.TextStart && a < seen.Hello.TextEnd {
			at = append(at, a-seen.Hello.TextStart)
		}
	}
	if len(at) == 0 {
		return nil, fmt.Errorf("the load executed nothing %d times", executedOften)
	}
	slices.Sort(at)
	rand.New(rand.NewPCG(seen.Seed, 0)).Shuffle(len(at), func(i, k int) { at[i], at[k] = at[k], at[i] })
	var points []*wire.Point
	for _, a := range at[:min(n, len(at))] {
		points = append(points, &wire.Point{Text: a + 1, Actions: actions})
	}
	return points, nil
}

func checkOracle(t *T, points int, variants []variant) {
	want := string(t.ran("seen", "load")[0])
	t.Metrics["oracle.population"] = report.Metric{Value: float64(len(t.Guests["seen"].Oracle)), Unit: "instructions", N: 1}
	for _, v := range variants {
		guest := v.name
		t.ran(guest, "holds")
		for i, out := range t.ran(guest, "load") {
			t.equal(fmt.Sprintf("%s: what the load of CPU %d came to", guest, i), string(out), want)
		}
		counts := t.done(guest, "count").Values
		var spliced []*wire.PointResult
		refused, wrong, often, arrivals := map[string]int{}, []string{}, 0, uint64(0)
		for _, p := range t.done(guest, "splice").Points {
			if p.Refusal != nil {
				refused[p.Refusal.Reason]++
				continue
			}
			spliced = append(spliced, p)
		}
		t.equal(guest+": counters", len(counts), len(spliced))
		for i, p := range spliced {
			n := t.Guests[guest].Oracle[p.WrittenAt].Total
			if counts[i].Count != n || counts[i].Spec != p.Spec {
				wrong = append(wrong, fmt.Sprintf("%s (%s) counted %d of %d", p.Spec, p.Displaced[0], counts[i].Count, n))
			}
			if n >= executedOften {
				often++
			}
			arrivals += n
		}
		t.equal(guest+": points whose counter is not what was seen outside", wrong, []string{})
		t.atLeast(guest+": points", float64(len(spliced)), float64(points))
		t.equal(guest+": ranges of text that differ afterwards", len(t.done(guest, "after").Text.Differing), 0)
		t.Metrics["oracle."+guest+".points"] = report.Metric{Value: float64(len(spliced)), Unit: "points", N: 1}
		t.Metrics["oracle."+guest+".often"] = report.Metric{Value: float64(often), Unit: "points", N: 1}
		t.count("oracle."+guest+".arrivals", arrivals)
		t.added("oracle."+guest+".added", spliced)
		for reason, n := range refused {
			t.Metrics["oracle."+guest+".refused."+strings.ReplaceAll(reason, " ", "-")] = report.Metric{Value: float64(n), Unit: "points", N: 1}
		}
	}
}

// added files the median of what the patches add to a hit: of all of them, and of those
// that had to save nothing.
func (t *T) added(name string, points []*wire.PointResult) {
	var all, free []float64
	for _, p := range points {
		all = append(all, float64(p.Added))
		if p.Spilled == 0 {
			free = append(free, float64(p.Added))
		}
	}
	for what, list := range map[string][]float64{".all": all, ".free": free} {
		if len(list) > 0 {
			slices.Sort(list)
			t.Metrics[name+what] = report.Metric{Value: list[len(list)/2], Unit: "insns", Better: "lower", N: len(list)}
		}
	}
}
