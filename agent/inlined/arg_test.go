package inlined

import (
	"os"
	"strings"
	"testing"

	"kerninst/agent/inline"
	"kerninst/agent/ktext/ktexttest"
)

// someCopy is one of file_start_write.
func someCopy(t *testing.T) (*inline.Index, inline.Found) {
	t.Helper()
	b, err := os.ReadFile("../../scenarios/copies/amd64.copies")
	if err != nil {
		t.Fatal(err)
	}
	x, err := inline.Open(b)
	if err != nil {
		t.Fatal(err)
	}
	found, err := x.Find("file_start_write")
	if err != nil || len(found) == 0 || found[0].Copy < 0 {
		t.Fatal(found, err)
	}
	return x, found[0]
}

// TestFill: however Go lets an argument's name be written, it is that of the copy, and never of the function
// that the copy is in.
func TestFill(t *testing.T) {
	x, f := someCopy(t)
	c := Copies{x: x, text: ktexttest.Load(t, "amd64").Text(t), parts: []part{{inline.Range{Hi: x.Text}, 0}}}
	at := f.Body.Copy(f.Copy).Entry
	reg, err := c.fill(`arg("file")`, f, at)
	if err != nil || !strings.HasPrefix(reg, "reg(") {
		t.Fatal(reg, err)
	}
	for does, want := range map[string]string{
		`sum(arg("file"))`:                      "sum(" + reg + ")",
		"sum(arg(`file`))":                      "sum(" + reg + ")",
		`/arg( "file" ) > 3/ max(arg ("file"))`: "/" + reg + " > 3/ max(" + reg + ")",
		`max(arg("\x66ile"))`:                   "max(" + reg + ")",
		`max(file(arg("file")).f_flags)`:        "max(file(" + reg + ").f_flags)",
		"count by kargs":                        "count by kargs",
		"max(arg0)":                             "max(arg0)",
	} {
		if got, err := c.fill(does, f, at); err != nil || got != want {
			t.Errorf("%s: %s, %v, want %s", does, got, err, want)
		}
	}
	for does, want := range map[string]string{
		`sum(arg("fill"))`:                   "file_start_write has file",
		`sum(arg(file))`:                     "an argument's name is a text",
		`sum(arg(/* which */ "file"))`:       "an argument's name is a text",
		`sum(arg("\q"))`:                     "invalid syntax",
		`sum(arg("file")) by arg("nothing")`: "file_start_write has file",
	} {
		if got, err := c.fill(does, f, at); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %s, %v, want %s", does, got, err, want)
		}
	}
	f.Copy = -1
	if got, err := c.fill(`sum(arg("file"))`, f, at); err != nil || got != `sum(arg("file"))` {
		t.Errorf("of a function by itself: %s, %v", got, err)
	}
}
