package matrix

import (
	"bytes"
	_ "embed"
	"html/template"

	"kerninst/lab/report"
)

//go:embed matrix.html.tmpl
var pageText string

// pageTemplate escapes whatever it is given.
var pageTemplate = template.Must(template.New("matrix").Parse(pageText))

// page is what the template shows.
type page struct {
	Glyph, Words, Class string
	Lead                string
	Arches              []string
	Lines               []pageLine
	Troubles            []pageCell
	Notes               []pageCell // cells that passed, with something to say of them
	Hosts               []pageHost
}

type pageLine struct {
	Kernel, Scenario string
	Boxes            []pageBox
}

// pageBox is the cells of one ISA.
type pageBox struct {
	Seeds   []pageCell
	Figures []string
}

type pageCell struct {
	*CellRecord
	Glyph, Words, Class string
	Note                string
}

type pageHost struct {
	*HostRecord
	Class, Has string
}

// hostClass is how a host's status looks.
var hostClass = map[HostStatus]string{Used: "ok", LostMidway: "warn", Unreachable: "warn", Unfit: "warn"}

// Page renders the document as an HTML page that needs no other file, but links to those of cells.
func (d *Document) Page() ([]byte, error) {
	g := d.grid()
	p := page{Lead: d.lead(), Arches: g.Arches}
	p.Glyph, p.Words, p.Class = report.Look(d.Status)
	for _, line := range g.Lines {
		l := pageLine{Kernel: d.kernel(line.Kernel), Scenario: line.Scenario}
		for _, cells := range line.Cells {
			box := pageBox{Figures: d.figures(cells)}
			for _, k := range cells {
				box.Seeds = append(box.Seeds, d.Cells[k].view())
			}
			l.Boxes = append(l.Boxes, box)
		}
		p.Lines = append(p.Lines, l)
	}
	for i := range d.Cells {
		switch v := d.Cells[i].view(); {
		case !v.passed():
			p.Troubles = append(p.Troubles, v)
		case v.Note != "":
			p.Notes = append(p.Notes, v)
		}
	}
	for i := range d.Hosts {
		h := &d.Hosts[i]
		p.Hosts = append(p.Hosts, pageHost{h, hostClass[h.Status], h.has()})
	}
	var b bytes.Buffer
	err := pageTemplate.Execute(&b, p)
	return b.Bytes(), err
}

func (c *CellRecord) view() pageCell {
	glyph, words, class := report.Look(c.Status)
	return pageCell{c, glyph, words, class, c.note()}
}
