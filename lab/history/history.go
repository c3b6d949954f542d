// Package history says how figures went over many runs. It reads no file and no clock: runs
// come in, a document, tables and a page come out.
package history

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"time"

	"kerninst/lab/report"
	"kerninst/lab/runs"
	"kerninst/lab/status"
)

// History is what runs had, in order of time.
type History struct {
	Schema int      `json:"schema"`
	Runs   []Run    `json:"runs"`
	Series []Series `json:"series"`
}

// Run is one, of one ISA.
type Run struct {
	Run    string        `json:"run"`
	Arch   string        `json:"arch"`
	Start  time.Time     `json:"start"`
	Time   string        `json:"time"`
	Seed   uint64        `json:"seed"`
	Kernel string        `json:"kernel"`
	QEMU   string        `json:"qemu"`
	Commit string        `json:"commit,omitempty"`
	Status status.Status `json:"status"`
}

// Series is one figure.
type Series struct {
	Arch     string        `json:"arch"`
	Time     string        `json:"time"` // exact or host
	Scenario string        `json:"scenario"`
	Name     string        `json:"metric"`
	Unit     string        `json:"unit"` // of the last
	Better   report.Better `json:"better"`
	Points   []Point       `json:"points"`
	order    int
}

// Point is a figure of a run.
type Point struct {
	Run   int      `json:"run"` // index in Runs
	Value float64  `json:"value"`
	Lo    *float64 `json:"lo,omitempty"`
	Hi    *float64 `json:"hi,omitempty"`
	// Marks are what is another than in the run before that has this figure.
	Marks []string `json:"marks,omitempty"`
}

// Of puts runs in order, and takes the figures that are chosen. Runs without results, and
// such of which nothing says when they were, have no place in it.
func Of(all []*runs.Run, only runs.Patterns) *History {
	h := &History{Schema: report.Schema, Runs: []Run{}, Series: []Series{}}
	all = slices.SortedStableFunc(slices.Values(all), func(a, b *runs.Run) int {
		return cmp.Or(a.Start.Compare(b.Start), cmp.Compare(a.Name, b.Name))
	})
	at := map[[4]string]int{} // index in Series, plus one
	for _, r := range all {
		if r.Unfinished || r.Start.IsZero() {
			continue
		}
		x := &r.Results
		h.Runs = append(h.Runs, Run{r.Name, x.Arch, r.Start.UTC(), x.Time, x.Seed, x.Kernel, x.QEMU, r.Commit, x.Status})
		for _, s := range x.Scenarios {
			for name, m := range s.Metrics {
				if !only.Match(x.Arch, s.Name, name) {
					continue
				}
				key := [4]string{x.Arch, x.Time, s.Name, name}
				if at[key] == 0 {
					h.Series = append(h.Series, Series{Arch: x.Arch, Time: x.Time, Scenario: s.Name, Name: name})
					at[key] = len(h.Series)
				}
				h.Series[at[key]-1].add(h, len(h.Runs)-1, m)
			}
		}
	}
	slices.SortFunc(h.Series, func(a, b Series) int {
		return cmp.Or(cmp.Compare(slices.Index(report.Arches, a.Arch), slices.Index(report.Arches, b.Arch)),
			cmp.Compare(a.Time, b.Time), cmp.Compare(a.Scenario, b.Scenario), cmp.Compare(a.order, b.order), cmp.Compare(a.Name, b.Name))
	})
	return h
}

// add appends the figure of a run.
func (s *Series) add(h *History, run int, m report.Metric) {
	p := Point{Run: run, Value: m.Value, Lo: m.Lo, Hi: m.Hi}
	if len(s.Points) > 0 {
		p.Marks = marks(&h.Runs[s.Points[len(s.Points)-1].Run], &h.Runs[run])
		if m.Unit != s.Unit {
			p.Marks = append(p.Marks, "unit "+cmp.Or(m.Unit, "none"))
		}
	}
	s.Unit, s.Better, s.order = m.Unit, m.Better, cmp.Or(m.Order, math.MaxInt)
	s.Points = append(s.Points, p)
}

// marked is what is marked where it changes; what is not known is not taken for a change.
var marked = []struct {
	what string
	get  func(*Run) string
}{
	{"Linux ", func(r *Run) string { return strings.TrimSuffix(r.Kernel, "-"+r.Arch) }},
	{"QEMU ", func(r *Run) string { first, _, _ := strings.Cut(r.QEMU, " "); return first }},
	{"", func(r *Run) string { return r.Commit }},
}

func marks(before, now *Run) (out []string) {
	for _, m := range marked {
		if was, is := m.get(before), m.get(now); is != "" && was != "" && was != is {
			out = append(out, m.what+is)
		}
	}
	return out
}

// Changed says whether a figure was ever another.
func (s *Series) Changed() bool {
	return slices.ContainsFunc(s.Points, func(p Point) bool { return p.Value != s.Points[0].Value })
}
