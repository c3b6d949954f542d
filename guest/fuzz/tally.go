package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"kerninst/guest/check"
)

// tally is what callers were answered.
type tally struct {
	Answers      map[string]int // a call's name and an errno's
	Asked, Wrong map[string]int // what must be refused: how often it was tried, and was not
	Games        int            // mappings, and what else is no call
}

func newTally() tally {
	return tally{Answers: map[string]int{}, Asked: map[string]int{}, Wrong: map[string]int{}}
}

func (t *tally) add(o tally) {
	for _, m := range []struct{ to, from map[string]int }{{t.Answers, o.Answers}, {t.Asked, o.Asked}, {t.Wrong, o.Wrong}} {
		for k, n := range m.from {
			m.to[k] += n
		}
	}
	t.Games += o.Games
}

// report says how often each call was answered what: each has to have been made, and to have
// succeeded, or nothing behind its first checks was tried.
func (t *tally) report(who string) {
	total := 0
	for k := range calls {
		c := &calls[k]
		var said []string
		n := 0
		for _, k := range slices.Sorted(maps.Keys(t.Answers)) {
			if errno, ok := strings.CutPrefix(k, c.name+" "); ok && (errno == "" || errno == strings.ToUpper(errno)) {
				said = append(said, fmt.Sprintf("%s %d", orSuccess(errno), t.Answers[k]))
				n += t.Answers[k]
			}
		}
		total += n
		check.Report(who+": "+c.name, n, t.Answers[c.name+" "] > 0, "%s", strings.Join(said, ", "))
	}
	place, bytes, made := t.Answers["elsewhere EACCES"], t.Answers["elsewhere EILSEQ"], t.Answers["elsewhere "]
	check.Report(who+": splices elsewhere", place+bytes, min(place, bytes) > 0 && made == 0, "%d refused for their place, %d for what is there, %d made", place, bytes, made)
	check.Report(who+": calls", total, true, "%d besides, such as mappings", t.Games)
	for _, what := range slices.Sorted(maps.Keys(t.Asked)) {
		check.Report(who+": "+what, t.Asked[what], t.Wrong[what] == 0, "%d times not refused as it must be", t.Wrong[what])
	}
}

func orSuccess(errno string) string {
	if errno == "" {
		return "done"
	}
	return errno
}
