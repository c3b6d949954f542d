package inlined

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"kerninst/agent/inline"
	"kerninst/agent/isa"
	"kerninst/agent/probe"
	"kerninst/agent/wire"
)

// Meant is what specifications mean, each by itself.
func (c *Copies) Meant(specs []string) (all []*wire.Meant) {
	for _, spec := range specs {
		m := &wire.Meant{}
		var err error
		if m.Specs, m.Untold, err = c.Specs(spec); err != nil {
			m.Error = err.Error()
		}
		all = append(all, m)
	}
	return all
}

// Specs is what a specification means where functions are inlined: for the entry or the return of one of the
// kernel's own functions, those of all its copies, as offsets in the functions that have them; and its own,
// if it has a body. What else there is stays as it is. untold are the ways out of copies that
// nobody can tell, and the copies that lack an argument by its name, with the reasons.
//
// kinst:FILE:LINE is where statements of a line of the source begin.
func (c *Copies) Specs(spec string) (specs, untold []string, err error) {
	place, does, _ := strings.Cut(strings.TrimSpace(spec), " ")
	e := expansion{c: c, spec: place, does: does}
	if m := ofLine.FindStringSubmatch(place); m != nil {
		err = e.line(m[1], m[2])
		return e.specs, e.untold, err
	}
	s, err := probe.Parse(spec)
	if err != nil {
		return nil, nil, err
	}
	var found []inline.Found
	if s.Module == "" && (s.Name == "entry" || s.Name == "return") {
		if found, err = c.x.Find(s.Function); err != nil {
			return nil, nil, err
		}
	}
	for _, f := range found {
		if err := e.found(f, s.Name); err != nil {
			return nil, nil, err
		}
	}
	if len(found) == 0 {
		e.specs = []string{spec}
	}
	return e.specs, e.untold, nil
}

// expansion is a specification while what it means is put together.
type expansion struct {
	c             *Copies
	spec, does    string
	specs, untold []string
}

// found adds what is meant of one copy or body.
func (e *expansion) found(f inline.Found, name string) error {
	if f.Copy < 0 {
		owner, ok := e.c.text.Locate(e.c.lo + isa.Addr(f.Body.Ranges[0].Lo))
		if ok && whole(owner.Name) {
			e.add(f, f.Body.Ranges[0].Lo, e.c.text.Known(owner).String(), name)
		}
		return nil
	}
	if name == "entry" {
		e.addAt(f, f.Body.Copies[f.Copy].Entry)
		return nil
	}
	exits, err := e.c.Exits(f)
	for _, way := range exits {
		if way.Why == "" {
			e.addAt(f, isa.Off(way.At-e.c.lo))
			continue
		}
		function, off := e.c.at(way.At)
		e.untold = append(e.untold, fmt.Sprintf("%s: at kinst::%s:%s %s", e.spec, function, off, way.Why))
	}
	return err
}

func (e *expansion) addAt(f inline.Found, o isa.Off) {
	function, off := e.c.at(e.c.lo + isa.Addr(o))
	e.add(f, o, function, off)
}

// add adds a specification, with arguments by what they are found by at a place.
func (e *expansion) add(f inline.Found, o isa.Off, function, name string) {
	does, err := e.c.fill(e.does, f, o)
	if err != nil {
		e.untold = append(e.untold, fmt.Sprintf("%s: %v", e.spec, err))
		return
	}
	e.specs = append(e.specs, strings.TrimSpace("kinst::"+function+":"+name+" "+does))
}

// ofLine is a place that names a line of a file.
var ofLine = regexp.MustCompile(`^kinst:([^:]+\.[chS]):([0-9]+)$`)

// line adds what begins with statements of a line.
func (e *expansion) line(file, number string) error {
	line, err := strconv.Atoi(number)
	if err != nil {
		return fmt.Errorf("%s:%s: no line has that number", file, number)
	}
	offs, files, near := e.c.x.LinesOf(file, line)
	switch {
	case len(files) == 0:
		return fmt.Errorf("no code of the kernel is of a file %s: it is built into a module, or not at all, or known by another name below the source", file)
	case len(offs) == 0 && near == 0:
		return fmt.Errorf("%s:%d: no code is of that line, nor of one behind it", strings.Join(files, ", "), line)
	case len(offs) == 0:
		return fmt.Errorf("%s:%d: no code is of that line; the next that has some is %d", strings.Join(files, ", "), line, near)
	}
	for _, o := range offs {
		f, err := e.c.x.At(o)
		if err != nil {
			return err
		}
		e.addAt(f, o)
	}
	return nil
}

// at is a place as a specification has it.
func (c *Copies) at(a isa.Addr) (function, offset string) {
	f, _ := c.text.Locate(a)
	return c.text.Known(f).String(), fmt.Sprint(uint64(a - f.Addr))
}

// whole says whether a symbol has all of a function, and not what the compiler has split off: who
// comes to a part has been counted where the rest of it was inlined.
func whole(symbol string) bool {
	return !strings.Contains(symbol, ".part.") && !strings.Contains(symbol, ".cold")
}
