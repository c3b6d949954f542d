package scenarios

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"kerninst/lab/report"
)

// TestFileLevel: what a level calls stands there with what splices say and what was seen outside, also where one of these
// has nothing of it; what has less than a hundredth of the time does not.
func TestFileLevel(t *testing.T) {
	l := level{Function: "path_openat", Next: "ext4:ext4_create"}
	for _, c := range []struct {
		function, refused string
		share             float64
	}{{"ext4:ext4_create", "", 0.5}, {"later", "", 0.2}, {"unseen", "", 0.1}, {"refused", "in reserved text", 0}, {"little", "", 0.001}} {
		l.Callees = append(l.Callees, struct {
			Function string
			threads
			Here    uint64
			Share   float64
			Refused string
		}{Function: c.function, Share: c.share, Refused: c.refused})
	}
	x := NewT("amd64", "", nil, func(message string) { t.Error(message) })
	x.Grid = &report.Grid{}
	x.fileLevel("diagnosed", l, map[string]uint64{"ext4_create": 450, "later": 460, "refused": 30, "missed": 20, "little": 1}, 1000)
	var got []string
	for _, row := range x.Grid.Lines {
		text := row.Name + ":"
		for _, c := range row.Cells[3:] {
			if text += " "; c.Value != nil {
				text += fmt.Sprint(*c.Value)
			} else {
				text += c.Why
			}
		}
		got = append(got, text)
	}
	want := []string{
		"ext4:ext4_create: 0.5 1 0.45 2",
		"later: 0.2 2 0.46 1",
		"unseen: 0.1 3 not seen outside not seen outside",
		"refused: in reserved text in reserved text 0.03 3",
		"missed: not seen by splices not seen by splices 0.02 4",
	}
	for k := range want {
		want[k] = "diagnosed (figure 12): path_openat → " + want[k]
	}
	if !slices.Equal(got, want) {
		t.Errorf("%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if a, b := studyFigure(""), studyFigure("ext4:ext4_create"); a != 11 || b != 13 {
		t.Errorf("figures %d and %d", a, b)
	}
}

// TestParts: each part of a check is made whatever the others find; what fails is the first that was wrong.
func TestParts(t *testing.T) {
	var whys []string
	var x *T
	got := failure(func(fail func(string)) {
		x = NewT("amd64", "", map[string]*Answer{"here": {}}, fail)
		part := func(check func(), guests ...string) { whys = append(whys, x.part(check, guests...)) }
		part(func() { x.equal("one", 1, 1) }, "here")
		part(func() { x.equal("two", 1, 2) })
		part(func() { t.Error("a part was checked whose guest is not there") }, "here", "gone")
		part(func() { x.count("four", 4) })
		x.parts()
	})
	if !slices.Equal(whys, []string{"", "two", "guest gone did not end well", ""}) || !strings.HasPrefix(got, "two\n") || x.Metrics["four"].Value != 4 {
		t.Errorf("%q; %q; %v", whys, got, x.Metrics)
	}
	if got := failure(func(fail func(string)) { NewT("amd64", "", nil, fail).parts() }); got != "" {
		t.Errorf("nothing is wrong: %q", got)
	}
}

// TestSameWay: a way down that the profile has not, that ends before what has most of the time, or that is short, is seen.
func TestSameWay(t *testing.T) {
	next := func(names ...string) (found []level) {
		for k, name := range names {
			l := level{Function: name, Why: "nothing that it calls has half of its time"}
			if k+1 < len(names) {
				l.Next, l.Why = names[k+1], ""
			}
			found = append(found, l)
		}
		return found
	}
	asleep := next("", "__x64_sys_read", "find")
	asleep[2].Why = "it sleeps, in schedule"
	for name, c := range map[string]struct {
		found []level
		wrong string
	}{
		"the profile's":        {next("", "__x64_sys_read", "find"), "levels that the detective went down"},
		"another":              {next("", "__x64_sys_write", "copy"), "what system calls spends most time in"},
		"ends at a call":       {next("", "__x64_sys_read"), "the part that find has of the time of __x64_sys_read, where it ends"},
		"sleeps in what is no": {asleep, "in what find sleeps"},
	} {
		got := failure(func(fail func(string)) {
			x := NewT("amd64", "", nil, fail)
			x.Grid = &report.Grid{}
			x.sameWay("virtual", c.found, pretended())
		})
		if !strings.Contains(got, c.wrong) {
			t.Errorf("%s: %q", name, got)
		}
	}
}
