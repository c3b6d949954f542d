package report

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"path/filepath"
	"strconv"
	"strings"

	"kerninst/lab/status"
)

//go:embed report.html.tmpl
var pageText string

// pageTemplate escapes whatever it is given: nothing of a guest's is ever a
// template.HTML. The only such value is a drawing of our own (chart.go).
var pageTemplate = template.Must(template.New("report").Funcs(template.FuncMap{
	"figure":  figure,
	"number":  number,
	"times":   times,
	"percent": func(v float64) string { return strconv.FormatFloat(100*v, 'f', 1, 64) + " %" },
	"plural":  plural,
	"count":   func(n *uint64) string { return grouped(strconv.FormatUint(*n, 10)) },
	"join":    func(lines []string) string { return strings.Join(lines, "\n") },
}).Parse(pageText))

func plural(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return grouped(strconv.Itoa(n)) + " " + what
}

// page is what the template shows, in the order in which it does.
type page struct {
	Look      look
	RanWith   string
	Rerun     string
	Runs      []runView
	Matrix    []matrixRow
	Troubles  []trouble
	Published publishedView
	Costs     []costView
	Ratios    []ratioView
	Compared  []comparedView
	Grids     []gridView
	Series    []seriesView
	Counts    []countView
	Splices   []spliceView
	Scenarios []detail
}

// runView is one ISA in the header.
type runView struct {
	Results
	Look     look
	Seed     string
	Host     string // host seconds by phase, without their parts
	Files    []string
	Headline headline
}

type matrixRow struct {
	Name  string
	Cells []matrixCell
}

type matrixCell struct {
	Look   look
	Key    string
	Reason string
	Href   string // of the failure card
}

// costView is one ISA's chart.
type costView struct {
	Arch  string
	Chart template.HTML
	Rows  []cost
	Why   string // there is no chart
}

type countView struct {
	Arch string
	Rows []tally
	Why  string
}

// spliceView is one scenario's points: over all ISAs, so that the same probe
// stands side by side.
type spliceView struct {
	Scenario string
	Cards    []spliceCard
	More     int // points not shown
}

type spliceCard struct {
	Arch string
	Point
	Listing splice
}

// detail is all that was checked and measured in one scenario.
type detail struct {
	Name    string
	Checks  []archCheck
	Broken  int
	Arches  []string
	Figures []figureRow
}

type archCheck struct {
	Arch string
	Check
}

type figureRow struct {
	Name  string
	Cells []string
}

// WriteReport makes summary.md and report.html over the ISAs found in out.
func WriteReport(out string) error {
	runs, err := load(out)
	if err != nil {
		return err
	}
	page, err := htmlPage(runs)
	if err != nil {
		return fmt.Errorf("%s: %w", HTMLFile, err)
	}
	if err := writeFile(filepath.Join(out, SummaryFile), summary(runs)); err != nil {
		return err
	}
	return writeFile(filepath.Join(out, HTMLFile), page)
}

func htmlPage(runs []run) ([]byte, error) {
	p := page{
		Look:      looks[overall(runs)],
		RanWith:   ranWith(runs),
		Rerun:     rerun(runs),
		Matrix:    matrix(runs),
		Troubles:  troubles(runs),
		Published: publishedOf(runs),
		Counts:    countViews(runs),
		Splices:   spliceViews(runs),
		Scenarios: details(runs),
	}
	for i := range runs {
		p.Runs = append(p.Runs, viewOf(&runs[i]))
	}
	var err error
	if p.Grids, err = gridViews(runs); err != nil {
		return nil, err
	}
	if p.Costs, err = costViews(runs); err != nil {
		return nil, err
	}
	if p.Ratios, err = ratioViews(runs); err != nil {
		return nil, err
	}
	if p.Compared, err = comparedViews(runs); err != nil {
		return nil, err
	}
	if p.Series, err = seriesViews(runs); err != nil {
		return nil, err
	}
	var b bytes.Buffer
	err = pageTemplate.Execute(&b, p)
	return b.Bytes(), err
}

func viewOf(r *run) runView {
	v := runView{
		Results:  r.Results,
		Look:     looks[r.Results.Status],
		Seed:     seedOf(&r.Results),
		Files:    r.Files,
		Headline: r.headline(),
	}
	var phases []string
	for _, phase := range sorted(r.Timings.Seconds) {
		if strings.Contains(phase, "/") {
			continue // part of another: timings.json has it
		}
		phases = append(phases, fmt.Sprintf("%s %.1f s", phase, r.Timings.Seconds[phase]))
	}
	v.Host = strings.Join(phases, ", ")
	return v
}

// ID of a failure card; Scenario is empty for the run as a whole.
func (t trouble) ID() string { return "failure-" + t.Arch + "-" + t.Scenario }

func matrix(runs []run) []matrixRow {
	cards := map[string]bool{}
	for _, t := range troubles(runs) {
		cards[t.ID()] = true
	}
	var rows []matrixRow
	for _, name := range scenarioNames(runs) {
		row := matrixRow{Name: name}
		for i := range runs {
			c := matrixCell{Look: notRun}
			if s := runs[i].scenario(name); s != nil {
				c = matrixCell{Look: looks[s.Status], Key: keyFigures(s), Reason: s.Reason}
			}
			if id := (trouble{Arch: runs[i].Results.Arch, Scenario: name}).ID(); cards[id] {
				c.Href = "#" + id
			}
			row.Cells = append(row.Cells, c)
		}
		rows = append(rows, row)
	}
	return rows
}

// costViews has one chart per ISA if any ISA has a cost; else nothing. All end
// at the same decade.
func costViews(runs []run) ([]costView, error) {
	var views []costView
	top := 0.0
	for i := range runs {
		v := costView{Arch: runs[i].Results.Arch}
		for j := range runs[i].Results.Scenarios {
			v.Rows = append(v.Rows, costs(&runs[i].Results.Scenarios[j])...)
		}
		for _, c := range v.Rows {
			if c.PerHit != nil {
				top = max(top, c.PerHit.Value)
			}
		}
		if len(v.Rows) == 0 {
			v.Why = absent(&runs[i].Results, "cost")
		}
		views = append(views, v)
	}
	if top == 0 {
		return nil, nil
	}
	for i := range views {
		if err := views[i].draw(top); err != nil {
			return nil, err
		}
	}
	return views, nil
}

// leastCost is where bars of costs begin, so that one instruction is still seen.
const leastCost = 0.5

func (v *costView) draw(top float64) (err error) {
	var rows []barRow
	for _, c := range v.Rows {
		if c.PerHit != nil {
			rows = append(rows, barRow{c.Name, []bar{{c.PerHit.Value, number(c.PerHit.Value), c.Ours()}}})
		}
	}
	if len(rows) > 0 {
		v.Chart, err = barChart(drawing{
			Title: v.Arch + ": instructions added per hit",
			About: "A bar for each way to reach a probe, on a logarithmic scale. The values are in the table.",
			Unit:  "instructions added per hit",
			Width: narrow,
			Scale: logScale(leastCost, max(top, 10), number),
		}, rows)
	}
	return err
}

func countViews(runs []run) []countView {
	var views []countView
	found := false
	for i := range runs {
		v := countView{Arch: runs[i].Results.Arch}
		for j := range runs[i].Results.Scenarios {
			v.Rows = append(v.Rows, tallies(&runs[i].Results.Scenarios[j])...)
		}
		if len(v.Rows) == 0 {
			v.Why = absent(&runs[i].Results, "count")
		}
		found = found || len(v.Rows) > 0
		views = append(views, v)
	}
	if !found {
		return nil
	}
	return views
}

// absent says why an ISA has no figures of a kind.
func absent(r *Results, scenario string) string {
	for _, s := range r.Scenarios {
		if s.Name == scenario && s.Status != status.Passed {
			return scenario + ": " + looks[s.Status].Words
		}
	}
	if r.Status != status.Passed {
		return looks[r.Status].Words
	}
	return "not run"
}

// maxCards bounds the page: a survey may have millions of points.
const maxCards = 60

func spliceViews(runs []run) []spliceView {
	var views []spliceView
	for _, name := range scenarioNames(runs) {
		v := spliceView{Scenario: name}
		for n, more := 0, true; more; n++ {
			more = false
			for i := range runs {
				s := runs[i].scenario(name)
				if s == nil || n >= len(s.Points) {
					continue
				}
				more = true
				v.add(runs[i].Results.Arch, &s.Points[n])
			}
		}
		if len(v.Cards) > 0 {
			views = append(views, v)
		}
	}
	return views
}

func (v *spliceView) add(arch string, p *Point) {
	if len(v.Cards) == maxCards {
		v.More++
		return
	}
	v.Cards = append(v.Cards, spliceCard{arch, *p, listing(arch, p)})
}

func details(runs []run) []detail {
	var out []detail
	for _, name := range scenarioNames(runs) {
		d := detail{Name: name}
		metrics := map[string]bool{}
		for i := range runs {
			d.Arches = append(d.Arches, runs[i].Results.Arch)
			s := runs[i].scenario(name)
			if s == nil {
				continue
			}
			for _, c := range s.Checks {
				d.Checks = append(d.Checks, archCheck{runs[i].Results.Arch, c})
			}
			d.Broken += len(broken(s.Checks))
			for m := range s.Metrics {
				metrics[m] = true
			}
		}
		for _, m := range sorted(metrics) {
			d.Figures = append(d.Figures, figureRow{m, cells(runs, name, m)})
		}
		if len(d.Checks)+len(d.Figures) > 0 {
			out = append(out, d)
		}
	}
	return out
}

func cells(runs []run, scenario, metric string) []string {
	var out []string
	for i := range runs {
		var m *Metric
		if s := runs[i].scenario(scenario); s != nil {
			if v, ok := s.Metrics[metric]; ok {
				m = &v
			}
		}
		out = append(out, figure(m))
	}
	return out
}
