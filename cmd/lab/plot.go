package main

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"kerninst/agent/ask"
	"kerninst/lab/curve"
)

// finest is in how many parts the time of a plot is divided at most: of fewer samples a part,
// chance is what is seen.
const finest = 100

// checkPlot looks at what needs no guest to be wrong.
func (f *probeFlags) checkPlot() error {
	switch {
	case f.plot == "":
		return nil
	case f.List:
		return errors.New("--list runs nothing that could be drawn: leave --plot out")
	case f.Live:
		return errors.New("--plot with --live: what is shown as it comes is not kept; choose one")
	case filepath.Ext(f.plot) != ".svg":
		return errors.New("--plot " + f.plot + ": an SVG is drawn, and its name ends in .svg")
	}
	if _, err := os.Stat(filepath.Dir(f.plot)); errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// draw makes the file that --plot asks for: hits a second, and, if something is timed, how
// many were inside (KernInst, figure 11).
func (f *probeFlags) draw(series []*ask.Series) error {
	all := slices.Clone(series)
	last := func(s *ask.Series) uint64 { return s.Hits[len(s.Hits)-1] }
	slices.SortStableFunc(all, func(a, b *ask.Series) int { return cmp.Compare(last(b), last(a)) })
	if n := len(all); n > curve.Most {
		all = all[:curve.Most]
		progress("plot: the %d that were come by most often, of %d", curve.Most, n)
	}
	var rates, inside curve.Panel
	rates.Unit, inside.Unit = "hits a second", "calls inside"
	for _, s := range all {
		rates.Lines = append(rates.Lines, rate(s))
		if len(s.Inside) > 0 {
			inside.Lines = append(inside.Lines, within(s))
		}
	}
	panels := []curve.Panel{rates}
	if len(inside.Lines) > 0 {
		panels = append(panels, inside)
	}
	out, err := os.Create(f.plot)
	if err != nil {
		return err
	}
	err = curve.SVG(out, f.arch+": "+strings.Join(f.workload(), " "), panels)
	return errors.Join(err, out.Close())
}

// workload is what runs, as a person typed it.
func (f *probeFlags) workload() []string {
	if f.Shell != "" {
		return []string{f.Shell}
	}
	return f.Argv
}

func seconds(ns uint64) float64 { return float64(ns) / 1e9 }

// rate is how many hits a second there were, in parts that are equally long.
func rate(s *ask.Series) (out curve.Line) {
	out.Name = s.Name
	every := max(1, len(s.NS)/finest)
	from := 0
	for k := every; k < len(s.NS); k += every {
		if s.NS[k] > s.NS[from] {
			out.X = append(out.X, seconds(s.NS[k]))
			out.Y = append(out.Y, float64(s.Hits[k]-s.Hits[from])/seconds(s.NS[k]-s.NS[from]))
			from = k
		}
	}
	if len(out.X) == 0 { // it was over at once
		return curve.Line{Name: s.Name, X: []float64{0}, Y: []float64{0}}
	}
	return curve.Line{Name: s.Name, X: append([]float64{0}, out.X...), Y: append([]float64{out.Y[0]}, out.Y...)}
}

func within(s *ask.Series) curve.Line {
	out := curve.Line{Name: s.Name, Steps: true}
	for k, ns := range s.NS {
		out.X, out.Y = append(out.X, seconds(ns)), append(out.Y, float64(s.Inside[k]))
	}
	return out
}
