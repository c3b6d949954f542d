package report

import (
	"bytes"
	"html/template"
	"image/color"
	"math"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// unitRatio is the unit of a metric that compares two arms of an experiment.
const unitRatio = "ratio"

// ratio is one row of the chart of ratios: a metric with an interval.
type ratio struct {
	Name string
	*Metric
}

// ratios of a scenario.
func ratios(s *Scenario) (out []ratio) {
	for _, name := range sorted(s.Metrics) {
		if m := s.Metrics[name]; m.Unit == unitRatio && m.Value > 0 && m.Lo != nil && m.Hi != nil && *m.Lo > 0 {
			out = append(out, ratio{name, &m})
		}
	}
	return out
}

// ratioView is one ISA's chart of ratios.
type ratioView struct {
	Arch  string
	Chart template.HTML
	Rows  []ratio
}

// ratioViews has one chart per ISA that has ratios, all on one scale.
func ratioViews(runs []run) (views []ratioView, err error) {
	lo, hi := 1.0, 1.0
	for i := range runs {
		v := ratioView{Arch: runs[i].Results.Arch}
		for j := range runs[i].Results.Scenarios {
			v.Rows = append(v.Rows, ratios(&runs[i].Results.Scenarios[j])...)
		}
		for _, r := range v.Rows {
			lo = min(lo, *r.Lo, slices.Min(append(r.Samples, r.Value)))
			hi = max(hi, *r.Hi, slices.Max(append(r.Samples, r.Value)))
		}
		if len(v.Rows) > 0 {
			views = append(views, v)
		}
	}
	for i := range views {
		v := &views[i]
		if v.Chart, err = ratioChart(v.Arch+": ratios of host time", v.Rows, lo, hi); err != nil {
			return nil, err
		}
	}
	return views, nil
}

// ratioChart draws each ratio as a line, its interval, with the median as a
// disc on it and a ring for each pair, on a logarithmic scale on which equal
// factors are equally far from 1.
func ratioChart(title string, rows []ratio, lo, hi float64) (template.HTML, error) {
	const width, axis, row, margin = 340, 40, 30, 16
	p := plot.New()
	p.BackgroundColor = color.Transparent
	if err := addOne(p, len(rows)); err != nil {
		return "", err
	}
	names := make([]string, len(rows))
	for i, r := range rows {
		y := float64(len(rows) - 1 - i) // the first on top: the axis counts upwards
		names[len(rows)-1-i] = r.Name
		if err := addRatio(p, r, y); err != nil {
			return "", err
		}
	}
	styleNames(p, names)
	styleUnit(p, "times as long")
	p.X.Min, p.X.Max = math.Log2(lo)-0.2, math.Log2(hi)+0.2
	p.X.Tick.Marker = doublings{}
	height := vg.Points(axis + row*float64(len(rows)))
	canvas := vgsvg.NewWith(vgsvg.UseWH(vg.Points(width), height))
	p.Draw(draw.Crop(draw.New(canvas), 0, -margin, 2, -2))
	var b bytes.Buffer
	if _, err := canvas.WriteTo(&b); err != nil {
		return "", err
	}
	return inline(b.String(), title, "A line for each ratio, its interval, with the median on it. The values are in the table.", width, height.Points()), nil
}

// addOne adds the line at which both arms take the same, below all else.
func addOne(p *plot.Plot, rows int) error {
	one, err := plotter.NewLine(plotter.XYs{{X: 0, Y: -0.5}, {X: 0, Y: float64(rows) - 0.5}})
	if err != nil {
		return err
	}
	one.LineStyle = draw.LineStyle{Color: inkGrid, Width: vg.Points(1)}
	p.Add(one)
	return nil
}

func addRatio(p *plot.Plot, r ratio, y float64) error {
	line, err := plotter.NewLine(plotter.XYs{{X: math.Log2(*r.Lo), Y: y}, {X: math.Log2(*r.Hi), Y: y}})
	if err != nil {
		return err
	}
	line.LineStyle = draw.LineStyle{Color: inkOurs, Width: vg.Points(3)}
	disc, err := plotter.NewScatter(plotter.XYs{{X: math.Log2(r.Value), Y: y}})
	if err != nil {
		return err
	}
	disc.GlyphStyle = draw.GlyphStyle{Color: inkOurs, Radius: vg.Points(3.5), Shape: draw.CircleGlyph{}}
	p.Add(line, disc)
	if len(r.Samples) == 0 {
		return nil
	}
	var pairs plotter.XYs
	for _, v := range r.Samples {
		pairs = append(pairs, plotter.XY{X: math.Log2(v), Y: y + 0.28})
	}
	rings, err := plotter.NewScatter(pairs)
	if err != nil {
		return err
	}
	rings.GlyphStyle = draw.GlyphStyle{Color: inkPeer, Radius: vg.Points(2.5), Shape: draw.RingGlyph{}}
	p.Add(rings)
	return nil
}

// doublings marks …, 1/2, 1, 2, 4…
type doublings struct{}

func (doublings) Ticks(lo, hi float64) (out []plot.Tick) {
	for e := math.Ceil(lo); e <= hi; e++ {
		out = append(out, plot.Tick{Value: e, Label: number(math.Exp2(e))})
	}
	return out
}
