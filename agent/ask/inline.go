package ask

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

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
	untold := 0
	r.Specs = nil
	for _, m := range all {
		if m.Error != "" {
			return errors.New(m.Error)
		}
		r.Specs = append(r.Specs, m.Specs...)
		for _, s := range m.Untold {
			say(s)
			untold++
		}
	}
	if untold > 0 && (len(r.Specs) == 0 || !r.SkipRefused && !r.List) {
		return &UntoldError{untold, len(r.Specs)}
	}
	return nil
}

// withNames are the specifications. If what is to be done for all asks for arguments by their names, which are
// found elsewhere in each copy, each has it as its own, as far as it has none.
func (r *Request) withNames() (out []string, err error) {
	if !slices.ContainsFunc(append(slices.Clone(r.Do), r.Predicate), inlined.NamesArguments) {
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
