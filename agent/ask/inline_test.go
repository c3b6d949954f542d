package ask

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"kerninst/agent/wire"
)

// TestExpand: copies come in place of what was asked for, with what is to be done there; what cannot be told is
// said, and is an error unless such may be left out and others are left.
func TestExpand(t *testing.T) {
	meant := func(specs []string) (all []*wire.Meant, err error) {
		for _, s := range specs {
			m := &wire.Meant{Specs: []string{"a of " + s, "b of " + s}}
			switch {
			case strings.Contains(s, "half"):
				m.Specs, m.Untold = m.Specs[:1], []string{"not " + s}
			case strings.Contains(s, "none"):
				m.Specs, m.Untold = nil, []string{"not " + s}
			case strings.Contains(s, "wrong"):
				m = &wire.Meant{Error: "wrong: " + s}
			case strings.Contains(s, "dead"):
				return nil, errors.New("nobody answers")
			}
			all = append(all, m)
		}
		return all, nil
	}
	for _, c := range []struct {
		r     Request
		specs string // joined by |
		said  int
		err   string
	}{
		{Request{Specs: []string{"kinst::f:entry", "kinst::g:8 count"}}, "a of kinst::f:entry|b of kinst::f:entry|a of kinst::g:8 count|b of kinst::g:8 count", 0, ""},
		{Request{Specs: []string{"kinst::f:entry", "kinst::g:8 max(arg1)"}, Do: []string{`sum(arg("x"))`, "count"}, Predicate: `arg("y") > 1`},
			`a of kinst::f:entry /arg("y") > 1/ sum(arg("x"))|b of kinst::f:entry /arg("y") > 1/ sum(arg("x"))|a of kinst::f:entry /arg("y") > 1/ count|b of kinst::f:entry /arg("y") > 1/ count|a of kinst::g:8 /arg("y") > 1/ max(arg1)|b of kinst::g:8 /arg("y") > 1/ max(arg1)`, 0, ""},
		{Request{Specs: []string{"kinst::half:entry"}}, "", 1, "1 points cannot be had, nothing is spliced"},
		{Request{Specs: []string{"kinst::half:entry"}, SkipRefused: true}, "a of kinst::half:entry", 1, ""},
		{Request{Specs: []string{"kinst::half:entry"}, List: true}, "a of kinst::half:entry", 1, ""},
		{Request{Specs: []string{"kinst::none:entry"}, SkipRefused: true}, "", 1, "there are no others"},
		{Request{Specs: []string{"kinst::wrong:entry"}, SkipRefused: true}, "", 0, "wrong: kinst::wrong:entry"},
		{Request{Specs: []string{"kinst::dead:entry"}, SkipRefused: true}, "", 0, "nobody answers"},
	} {
		asked, said := slices.Clone(c.r.Specs), 0
		err := c.r.Expand(meant, func(string) { said++ })
		switch {
		case (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err):
			t.Errorf("%v: %v, want %q", asked, err, c.err)
		case err == nil && strings.Join(c.r.Specs, "|") != c.specs:
			t.Errorf("%v: %v, want %s", asked, c.r.Specs, c.specs)
		}
		var untold *UntoldError
		if said != c.said || errors.As(err, &untold) != (err != nil && c.said > 0) {
			t.Errorf("%v: said %d times, %v", asked, said, err)
		}
	}
}
