package scenarios

import (
	"fmt"
	"strings"
	"testing"

	"kerninst/agent/wire"
)

const testRequests = 2 * squidClients * probedRequests

// squidAnswer is that of a guest in which a request took so many instructions of Squid's.
func squidAnswer(insns float64) *Answer {
	ran := func(out string) *wire.Result {
		return &wire.Result{Runs: []*wire.RunResult{{Stdout: []byte(out)}}}
	}
	work := fmt.Sprintf("1000\n10 20 30\nBenchmarkSquid/miss-1 %d 130000000 ns/op 220 req/s 6.9 MB/s 0.0000 hits/req\n"+
		"BenchmarkSquid/mixed-1 %d 60000000 ns/op 360 req/s 10 MB/s 0.5000 hits/req\n%.0f\n500 220 330\n200\n",
		testRequests/2, testRequests/2, 1000+insns*testRequests)
	return &Answer{Results: map[string]*wire.Result{
		"disk": ran("/dev/squid / ext4 rw,dirsync 0 0"), "start": ran(""), "serve": ran(""), "align": ran(""), "stop": ran(""), "work": ran(work),
	}}
}

// probes adds what a step of splices made and counted.
func (a *Answer) probes(step string, points []*wire.PointResult, counts map[string]uint64) {
	a.Results[step] = &wire.Result{Points: points}
	a.Results[step+"-counts"] = &wire.Result{Values: testValues(points, counts)}
}

func testValues(points []*wire.PointResult, counts map[string]uint64) (out []*wire.Value) {
	for _, p := range points {
		out = append(out, &wire.Value{Spec: p.Spec, Symbol: p.Symbol, Count: counts[p.Symbol]})
	}
	return out
}

// squidTest is what guests answer, which a test changes.
type squidTest struct {
	insns                    [3]float64 // bare, spliced, kprobed
	splices, kprobes         map[string]uint64
	bothSplices, bothKprobes map[string]uint64
	notBeside                int // functions without a kprobe beside the splice
	points                   []*wire.PointResult
}

func newSquidTest() *squidTest {
	x := &squidTest{insns: [3]float64{900_000, 900_100, 912_000}}
	for _, m := range []*map[string]uint64{&x.splices, &x.kprobes, &x.bothSplices, &x.bothKprobes} {
		*m = map[string]uint64{}
	}
	names := []string{"epoll_wait"}
	for k := range withoutKprobe {
		names = append(names, nth("none", k)) // nobody calls these
	}
	for k, name := range append(names, decided...) {
		symbol := "__x64_sys_" + name
		x.points = append(x.points, &wire.PointResult{Spec: "kinst::" + symbol + ":9", Symbol: symbol, Address: uint64(64*k) + 9, Offset: 9, Added: 3})
		for _, m := range []map[string]uint64{x.splices, x.kprobes, x.bothSplices, x.bothKprobes} {
			if k > 0 && k < len(names) {
				continue
			}
			m[symbol] = uint64(100 + k)
		}
	}
	x.kprobes["__x64_sys_epoll_wait"]++ // nothing decides those
	return x
}

func (x *squidTest) fails() string {
	bare, spliced, kprobed, both := squidAnswer(x.insns[0]), squidAnswer(x.insns[1]), squidAnswer(x.insns[2]), squidAnswer(0)
	spliced.probes("places", x.points, x.splices)
	kprobed.Results["place"] = &wire.Result{Points: x.points}
	kprobed.Results["kprobes-places"] = &wire.Result{Points: x.points}
	kprobed.Results["unkprobes-places"] = &wire.Result{Values: testValues(x.points, x.kprobes)}
	both.probes("both", x.points, x.bothSplices)
	var starts []*wire.PointResult
	for k, p := range x.points {
		s := &wire.PointResult{Spec: "kinst::" + p.Symbol + ":0", Symbol: p.Symbol, Address: p.Address - p.Offset}
		if k < x.notBeside {
			s.Refusal = &wire.Refusal{Reason: "kprobe"}
		}
		starts = append(starts, s)
	}
	both.Results["kprobes-both"] = &wire.Result{Points: starts}
	both.Results["unkprobes-both"] = &wire.Result{Values: testValues(x.points[x.notBeside:], x.bothKprobes)}
	guests := map[string]*Answer{"bare": bare, "spliced": spliced, "kprobed": kprobed, "both": both}
	return failure(func(fail func(string)) { checkSquidProbes(NewT("amd64", "", guests, fail)) })
}

func TestSquidProbesCheck(t *testing.T) {
	first := "__x64_sys_" + decided[0]
	for _, tt := range []struct {
		name   string
		change func(*squidTest)
		fails  string
	}{
		{"as it should be", func(x *squidTest) {}, ""},
		{"splices cost more than they may", func(x *squidTest) { x.insns[1] = 910_000 }, "over their budget"},
		{"all splices together cost more than they may", func(x *squidTest) { x.points[0].Added = 30_000 }, "that counters are"},
		{"a count that documents decide is off by one", func(x *squidTest) { x.kprobes[first]++ }, "that the documents decide, where"},
		{"a call that documents decide is not there", func(x *squidTest) { x.splices[first], x.kprobes[first] = 0, 0 }, "that the documents decide"},
		{"a count of one guest is off by one", func(x *squidTest) { x.bothSplices["__x64_sys_epoll_wait"]++ }, "in one guest: places"},
		{"a function has no kprobe", func(x *squidTest) { x.notBeside = 1 }, ""},
		{"too many have none", func(x *squidTest) { x.notBeside = withoutKprobe + 1 }, "functions without a kprobe"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			x := newSquidTest()
			tt.change(x)
			if got := x.fails(); (got == "") != (tt.fails == "") || !strings.Contains(got, tt.fails) {
				t.Errorf("failed with %q, want %q", got, tt.fails)
			}
		})
	}
}

func TestSquidEqualCheck(t *testing.T) {
	for insns, fails := range map[float64]string{900_000: "", 900_001: "added to itself"} {
		guests := map[string]*Answer{"first": squidAnswer(900_000), "second": squidAnswer(insns)}
		got := failure(func(fail func(string)) { checkSquidEqual(NewT("amd64", "", guests, fail)) })
		if (got == "") != (fails == "") || !strings.Contains(got, fails) {
			t.Errorf("%v instructions: failed with %q, want %q", insns, got, fails)
		}
	}
}

func TestSquidPlantedCheck(t *testing.T) {
	for insns, fails := range map[float64]string{940_000: "", 900_100: "is over"} {
		guests := map[string]*Answer{"bare": squidAnswer(900_000), "kprobed": squidAnswer(insns)}
		got := failure(func(fail func(string)) { checkSquidPlanted(NewT("amd64", "", guests, fail)) })
		if (got == "") != (fails == "") || !strings.Contains(got, fails) {
			t.Errorf("%v instructions: failed with %q, want %q", insns, got, fails)
		}
	}
}
