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
		drawn("oracle-slice", 300, "counts"),
		drawn("oracle", 2000, "proof"),
	}
}

func drawn(name string, points int, label string) Scenario {
	return Scenario{
		Name: name, Title: fmt.Sprintf("%d points drawn from what a load executes; counters equal what an observer outside saw", points), Labels: []string{label},
		Guests: func(string) []Guest { return oracleGuests(points) },
		Check:  func(t *T) { checkOracle(t, points) },
	}
}

// executedOften is how many arrivals at an instruction make it a point to draw: once
// is not often enough for a count that is off by a part to be off by one.
const executedOften = 10

// drawnFor one point that is wanted: instructions that have no plan, or lie in the
// window of one that was drawn before, are left out.
const drawnFor = 12

// oracleLoad touches many parts of a kernel, each often enough.
const oracleLoad = `cd /tmp; d=$(mktemp -d); cd $d
for i in 1 2 3 4 5 6 7 8 9 10 11 12; do
find /sys/class /etc -type f | head -n 30 | xargs cat >/dev/null 2>&1
cat /proc/self/stat /proc/self/maps /proc/meminfo /proc/interrupts /proc/net/* >/dev/null 2>&1
dd if=/dev/zero of=x bs=4k count=20 2>/dev/null; cp x y; mv y z; ln -s z l; ls -lR . >/dev/null; rm x z l
mkdir m; mount -t tmpfs t m; echo x >m/x; umount m; rmdir m
sleep 9 & kill $!; wait
echo a | tr a b | sort | uniq | wc >/dev/null
done
for b in null read write stat open pipe msg; do /lib/kerninst/bench/bench $b 20 2; done`

func oracleGuests(points int) []Guest {
	load := func(copies uint32) *wire.Step {
		s := shell("load", oracleLoad)
		s.GetRun().Copies, s.GetRun().Metered = copies, true
		return s
	}
	spliced := func(copies uint32) func(*Answer) (*wire.Job, error) {
		return func(seen *Answer) (*wire.Job, error) {
			all, err := draw(seen, points*drawnFor)
			if err != nil {
				return nil, err
			}
			step := announced(splice("splice", all...))
			step.GetSplice().SkipRefused, step.GetSplice().Most = true, uint32(points)
			return job(snapshot("before", ""), step, load(copies), read("count"), unsplice("splice"), snapshot("after", "before")), nil
		}
	}
	const long = 20 * time.Minute
	return []Guest{
		{Name: "seen", CPUs: 1, Time: vm.Exact, Oracle: true, Executed: executedOften, Job: job(load(1)), RunTimeout: long},
		{Name: "1cpu", CPUs: 1, Time: vm.Exact, Oracle: true, After: "seen", Make: spliced(1), RunTimeout: long},
		{Name: "2cpu", CPUs: 2, Time: vm.Host, Oracle: true, After: "seen", Make: spliced(2), RunTimeout: long},
	}
}

// draw picks instructions of the kernel's own text by the guest's seed: all of them
// in some order, or so many.
func draw(seen *Answer, n int) ([]*wire.Point, error) {
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
		points = append(points, &wire.Point{Text: a + 1})
	}
	return points, nil
}

func checkOracle(t *T, points int) {
	t.ran("seen", "load")
	t.Metrics["oracle.population"] = report.Metric{Value: float64(len(t.Guests["seen"].Oracle)), Unit: "instructions", N: 1}
	for _, guest := range []string{"1cpu", "2cpu"} {
		t.ran(guest, "load")
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
			n := t.Guests[guest].Oracle[p.Address].Total
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
		for reason, n := range refused {
			t.Metrics["oracle."+guest+".refused."+strings.ReplaceAll(reason, " ", "-")] = report.Metric{Value: float64(n), Unit: "points", N: 1}
		}
	}
}
