package analysis

import (
	"fmt"
	"strings"

	"kerninst/agent/isa"
	"kerninst/agent/probe"
)

// Specs is what a specification means where functions are inlined: for the entry or the return of one of the
// kernel's own functions, those of all its copies, as offsets in the functions that have them; and its own,
// if it has a body. What else there is stays as it is. untold are the ways out of copies that
// nobody can tell, with the reasons.
func (n *Inlines) Specs(spec string) (specs, untold []string, err error) {
	s, err := probe.Parse(spec)
	if err != nil {
		return nil, nil, err
	}
	if s.Module != "" || s.Name != "entry" && s.Name != "return" {
		return []string{spec}, nil, nil
	}
	found, err := n.x.Find(s.Function)
	if err != nil {
		return nil, nil, err
	}
	_, does, _ := strings.Cut(strings.TrimSpace(spec), " ")
	at := func(function, name string) string {
		return strings.TrimSpace("kinst::" + function + ":" + name + " " + does)
	}
	for _, f := range found {
		if f.Copy < 0 {
			owner, ok := n.text.Locate(n.lo + isa.Addr(f.Body.Ranges[0].Lo))
			if ok && whole(owner.Name) {
				specs = append(specs, at(n.text.Known(owner).String(), s.Name))
			}
			continue
		}
		if s.Name == "entry" {
			specs = append(specs, at(n.at(n.lo+isa.Addr(f.Body.Copies[f.Copy].Entry))))
			continue
		}
		exits, err := n.exits(f)
		if err != nil {
			return nil, nil, err
		}
		for _, e := range exits {
			if function, off := n.at(e.At); e.Why != "" {
				untold = append(untold, fmt.Sprintf("%s: at kinst::%s:%s %s", spec, function, off, e.Why))
			} else {
				specs = append(specs, at(function, off))
			}
		}
	}
	if len(found) == 0 {
		specs = []string{spec}
	}
	return specs, untold, nil
}

// at is a place as a specification has it.
func (n *Inlines) at(a isa.Addr) (function, offset string) {
	f, _ := n.text.Locate(a)
	return n.text.Known(f).String(), fmt.Sprint(uint64(a - f.Addr))
}

// whole says whether a symbol has all of a function, and not what the compiler has split off: who
// comes to a part has been counted where the rest of it was inlined.
func whole(symbol string) bool {
	return !strings.Contains(symbol, ".part.") && !strings.Contains(symbol, ".cold")
}
