package report

import (
	"fmt"
	"html/template"
	"math"
	"slices"
	"strings"
)

// Grid is a table that a scenario makes of its figures: rows and columns are its own words.
type Grid struct {
	Title   string    `json:"title"`
	Rows    string    `json:"rows_are"` // what a row is
	Columns []string  `json:"columns"`
	Lines   []GridRow `json:"lines"`
	// Drawn is the row of which there are bars, a bar for each column; its figures are times bare. Ours are those
	// columns that the project's own mechanisms have.
	Drawn string   `json:"drawn,omitempty"`
	Ours  []string `json:"ours,omitempty"`
}

// GridRow has a cell for each column.
type GridRow struct {
	Name  string     `json:"name"`
	Cells []GridCell `json:"cells"`
}

// GridCell is a figure, or why there is none.
type GridCell struct {
	Value *float64 `json:"value,omitempty"`
	Why   string   `json:"why,omitempty"`
}

// maxGrid bounds rows and columns.
const maxGrid = 500

func (g *Grid) validate() error {
	if g == nil {
		return nil
	}
	if len(g.Columns) > maxGrid || len(g.Lines) > maxGrid {
		return fmt.Errorf("grid of %d rows and %d columns: %d are enough", len(g.Lines), len(g.Columns), maxGrid)
	}
	for _, r := range g.Lines {
		if len(r.Cells) != len(g.Columns) {
			return fmt.Errorf("grid: row %s has %d cells for %d columns", r.Name, len(r.Cells), len(g.Columns))
		}
		for i, c := range r.Cells {
			switch {
			case (c.Value == nil) == (c.Why == ""):
				return fmt.Errorf("grid: row %s, %s: want either a value or why there is none", r.Name, g.Columns[i])
			case c.Value != nil && (math.IsNaN(*c.Value) || math.IsInf(*c.Value, 0)):
				return fmt.Errorf("grid: row %s, %s: %v is not a finite number", r.Name, g.Columns[i], *c.Value)
			}
		}
	}
	return nil
}

// gridNote is a reason, and all cells that have no figure for it.
type gridNote struct {
	Why   string
	Cells []string // "row, column"
}

// Notes are the reasons for which figures are missing, each once.
func (g *Grid) Notes() (notes []gridNote) {
	place := map[string]int{}
	for _, r := range g.Lines {
		for i, c := range r.Cells {
			if c.Value != nil {
				continue
			}
			k, known := place[c.Why]
			if !known {
				k = len(notes)
				place[c.Why], notes = k, append(notes, gridNote{Why: c.Why})
			}
			notes[k].Cells = append(notes[k].Cells, r.Name+", "+g.Columns[i])
		}
	}
	return notes
}

// Text is what stands in a cell.
func (c GridCell) Text() string {
	if c.Value == nil {
		return "–"
	}
	return number(*c.Value)
}

// gridView is one scenario's grids.
type gridView struct {
	Scenario string
	Cards    []gridCard
}

type gridCard struct {
	Arch  string
	Grid  *Grid
	Chart template.HTML // of the row that is drawn
	Why   string        // there is none
}

// bars are of the row that is drawn: what each column adds, in per cent, or that it has no figure.
func (g *Grid) bars() (rows []barRow, top float64) {
	if g == nil || g.Drawn == "" {
		return nil, 0
	}
	for _, r := range g.Lines {
		if r.Name != g.Drawn {
			continue
		}
		for k, c := range r.Cells {
			b := bar{Text: "none: see below", Ours: slices.Contains(g.Ours, g.Columns[k])}
			if c.Value != nil {
				b.Value = probed{Ratio: Metric{Value: *c.Value}}.Percent()
				b.Text = percentAdded(b.Value)
			}
			rows, top = append(rows, barRow{g.Columns[k], []bar{b}}), max(top, b.Value)
		}
	}
	return rows, top
}

// draw has the same scale for all ISAs of a scenario.
func (v *gridView) draw() (err error) {
	top := 0.0
	for _, c := range v.Cards {
		_, most := c.Grid.bars()
		top = max(top, most)
	}
	for k := range v.Cards {
		c := &v.Cards[k]
		rows, _ := c.Grid.bars()
		if len(rows) == 0 {
			continue
		}
		c.Chart, err = barChart(drawing{
			Title: c.Arch + ": per cent that instrumentation adds, by kind",
			About: "A bar for each kind, on a logarithmic scale: what it adds to the workload in the mean. The values are in the table.",
			Unit:  "per cent added to what operations take bare, " + c.Grid.Drawn,
			Width: wide,
			Scale: logScale(leastAdded, max(top, 100), func(v float64) string { return number(v) + " %" }),
		}, rows)
		if err != nil {
			return err
		}
	}
	return nil
}

func gridViews(runs []run) (views []gridView, err error) {
	for _, name := range scenarioNames(runs) {
		v, found := gridView{Scenario: name}, false
		for i := range runs {
			c := gridCard{Arch: runs[i].Results.Arch}
			if s := runs[i].scenario(name); s != nil && s.Grid != nil {
				c.Grid, found = s.Grid, true
			} else {
				c.Why = absent(&runs[i].Results, name)
			}
			v.Cards = append(v.Cards, c)
		}
		if !found {
			continue
		}
		if err := v.draw(); err != nil {
			return nil, err
		}
		views = append(views, v)
	}
	return views, nil
}

// summaryGrids are the same in Markdown, one table for each ISA.
func summaryGrids(b *strings.Builder, runs []run, scenario string) {
	for i := range runs {
		s := runs[i].scenario(scenario)
		if s == nil || s.Grid == nil {
			continue
		}
		g := s.Grid
		fmt.Fprintf(b, "\n### %s, %s: %s\n\n| %s |", md(scenario), runs[i].Results.Arch, md(g.Title), md(g.Rows))
		for _, c := range g.Columns {
			fmt.Fprintf(b, " %s |", md(c))
		}
		b.WriteString("\n|---|" + strings.Repeat("---:|", len(g.Columns)) + "\n")
		for _, r := range g.Lines {
			fmt.Fprintf(b, "| %s |", md(r.Name))
			for _, c := range r.Cells {
				fmt.Fprintf(b, " %s |", c.Text())
			}
			b.WriteByte('\n')
		}
		for _, n := range g.Notes() {
			fmt.Fprintf(b, "\n– %s: %s\n", md(strings.Join(n.Cells, "; ")), md(n.Why))
		}
	}
}
