package scenarios

import (
	"fmt"
	"strings"
	"testing"

	"kerninst/agent/wire"
	"kerninst/lab/vm"
)

// Every arm stands in every place equally often, before and behind every other.
func TestABIsBalanced(t *testing.T) {
	places, pairs := map[[2]int]int{}, map[[2]int]int{}
	for _, order := range orders {
		for place, a := range order {
			places[[2]int{place, a}]++
			for _, later := range order[place+1:] {
				pairs[[2]int{a, later}]++
			}
		}
	}
	n := len(arms)
	for k, got := range places {
		if got != len(orders)/n {
			t.Errorf("arm %d stands in place %d %d times", k[1], k[0], got)
		}
	}
	for k, got := range pairs {
		if got != len(orders)/2 {
			t.Errorf("arm %d stands before arm %d %d times", k[0], k[1], got)
		}
	}
	if len(places) != n*n || len(pairs) != n*(n-1) {
		t.Errorf("%d places, %d pairs", len(places), len(pairs))
	}
}

// Boots of one block share a seed that no other block has.
func TestABSeeds(t *testing.T) {
	guests := abGuests("amd64", 12)
	for i, g := range guests {
		if g.Seed != uint64(i/len(arms)) || g.Time != vm.Host || !strings.HasSuffix(g.Name, fmt.Sprint("-", g.Seed)) {
			t.Errorf("guest %d: %s has seed %d, time %s", i, g.Name, g.Seed, g.Time)
		}
	}
}

// abAnswer is what a guest would say whose operations take ns nanoseconds.
func abAnswer(ns float64, hits uint64) *Answer {
	text := fmt.Sprintf("null 1000 %d\nnull 1000 %d\nnull total 3000\n", int(1000*ns), int(5000*ns))
	point := &wire.PointResult{Symbol: "f", Offset: 4, Mechanism: "jump"}
	run := &wire.RunResult{Stdout: []byte(text)}
	return &Answer{Results: map[string]*wire.Result{
		"splice":   {Points: []*wire.PointResult{point}},
		"work":     {Runs: []*wire.RunResult{run, run}},
		"count":    {Values: []*wire.Value{{Symbol: "f", Offset: 4, Count: hits}}},
		"unkprobe": {KprobeHits: hits},
	}}
}

// What a check of an A/B finds: each arm's operations take the time given, times
// what is special to the block.
func TestABCheck(t *testing.T) {
	const did = 6000
	for _, tt := range []struct {
		name                string
		base, equal, kprobe float64
		noise               float64 // factor of the arms' times in odd blocks
		lost                uint64  // hits
		fails               string
	}{
		{name: "a kprobe takes longer", base: 1000, equal: 1010, kprobe: 3000, noise: 1},
		{name: "the host slows down for whole blocks", base: 1000, equal: 1010, kprobe: 3000, noise: 100},
		{name: "nothing differs", base: 1000, equal: 1010, kprobe: 1000, noise: 1, fails: "above that of equal arms"},
		{name: "equal arms differ", base: 1000, equal: 1200, kprobe: 3000, noise: 1, fails: "lower end of the interval of equal arms"},
		{name: "equal arms differ the other way", base: 1200, equal: 1000, kprobe: 3000, noise: 1, fails: "upper end of the interval of equal arms"},
		{name: "a hit is lost", base: 1000, equal: 1010, kprobe: 3000, noise: 1, lost: 1, fails: "hits = what the workload did"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			guests := map[string]*Answer{}
			for i := range orders {
				f := 1.0
				if i%2 == 1 {
					f = tt.noise
				}
				guests[nth(base, i)] = abAnswer(f*tt.base, did)
				guests[nth(equal, i)] = abAnswer(f*tt.equal, did)
				guests[nth(other, i)] = abAnswer(f*tt.kprobe, did-tt.lost)
			}
			failed := func() (message string) {
				defer func() {
					if s, ok := recover().(stop); ok {
						message = s.message
					}
				}()
				checkAB(NewT("amd64", "", guests, func(m string) { panic(stop{m}) }), len(orders))
				return ""
			}()
			if (failed == "") != (tt.fails == "") || !strings.Contains(failed, tt.fails) {
				t.Errorf("failed with %q, want %q", failed, tt.fails)
			}
		})
	}
}

func TestTimedScenariosWantHostTime(t *testing.T) {
	list, err := Select("boot,ab")
	if err != nil {
		t.Fatal(err)
	}
	if err := CheckTime(list, vm.Host); err != nil {
		t.Error(err)
	}
	if err := CheckTime(list, vm.Exact); err == nil || !strings.Contains(err.Error(), "ab measures host time") {
		t.Errorf("exact: %v", err)
	}
}
