package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"kerninst/guest/check"
)

// tally is what callers were answered.
type tally struct {
	Answers      map[string]int // a call's name and an errno's
	Asked, Wrong map[string]int // what must be so, such as that something is refused: how often it was tried, and was not
	Made         map[string]int // batches, by what they had
	Games        int            // mappings, and what else is no call
}

// What is made, as the records have it.
const (
	batches     = "batches that were made"
	withCopies  = batches + " with copies"
	withResumes = batches + " with resumes"
)

func newTally() tally {
	return tally{Answers: map[string]int{}, Asked: map[string]int{}, Wrong: map[string]int{}, Made: map[string]int{}}
}

func (t *tally) add(o tally) {
	for _, m := range []struct{ to, from map[string]int }{{t.Answers, o.Answers}, {t.Asked, o.Asked}, {t.Wrong, o.Wrong}, {t.Made, o.Made}} {
		for k, n := range m.from {
			m.to[k] += n
		}
	}
	t.Games += o.Games
}

// answered notes what a call was answered. Nothing behind its name is success: the kernel has errors that have no name.
func (t *tally) answered(name string, errno unix.Errno) {
	said := unix.ErrnoName(errno)
	if said == "" && errno != 0 {
		said = fmt.Sprintf("E%d", errno)
	}
	t.Answers[name+" "+said]++
}

// hold notes whether something is as it must be.
func (t *tally) hold(what string, ok bool) {
	t.Asked[what]++
	if !ok {
		t.Wrong[what]++
	}
}

// mayNot notes what the module has to refuse.
func (t *tally) mayNot(what string, errno unix.Errno) { t.hold(what, errno != 0) }

// said is how often a call was answered what, and how often it was made.
func (t *tally) said(name string) (n int, said string) {
	var all []string
	for _, k := range slices.Sorted(maps.Keys(t.Answers)) {
		if errno, ok := strings.CutPrefix(k, name+" "); ok && (errno == "" || errno == strings.ToUpper(errno)) {
			all = append(all, fmt.Sprintf("%s %d", orSuccess(errno), t.Answers[k]))
			n += t.Answers[k]
		}
	}
	return n, strings.Join(all, ", ")
}

// report says how often each call was answered what: each has to have been made, and to have
// succeeded, or nothing behind its first checks was tried. All together are as many as asked.
func (t *tally) report(who string, asked int) {
	total := 0
	for k := range calls {
		name := calls[k].name
		n, said := t.said(name)
		total += n
		check.Report(who+": "+name, n, t.Answers[name+" "] > 0, "%s", said)
	}
	check.Report(who+": calls", total, total == asked, "%d asked for, %d besides, such as mappings", asked, t.Games)
	for _, name := range []string{"right", "mmap"} {
		_, said := t.said(name)
		n := t.Answers[name+" "]
		check.Report(who+": "+name, n, n > 0, "%s", said)
	}
	place, bytes, made := t.Answers["elsewhere EACCES"], t.Answers["elsewhere EILSEQ"], t.Answers["elsewhere "]
	check.Report(who+": splices elsewhere", place+bytes, min(place, bytes) > 0 && made == 0, "%d refused for their place, %d for what is there, %d made", place, bytes, made)
	t.reportHeld(who)
}

// reportHeld says of what must be so how often it was not.
func (t *tally) reportHeld(who string) {
	for _, what := range slices.Sorted(maps.Keys(t.Asked)) {
		check.Report(who+": "+what, t.Asked[what], t.Wrong[what] == 0, "%d times not as it must be", t.Wrong[what])
	}
}

func orSuccess(errno string) string {
	if errno == "" {
		return "done"
	}
	return errno
}
