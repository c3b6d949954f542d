package scenarios

import (
	"fmt"
	"maps"
	"testing"

	"kerninst/agent/wire"
)

// TestDeviceCheck: what was not tried, or too seldom, is missed.
func TestDeviceCheck(t *testing.T) {
	c := calling{calls: 100, made: 3, withCopies: 2, resuming: 2}
	good := map[string]int{"root: calls": 50, "nobody: calls": 50, "batches that were made": 3, "batches that were made with copies": 2,
		"batches that were made with resumes": 2, "unload": 1}
	for who, held := range map[string][]string{"root": heldByAll, "nobody": heldByAll, "openers": heldByOpeners} {
		for _, what := range held {
			good[who+": "+what] = 1
		}
	}
	good["openers: one has the device alone"] = leastTurns
	for name, n := range good {
		for _, seen := range []int{n, n - 1} {
			some := maps.Clone(good)
			if some[name] = seen; seen == 0 {
				delete(some, name)
			}
			if got := deviceFailure(c, some); (got == "") != (seen == n) {
				t.Errorf("%s: %d of %d: %q", name, seen, n, got)
			}
		}
	}
}

func deviceFailure(c calling, records map[string]int) string {
	out := ""
	for name, n := range records {
		out += fmt.Sprintf(`{"name":%q,"n":%d,"ok":true}`+"\n", name, n)
	}
	ran := func(s string) *wire.Result {
		return &wire.Result{Runs: []*wire.RunResult{{Stdout: []byte(s)}}}
	}
	a := &Answer{Results: map[string]*wire.Result{"device": ran(out), "taints": ran("0"), "taints behind": ran("0"), "after": {Text: &wire.TextDiff{}}}}
	return failure(func(fail func(string)) { c.check(NewT("amd64", "", map[string]*Answer{"device": a}, fail)) })
}
