package matrix

import (
	"fmt"
	"strings"

	"kerninst/lab/report"
)

// mostTold bounds how many cells a summary explains: GitHub takes a MiB of it.
const mostTold = 50

// Markdown renders the document for the summary of a job.
func (d *Document) Markdown() []byte {
	var b strings.Builder
	glyph, words, _ := report.Look(d.Status)
	fmt.Fprintf(&b, "## %s Matrix: %s\n\n%s\n\n", glyph, words, report.Markdown(d.lead()))
	d.markdownGrid(&b)
	d.markdownHosts(&b)
	d.markdownCells(&b)
	return []byte(b.String())
}

func (d *Document) markdownGrid(b *strings.Builder) {
	g := d.grid()
	b.WriteString("| kernel | scenario |")
	rule := "|---|---|"
	for _, a := range g.Arches {
		fmt.Fprintf(b, " %s |", a)
		rule += "---|"
	}
	fmt.Fprintf(b, "\n%s\n", rule)
	for _, line := range g.Lines {
		fmt.Fprintf(b, "| %s | %s |", report.Markdown(d.kernel(line.Kernel)), report.Markdown(line.Scenario))
		for _, cells := range line.Cells {
			var parts []string
			for _, o := range d.outcomes(cells) {
				parts = append(parts, fmt.Sprintf("%s %s: seed %s", o.Glyph, o.Words, o.Seeds))
			}
			for _, f := range d.figures(cells) {
				parts = append(parts, report.Markdown(f))
			}
			fmt.Fprintf(b, " %s |", strings.Join(parts, "<br>"))
		}
		b.WriteByte('\n')
	}
}

func (d *Document) markdownHosts(b *strings.Builder) {
	b.WriteString("\n| host | is | cells | has |\n|---|---|---:|---|\n")
	for i := range d.Hosts {
		h := &d.Hosts[i]
		fmt.Fprintf(b, "| %s | %s | %d | %s |\n", report.Markdown(h.Name), h.Status, h.Cells, report.Markdown(h.has()))
	}
}

// markdownCells tells of each cell that there is more to say about than that it passed.
func (d *Document) markdownCells(b *strings.Builder) {
	told := 0
	for i := range d.Cells {
		c := &d.Cells[i]
		if c.note() == "" && c.passed() {
			continue
		}
		if told++; told > mostTold {
			continue
		}
		glyph, words, _ := report.Look(c.Status)
		fmt.Fprintf(b, "\n### %s %s, %s, %s, seed %d: %s\n\n%s\n", glyph, c.Arch, report.Markdown(c.Kernel), report.Markdown(c.Scenario), c.Seed, words, report.Markdown(c.note()))
		if !c.passed() {
			fmt.Fprintf(b, "\n%s", report.Fence(c.Rerun))
		}
	}
	if told > mostTold {
		fmt.Fprintf(b, "\n%d more cells are in the report.\n", told-mostTold)
	}
}
