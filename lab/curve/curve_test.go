package curve

import (
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
)

// texts are what an SVG says, and how many paths it has.
func texts(t *testing.T, svg string) (all []string, paths int) {
	t.Helper()
	in := xml.NewDecoder(strings.NewReader(svg))
	for said := false; ; {
		tok, err := in.Token()
		if errors.Is(err, io.EOF) {
			return all, paths
		} else if err != nil {
			t.Fatal(err)
		}
		switch x := tok.(type) {
		case xml.StartElement:
			if said = x.Name.Local == "text"; x.Name.Local == "path" {
				paths++
			}
		case xml.CharData:
			if said {
				all = append(all, strings.TrimSpace(string(x)))
			}
		}
	}
}

func TestSVG(t *testing.T) {
	draw := func(panels ...Panel) (string, error) {
		var out strings.Builder
		err := SVG(&out, "a title", panels)
		return out.String(), err
	}
	line := Line{Name: "kinst::vfs_read:9", X: []float64{0, 1, 2}, Y: []float64{0, 4, 2}}
	one, err := draw(Panel{Unit: "a second", Lines: []Line{line}})
	if err != nil {
		t.Fatal(err)
	}
	two, err := draw(Panel{Unit: "a second", Lines: []Line{line, {Name: "other", X: line.X, Y: line.Y, Steps: true}}}, Panel{Unit: "inside", Lines: []Line{line}})
	if err != nil {
		t.Fatal(err)
	}
	said, paths := texts(t, two)
	for _, want := range []string{"a title", "a second", "inside", "kinst::vfs_read:9", "other"} {
		if !strings.Contains(strings.Join(said, "\n"), want) {
			t.Errorf("%q is not said", want)
		}
	}
	if _, before := texts(t, one); paths < before+2 {
		t.Errorf("two lines more are drawn with %d paths, before %d", paths, before)
	}
	if _, err := draw(Panel{Lines: make([]Line, Most+1)}); err == nil {
		t.Errorf("more than %d lines in one panel", Most)
	}
}
