package history

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"text/tabwriter"

	"kerninst/lab/report"
)

// bars are what a small plot is made of.
var bars = []rune("▁▂▃▄▅▆▇█")

// levels are how high values stand, from 0 to top. Values that are all one stand at the
// bottom.
func levels(points []Point, top int) []int {
	lo, hi := math.Inf(1), math.Inf(-1)
	for _, p := range points {
		lo, hi = min(lo, p.Value), max(hi, p.Value)
	}
	out := make([]int, len(points))
	for i, p := range points {
		if span := hi/2 - lo/2; span > 0 { // halves: the difference may be no number
			out[i] = int(math.Round((p.Value/2 - lo/2) / span * float64(top)))
		}
	}
	return out
}

// spark draws the last of the points, a bar for each.
func spark(points []Point) string {
	const most = 60
	out := []rune{}
	for _, level := range levels(points[max(0, len(points)-most):], len(bars)-1) {
		out = append(out, bars[level])
	}
	return string(out)
}

// value prints a figure: whole ones whole.
func value(v float64) string {
	if v == math.Trunc(v) && math.Abs(v) < 1e15 {
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
	return strconv.FormatFloat(v, 'g', 6, 64)
}

// change is by how much a figure is another than it was.
func change(was, is float64) string {
	switch percent := (is - was) / math.Abs(was) * 100; {
	case was == is:
		return "="
	case was == 0 || math.IsInf(percent, 0) || math.IsNaN(percent):
		return fmt.Sprintf("%+.4g", max(-math.MaxFloat64, min(math.MaxFloat64, is-was)))
	case math.Abs(percent) < 0.005:
		return fmt.Sprintf("%+.1g %%", percent)
	default:
		return fmt.Sprintf("%+.2f %%", percent)
	}
}

// Overview writes a line for each figure that was ever another, or for all.
func (h *History) Overview(to io.Writer, all bool) error {
	w := tabwriter.NewWriter(to, 0, 8, 2, ' ', 0)
	heading, changed := "ISA\ttime\tscenario\tmetric\tunit\truns\tfirst\tlast\tchange\t\n", 0
	for i := range h.Series {
		s := &h.Series[i]
		if s.Changed() {
			changed++
		} else if !all {
			continue
		}
		first, last := s.Points[0].Value, s.Points[len(s.Points)-1].Value
		fmt.Fprintf(w, "%s%s\t%s\t%s\t%s\t%s\t%d\t%s\t%s\t%s\t%s\n", heading, s.Arch, s.Time, s.Scenario, s.Name, s.Unit,
			len(s.Points), value(first), value(last), change(first, last), spark(s.Points))
		heading = ""
	}
	if err := w.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(to, "%d of %d figures have changed in %s\n", changed, len(h.Series), h.count())
	return err
}

// count says how many runs there are; one of several ISAs is one.
func (h *History) count() string {
	names := map[string]bool{}
	for i := range h.Runs {
		names[h.Runs[i].Run] = true
	}
	if len(names) == 1 {
		return "1 run"
	}
	return strconv.Itoa(len(names)) + " runs"
}

// Lines writes a line for each run, of each figure.
func (h *History) Lines(to io.Writer) error {
	for i := range h.Series {
		s := &h.Series[i]
		if i > 0 {
			fmt.Fprintln(to)
		}
		fmt.Fprintf(to, "%s, %s time\n", s.Title(), s.Time)
		if err := h.lines(to, s); err != nil {
			return err
		}
	}
	return nil
}

func (h *History) lines(to io.Writer, s *Series) error {
	const full = 24 // letters of the longest bar
	w := tabwriter.NewWriter(to, 0, 8, 2, ' ', 0)
	for i, level := range levels(s.Points, full-1) {
		p, by := s.Points[i], ""
		if i > 0 {
			by = change(s.Points[i-1].Value, p.Value)
		}
		r := &h.Runs[p.Run]
		bar := strings.Repeat("█", 1+level)
		fmt.Fprintf(w, "  %s\t%s\tseed %d\t%s\t%s\t%s\n", r.Start.Format("2006-01-02 15:04"), r.Run, r.Seed, value(p.Value), by,
			strings.Join(append([]string{bar}, p.Marks...), "  "))
	}
	return w.Flush()
}

// Title names a figure, with its unit and what is good.
func (s *Series) Title() string {
	title := s.Arch + " " + s.Scenario + "/" + s.Name
	if s.Unit != "" {
		title += ", " + s.Unit
	}
	if s.Better != report.Neither {
		title += ", " + string(s.Better) + " is better"
	}
	return title
}
