package compare

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"text/tabwriter"

	"kerninst/lab/report"
)

// Messages are what a person has to know besides the table: what runs were not both made
// with, and how far figures can be relied on.
func (c *Comparison) Messages() (out []string) {
	for _, d := range c.Differ {
		m := fmt.Sprintf("%s: %s: %s in A, %s in B", d.Arch, d.What, d.A, d.B)
		if d.Means != "" {
			m += ": " + d.Means
		}
		out = append(out, m)
	}
	return append(out, c.Notes...)
}

// Shown says whether a figure is in a table that has not all of them.
func (m *Metric) Shown() bool { return m.Verdict != Same }

// Table writes scenarios that came out otherwise and figures that changed, or all, and
// last a line that sums up.
func (c *Comparison) Table(to io.Writer, all bool) error {
	w := tabwriter.NewWriter(to, 0, 8, 2, ' ', 0)
	for _, o := range c.Outcomes {
		fmt.Fprintf(w, "%s\t%s\t%s -> %s\t%s\n", o.Arch, o.subject(), o.A, o.B, o.Why)
	}
	if err := w.Flush(); err != nil { // columns of what follows are others
		return err
	}
	heading := "ISA\tscenario\tmetric\tunit\tA\tB\tchange\tverdict\n"
	for i := range c.Metrics {
		if m := &c.Metrics[i]; all || m.Shown() {
			a, b := m.figures()
			fmt.Fprintf(w, "%s%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", heading, m.Arch, m.Scenario, m.Name, m.Unit, a, b, m.changed(), m.said())
			heading = ""
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, only := range c.onlys() {
		fmt.Fprintf(to, "only in %s: %s\n", only.side, strings.Join(only.what, ", "))
	}
	_, err := fmt.Fprintln(to, c.Sum())
	return err
}

func (o Outcome) subject() string {
	if o.Scenario == "" {
		return "(run)"
	}
	return o.Scenario
}

type only struct {
	side string
	what []string
}

func (c *Comparison) onlys() (out []only) {
	for _, o := range []only{{"A", c.OnlyA}, {"B", c.OnlyB}} {
		if len(o.what) > 0 {
			out = append(out, o)
		}
	}
	return out
}

// sums are the verdicts in the order in which they are summed up.
var sums = []Verdict{Worse, Changed, Better, Unlike, Unclear, Few, Same}

// Sum says in one line what became of the figures.
func (c *Comparison) Sum() string {
	n, fails := map[Verdict]int{}, 0
	for i := range c.Metrics {
		n[c.Metrics[i].Verdict]++
		if c.Metrics[i].Fails {
			fails++
		}
	}
	var parts []string
	for _, v := range sums {
		if n[v] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n[v], v))
		}
	}
	line := fmt.Sprintf("%s of %d", strings.Join(parts, ", "), len(c.Metrics))
	if len(parts) == 0 {
		line = "no figure is in both"
	}
	if fails > 0 {
		line += fmt.Sprintf("; %d beyond the threshold", fails)
	}
	return line
}

// figures of both sides, with as many digits as tell them apart.
func (m *Metric) figures() (a, b string) {
	const least, most = 5, 17
	for digits := least; digits <= most; digits++ {
		a, b = significant(m.A.Value, digits), significant(m.B.Value, digits)
		if m.A.Value == m.B.Value || a != b {
			break
		}
	}
	return a, b
}

// significant prints whole numbers whole, others with so many digits.
func significant(v float64, digits int) string {
	if v == math.Trunc(v) && math.Abs(v) < 1e15 {
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
	return strconv.FormatFloat(v, 'g', digits, 64)
}

// changed is the change as a part, or as it is where there is no part of.
func (m *Metric) changed() string {
	switch {
	case m.Verdict == Unlike:
		return "?"
	case m.Verdict == Same:
		return "="
	case m.Verdict == Unclear:
		return "~"
	case m.Percent == nil:
		return signed(m.Change, "")
	}
	s := signed(*m.Percent, " %")
	if m.Lo != nil && m.A.Value != 0 {
		of := math.Abs(m.A.Value) / 100
		s += fmt.Sprintf(" [%s, %s]", signed(*m.Lo/of, ""), signed(*m.Hi/of, ""))
	}
	return s
}

// signed has two digits behind the point, or two in all where these would be zeros.
func signed(v float64, unit string) string {
	s := strconv.FormatFloat(v, 'f', 2, 64)
	if v != 0 && math.Abs(v) < 0.005 || math.Abs(v) >= 1e9 {
		s = strconv.FormatFloat(v, 'g', 2, 64)
	}
	if v > 0 {
		s = "+" + s
	}
	return s + unit
}

// said is what is to be said of a figure beside its numbers.
func (m *Metric) said() string {
	words := []string{string(m.Verdict)}
	add := func(format string, args ...any) { words = append(words, fmt.Sprintf(format, args...)) }
	if m.P != nil {
		add("p=%.3f n=%d+%d", *m.P, m.A.N, m.B.N)
	}
	if m.Seeds > 0 && m.Changed > 0 {
		add("with %d of %d seeds, shown is %d", m.Changed, m.Seeds, *m.Seed)
	}
	if m.Why != "" {
		add("%s", m.Why)
	}
	switch held := m.Verdict == Worse || m.Verdict == Changed; {
	case held && m.Limit == anyLimit:
		add("no threshold")
	case held && !m.Fails:
		add("threshold %s", m.Limit)
	}
	return strings.Join(words, ", ")
}

// mostRows bounds a table for a page: a job's summary has a limit of its own.
const mostRows = 300

// Markdown writes the same for a page, such as the summary of a job.
func (c *Comparison) Markdown(to io.Writer, all bool) error {
	var b strings.Builder
	verdict := "✓ Comparison: nothing is worse"
	if c.Status != "passed" {
		verdict = "✗ Comparison: worse, or not comparable"
	}
	fmt.Fprintf(&b, "## %s\n\nA: %s  \nB: %s\n\n%s.\n", verdict, report.Markdown(c.A.Name), report.Markdown(c.B.Name), report.Markdown(c.Sum()))
	if len(c.Outcomes) > 0 {
		b.WriteString("\n| ISA | scenario | A | B | why |\n|---|---|---|---|---|\n")
	}
	for _, o := range c.Outcomes {
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", o.Arch, report.Markdown(o.subject()), report.Markdown(string(o.A)), report.Markdown(string(o.B)), report.Markdown(o.Why))
	}
	c.markdownFigures(&b, all)
	for _, only := range c.onlys() {
		fmt.Fprintf(&b, "\nOnly in %s: %s\n", only.side, report.Markdown(strings.Join(only.what, ", ")))
	}
	for _, m := range c.Messages() {
		fmt.Fprintf(&b, "\n> %s\n", report.Markdown(m))
	}
	_, err := io.WriteString(to, b.String())
	return err
}

func (c *Comparison) markdownFigures(b *strings.Builder, all bool) {
	heading, rows := "\n| ISA | scenario | metric | A | B | unit | change | verdict |\n|---|---|---|---:|---:|---|---:|---|\n", 0
	for i := range c.Metrics {
		m := &c.Metrics[i]
		if !all && !m.Shown() {
			continue
		}
		if rows++; rows > mostRows {
			continue
		}
		x, y := m.figures()
		said := m.said()
		if m.Fails {
			said = "**" + report.Markdown(said) + "**"
		} else {
			said = report.Markdown(said)
		}
		fmt.Fprintf(b, "%s| %s | %s | %s | %s | %s | %s | %s | %s |\n", heading, m.Arch, report.Markdown(m.Scenario), report.Markdown(m.Name),
			report.Markdown(x), report.Markdown(y), report.Markdown(m.Unit), report.Markdown(m.changed()), said)
		heading = ""
	}
	if rows > mostRows {
		fmt.Fprintf(b, "\nand %d more: `lab compare` prints them all.\n", rows-mostRows)
	}
}
