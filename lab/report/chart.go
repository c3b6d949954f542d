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

// bar of a chart, with what is written behind it. A value of 0 or less has no bar.
type bar struct {
	Value float64
	Text  string
	Ours  bool
}

// barRow is what stands at one name of a chart: bars, the first on top.
type barRow struct {
	Label string
	Bars  []bar
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

// scale says how long bars are. From is where those of a logarithmic one begin; it is 0
// if the scale is linear.
type scale struct {
	From, To float64
	Label    func(float64) string
}

// logScale ends at the decade of top, so that several charts can be compared by eye.
func logScale(from, top float64, label func(float64) string) scale {
	const last = 308 // of a float64
	return scale{from, math.Pow10(min(last, int(math.Ceil(math.Log10(top))))), label}
}

// length of a bar, in decades if the scale is logarithmic. What is less than From is
// still seen.
func (s scale) length(v float64) float64 {
	switch {
	case v <= 0:
		return 0
	case s.From == 0:
		return v
	}
	return math.Log10(max(v, s.From*1.1)) - math.Log10(s.From)
}

// Ticks marks quarters, or powers of ten: not all of them, if there are many.
func (s scale) Ticks(_, _ float64) (out []plot.Tick) {
	mark := func(v float64) { out = append(out, plot.Tick{Value: s.length(v), Label: s.Label(v)}) }
	if s.From == 0 {
		for k := range 5 {
			mark(s.To * float64(k) / 4)
		}
		return out
	}
	step := 1 + int(s.length(s.To))/8
	for e := int(math.Ceil(math.Log10(s.From))); math.Pow10(e) <= s.To*(1+1e-9); e += step {
		mark(math.Pow10(e))
	}
	return out
}

// drawing is what a chart of bars has beside them.
type drawing struct {
	Title string
	About string // for who does not see it
	Unit  string // below the axis
	Width float64
	Scale scale
}

// Widths of drawings: of those that stand side by side, and beside a table.
const narrow, wide = 340, 420

// barChart draws horizontal bars. Where a row has several, they are thinner.
func barChart(d drawing, rows []barRow) (template.HTML, error) {
	const axis, margin = 40, 16
	several := 0
	for _, r := range rows {
		several = max(several, len(r.Bars)-1)
	}
	row, thick, font := 25+8*float64(several), 16-4*float64(several), 12-float64(several)
	p := plot.New()
	p.BackgroundColor = color.Transparent
	grid := plotter.NewGrid()
	grid.Horizontal.Width = 0
	grid.Vertical = draw.LineStyle{Color: inkGrid, Width: vg.Points(0.6)}
	p.Add(grid)
	names := make([]string, len(rows))
	for i, r := range rows {
		y := len(rows) - 1 - i // the first on top: the axis counts upwards
		names[y] = r.Label
		for k, b := range r.Bars {
			up := (float64(len(r.Bars)-1)/2 - float64(k)) * (thick + 1) / row
			if err := addBar(p, d.Scale, b, float64(y)+up, thick, font); err != nil {
				return "", err
			}
		}
	}
	styleNames(p, names)
	styleUnit(p, d.Unit)
	p.X.Min, p.X.Max = 0, d.Scale.length(d.Scale.To)
	p.X.Tick.Marker = d.Scale
	height := vg.Points(axis + row*float64(len(rows)))
	canvas := vgsvg.NewWith(vgsvg.UseWH(vg.Points(d.Width), height))
	// Half of the last tick's label stands outside the axis.
	p.Draw(draw.Crop(draw.New(canvas), 0, -margin, 2, -2))
	var b bytes.Buffer
	if _, err := canvas.WriteTo(&b); err != nil {
		return "", err
	}
	return inline(b.String(), d.Title, d.About, d.Width, height.Points()), nil
}

func addBar(p *plot.Plot, s scale, b bar, y, thick, font float64) error {
	if b.Value > 0 {
		c, err := plotter.NewBarChart(plotter.Values{s.length(b.Value)}, vg.Points(thick))
		if err != nil {
			return err
		}
		c.Horizontal, c.XMin, c.LineStyle.Width, c.Color = true, y, 0, inkPeer
		if b.Ours {
			c.Color = inkOurs
		}
		p.Add(c)
	}
	l, err := plotter.NewLabels(plotter.XYLabels{
		XYs: plotter.XYs{{X: s.length(b.Value), Y: y}}, Labels: []string{b.Text},
	})
	if err != nil {
		return err
	}
	styleText(&l.TextStyle[0], font)
	l.TextStyle[0].YAlign = text.YCenter
	// What is centred is the line, with room for descenders, which digits have none of.
	l.Offset = vg.Point{X: vg.Points(4), Y: vg.Points(0.16 * font)}
	p.Add(l)
	return nil
}

// styleNames writes names beside the rows of a chart, the first at the bottom.
func styleNames(p *plot.Plot, names []string) {
	p.NominalY(names...)
	p.Y.Min, p.Y.Max = -0.5, float64(len(names))-0.5
	styleText(&p.Y.Tick.Label, 12)
	styleText(&p.X.Tick.Label, 10)
	// Room, for where none of the page's fonts is, another may be wider by an eighth.
	p.Y.Padding = 0
	for _, name := range names {
		p.Y.Padding = max(p.Y.Padding, vg.Points(4)+p.Y.Tick.Label.Width(name)/8)
	}
	p.X.Tick.Length = 0
	p.X.LineStyle.Width = 0
}

// styleUnit writes what the axis is in, below it.
func styleUnit(p *plot.Plot, unit string) {
	p.X.Label.Text = unit
	p.X.Label.Padding = vg.Points(3)
	styleText(&p.X.Label.TextStyle, 10)
}

// styleText names a font only for what it measures: the page's are as wide.
func styleText(t *text.Style, points float64) {
	t.Color = inkText
	t.Font.Size, t.Font.Variant = vg.Points(points), "Sans"
}

var (
	svgOpen = regexp.MustCompile(`(?s)^.*?<svg[^>]*>`)
	svgFont = regexp.MustCompile(`font-family:[^"]*?;(font-size)`)
)

// inline makes a drawing part of a page: it takes its size from the page's
// layout, its font and colours from the page's style, and names no URL.
func inline(svg, title, about string, w, h float64) template.HTML {
	title, about = html.EscapeString(title), html.EscapeString(about)
	open := fmt.Sprintf(`<svg viewBox="0 0 %g %g" role="img" aria-label="%s"><title>%s</title><desc>%s</desc>`, w, h, title, title, about)
	svg = svgOpen.ReplaceAllLiteralString(svg, open)
	svg = svgFont.ReplaceAllString(svg, "$1")
	return template.HTML(inkNames.Replace(svg)) // labels are escaped by vgsvg
}
