package history

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"slices"
	"strings"

	"kerninst/lab/report"
)

//go:embed history.html.tmpl
var pageText string

// pageTemplate escapes whatever it is given; drawings alone are HTML, and made by us.
var pageTemplate = template.Must(template.New("history").Parse(pageText))

// MostPlots and mostRows bound a page: of a plot's values, the last are listed.
const MostPlots, mostRows = 120, 300

// page is what the template shows.
type page struct {
	Lead  string
	Plots []plotView
	Left  int // figures without a plot
}

type plotView struct {
	Title string
	Chart template.HTML
	Why   string // there is no chart
	Rows  []rowView
}

type rowView struct {
	When, Run, Seed, Kernel, Value, Change, Marks string
}

// Page writes an HTML page that needs no other file: a plot for each figure. Of more than
// MostPlots figures, those come first that changed.
func (h *History) Page(to io.Writer) error {
	chosen := slices.Clone(h.Series)
	if len(chosen) > MostPlots {
		slices.SortStableFunc(chosen, func(a, b Series) int {
			switch ca, cb := a.Changed(), b.Changed(); {
			case ca == cb:
				return 0
			case ca:
				return -1
			}
			return 1
		})
		chosen = chosen[:MostPlots]
	}
	p := page{Lead: h.lead(), Left: len(h.Series) - len(chosen)}
	for i := range chosen {
		v, err := h.plot(&chosen[i])
		if err != nil {
			return fmt.Errorf("%s: %w", chosen[i].Title(), err)
		}
		p.Plots = append(p.Plots, v)
	}
	return pageTemplate.Execute(to, p)
}

func (h *History) lead() string {
	if len(h.Runs) == 0 {
		return "no run"
	}
	day := func(r Run) string { return r.Start.Format("2006-01-02") }
	return fmt.Sprintf("%s, %s to %s", h.count(), day(h.Runs[0]), day(h.Runs[len(h.Runs)-1]))
}

func (h *History) plot(s *Series) (v plotView, err error) {
	t := report.Trend{Title: s.Title() + ", " + s.Time + " time", Unit: s.Unit, Runs: len(s.Points), Dates: map[int]string{}}
	v.Title = t.Title
	every := max(1, (len(s.Points)+5)/6)
	for i, p := range s.Points {
		r := &h.Runs[p.Run]
		t.Points = append(t.Points, report.TrendPoint{Run: i, Value: p.Value, Lo: p.Lo, Hi: p.Hi})
		if len(p.Marks) > 0 {
			t.Marks = append(t.Marks, report.TrendMark{Run: i, Text: short(strings.Join(p.Marks, ", "))})
		}
		if i%every == 0 {
			t.Dates[i] = r.Start.Format("02 Jan 15:04")
		}
		row := rowView{When: r.Start.Format("2006-01-02 15:04"), Run: r.Run, Seed: fmt.Sprint(r.Seed), Kernel: r.Kernel, Value: value(p.Value), Marks: strings.Join(p.Marks, ", ")}
		if i > 0 {
			row.Change = change(s.Points[i-1].Value, p.Value)
		}
		v.Rows = append(v.Rows, row)
	}
	v.Rows = v.Rows[max(0, len(v.Rows)-mostRows):]
	if !t.Drawable() {
		v.Why = "numbers too large to draw"
		return v, nil
	}
	v.Chart, err = t.Chart()
	return v, err
}

// short is a mark's word as there is room for it.
func short(s string) string {
	const most = 44
	if r := []rune(s); len(r) > most {
		return string(r[:most]) + "…"
	}
	return s
}
