package inlined

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"kerninst/agent/inline"
	"kerninst/agent/isa"
	"kerninst/agent/near"
)

// byName is an argument by the name that the source has for it, as Go would read it; anyNamed is that, too, or looks
// like it.
var (
	byName   = regexp.MustCompile("\\barg\\s*\\(\\s*(\"(?:[^\"\\\\]|\\\\.)*\"|`[^`]*`)\\s*\\)")
	anyNamed = regexp.MustCompile(`\barg\s*\(`)
)

// NamesArguments says whether an action or a predicate asks for arguments by their names.
func NamesArguments(text string) bool { return anyNamed.MatchString(text) }

// NoArgumentError says why an argument is not to be had where it is asked for: [module]:function:offset.
type NoArgumentError struct {
	Name, Place, Why string
}

func (e *NoArgumentError) Error() string {
	return fmt.Sprintf("arg(%q) at kinst:%s: %s", e.Name, e.Place, e.Why)
}

// fill puts what an argument is found by in place of its name, wherever one stands in what is done
// at a place. Of a function by itself the kernel's types have the names of arguments, to whoever compiles that.
func (c *Copies) fill(does string, f inline.Found, at isa.Off) (string, error) {
	if f.Copy < 0 {
		return does, nil
	}
	var failed error
	out := byName.ReplaceAllStringFunc(does, func(s string) string {
		name, err := strconv.Unquote(byName.FindStringSubmatch(s)[1])
		expr, why := c.value(f, at, name)
		if err != nil {
			why = err.Error()
		}
		if why != "" {
			a, _ := c.Addr(at)
			function, off := c.at(a)
			failed = errors.Join(failed, &NoArgumentError{name, function + ":" + off, why})
		}
		return expr
	})
	// What is left would be an argument of the function that the copy is in.
	if failed == nil && anyNamed.MatchString(out) {
		failed = fmt.Errorf("%s: an argument's name is a text, as in arg(\"file\")", does)
	}
	return out, failed
}

// haveArguments is an error if an argument that is named is none of what a function that was inlined has, anywhere.
func haveArguments(does, function string, found []inline.Found) error {
	has, copies := map[string]bool{}, 0
	for _, f := range found {
		if f.Copy < 0 {
			continue
		}
		copies++
		for _, a := range f.Body.Copy(f.Copy).Args() {
			has[a.Name] = true
		}
	}
	if copies == 0 { // whoever compiles what is done knows more of functions by themselves
		return nil
	}
	for _, m := range byName.FindAllStringSubmatch(does, -1) {
		name, err := strconv.Unquote(m[1])
		if err != nil || has[name] {
			continue
		}
		if len(has) == 0 {
			return fmt.Errorf("%s has no argument %s: it has none", function, near.Quoted(name))
		}
		known := slices.Sorted(maps.Keys(has))
		return fmt.Errorf("%s has no argument %s: it has %s%s", function, near.Quoted(name), strings.Join(known, ", "), near.Hint(name, known))
	}
	return nil
}

// value is an expression for an argument of a copy at a place, or why there is none.
func (c *Copies) value(f inline.Found, at isa.Off, name string) (expr, why string) {
	this := f.Body.Copy(f.Copy)
	var names []string
	for _, a := range this.Args() {
		names = append(names, a.Name)
		if a.Name != name {
			continue
		}
		for _, p := range a.Where {
			if p.Holds(at) {
				return c.expression(p)
			}
		}
		return "", "the compiler has not kept it there"
	}
	if len(names) == 0 {
		return "", this.Func.Name + " has no arguments"
	}
	return "", fmt.Sprintf("%s has %s", this.Func.Name, strings.Join(names, ", "))
}

// expression is what probes say for a place.
func (c *Copies) expression(p inline.Place) (expr, why string) {
	reg := "reg(" + strconv.Quote(c.text.Arch.RegName(p.Reg)) + ")"
	if p.Off < 0 && (p.Kind == inline.Memory || p.Kind == inline.Sum) {
		reg += fmt.Sprintf(" - %d", -p.Off)
	} else if p.Off > 0 && (p.Kind == inline.Memory || p.Kind == inline.Sum) {
		reg += fmt.Sprintf(" + %d", p.Off)
	}
	switch p.Kind {
	case inline.Register:
		return reg, ""
	case inline.Memory:
		return "load64(" + reg + ")", ""
	case inline.Sum:
		return "(" + reg + ")", ""
	case inline.Constant:
		return fmt.Sprintf("%#x", uint64(p.Off)), ""
	case inline.Symbol:
		return "", "it is an address of the kernel's, the same at each call there"
	case inline.Frame:
		return "", "it is on the stack, at a place that the frame tells"
	}
	return "", "the compiler has not kept it there"
}
