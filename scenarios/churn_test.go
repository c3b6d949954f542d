package scenarios

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"kerninst/agent/wire"
	"kerninst/lab/runner"
)

// TestSeeded: what draws in a guest draws by the run's seed.
func TestSeeded(t *testing.T) {
	drawing := map[string]bool{}
	for _, seed := range []uint64{1, 7} {
		env := &Env{Arch: "amd64", Runner: runner.New(runner.Runner{Seed: seed})}
		for _, s := range All() {
			for _, g := range s.Guests("amd64") {
				for _, step := range env.request(s, g, 1).Job.GetSteps() {
					argv := step.GetRun().GetArgv()
					k := slices.Index(argv, "-seed")
					if slices.Contains(argv, seedWord) || k >= 0 && argv[k+1] != fmt.Sprint(seed+g.Seed) {
						t.Errorf("%s, seed %d: %q", s.Name, seed, argv)
					}
					drawing[s.Name] = drawing[s.Name] || k >= 0
				}
			}
		}
	}
	for _, name := range []string{"storm", "toggle", "toggle-variants", "churn", "churn-long", "churn-variants", "fails", "kills", "kills-long", "device", "device-long"} {
		if !drawing[name] {
			t.Errorf("%s draws by no seed", name)
		}
	}
}

// TestChurnVariants: a variant that is none fails, whatever passes in it, and so does one in which less is done than has to be.
func TestChurnVariants(t *testing.T) {
	t.Setenv("PROOF_TIME", "10m")
	enough := map[string]int{"operations": 10000, "calls that were counted exactly": 1000, "unload": 1}
	for _, kind := range loadKinds {
		enough["load: "+kind] = 50
	}
	for _, m := range churnMechanisms("amd64", true) {
		enough["points by "+m], enough["live and come by, by "+m] = 1, 1
	}
	ran := func(s string, exit int32) *wire.Result {
		return &wire.Result{Runs: []*wire.RunResult{{Stdout: []byte(s), Exit: exit}}}
	}
	check := func(n map[string]int, exit int32) string {
		out := ""
		for name, n := range n {
			out += fmt.Sprintf(`{"name":%q,"n":%d,"ok":true}`+"\n", name, n)
		}
		a := &Answer{Results: map[string]*wire.Result{"holds": ran("", exit), "turns": ran("", 0), "churn": ran(out, 0), "taints": ran("0", 0), "taints behind": ran("0", 0), "after": {Text: &wire.TextDiff{}}}}
		return failure(func(fail func(string)) { checkChurnVariants(NewT("amd64", "", map[string]*Answer{"preempt": a}, fail)) })
	}
	if got := check(enough, 0); got != "" {
		t.Error(got)
	}
	if got := check(enough, 1); !strings.Contains(got, "holds") {
		t.Errorf("holds ends with 1: %q", got)
	}
	for name := range enough {
		less := maps.Clone(enough)
		less[name]--
		if check(less, 0) == "" {
			t.Errorf("%s: %d pass", name, less[name])
		}
	}
}
