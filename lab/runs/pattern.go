package runs

import (
	"errors"
	"fmt"
	"path"
	"strings"
)

// Pattern chooses figures: METRIC, SCENARIO/METRIC or ISA/SCENARIO/METRIC, each with the
// wildcards of a shell. A star stands for dots, too, which are in names, and for no slash.
type Pattern []string

// ParsePattern says what is wrong with one that can choose nothing.
func ParsePattern(text string) (Pattern, error) {
	p := Pattern(strings.Split(text, "/"))
	if len(p) > 3 {
		return nil, fmt.Errorf("pattern %q has %d parts: want METRIC, SCENARIO/METRIC or ISA/SCENARIO/METRIC", text, len(p))
	}
	for _, part := range p {
		if part == "" {
			return nil, fmt.Errorf("pattern %q: a part is empty; * stands for anything", text)
		}
		if _, err := path.Match(part, ""); errors.Is(err, path.ErrBadPattern) {
			return nil, fmt.Errorf("pattern %q: a bracket is not closed, or a backslash stands for nothing", text)
		}
	}
	return p, nil
}

// Matches says whether a figure is chosen.
func (p Pattern) Matches(arch, scenario, metric string) bool {
	name := []string{arch, scenario, metric}
	for i, part := range p {
		// Parts are counted from the metric, so that what is left out is left out in front.
		if ok, err := path.Match(part, name[len(name)-len(p)+i]); err != nil || !ok {
			return false
		}
	}
	return true
}

// Patterns are several, any of which may choose; none of them choose all.
type Patterns []Pattern

// ParsePatterns reads several.
func ParsePatterns(texts []string) (all Patterns, err error) {
	for _, t := range texts {
		p, err := ParsePattern(t)
		if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	return all, nil
}

// Match says whether a figure is chosen.
func (all Patterns) Match(arch, scenario, metric string) bool {
	for _, p := range all {
		if p.Matches(arch, scenario, metric) {
			return true
		}
	}
	return len(all) == 0
}
