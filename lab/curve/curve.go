// Package curve draws how numbers went over time, as a file that a browser shows.
package curve

import (
	"fmt"
	"image/color"
	"io"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// Line is a number over time. X are seconds, in order; Y has as many.
type Line struct {
	Name string
	X, Y []float64
	// Steps: it keeps what it has until it has another, as a count does; otherwise it is
	// what it was in the mean since the X before.
	Steps bool
}

// Panel is lines of one unit. Several stand one below the other, with the same times.
type Panel struct {
	Unit  string
	Lines []Line
}

// inks are of the first lines, told apart also by who sees fewer colours (Okabe and Ito, 2008).
var inks = []color.Color{
	color.RGBA{0x00, 0x72, 0xb2, 0xff}, color.RGBA{0xd5, 0x5e, 0x00, 0xff}, color.RGBA{0x00, 0x9e, 0x73, 0xff}, color.RGBA{0xcc, 0x79, 0xa7, 0xff},
	color.RGBA{0xe6, 0x9f, 0x00, 0xff}, color.RGBA{0x56, 0xb4, 0xe9, 0xff}, color.RGBA{0x00, 0x00, 0x00, 0xff}, color.RGBA{0x99, 0x99, 0x99, 0xff},
}

// Most is how many lines a panel can have.
var Most = len(inks)

const width, height = 24 * vg.Centimeter, 9 * vg.Centimeter // of a panel

// SVG writes panels below a title.
func SVG(to io.Writer, title string, panels []Panel) error {
	var rows [][]*plot.Plot
	for k, p := range panels {
		one, err := p.plot()
		if err != nil {
			return err
		}
		if k == 0 {
			one.Title.Text = title
		}
		rows = append(rows, []*plot.Plot{one})
	}
	c := vgsvg.New(width, height*vg.Length(len(panels)))
	for k, row := range plot.Align(rows, draw.Tiles{Rows: len(rows), Cols: 1, PadY: 2 * vg.Millimeter, PadRight: 4 * vg.Millimeter}, draw.New(c)) {
		rows[k][0].Draw(row[0])
	}
	_, err := c.WriteTo(to)
	return err
}

func (p Panel) plot() (*plot.Plot, error) {
	if len(p.Lines) > Most {
		return nil, fmt.Errorf("%d lines of %s: %d at most can be told apart", len(p.Lines), p.Unit, Most)
	}
	out := plot.New()
	out.X.Label.Text, out.Y.Label.Text = "seconds of the guest's time", p.Unit
	out.Y.Min, out.Legend.Top = 0, true
	out.Add(plotter.NewGrid())
	for k, l := range p.Lines {
		points := make(plotter.XYs, len(l.X))
		for n := range l.X {
			points[n] = plotter.XY{X: l.X[n], Y: l.Y[n]}
		}
		line, err := plotter.NewLine(points)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", l.Name, err)
		}
		line.Color, line.Width = inks[k], vg.Points(1.2)
		line.StepStyle = plotter.PreStep
		if l.Steps {
			line.StepStyle = plotter.PostStep
		}
		out.Add(line)
		out.Legend.Add(l.Name, line)
	}
	return out, nil
}
