package report

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// sampleGrid has figures, and one that is missing; a guest had a hand in its words.
func sampleGrid() *Grid {
	return &Grid{Title: "instructions that a hit adds", Rows: "question", Columns: []string{"splice", "peer"}, Lines: []GridRow{
		{Name: "count", Cells: []GridCell{{Value: ptr(4.0)}, {Value: ptr(731.0)}}},
		{Name: "middle", Cells: []GridCell{{Value: ptr(3.0)}, {Why: "it is <b>at</b> the begin\x1b[31m"}}},
	}}
}

// A grid is in the page and in the summary: each figure, and why there is none.
func TestGrid(t *testing.T) {
	out := t.TempDir()
	r := results(isaSamples[0])
	r.Scenarios[0].Grid = sampleGrid()
	if err := WriteArch(filepath.Join(out, r.Arch), r, manifest, timings); err != nil {
		t.Fatal(err)
	}
	if err := WriteReport(out); err != nil {
		t.Fatal(err)
	}
	for file, wants := range map[string][]string{
		HTMLFile: {
			"<th>question</th><th class=\"n\">splice</th><th class=\"n\">peer</th>", "<tr><th>count</th><td class=\"n\">4</td><td class=\"n\">731</td></tr>",
			"<td class=\"n\">–</td>", "None of middle, peer: it is &lt;b&gt;at&lt;/b&gt; the begin</p>",
		},
		SummaryFile: {"| question | splice | peer |\n|---|---:|---:|\n| count | 4 | 731 |\n| middle | 3 | – |", "– middle, peer: it is \\<b\\>at"},
	} {
		b, err := os.ReadFile(filepath.Join(out, file))
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range wants {
			if !strings.Contains(string(b), want) {
				t.Errorf("%s lacks %q", file, want)
			}
		}
	}
}

// Cells that lack a figure for one reason are told of together.
func TestGridNotes(t *testing.T) {
	g := sampleGrid()
	g.Lines[0].Cells[1] = g.Lines[1].Cells[1]
	g.Lines[0].Cells[0] = GridCell{Why: "another"}
	notes := g.Notes()
	if len(notes) != 2 || notes[0].Why != "another" || strings.Join(notes[1].Cells, "; ") != "count, peer; middle, peer" {
		t.Errorf("notes %+v", notes)
	}
}

// TestGridBars: the row that is drawn has a bar for each column, also where there is no figure.
func TestGridBars(t *testing.T) {
	g := sampleGrid()
	if rows, _ := g.bars(); rows != nil {
		t.Errorf("nothing is to be drawn: %+v", rows)
	}
	g.Drawn, g.Ours = "middle", []string{"splice"}
	rows, top := g.bars()
	if len(rows) != 2 || rows[0].Label != "splice" || rows[0].Bars[0] != (bar{200, "200 %", true}) || rows[1].Bars[0] != (bar{0, "none: see below", false}) || top != 200 {
		t.Errorf("%+v, up to %v", rows, top)
	}
	v := gridView{Cards: []gridCard{{Arch: "amd64", Grid: g}, {Arch: "arm64", Why: "not run"}}}
	if err := v.draw(); err != nil || !strings.Contains(string(v.Cards[0].Chart), "200 %") || v.Cards[1].Chart != "" {
		t.Errorf("%v: %s, %s", err, v.Cards[0].Chart, v.Cards[1].Chart)
	}
}
