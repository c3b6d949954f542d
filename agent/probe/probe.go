// Package probe reads probe specifications, as kinst(4) writes them:
//
//	kinst:[module]:function:offset
//
// module is empty for the kernel itself, offset is a byte offset from the
// function's start, decimal or 0x.
package probe

import (
	"fmt"
	"strconv"
	"strings"
)

// Spec is one probe as the user wrote it.
type Spec struct {
	Text     string
	Module   string // empty: the kernel itself
	Function string
	Offset   uint64 // bytes from the function's start
}

// Parse reads one specification. Its errors show a specification that works.
func Parse(text string) (Spec, error) {
	f := strings.Split(text, ":")
	if len(f) != 4 || f[0] != "kinst" {
		return Spec{}, fmt.Errorf("probe %q: want kinst:[module]:function:offset, as in kinst::vfs_read:16", text)
	}
	s := Spec{Text: text, Module: f[1], Function: f[2]}
	if s.Function == "" {
		return Spec{}, fmt.Errorf("probe %q: no function named, as in kinst::vfs_read:16", text)
	}
	var err error
	if s.Offset, err = strconv.ParseUint(f[3], 0, 64); err != nil {
		return Spec{}, fmt.Errorf("probe %q: %q is not a byte offset (decimal or 0x)", text, f[3])
	}
	return s, nil
}

// ParseAll reads several and refuses one that is given twice.
func ParseAll(texts []string) ([]Spec, error) {
	seen := map[Spec]bool{}
	var out []Spec
	for _, t := range texts {
		s, err := Parse(t)
		if err != nil {
			return nil, err
		}
		key := s
		key.Text = ""
		if seen[key] {
			return nil, fmt.Errorf("probe %q is given twice", t)
		}
		seen[key] = true
		out = append(out, s)
	}
	return out, nil
}
