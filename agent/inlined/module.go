package inlined

import (
	"errors"
	"fmt"

	"kerninst/agent/inline"
	"kerninst/agent/isa"
	"kerninst/agent/ktext"
)

// NotLoadedError says that a module is asked for that the kernel has not loaded.
type NotLoadedError struct{ Module string }

func (e *NotLoadedError) Error() string {
	return fmt.Sprintf("module %s is not loaded in the guest: lab's --modprobe %[1]s loads it; what is built into the kernel is no module", e.Module)
}

// Loaded is a *NotLoadedError if a kernel has no functions of a module.
func Loaded(text *ktext.Text, module string) error {
	loaded := false
	text.Functions(module, func(ktext.Func) bool { loaded = true; return false })
	if !loaded {
		return &NotLoadedError{module}
	}
	return nil
}

// find notes where the kernel has put sections, by functions whose names are of one on both sides. Nearly all
// of a section have to say the same: it is of another build else. One of which nothing has such a name is left out.
func (c *Copies) find(sections []inline.Section) error {
	if err := Loaded(c.text, c.module); err != nil {
		return err
	}
	for _, s := range sections {
		said, n := map[isa.Addr]int{}, 0
		for _, l := range s.Labels {
			if f, err := c.text.Function(c.module, l.Name); err == nil {
				said[f.Addr-isa.Addr(l.Off-s.Lo)]++
				n++
			}
		}
		at, most := isa.Addr(0), 0
		for a, times := range said {
			if times > most || times == most && a < at {
				at, most = a, times
			}
		}
		if share := float64(most) / float64(n); n > 0 && share < leastSame {
			return &OtherBuildError{c.module, share}
		}
		if n > 0 {
			c.parts = append(c.parts, part{s.Range, at})
		}
	}
	if len(c.parts) == 0 {
		return &OtherBuildError{Module: c.module}
	}
	return nil
}

// All is what is known of a kernel and of modules of it.
type All struct {
	of     []*Copies         // the kernel's first, if anything is known of that
	lacked []*NotLoadedError // modules of which something is known, which the kernel does not have
}

// Join joins what is known with the text of a kernel. kernel may be nil: nobody knows it. That a module is not loaded is
// said to who asks for it; if one is of another build, it is an *OtherBuildError.
func Join(text *ktext.Text, kernel *inline.Index, modules ...*inline.Module) (*All, error) {
	all := &All{}
	if kernel != nil {
		c, err := In(text, kernel)
		if err != nil {
			return nil, err
		}
		all.of = append(all.of, c)
	}
	for _, m := range modules {
		c, err := InModule(text, m)
		var none *NotLoadedError
		switch {
		case errors.As(err, &none):
			all.lacked = append(all.lacked, none)
		case err != nil:
			return nil, err
		default:
			all.of = append(all.of, c)
		}
	}
	return all, nil
}

// in is what is known of a module, or "" the kernel; nil: nothing is. A module that is not loaded is an error.
func (a *All) in(module string) (*Copies, error) {
	for _, c := range a.of {
		if c.module == module {
			return c, nil
		}
	}
	for _, e := range a.lacked {
		if e.Module == module {
			return nil, e
		}
	}
	return nil, nil
}

// Source is Copies.Source of a place that may have its module's name in front, as module:function+offset.
func (a *All) Source(place string, returned bool) string {
	module, rest := ofModule(place)
	if c, err := a.in(module); c != nil && err == nil {
		return c.Source(rest, returned)
	}
	return ""
}
