// Package probe reads probe specifications, as kinst(4) writes them:
//
//	kinst:[module]:function:name
//
// module is empty for the kernel itself. function may be a pattern: * ? [...]; of several that
// share a name one is name#2, the second in order of address, or name@ADDRESS. name is
// empty for every instruction, a byte offset from the function's start, decimal or 0x, or a
// word: entry, return, block, call. Behind it, separated by blanks, may be a predicate of its
// own between slashes, and an action:
//
//	kinst::vfs_read:entry /arg2 > 4096/ max(arg2)
package probe

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"kerninst/agent/wire"
)

// Spec is one probe as the user wrote it.
type Spec struct {
	Text     string
	Module   string // empty: the kernel itself
	Function string // or a pattern of such names
	Name     string // one of Names; or empty, and then the offset holds
	Offset   uint64 // bytes from the function's start

	Predicate, Action string // its own, as written; empty: those that are given for all
}

// Calls says whether it means the entry or the return of one function by its plain name: of a pattern's functions, and of one
// that is chosen among several, symbols alone tell.
func (s Spec) Calls() bool {
	return (s.Name == "entry" || s.Name == "return") && !strings.ContainsAny(s.Function, `*?[\#@`)
}

// every is the name that is written as nothing.
const every = "every instruction"

// names are what may be asked for by a word, and how the daemon is asked.
var names = map[string]struct {
	each  wire.Each
	entry bool
}{
	every:    {each: wire.Each_INSTRUCTION},
	"entry":  {entry: true},
	"return": {each: wire.Each_RETURN},
	"block":  {each: wire.Each_BLOCK},
	"call":   {each: wire.Each_CALL},
}

// Names are the words that may stand in place of an offset.
func Names() []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(names)), func(n string) bool { return n == every })
}

const example = "as in kinst::vfs_read:16 or kinst::vfs_*:entry"

// Parts are those of a specification: where, and its own predicate and action, if it has them.
func Parts(text string) (place, predicate, action string, err error) {
	place, action, _ = strings.Cut(strings.TrimSpace(text), " ")
	action = strings.TrimSpace(action)
	rest, ok := strings.CutPrefix(action, "/")
	if !ok {
		return place, "", action, nil
	}
	predicate, action, ends := strings.Cut(rest, "/")
	predicate, action = strings.TrimSpace(predicate), strings.TrimSpace(action)
	if !ends || predicate == "" {
		return "", "", "", fmt.Errorf("probe %q: a predicate stands between two slashes, as in kinst::vfs_read:16 /arg2 > 4096/ max(arg2)", text)
	}
	return place, predicate, action, nil
}

// Parse reads one specification. Its errors show specifications that work.
func Parse(text string) (Spec, error) {
	place, predicate, action, err := Parts(text)
	if err != nil {
		return Spec{}, err
	}
	f := strings.Split(place, ":")
	if len(f) != 4 || f[0] != "kinst" {
		return Spec{}, fmt.Errorf("probe %q: want kinst:[module]:function:name, %s", text, example)
	}
	s := Spec{Text: text, Module: f[1], Function: f[2], Predicate: predicate, Action: action}
	if s.Function == "" {
		return Spec{}, fmt.Errorf("probe %q: no function named, %s", text, example)
	}
	if _, err := path.Match(s.Function, ""); err != nil {
		return Spec{}, fmt.Errorf("probe %q: %q is no pattern: a [ wants its ]", text, s.Function)
	}
	if s.pattern() && strings.ContainsAny(s.Function, "#@") {
		return Spec{}, fmt.Errorf("probe %q: # and @ choose among functions of one name, which a pattern is not", text)
	}
	if strings.ContainsAny(s.Module, `*?[\`) {
		return Spec{}, fmt.Errorf("probe %q: a module is named whole; functions may be patterns", text)
	}
	switch _, known := names[f[3]]; {
	case f[3] == "":
		s.Name = every
	case known && f[3] != every:
		s.Name = f[3]
	default:
		if s.Offset, err = strconv.ParseUint(f[3], 0, 64); err != nil {
			return Spec{}, fmt.Errorf("probe %q: %q is neither a byte offset (decimal or 0x) nor one of %s; nothing stands for every instruction",
				text, f[3], strings.Join(Names(), ", "))
		}
	}
	return s, nil
}

// Place is where a specification's points are: the same of those that differ in what is done.
func (s Spec) Place() Spec {
	s.Text, s.Predicate, s.Action = "", "", ""
	return s
}

// Point is what a daemon is asked for.
func (s Spec) Point() *wire.Point {
	how := names[s.Name]
	return &wire.Point{Module: s.Module, Function: s.Function, Offset: s.Offset, Each: how.each, Entry: how.entry}
}

// Several reports whether a specification may stand for more points than one.
func (s Spec) Several() bool {
	return s.Name != "" && s.Name != "entry" || s.pattern()
}

// pattern reports whether a specification may stand for more functions than one.
func (s Spec) pattern() bool { return strings.ContainsAny(s.Function, `*?[\`) }
