package report

import (
	"bytes"
	"html/template"
	"image/color"
	"math"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// Trend is how a figure went over runs, of which each has a place on the axis: they are
// equally far apart, for days without a run say nothing.
type Trend struct {
	Title string
	Unit  string
	Runs  int
	// Dates are written below the axis, at runs.
	Dates  map[int]string
	Points []TrendPoint
	Marks  []TrendMark
}

// TrendPoint is one run's figure, with its interval if it has one.
type TrendPoint struct {
	Run    int // of 0 to Runs-1
	Value  float64
	Lo, Hi *float64
}

// TrendMark is something that is another from a run on.
type TrendMark struct {
	Run  int
	Text string
}

// trendLimit is what figures are drawn up to: beyond it, the drawing's own sums would not be
// numbers any more.
const trendLimit = 1e100

// Drawable says whether there are points, all of which can be drawn.
func (t *Trend) Drawable() bool {
	for _, p := range t.Points {
		for _, v := range []*float64{&p.Value, p.Lo, p.Hi} {
			if v != nil && !(math.Abs(*v) <= trendLimit) {
				return false
			}
		}
		if p.Run < 0 || p.Run >= t.Runs {
			return false
		}
	}
	return len(t.Points) > 0
}

// span is from the smallest to the largest of all that is drawn. If these are one, or nearly
// so, it is around them.
func (t *Trend) span() (lo, hi float64) {
	lo, hi = math.Inf(1), math.Inf(-1)
	for _, p := range t.Points {
		for _, v := range []*float64{&p.Value, p.Lo, p.Hi} {
			if v != nil {
				lo, hi = min(lo, *v), max(hi, *v)
			}
		}
	}
	size := max(math.Abs(lo), math.Abs(hi))
	if room := max(0.05*size, 1e-9); hi-lo < 1e-9*room || hi == lo {
		return lo - room, hi + room
	}
	return lo, hi
}

// fixed are ticks that were chosen before.
type fixed []plot.Tick

func (f fixed) Ticks(_, _ float64) []plot.Tick { return f }

// Chart draws it: a point for each run, joined by a line, and a vertical line with a word
// for each mark.
func (t *Trend) Chart() (template.HTML, error) {
	const width, height, margin = 560, 190, 16
	p := plot.New()
	p.BackgroundColor = color.Transparent
	lo, hi := t.span()
	bottom, top := lo-0.08*(hi-lo), hi+0.08*(hi-lo)
	if len(t.Marks) > 0 {
		top += 0.3 * (hi - lo) // for their words
	}
	p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = -0.6, float64(t.Runs)-0.4, bottom, top
	t.axes(p, lo, hi)
	if err := t.addMarks(p, bottom, top); err != nil {
		return "", err
	}
	if err := t.addPoints(p); err != nil {
		return "", err
	}
	canvas := vgsvg.NewWith(vgsvg.UseWH(vg.Points(width), vg.Points(height)))
	p.Draw(draw.Crop(draw.New(canvas), 0, -margin, 2, -margin))
	var b bytes.Buffer
	if _, err := canvas.WriteTo(&b); err != nil {
		return "", err
	}
	return inline(b.String(), t.Title, "A point for each run, in order of time. The values are in the table.", width, height), nil
}

func (t *Trend) axes(p *plot.Plot, lo, hi float64) {
	grid := plotter.NewGrid()
	grid.Vertical.Width = 0
	grid.Horizontal = draw.LineStyle{Color: inkGrid, Width: vg.Points(0.6)}
	p.Add(grid)
	var x, y fixed
	for run := range t.Runs {
		if date := t.Dates[run]; date != "" {
			x = append(x, plot.Tick{Value: float64(run), Label: date})
		}
	}
	for _, v := range []float64{lo, lo + (hi-lo)/2, hi} {
		y = append(y, plot.Tick{Value: v, Label: number(v)})
	}
	p.X.Tick.Marker, p.Y.Tick.Marker = x, y
	styleText(&p.X.Tick.Label, 10)
	styleText(&p.Y.Tick.Label, 10)
	p.X.Tick.Length, p.Y.Tick.Length, p.X.LineStyle.Width, p.Y.LineStyle.Width = 0, 0, 0, 0
	p.Y.Padding = vg.Points(4)
	p.Y.Label.Text = t.Unit
	styleText(&p.Y.Label.TextStyle, 10)
}

// addMarks draws them between the runs, each word a line below the one before it, where they
// might stand in one another's way.
func (t *Trend) addMarks(p *plot.Plot, bottom, top float64) error {
	const lines = 3
	for i, m := range t.Marks {
		x := float64(m.Run) - 0.5
		line, err := plotter.NewLine(plotter.XYs{{X: x, Y: bottom}, {X: x, Y: top}})
		if err != nil {
			return err
		}
		line.LineStyle = draw.LineStyle{Color: inkPeer, Width: vg.Points(1), Dashes: []vg.Length{vg.Points(3), vg.Points(3)}}
		l, err := plotter.NewLabels(plotter.XYLabels{XYs: plotter.XYs{{X: x, Y: top}}, Labels: []string{m.Text}})
		if err != nil {
			return err
		}
		styleText(&l.TextStyle[0], 9)
		l.TextStyle[0].YAlign = text.YTop
		l.Offset = vg.Point{X: vg.Points(3), Y: vg.Points(-1 - 10*float64(i%lines))}
		if m.Run > t.Runs*2/3 { // there is more room on the other side
			l.TextStyle[0].XAlign, l.Offset.X = text.XRight, vg.Points(-3)
		}
		p.Add(line, l)
	}
	return nil
}

func (t *Trend) addPoints(p *plot.Plot) error {
	var all plotter.XYs
	for _, point := range t.Points {
		x := float64(point.Run)
		all = append(all, plotter.XY{X: x, Y: point.Value})
		if point.Lo == nil || point.Hi == nil {
			continue
		}
		bar, err := plotter.NewLine(plotter.XYs{{X: x, Y: *point.Lo}, {X: x, Y: *point.Hi}})
		if err != nil {
			return err
		}
		bar.LineStyle = draw.LineStyle{Color: inkOurs, Width: vg.Points(1.5)}
		p.Add(bar)
	}
	line, discs, err := plotter.NewLinePoints(all)
	if err != nil {
		return err
	}
	line.LineStyle = draw.LineStyle{Color: inkOurs, Width: vg.Points(1)}
	discs.GlyphStyle = draw.GlyphStyle{Color: inkOurs, Radius: vg.Points(2.5), Shape: draw.CircleGlyph{}}
	p.Add(line, discs)
	return nil
}
