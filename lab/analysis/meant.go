package analysis

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"kerninst/agent/inline"
	"kerninst/agent/inlined"
	"kerninst/agent/ktext"
	"kerninst/agent/probe"
	"kerninst/agent/wire"
)

// Meant is what specifications mean in the kernel of a dump where functions are inlined. Of a function that neither the
// kernel's symbols nor its source have, it says so, and which one may be meant: symbols lack those that are inlined everywhere.
func Meant(d *ktext.Dump, specs []string, x *inline.Index, modules ...*inline.Module) (*inlined.All, []*wire.Meant, error) {
	text, err := TextOf(d)
	if err != nil {
		return nil, nil, err
	}
	n, err := inlined.Join(text, x, modules...)
	if err != nil {
		return nil, nil, err
	}
	all := n.Meant(specs)
	for k, m := range all {
		if len(m.Specs) != 1 || m.Specs[0] != specs[k] {
			continue
		}
		if hint := misspelt(text, specs[k], x, modules); hint != "" {
			m.Specs, m.Untold = nil, []string{hint}
		}
	}
	return n, all, nil
}

// misspelt is what is wrong with the function of a specification; "": nothing.
func misspelt(text *ktext.Text, spec string, x *inline.Index, modules []*inline.Module) string {
	s, err := probe.Parse(spec)
	if err != nil || !s.Calls() {
		return ""
	}
	if s.Module != "" {
		k := slices.IndexFunc(modules, func(m *inline.Module) bool { return m.Name == s.Module })
		if k < 0 {
			return ""
		}
		x = modules[k].Index
	}
	var none *ktext.NotFound
	if _, err := text.Function(s.Module, s.Function); !errors.As(err, &none) || len(none.Same)+len(none.Elsewhere) > 0 {
		return "" // it is there, or is said to be elsewhere
	}
	if x == nil || len(x.Lookup(s.Function)) > 0 {
		return ""
	}
	hint := HintInlined(x, s.Function)
	if hint == "" && len(none.Near()) > 0 {
		return "" // the kernel, when it is asked, says which symbol may be meant
	}
	place, _, _ := strings.Cut(spec, " ")
	return fmt.Sprintf("%s: no function is called %s, inlined or by itself%s", place, s.Function, hint)
}
