package report

import (
	"html/template"
	"math"
	"slices"
	"strings"
)

// kind of figures that a scenario has many of, so that they are drawn as bars.
type kind struct {
	Title, Note string
	Unit        string
	takes       func(name string, m Metric) bool
	scale       func(least, top float64) scale
	text        func(v float64) string
}

var kinds = []kind{
	{
		Title: "time of operations",
		Note:  "Guest instructions, or nanoseconds of the guest's clock, of which one is an instruction in exact time; logarithmic scale, the same for all.",
		Unit:  "instructions or nanoseconds per operation",
		takes: func(name string, m Metric) bool {
			return (m.Unit == "insns/op" || m.Unit == "vns/op") && !shownElsewhere(name)
		},
		scale: decadesOf, text: number,
	},
	{
		Title: "bandwidth",
		Note:  "Megabytes per second of the guest's time, logarithmic scale, the same for all. More is better.",
		Unit:  "MB/s",
		takes: func(_ string, m Metric) bool { return m.Unit == "MB/s" },
		scale: decadesOf, text: number,
	},
	{
		Title: "shares of time",
		Note:  "Per cent, linear scale. What lacks to 100 % are others.",
		Unit:  "per cent of all",
		takes: func(name string, m Metric) bool {
			return m.Unit == "%" && strings.Contains(name, ".share.") && 0 <= m.Value && m.Value <= 100
		},
		scale: func(_, _ float64) scale { return scale{To: 100, Label: percents} },
		text:  percents,
	},
}

func percents(v float64) string { return decimal(v, 1) + " %" }

// decadesOf begins a little before the decade of the least, so that its mark is seen.
func decadesOf(least, top float64) scale {
	return logScale(math.Pow10(int(math.Floor(math.Log10(least))))/2, top, abbreviated)
}

// abbreviated prints a power of ten that stands close to others.
func abbreviated(v float64) string {
	for _, u := range []struct {
		of   float64
		name string
	}{{1e9, " G"}, {1e6, " M"}, {1e3, " k"}} {
		if v >= u.of {
			return number(v/u.of) + u.name
		}
	}
	return number(v)
}

// shownElsewhere is of metrics with a part in the chart of costs, or in that of
// operations with probes.
func shownElsewhere(name string) bool {
	role := name[strings.LastIndexByte(name, '.')+1:]
	return slices.Contains([]string{perOp, perHit, ofBare[1:], added[1:], asRatio[1:]}, role)
}

// seriesView is one kind of one scenario's figures: a chart for each ISA, and a table
// over all of them.
type seriesView struct {
	Scenario string
	Kind     kind
	Cards    []seriesCard
	Arches   []string
	Figures  []figureRow
}

type seriesCard struct {
	Arch  string
	Chart template.HTML
	Why   string // there is no chart
}

func seriesViews(runs []run) (views []seriesView, err error) {
	for _, name := range scenarioNames(runs) {
		for _, k := range kinds {
			v, err := seriesOf(runs, name, k)
			if err != nil {
				return nil, err
			}
			if len(v.Figures) > 1 { // one alone compares with nothing
				views = append(views, v)
			}
		}
	}
	return views, nil
}

func seriesOf(runs []run, scenario string, k kind) (v seriesView, err error) {
	v = seriesView{Scenario: scenario, Kind: k}
	taken := map[string]Metric{}
	least, top := math.Inf(1), 0.0
	for i := range runs {
		for name, m := range metricsOf(&runs[i], scenario) {
			if !k.takes(name, m) {
				continue
			}
			if _, ok := taken[name]; !ok {
				taken[name] = m
			}
			if m.Value > 0 {
				least, top = min(least, m.Value), max(top, m.Value)
			}
		}
	}
	if top == 0 {
		return v, nil
	}
	names := inOrder(taken)
	group := sharedGroup(names)
	for _, name := range names {
		v.Figures = append(v.Figures, figureRow{name[group:], cells(runs, scenario, name)})
	}
	for i := range runs {
		v.Arches = append(v.Arches, runs[i].Results.Arch)
		c := seriesCard{Arch: runs[i].Results.Arch, Why: absent(&runs[i].Results, scenario)}
		if err := c.draw(k, names, group, metricsOf(&runs[i], scenario), k.scale(least, top)); err != nil {
			return v, err
		}
		v.Cards = append(v.Cards, c)
	}
	return v, nil
}

func metricsOf(r *run, scenario string) map[string]Metric {
	if s := r.scenario(scenario); s != nil {
		return s.Metrics
	}
	return nil
}

// sharedGroup is how many bytes at their beginning all names share, up to a dot.
func sharedGroup(names []string) int {
	shared := names[0]
	for _, name := range names {
		for !strings.HasPrefix(name, shared) {
			shared = shared[:len(shared)-1]
		}
	}
	return strings.LastIndexByte(shared, '.') + 1
}

func (c *seriesCard) draw(k kind, names []string, group int, metrics map[string]Metric, s scale) (err error) {
	var rows []barRow
	for _, name := range names {
		if m, ok := metrics[name]; ok {
			rows = append(rows, barRow{name[group:], []bar{{m.Value, k.text(m.Value), false}}})
		}
	}
	if len(rows) > 0 {
		c.Chart, err = barChart(drawing{
			Title: c.Arch + ": " + k.Title,
			About: "A bar for each. " + k.Note + " The values are in the table.",
			Unit:  k.Unit,
			Width: narrow,
			Scale: s,
		}, rows)
	}
	return err
}
