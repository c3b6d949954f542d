package report

import (
	"bytes"
	"fmt"
	"html"
	"html/template"
	"image/color"
	"math"
	"regexp"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// bar of a chart.
type bar struct {
	Label string
	Value float64
	Ours  bool
}

// Inks: the plotter wants colours, the page wants its own, which differ by
// light and dark. So each ink is drawn in a colour of no other use, and the
// drawing's text then names the page's variable instead.
var (
	inkText = color.RGBA{0x11, 0x11, 0x11, 0xff}
	inkGrid = color.RGBA{0x22, 0x22, 0x22, 0xff}
	inkOurs = color.RGBA{0x33, 0x33, 0x33, 0xff}
	inkPeer = color.RGBA{0x44, 0x44, 0x44, 0xff}
)

var inkNames = strings.NewReplacer(
	"#111111", "var(--ink)",
	"#222222", "var(--line)",
	"#333333", "var(--ours)",
	"#444444", "var(--peer)",
)

// Bars on a logarithmic scale have to begin somewhere: at floor, so that a
// cost of one instruction is still seen.
const floor = 0.5

// logLen is the length of a bar in decades.
func logLen(v float64) float64 {
	return math.Log10(max(v, floor*1.1)) - math.Log10(floor)
}

// decades marks 1, 10, 100…
type decades struct{}

func (decades) Ticks(_, hi float64) []plot.Tick {
	var out []plot.Tick
	for v := 1.0; logLen(v) <= hi+1e-9; v *= 10 {
		out = append(out, plot.Tick{Value: logLen(v), Label: number(v)})
	}
	return out
}

// costChart draws horizontal bars on a logarithmic scale that ends at the
// decade of top, so that several charts can be compared by eye.
func costChart(title string, bars []bar, top float64) (template.HTML, error) {
	const width, axis, row, margin = 340, 24, 25, 16
	p := plot.New()
	p.BackgroundColor = color.Transparent
	if err := addBars(p, bars); err != nil {
		return "", err
	}
	styleAxes(p, bars, top)
	height := vg.Points(axis + row*float64(len(bars)))
	canvas := vgsvg.NewWith(vgsvg.UseWH(vg.Points(width), height))
	// Half of the last tick's label stands outside the axis.
	p.Draw(draw.Crop(draw.New(canvas), 0, -margin, 2, -2))
	var b bytes.Buffer
	if _, err := canvas.WriteTo(&b); err != nil {
		return "", err
	}
	return inline(b.String(), title, width, height.Points()), nil
}

// addBars adds the first bar at the top: the plot's axis counts upwards.
func addBars(p *plot.Plot, bars []bar) error {
	grid := plotter.NewGrid()
	grid.Horizontal.Width = 0
	grid.Vertical = draw.LineStyle{Color: inkGrid, Width: vg.Points(0.6)}
	p.Add(grid)
	labels := plotter.XYLabels{}
	for i, b := range bars {
		y := float64(len(bars) - 1 - i)
		c, err := plotter.NewBarChart(plotter.Values{logLen(b.Value)}, vg.Points(16))
		if err != nil {
			return err
		}
		c.Horizontal, c.XMin, c.LineStyle.Width, c.Color = true, y, 0, inkPeer
		if b.Ours {
			c.Color = inkOurs
		}
		p.Add(c)
		labels.XYs = append(labels.XYs, plotter.XY{X: logLen(b.Value), Y: y})
		labels.Labels = append(labels.Labels, number(b.Value))
	}
	l, err := plotter.NewLabels(labels)
	if err != nil {
		return err
	}
	for i := range l.TextStyle {
		l.TextStyle[i].Color = inkText
		l.TextStyle[i].Font.Size = vg.Points(12)
		l.TextStyle[i].YAlign = text.YCenter
	}
	l.Offset.X = vg.Points(4)
	p.Add(l)
	return nil
}

func styleAxes(p *plot.Plot, bars []bar, top float64) {
	names := make([]string, len(bars))
	for i, b := range bars {
		names[len(bars)-1-i] = b.Label
	}
	styleNames(p, names)
	p.X.Min, p.X.Max = 0, logLen(math.Pow(10, math.Ceil(math.Log10(max(top, 10)))))
	p.X.Tick.Marker = decades{}
}

// styleNames writes names beside the rows of a chart, the first at the bottom.
func styleNames(p *plot.Plot, names []string) {
	p.NominalY(names...)
	p.Y.Min, p.Y.Max = -0.5, float64(len(names))-0.5
	p.Y.Tick.Label.Color = inkText
	p.Y.Tick.Label.Font.Size = vg.Points(12)
	p.X.Tick.Label.Color = inkText
	p.X.Tick.Label.Font.Size = vg.Points(10)
	p.X.Tick.Length = 0
	p.X.LineStyle.Width = 0
}

var (
	svgOpen = regexp.MustCompile(`(?s)^.*?<svg[^>]*>`)
	svgFont = regexp.MustCompile(`font-family:[^"]*?;(font-size)`)
)

// inline makes a drawing part of a page: it takes its size from the page's
// layout, its font and colours from the page's style, and names no URL.
func inline(svg, title string, w, h float64) template.HTML {
	open := fmt.Sprintf(`<svg viewBox="0 0 %g %g" role="img" aria-label="%s">`, w, h, html.EscapeString(title))
	svg = svgOpen.ReplaceAllLiteralString(svg, open)
	svg = svgFont.ReplaceAllString(svg, "$1")
	return template.HTML(inkNames.Replace(svg)) // labels are escaped by vgsvg
}
