package report

import (
	"fmt"
	"math"
	"strings"
)

// Grid is a table that a scenario makes of its figures: rows and columns are its own words.
type Grid struct {
	Title   string    `json:"title"`
	Rows    string    `json:"rows_are"` // what a row is
	Columns []string  `json:"columns"`
	Lines   []GridRow `json:"lines"`
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
	Arch string
	Grid *Grid
	Why  string // there is none
}

func gridViews(runs []run) (views []gridView) {
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
		if found {
			views = append(views, v)
		}
	}
	return views
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
