package scenarios

import (
	"fmt"
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

// TestChurnVariants: a variant that is none fails, whatever passes in it.
func TestChurnVariants(t *testing.T) {
	out := ""
	for name, n := range map[string]int{"operations": 100, "calls that were counted exactly": 100, "points by a": 1, "points by b": 1, "unload": 1} {
		out += fmt.Sprintf(`{"name":%q,"n":%d,"ok":true}`+"\n", name, n)
	}
	for _, kind := range loadKinds {
		out += fmt.Sprintf(`{"name":"load: %s","n":1,"ok":true}`+"\n", kind)
	}
	ran := func(s string, exit int32) *wire.Result {
		return &wire.Result{Runs: []*wire.RunResult{{Stdout: []byte(s), Exit: exit}}}
	}
	for exit, want := range map[int32]string{0: "", 1: "holds"} {
		a := &Answer{Results: map[string]*wire.Result{"holds": ran("", exit), "turns": ran("", 0), "churn": ran(out, 0), "taints": ran("0", 0), "taints behind": ran("0", 0), "after": {Text: &wire.TextDiff{}}}}
		got := failure(func(fail func(string)) { checkChurnVariants(NewT("amd64", "", map[string]*Answer{"preempt": a}, fail)) })
		if (got == "") != (want == "") || !strings.Contains(got, want) {
			t.Errorf("holds ends with %d: %q", exit, got)
		}
	}
}
