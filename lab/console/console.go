// Package console reads what a guest's kernel says on its console, as it comes,
// and tells trouble from chatter.
//
// The text is untrusted. Control characters are dropped, a line is cut at
// maxLine bytes, and a Classifier keeps a bounded amount of it however much
// comes.
package console

import (
	"strings"
)

const (
	maxLine     = 2048 // bytes of one line that are looked at and kept
	maxFindings = 64   // findings kept in full; the rest is counted
	contextSize = 48   // lines that follow a finding and are kept with it
	beforeSize  = 3    // lines that precede a finding and are kept with it
	tailSize    = 100  // last lines kept
)

// Finding is one piece of trouble.
type Finding struct {
	Class Class
	Fatal bool
	Line  string // the line that gave it away
	// Number is the line's number on the console, from 1.
	Number int
	// Before and After are the lines around it. After ends with the report that
	// the line belongs to.
	Before, After []string
}

// Classifier takes console text in pieces of any size. It is not safe for
// concurrent use.
type Classifier struct {
	// OnFinding, if set, is called for every finding at the moment its line is
	// complete; After is then still empty.
	OnFinding func(Finding)

	line     []byte // unfinished line, without control characters, at most maxLine
	escape   escape
	number   int // lines so far
	last     ring
	findings []Finding
	growing  int // findings from here on still collect lines
	count    map[Class]int
}

// New returns an empty Classifier.
func New() *Classifier {
	return &Classifier{last: ring{max: tailSize}, count: make(map[Class]int)}
}

// Write never fails and takes everything.
func (c *Classifier) Write(p []byte) (int, error) {
	for _, b := range p {
		switch {
		case b == '\n':
			c.escape = plain
			c.endLine()
		case c.escape.swallows(b):
		case b < ' ' && b != '\t' || b == 0x7f:
		case len(c.line) < maxLine:
			c.line = append(c.line, b)
		}
	}
	return len(p), nil
}

// Flush treats what has come of an unfinished line as a line. It is called when
// the guest has ended: its last words need not end in a newline.
func (c *Classifier) Flush() {
	if len(c.line) > 0 {
		c.endLine()
	}
}

func (c *Classifier) endLine() {
	line := clean(c.line)
	c.line = c.line[:0]
	c.number++
	c.extend(line)
	if r := match(line); r != nil {
		c.report(r, line)
	}
	c.last.add(line)
}

// match returns the rule that classifies a line, or nil.
func match(line string) *rule {
	all := messages(line)
	for i := range rules {
		for _, m := range all {
			if rules[i].pattern.MatchString(m) {
				return &rules[i]
			}
		}
	}
	return nil
}

func (c *Classifier) report(r *rule, line string) {
	c.count[r.class]++
	f := Finding{Class: r.class, Fatal: r.fatal, Line: line, Number: c.number, Before: c.last.lines(beforeSize)}
	if len(c.findings) < maxFindings {
		c.findings = append(c.findings, f)
	}
	if c.OnFinding != nil {
		c.OnFinding(f)
	}
}

// extend adds a line to the findings whose report goes on.
func (c *Classifier) extend(line string) {
	for i := c.growing; i < len(c.findings); i++ {
		f := &c.findings[i]
		if f.After = append(f.After, line); len(f.After) >= contextSize {
			c.growing = i + 1 // those before it are older, hence full
		}
	}
	if matches(end, line) {
		c.growing = len(c.findings)
	}
}

// Findings returns what was found, in order. Of a flood only the first are kept.
func (c *Classifier) Findings() []Finding {
	return append([]Finding(nil), c.findings...)
}

// Count is how often a class was found, also beyond those that are kept.
func (c *Classifier) Count(class Class) int { return c.count[class] }

// Lines is how many lines have come.
func (c *Classifier) Lines() int { return c.number }

// Fatal returns the first fatal finding.
func (c *Classifier) Fatal() (Finding, bool) {
	for _, f := range c.findings {
		if f.Fatal {
			return f, true
		}
	}
	return Finding{}, false
}

// Tail returns the last n lines, at most 100.
func (c *Classifier) Tail(n int) []string { return c.last.lines(n) }

// Decisive returns at most n lines that say most: the first fatal finding with
// the lines that lead to it and follow it, register dumps left out; without one,
// the last lines. Empty lines are left out.
func (c *Classifier) Decisive(n int) []string {
	f, ok := c.Fatal()
	if !ok {
		lines := telling(c.Tail(tailSize))
		return lines[max(0, len(lines)-n):]
	}
	lines := append(telling(f.Before), f.Line)
	lines = append(lines, telling(f.After)...)
	return lines[:min(n, len(lines))]
}

// telling are the lines that say something to a person at first sight.
func telling(lines []string) []string {
	var out []string
	for _, l := range lines {
		if l != "" && !matches(boilerplate, l) {
			out = append(out, l)
		}
	}
	return out
}

// clean makes text of bytes from the guest. The control characters U+0080 to
// U+009F go too: some terminals obey them.
func clean(b []byte) string {
	text := strings.Map(func(r rune) rune {
		if r >= 0x80 && r <= 0x9f {
			return -1
		}
		return r
	}, strings.ToValidUTF8(string(b), "?"))
	return strings.TrimRight(text, " \t")
}

// escape is the state of a terminal escape sequence, which may be split over
// writes. ECMA-48 §5.3, §5.4.
type escape int

const (
	plain  escape = iota
	intro         // after ESC
	csi           // after ESC [: parameters, up to a byte from @ to ~
	str           // after ESC ], P, X, ^ or _: text, up to BEL or ESC \
	strEnd        // after ESC within such text
)

// swallows says whether b belongs to a sequence, and advances.
func (e *escape) swallows(b byte) bool {
	switch *e {
	case plain:
		if b != 0x1b {
			return false
		}
		*e = intro
	case intro:
		*e = afterIntro(b)
	case csi:
		if b >= '@' && b <= '~' {
			*e = plain
		}
	case str:
		switch b {
		case 0x07:
			*e = plain
		case 0x1b:
			*e = strEnd
		}
	case strEnd:
		*e = plain
	}
	return true
}

func afterIntro(b byte) escape {
	switch b {
	case '[':
		return csi
	case ']', 'P', 'X', '^', '_':
		return str
	}
	if b >= ' ' && b <= '/' {
		return intro // intermediate byte
	}
	return plain
}

// ring keeps the last lines.
type ring struct {
	max  int
	kept []string
}

func (r *ring) add(line string) {
	r.kept = append(r.kept, line)
	if len(r.kept) >= 2*r.max {
		r.kept = append([]string(nil), r.kept[len(r.kept)-r.max:]...)
	}
}

// lines returns a copy of the last n, at most max.
func (r *ring) lines(n int) []string {
	n = min(n, r.max, len(r.kept))
	return append([]string(nil), r.kept[len(r.kept)-n:]...)
}
