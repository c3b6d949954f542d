package scenarios

import (
	"strings"
	"testing"

	"kerninst/agent/wire"
)

// Each guest has a step of the name that has to fail, and nothing is done behind it.
func TestApacheBrokenGuests(t *testing.T) {
	for k, g := range apacheBrokenGuests("amd64") {
		steps := g.Job.Steps
		if n := len(steps); n == 0 || steps[n-1].Name != apacheBreakages[k].part() {
			t.Errorf("%s: %d steps, the last is not %s", g.Name, n, apacheBreakages[k].part())
		}
	}
}

// A part that fails and says why is what is asked for; one that does not fail, or says something
// else, is not.
func TestApacheBrokenCheck(t *testing.T) {
	for name, c := range map[string]struct {
		exit  int32
		says  func(apacheBreakage) string
		fails string
	}{
		"as it should be": {1, func(b apacheBreakage) string { return strings.Join(b.says, "\n") }, ""},
		"nothing fails":   {0, func(b apacheBreakage) string { return strings.Join(b.says, "\n") }, "exit status"},
		"it is not said":  {1, func(b apacheBreakage) string { return b.says[0][1:] }, "says"},
	} {
		guests := map[string]*Answer{}
		for _, b := range apacheBreakages {
			r := &wire.RunResult{Exit: c.exit, Stderr: []byte(c.says(b))}
			guests[b.name] = &Answer{Results: map[string]*wire.Result{b.part(): {Runs: []*wire.RunResult{r}}}}
		}
		got := failure(func(fail func(string)) { checkApacheBroken(NewT("amd64", "", guests, fail)) })
		if (got == "") != (c.fails == "") || !strings.Contains(got, c.fails) {
			t.Errorf("%s: failed with %q, want %q", name, got, c.fails)
		}
	}
}
