package inlined

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"kerninst/agent/inline"
	"kerninst/agent/isa"
	"kerninst/agent/ktext"
	"kerninst/agent/probe"
	"kerninst/agent/wire"
)

// Meant is what specifications mean, each by itself.
func (a *All) Meant(specs []string) (all []*wire.Meant) {
	for _, spec := range specs {
		m := &wire.Meant{}
		var err error
		if m.Specs, m.Untold, err = a.Specs(spec); err != nil {
			m.Error = err.Error()
		}
		all = append(all, m)
	}
	return all
}

// Specs is what a specification means where functions are inlined: for the entry or the return of a function
// of the kernel's own text, or of a module that is known, those of all its copies there, as offsets in the functions that
// have them; and its own, if it has a body. What else there is stays as it is. untold are the ways out of copies that
// nobody can tell, and the copies that lack an argument by its name, with the reasons.
//
// kinst:FILE:LINE is where statements of a line of the source begin.
func (a *All) Specs(spec string) (specs, untold []string, err error) {
	place, does, _ := strings.Cut(strings.TrimSpace(spec), " ")
	e := expansion{spec: place, does: does}
	if m := ofLine.FindStringSubmatch(place); m != nil {
		err = e.line(a, m[1], m[2])
		return e.specs, e.untold, err
	}
	s, err := probe.Parse(spec)
	if err != nil {
		return nil, nil, err
	}
	if e.c, err = a.in(s.Module); err != nil {
		return nil, nil, fmt.Errorf("%s: %w", place, err)
	}
	if s.Calls() {
		if err := e.function(s); err != nil {
			return nil, nil, err
		}
	}
	if len(e.specs)+len(e.untold) == 0 {
		e.specs = []string{spec}
	}
	return e.specs, e.untold, nil
}

// expansion is a specification while what it means is put together.
type expansion struct {
	c             *Copies // of what it is at the moment
	spec, does    string
	specs, untold []string
}

// function adds what is meant of the copies and bodies of a function.
func (e *expansion) function(s probe.Spec) error {
	switch {
	case e.c == nil && s.Module == "":
		return fmt.Errorf("%s: nothing is known of the kernel's own copies, but of modules' alone", e.spec)
	case e.c == nil:
		return nil
	}
	found, more, err := e.c.Find(s.Function)
	if err == nil {
		err = haveArguments(e.does, s.Function, found)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", e.spec, err)
	}
	for _, f := range found {
		if err == nil {
			err = e.found(f, s.Name)
		}
	}
	if more > 0 {
		e.untold = append(e.untold, fmt.Sprintf("%s: %d more are in sections of %s of which no function tells where they are", e.spec, more, e.c.module))
	}
	return err
}

// found adds what is meant of one copy or body.
func (e *expansion) found(f inline.Found, name string) error {
	if f.Copy < 0 {
		a, _ := e.c.Addr(f.Body.Ranges[0].Lo)
		owner, ok := e.c.Begins(a)
		switch {
		case !ok:
			e.untold = append(e.untold, fmt.Sprintf("%s: at %v, where it begins, the kernel has no symbol", e.spec, a))
		case whole(owner.Name):
			e.add(f, f.Body.Ranges[0].Lo, e.c.named(owner), name)
		}
		return nil
	}
	if name == "entry" {
		at, _ := e.c.Addr(f.Body.Copy(f.Copy).Entry)
		e.addAt(f, at)
		return nil
	}
	exits, err := e.c.Exits(f)
	for _, way := range exits {
		if way.Why == "" {
			e.addAt(f, way.At)
			continue
		}
		function, off := e.c.at(way.At)
		e.untold = append(e.untold, fmt.Sprintf("%s: at kinst:%s:%s %s", e.spec, function, off, way.Why))
	}
	return err
}

func (e *expansion) addAt(f inline.Found, at isa.Addr) {
	function, off := e.c.at(at)
	o, _ := e.c.Off(at)
	e.add(f, o, function, off)
}

// add adds a specification, with arguments by what they are found by at a place.
func (e *expansion) add(f inline.Found, o isa.Off, function, name string) {
	does, err := e.c.fill(e.does, f, o)
	if err != nil {
		e.untold = append(e.untold, fmt.Sprintf("%s: %v", e.spec, err))
		return
	}
	e.specs = append(e.specs, strings.TrimSpace("kinst:"+function+":"+name+" "+does))
}

// ofLine is a place that names a line of a file, whatever its number is.
var ofLine = regexp.MustCompile(`^kinst:([^:]+\.[chS]):([^:]*)$`)

// line adds what begins with statements of a line, in the kernel and in the modules that are known. Where only functions
// of one of them are known, that is said; if lines of none are, it is an error.
func (e *expansion) line(a *All, file, number string) error {
	line, err := strconv.ParseUint(number, 10, 31)
	if err != nil || line == 0 {
		return fmt.Errorf("%s: %q is no line's number: as in kinst:%s:%d", e.spec, number, file, 82)
	}
	var files []string
	var parts []string // what those say of which functions alone are known
	near, some := 0, false
	for _, c := range a.of {
		offs, has, next, err := c.x.LinesOf(file, int(line))
		if err != nil {
			parts = append(parts, fmt.Sprintf("%s%s: %v", e.spec, c.whose(), err))
			continue
		}
		files = append(files, has...)
		if next > 0 && (near == 0 || next < near) {
			near = next
		}
		some = some || len(offs) > 0
		e.c = c
		if err := e.lines(offs); err != nil {
			return err
		}
	}
	slices.Sort(files)
	files = slices.Compact(files)
	if strings.HasSuffix(file, ".c") && slices.Contains(files, file) { // and not an end of others' names: it is compiled there
		parts = nil
	}
	switch {
	case some:
		e.untold = append(e.untold, parts...)
		return nil
	case len(parts) > 0:
		for _, m := range a.lacked {
			parts = append(parts, m.Error())
		}
		return errors.New(strings.Join(parts, "; "))
	case len(files) == 0:
		return fmt.Errorf("no code of the kernel is of a file %s: it is built into a module%s, or not at all, or known by another name below the source", file, a.modules())
	case near == 0:
		return fmt.Errorf("%s:%d: no code is of that line, nor of one behind it", strings.Join(files, ", "), line)
	}
	return fmt.Errorf("%s:%d: no code is of that line; the next that has some is %d", strings.Join(files, ", "), line, near)
}

// lines adds places of statements.
func (e *expansion) lines(offs []isa.Off) error {
	for _, o := range offs {
		f, err := e.c.x.At(o)
		if err != nil {
			return err
		}
		if at, ok := e.c.Addr(o); ok {
			e.addAt(f, at)
			continue
		}
		e.untold = append(e.untold, fmt.Sprintf("%s: one place is in a section of %s of which no function tells where it is", e.spec, e.c.module))
	}
	return nil
}

// whose says of what something is known, in a sentence.
func (c *Copies) whose() string {
	if c.module == "" {
		return ", in the kernel"
	}
	return ", in module " + c.module
}

// modules says of which ones a line has been looked for, to who may have meant another.
func (a *All) modules() string {
	var in, lacked []string
	for _, c := range a.of {
		if c.module != "" {
			in = append(in, c.module)
		}
	}
	for _, e := range a.lacked {
		lacked = append(lacked, e.Module)
	}
	switch {
	case len(lacked) > 0:
		return " (" + strings.Join(lacked, ", ") + ": not loaded)"
	case len(in) > 0:
		return " other than " + strings.Join(in, ", ")
	}
	return " (lab's --module NAME looks into one, too)"
}

// at is a place as a specification has it: [module]:function, and the offset.
func (c *Copies) at(a isa.Addr) (function, offset string) {
	f, _ := c.text.Locate(a)
	return c.named(f), fmt.Sprint(uint64(a - f.Addr))
}

// named is a function as specifications have it.
func (c *Copies) named(f ktext.Func) string { return f.Module + ":" + c.text.Known(f).Known() }

// ofModule is a place without its module's name, and that.
func ofModule(place string) (module, rest string) {
	module, rest, ok := strings.Cut(place, ":")
	if !ok {
		return "", place
	}
	return module, rest
}

// whole says whether a symbol has all of a function, and not what the compiler has split off: who
// comes to a part has been counted where the rest of it was inlined.
func whole(symbol string) bool {
	return !strings.Contains(symbol, ".part.") && !strings.Contains(symbol, ".cold")
}
