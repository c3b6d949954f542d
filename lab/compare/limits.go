package compare

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"kerninst/agent/near"
	"kerninst/lab/report"
	"kerninst/lab/runs"
)

// Limit is by how much a figure may get worse.
type Limit struct {
	By      float64
	Percent bool // of what it was; else in the figure's unit
	Any     bool // it is not held to anything
}

// anyLimit is how one is written that holds nothing.
const anyLimit = "-"

// ParseLimit reads 2%, 0.5 or -, which is any.
func ParseLimit(text string) (Limit, error) {
	if text == anyLimit {
		return Limit{Any: true}, nil
	}
	number, percent := strings.CutSuffix(text, "%")
	v, err := strconv.ParseFloat(number, 64)
	if err != nil || math.IsNaN(v) || math.IsInf(v, 0) || v < 0 || strings.ContainsAny(number, "xXpP_") {
		return Limit{}, fmt.Errorf("limit %q: want a number of 0 or more, as 2%% or, in the figure's unit, 0.5; or - for no limit", text)
	}
	return Limit{By: v, Percent: percent}, nil
}

func (l Limit) String() string {
	switch {
	case l.Any:
		return anyLimit
	case l.Percent:
		return strconv.FormatFloat(l.By, 'g', -1, 64) + "%"
	}
	return strconv.FormatFloat(l.By, 'g', -1, 64)
}

// exceeded says whether a change goes beyond the limit. Of what was 0, each change is
// beyond any part.
func (l Limit) exceeded(old, change float64) bool {
	switch by := math.Abs(change); {
	case l.Any || by == 0:
		return false
	case l.Percent:
		return by > l.By*(math.Abs(old)/100)
	default:
		return by > l.By
	}
}

// Rule is a line of a file of limits.
type Rule struct {
	Line    int
	Text    string // the pattern, as it was written
	pattern runs.Pattern
	limit   Limit
	better  *report.Better // if it says so
}

// LimitsForm is what a file of limits looks like, for a command's help.
const LimitsForm = `A file of thresholds has lines of a PATTERN, a limit, and then what results may not
say: better=lower, better=higher or better=neither. A PATTERN is METRIC,
SCENARIO/METRIC or ISA/SCENARIO/METRIC with the wildcards of a shell. Of the lines
that match, the last counts. # begins a comment.

  *                         1%
  cost/*.insns_per_hit      0
  arm64/batch/batch.splice  2000    # instructions a point
  ab/kprobe_over_splice     5%      better=higher
  storm/*                   -       # said, and never a failure
`

// MaxLimits bounds a file of limits, in bytes.
const MaxLimits = 1 << 20

// ParseRules reads a file of limits. Errors name the line, of the file that name calls so.
func ParseRules(name string, text []byte) (rules []Rule, err error) {
	for n, line := range strings.Split(string(text), "\n") {
		line, _, _ = strings.Cut(line, "#")
		f := strings.Fields(line)
		if len(f) == 0 {
			continue
		}
		r, err := parseRule(f)
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", name, n+1, err)
		}
		r.Line = n + 1
		rules = append(rules, r)
	}
	if len(rules) == 0 {
		return nil, fmt.Errorf("%s: no line has a threshold: want PATTERN LIMIT, as in: cost/* 2%%", name)
	}
	return rules, nil
}

// directions are what better may be told to be.
var directions = map[string]report.Better{"lower": report.Lower, "higher": report.Higher, "neither": report.Neither}

func parseRule(f []string) (r Rule, err error) {
	if len(f) < 2 {
		return r, fmt.Errorf("%q has no limit: want PATTERN LIMIT, as in: %s 2%%", report.Clean(f[0]), report.Clean(f[0]))
	}
	r.Text = report.Clean(f[0])
	if r.pattern, err = runs.ParsePattern(f[0]); err != nil {
		return r, err
	}
	if r.limit, err = ParseLimit(f[1]); err != nil {
		return r, err
	}
	for _, setting := range f[2:] {
		key, value, is := strings.Cut(setting, "=")
		if !is || key != "better" {
			return r, fmt.Errorf("unknown key %q: want better=lower, better=higher or better=neither%s", report.Clean(key), near.Hint(key, []string{"better"}))
		}
		if r.better != nil {
			return r, errors.New("better is given twice")
		}
		b, known := directions[value]
		if !known {
			return r, fmt.Errorf("better=%s: want lower, higher or neither%s", report.Clean(value), near.Hint(value, []string{"lower", "higher", "neither"}))
		}
		r.better = &b
	}
	return r, nil
}

// limits are those of a comparison.
type limits struct {
	usual Limit
	rules []Rule
	used  []bool
}

// of is the limit of a figure, and which way it improves, if a rule says so. An earlier
// line of which a later one takes everything back was used all the same.
func (l *limits) of(arch, scenario, metric string, better report.Better) (Limit, report.Better) {
	limit := l.usual
	for i, r := range l.rules {
		if !r.pattern.Matches(arch, scenario, metric) {
			continue
		}
		l.used[i], limit = true, r.limit
		if r.better != nil {
			better = *r.better
		}
	}
	return limit, better
}

// unused are the rules that no figure was compared by, in words.
func (l *limits) unused() (out []string) {
	for i, r := range l.rules {
		if !l.used[i] {
			out = append(out, fmt.Sprintf("line %d (%s)", r.Line, r.Text))
		}
	}
	return out
}
