package ask

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	"kerninst/agent/inlined"
	"kerninst/agent/probe"
	"kerninst/agent/wire"
)

// UntoldError says that N places which are meant cannot be had, and how many can.
type UntoldError struct{ N, Others int }

func (e *UntoldError) Error() string {
	if e.Others == 0 {
		return fmt.Sprintf("%d points cannot be had, and there are no others", e.N)
	}
	return fmt.Sprintf("%d points cannot be had, nothing is spliced; --skip-refused leaves them out", e.N)
}

// Expand puts inlined copies in place of the functions that they are of, as meant has it of each
// specification. What cannot be told of any is said; it is an *UntoldError unless such may be left out.
func (r *Request) Expand(meant func(specs []string) ([]*wire.Meant, error), say func(string)) error {
	asked, err := r.withNames()
	if err != nil {
		return err
	}
	all, err := meant(asked)
	if err != nil {
		return err
	}
	places := places{of: r, known: map[string]bool{}}
	var untold []string
	for k, m := range all {
		if m.Error != "" {
			return errors.New(m.Error)
		}
		itself := k < len(asked) && slices.Equal(m.Specs, asked[k:k+1])
		if itself {
			r.patterned(asked[k], say)
		}
		places.add(m.Specs, itself)
		untold = append(untold, m.Untold...)
	}
	r.Specs = places.specs
	if places.shared > 0 {
		say(fmt.Sprintf("%d times a place is that of another copy, too: it is looked at once", places.shared))
	}
	r.sayAlike(untold, say)
	if len(untold) > 0 && (len(r.Specs) == 0 || !r.SkipRefused && !r.List) {
		return &UntoldError{len(untold), len(r.Specs)}
	}
	return nil
}

// places are those that are meant, each once: copies of several functions, one in the other, often begin with the
// same instruction, and now and then two of the same function do.
type places struct {
	of     *Request
	known  map[string]bool
	specs  []string
	shared int
}

// add adds what one specification means. If that is itself, it is taken as it is: who has written something twice is
// told so later.
func (p *places) add(specs []string, itself bool) {
	for _, s := range specs {
		key := p.of.does(s)
		if p.known[key] && !itself {
			p.shared++
			continue
		}
		p.known[key] = true
		p.specs = append(p.specs, s)
	}
}

// does is a specification with what is done there, its own or what is done for all.
func (r *Request) does(spec string) string {
	place, predicate, action, err := probe.Parts(spec)
	if err != nil { // which is said when it is read
		return spec
	}
	return strings.Join([]string{place, cmp.Or(predicate, r.Predicate), cmp.Or(action, strings.Join(r.Do, "; "))}, "\n")
}

// patterned says of a pattern what it does not stand for.
func (r *Request) patterned(spec string, say func(string)) {
	s, err := probe.Parse(spec)
	if err == nil && strings.ContainsAny(s.Function, "*?[") && (s.Name == "entry" || s.Name == "return") {
		place, _, _, _ := probe.Parts(spec)
		say(place + ": a pattern stands for functions by themselves; for copies, each function has to be named")
	}
}

// mostAlike is how many places are said that cannot be had for the same reason.
const mostAlike = 4

// ofPlace is what is a place's own in what is said of it.
var ofPlace = regexp.MustCompile(`kinst:[^ :]*:[^ :]+:[0-9]+`)

// sayAlike says what cannot be told: what has the same reasons again and again, a few times unless everything is to be said.
func (r *Request) sayAlike(untold []string, say func(string)) {
	said := map[string]int{}
	var reasons []string
	for _, s := range untold {
		reason := ofPlace.ReplaceAllString(s, "...")
		if said[reason]++; said[reason] == 1 {
			reasons = append(reasons, reason)
		}
		if said[reason] <= mostAlike || r.Why {
			say(s)
		}
	}
	for _, reason := range reasons {
		if n := said[reason] - mostAlike; n > 0 && !r.Why {
			say(fmt.Sprintf("%s (%d more, which --why says)", reason, n))
		}
	}
}

// withNames are the specifications. If what is to be done for all asks for arguments by their names, which are
// found elsewhere in each copy, each has it as its own, as far as it has none; and if they are to be given again.
func (r *Request) withNames() (out []string, err error) {
	plain := r.Predicate == "" && slices.Equal(r.Do, []string{"count"})
	named := slices.ContainsFunc(append(slices.Clone(r.Do), r.Predicate), inlined.NamesArguments)
	if !named && (plain || !r.Expanded) {
		return r.Specs, nil
	}
	for _, spec := range r.Specs {
		place, predicate, action, err := probe.Parts(spec)
		if err != nil {
			return nil, err
		}
		if predicate = cmp.Or(predicate, r.Predicate); predicate != "" {
			place += " /" + predicate + "/"
		}
		does := r.Do
		if action != "" {
			does = []string{action}
		}
		for _, do := range does {
			out = append(out, place+" "+do)
		}
	}
	r.Do, r.Predicate = []string{"count"}, "" // all have their own
	return out, nil
}

// plainWord is what a shell leaves as it is, wherever it stands.
var plainWord = regexp.MustCompile(`^[\w:.,@%+=/-]+(#[0-9]+)?[\w:.,@%+=/-]*$`)

// PrintSpecs writes the specifications, each as a shell's word.
func (r *Request) PrintSpecs(to io.Writer) error {
	if r.JSON {
		e := json.NewEncoder(to)
		e.SetIndent("", "  ")
		return e.Encode(struct {
			Schema int      `json:"schema"`
			Specs  []string `json:"specs"`
		}{1, r.Specs})
	}
	for _, s := range r.Specs {
		if !plainWord.MatchString(s) {
			s = "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
		}
		if _, err := fmt.Fprintln(to, s); err != nil {
			return err
		}
	}
	return nil
}
