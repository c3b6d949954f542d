package ask

import (
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
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

// TestExpandShared: a place that several copies share is looked at once, of whatever functions they are; who has
// written the same twice is told so as ever.
func TestExpandShared(t *testing.T) {
	meant := func(specs []string) (all []*wire.Meant, err error) {
		for _, s := range specs {
			m := &wire.Meant{Specs: []string{s}}
			if strings.HasPrefix(s, "kinst::copied") {
				_, does, _ := strings.Cut(s, " ")
				m.Specs = []string{strings.TrimSpace("kinst::f:8 " + does), strings.TrimSpace("kinst::f:8 " + does), strings.TrimSpace("kinst::f:12 " + does)}
			}
			all = append(all, m)
		}
		return all, nil
	}
	for _, c := range []struct {
		asked, want string // joined by |
		said        bool
	}{
		{"kinst::copied:entry", "kinst::f:8|kinst::f:12", true},
		{"kinst::copied:entry|kinst::copied2:entry count", "kinst::f:8|kinst::f:12", true},
		{"kinst::copied:entry|kinst::copied2:entry max(arg0)", "kinst::f:8|kinst::f:12|kinst::f:8 max(arg0)|kinst::f:12 max(arg0)", true},
		{"kinst::copied:entry /pid == 1/|kinst::copied2:entry", "kinst::f:8 /pid == 1/|kinst::f:12 /pid == 1/|kinst::f:8|kinst::f:12", true},
		{"kinst::g:8|kinst::g:8", "kinst::g:8|kinst::g:8", false},
	} {
		r, said := Request{Specs: strings.Split(c.asked, "|"), Do: []string{"count"}}, 0
		if err := r.Expand(meant, func(string) { said++ }); err != nil || strings.Join(r.Specs, "|") != c.want || (said > 0) != c.said {
			t.Errorf("%s: %v, %v, said %d times; want %s", c.asked, r.Specs, err, said, c.want)
		}
	}
}

// TestExpandAlike: what cannot be had for one reason at many places is not said so often, unless it is asked for.
func TestExpandAlike(t *testing.T) {
	meant := func([]string) ([]*wire.Meant, error) {
		m := &wire.Meant{Specs: []string{"kinst::f:1"}, Untold: []string{"it: at kinst:m:other:9 a way leads out"}}
		for range 30 {
			m.Untold = append(m.Untold, fmt.Sprintf(`it: arg("x") at kinst::f:%d: the compiler has not kept it there`, len(m.Untold)))
		}
		return []*wire.Meant{m}, nil
	}
	for why, want := range map[bool]int{false: mostAlike + 2, true: 31} {
		r, said := Request{Specs: []string{"kinst::g:entry"}, Why: why}, []string(nil)
		err := r.Expand(meant, func(s string) { said = append(said, s) })
		var untold *UntoldError
		if len(said) != want || !errors.As(err, &untold) || untold.N != 31 {
			t.Errorf("said %d lines, want %d: %q; %v", len(said), want, said, err)
		}
		if last := said[len(said)-1]; !why && !strings.Contains(last, "the compiler has not kept it there (26 more") {
			t.Errorf("%q", last)
		}
	}
}

// TestExpandPattern: of a pattern it is said that copies are not meant.
func TestExpandPattern(t *testing.T) {
	for spec, want := range map[string]int{"kinst::ksys_*:entry count": 1, "kinst::ksys_*:8": 0, "kinst::ksys_read:entry": 0} {
		r, said := Request{Specs: []string{spec}}, 0
		err := r.Expand(func(specs []string) ([]*wire.Meant, error) { return []*wire.Meant{{Specs: specs}}, nil }, func(string) { said++ })
		if err != nil || said != want {
			t.Errorf("%s: said %d times, want %d; %v", spec, said, want, err)
		}
	}
}

// TestPrintSpecs: what is printed is what a shell makes the same words of, and means the same without --inline: what is done
// for all is with each.
func TestPrintSpecs(t *testing.T) {
	r := Request{Specs: []string{"kinst::f:entry"}, Do: []string{"max(arg0)"}, Predicate: `comm == "it's"`, Inline: true, Expanded: true}
	err := r.Expand(func(specs []string) ([]*wire.Meant, error) {
		_, does, _ := strings.Cut(specs[0], " ")
		return []*wire.Meant{{Specs: []string{"kinst::g:8 " + does, "kinst::t_show#2:entry", "kinst:m:g*:4", `kinst::h:4 sum(reg("rax"))`}}}, nil
	}, func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := r.PrintSpecs(&out); err != nil || !strings.Contains(out.String(), "\nkinst::t_show#2:entry\n'kinst:m:g*:4'\n") {
		t.Errorf("%v, %s", err, out.String())
	}
	said, err := exec.Command("/bin/sh", "-c", "printf '%s\n' "+strings.ReplaceAll(out.String(), "\n", " ")).Output()
	if got := strings.Split(strings.TrimSpace(string(said)), "\n"); err != nil || !slices.Equal(got, r.Specs) || !strings.Contains(got[0], `/comm == "it's"/ max(arg0)`) {
		t.Errorf("%q, %v, want %q", got, err, r.Specs)
	}
	r.JSON = true
	out.Reset()
	var doc struct{ Specs []string }
	if err := r.PrintSpecs(&out); err != nil {
		t.Error(err)
	}
	if err := json.Unmarshal([]byte(out.String()), &doc); err != nil || !slices.Equal(doc.Specs, r.Specs) {
		t.Errorf("%q, %v", doc.Specs, err)
	}
	for want, r := range map[string]Request{
		"which is not given":         {Specs: []string{"kinst::f:entry"}, Expanded: true, Timeout: 1},
		"leave --list and the":       {Specs: []string{"kinst::f:entry"}, Expanded: true, Inline: true, List: true, Timeout: 1},
		"list and the workload out":  {Specs: []string{"kinst::f:entry"}, Expanded: true, Inline: true, Shell: "true", Timeout: 1},
		"no workload: give --run ST": {Specs: []string{"kinst::f:entry"}, Inline: true, Timeout: 1},
	} {
		if err := r.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
