package scenarios

import (
	"strings"
	"testing"

	"kerninst/agent/wire"
)

// A part that fails and says why is what is asked for; one that does not fail, or says something
// else, is not.
func TestSaysWhatIsWrong(t *testing.T) {
	for scenario, s := range map[string]struct {
		all   []said
		check func(*T)
	}{
		"squid-broken":  {squidSaid(), checkSquidBroken},
		"apache-broken": {apacheSaid(), checkApacheBroken},
	} {
		for name, c := range map[string]struct {
			exit  int32
			says  func(said) string
			fails string
		}{
			"as it should be": {1, func(b said) string { return strings.Join(b.says, "\n") }, ""},
			"nothing fails":   {0, func(b said) string { return strings.Join(b.says, "\n") }, "exit status"},
			"it is not said":  {1, func(b said) string { return b.says[0][1:] }, "says"},
		} {
			guests := map[string]*Answer{}
			for _, b := range s.all {
				r := &wire.RunResult{Exit: c.exit, Stderr: []byte(c.says(b))}
				guests[b.guest] = &Answer{Results: map[string]*wire.Result{b.part: {Runs: []*wire.RunResult{r}}}}
			}
			got := failure(func(fail func(string)) { s.check(NewT("amd64", "", guests, fail)) })
			if (got == "") != (c.fails == "") || !strings.Contains(got, c.fails) {
				t.Errorf("%s, %s: failed with %q, want %q", scenario, name, got, c.fails)
			}
		}
	}
}

// Each guest has a step of the name that has to fail, and nothing is done behind it.
func TestNothingBehindWhatFails(t *testing.T) {
	for scenario, s := range map[string]struct {
		all    []said
		guests []Guest
	}{
		"squid-broken":  {squidSaid(), squidBrokenGuests("amd64")},
		"apache-broken": {apacheSaid(), apacheBrokenGuests("amd64")},
	} {
		for k, g := range s.guests {
			if n := len(g.Job.Steps); n == 0 || g.Job.Steps[n-1].Name != s.all[k].part {
				t.Errorf("%s: %s: %d steps, the last is not %s", scenario, g.Name, n, s.all[k].part)
			}
		}
	}
}
